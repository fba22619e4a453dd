"""What the rescuer makes of a clock that jumps, without waiting for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dumbwaiter.store.rows import Around
from dumbwaiter.worker.rescuer import Rescuer

LEASE, SWEEP = timedelta(seconds=20), timedelta(seconds=5)
START = datetime(2026, 1, 1, tzinfo=UTC)


class Table:
    """A task table whose clock is set by hand, and which may be away."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)
        self.seconds = 1_000.0
        self.away = False
        self.minded: list[tuple[str, timedelta]] = []
        self.rescues = 0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds) + self.ahead

    def around(self, lease: timedelta) -> Around:
        return Around(self.now(), late=True, silent=True)

    def expire(self) -> None: ...

    def mind_jump(self, worker: str, by: timedelta) -> None:
        if self.away:
            raise ConnectionError
        self.minded.append((worker, by))

    def rescue(self, lease: timedelta, *, now: datetime, limit: int) -> list[Any]:
        self.rescues += 1
        return []


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def rescuer(table: Table) -> Rescuer:
    rescuer = Rescuer(table, "w1", LEASE, SWEEP, took=lambda *_: None, monotonic=table.monotonic)  # type: ignore[arg-type]
    rescuer.round()
    assert table.minded == [("w1", timedelta(0))]
    assert table.rescues == 1
    return rescuer


@pytest.mark.parametrize("jump", [timedelta(hours=9), timedelta(hours=-9)])
def test_a_jump_of_the_clock_is_minded_once_and_nothing_is_taken_back_for_a_lease(
    table: Table, rescuer: Rescuer, jump: timedelta
) -> None:
    table.ahead = jump
    for _ in range(4):
        table.seconds += 4
        rescuer.round()
    assert table.minded[1:] == [("w1", jump)]
    assert table.rescues == 1

    table.seconds += 21
    rescuer.round()
    assert table.rescues == 2
    assert len(table.minded) == 2


@pytest.mark.parametrize("jump", [timedelta(hours=9), timedelta(hours=-9)])
def test_a_jump_between_the_start_of_the_worker_and_the_first_round_is_one_too(
    table: Table, jump: timedelta
) -> None:
    rescuer = Rescuer(table, "w1", LEASE, SWEEP, took=lambda *_: None, monotonic=table.monotonic)  # type: ignore[arg-type]
    rescuer.begin(table.now())
    table.seconds += 1
    table.ahead = jump
    rescuer.round()
    rescuer.round()

    assert table.minded == [("w1", jump)]
    assert table.rescues == 0


def test_a_jump_that_could_not_be_minded_is_minded_by_the_next_round(table: Table, rescuer: Rescuer) -> None:
    table.ahead, table.away = timedelta(hours=9), True
    with pytest.raises(ConnectionError):
        rescuer.round()
    table.seconds += 1
    table.away = False
    rescuer.round()

    assert table.minded[1:] == [("w1", timedelta(hours=9))]
    assert table.rescues == 1


def test_a_clock_that_is_put_right_little_by_little_is_no_jump(table: Table, rescuer: Rescuer) -> None:
    for _ in range(10):
        table.seconds += 5
        table.ahead += timedelta(milliseconds=200)
        rescuer.round()

    assert table.rescues == 11
    assert len(table.minded) == 1
