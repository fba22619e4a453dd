"""A disk nearly full: when that is said, to whom, and when there is room again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import ConfigurationError
from dumbwaiter.settings import Reserve
from dumbwaiter.worker.disk import FRESH, Disk, existing

MIB = 1024**2


def nothing() -> None:
    """A task."""


@pytest.mark.parametrize(
    ("text", "reserved"),
    [
        ("5%", 50 * MIB),
        ("0", 0),
        ("2MiB", 2 * MIB),
        ("3 mb", 3_000_000),
        ("700", 700),
        ("1.5kib", 1536),
        ("0%", 0),
    ],
)
def test_a_reserve_is_bytes_or_a_part_of_the_disk(text: str, reserved: int) -> None:
    assert Reserve.of(text).bytes_of(1000 * MIB) == reserved


@pytest.mark.parametrize("text", ["", "much", "-1", "100%", "5 apples"])
def test_what_is_no_reserve_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="disk_reserve"):
        Dumbwaiter(disk_reserve=text)


@pytest.fixture
def world() -> Any:
    world = SimpleNamespace(seconds=0.0, free=100 * MIB, told=[], looks=0)

    def usage(place: Path) -> Any:
        world.looks += 1
        return SimpleNamespace(total=1000 * MIB, free=world.free)

    world.disk = Disk(
        [Path("/tmp")],
        Reserve.of("50MiB"),
        told=world.told.append,
        usage=usage,
        monotonic=lambda: world.seconds,
    )
    return world


def test_a_disk_is_short_below_its_reserve_and_has_room_again_a_tenth_above(world: Any) -> None:
    seen = []
    for free in (100, 51, 49, 52, 56, 51):
        world.free = free * MIB
        world.seconds += FRESH
        seen.append(world.disk.short)

    assert seen == [False, False, True, True, False, False]
    assert [sentence is None for sentence in world.told] == [False, True]
    assert world.told[0] == "49 MiB are free at /tmp, less than the 50 MiB of disk_reserve"


def test_a_disk_is_not_looked_at_at_every_claim(world: Any) -> None:
    for _ in range(100):
        assert not world.disk.short
        world.seconds += FRESH / 50

    assert world.looks == 2


def test_a_place_that_is_not_there_yet_lies_on_the_disk_above_it(tmp_path: Path) -> None:
    assert existing(tmp_path / "a" / "b") == tmp_path


def test_what_runs_in_a_process_of_its_own_needs_disk_unless_it_says_otherwise() -> None:
    waiter = Dumbwaiter()
    plain = waiter.task("plain")(nothing).entry
    saying = waiter.task("saying", disk=True)(nothing).entry
    command = waiter.command("command", ["true"]).entry
    light = waiter.command("light", ["true"], disk=False).entry

    assert [entry.needs_disk for entry in (plain, saying, command, light)] == [False, True, True, False]
    with pytest.raises(ConfigurationError, match="disk='yes': True or False"):
        waiter.task("t", disk="yes")(nothing)
