"""Recordings that are long, or on which much happens: a right video within bounds, or a refusal that names the limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dumbwaiter.jobs.video.errors import ExportCancelled
from dumbwaiter.jobs.video.export import Video, export
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.recording import load
from tests.jobs.video.sessions import change, session
from tests.jobs.video.support import Tag, decode, element, page, text

LARGEST_MB = 1900
HOUR = 3600.0


def words(number: int, identity: int) -> dict[str, Any]:
    return element("p", text(f"line {number}", identity + 1), id=identity)


def sometimes(hours: float, every_seconds: float = 60.0) -> bytes:
    """A page on which a line changes now and then, for hours."""
    times = range(1, int(hours * HOUR / every_seconds))
    events = [
        change(time * every_seconds * 1000, texts=[{"id": 10, "value": f"after {time}"}]) for time in times
    ]
    return session(page(words(0, 9), seconds=hours * HOUR), *events, size=(640, 360))


def at_once(nodes: int) -> bytes:
    """A page to which one change adds so many elements."""
    adds = [
        {
            "parentId": 5,
            "nextId": None,
            "node": {**element("i", id=100 + n, style="background:#060"), "childNodes": []},
        }
        for n in range(nodes)
    ]
    style = element("style", text("body { margin: 0 } i { float: left; width: 2px; height: 2px }", 8), id=7)
    return session(page(words(0, 9), head=(style,), seconds=2.0), change(1000, adds=adds), size=(640, 360))


def busily(seconds: float, a_second: int = 300) -> bytes:
    """A page that changes so often."""
    lines = [words(number, 10 + 2 * number) for number in range(20)]
    events = [
        change(
            n * 1000 / a_second,
            texts=[{"id": 11 + 2 * (n % 20), "value": f"change {n}"}],
            attributes=[{"id": 10 + 2 * (n % 20), "attributes": {"style": f"margin-left:{n % 50}px"}}],
        )
        for n in range(1, int(seconds * a_second))
    ]
    return session(page(*lines, seconds=seconds), *events, size=(640, 360))


Told = list[tuple[float, float]]


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def watched(tmp_path: Path, tag: Tag, told: Told) -> Callable[..., Video]:
    """Export a recording; memory is bounded, and it is never silent for ten seconds."""

    def watched(raw: bytes, **options: Any) -> Video:
        recording = load(raw)
        began = time.monotonic()
        with tag.watching() as peak:
            video = export(
                recording,
                tmp_path / "out.mp4",
                options=Options(**options),
                progress=lambda fraction, _: told.append((time.monotonic() - began, fraction)),
                workdir=tmp_path / "work",
            )
        moments = [0.0, *(moment for moment, _ in told)]
        assert max(later - earlier for earlier, later in pairwise(moments)) < 10
        assert 0 < peak.mb < LARGEST_MB
        return video

    return watched


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_hours_on_which_little_happens_become_two_hours(watched: Callable[..., Video]) -> None:
    video = watched(sometimes(2.0))

    assert video.duration_seconds == pytest.approx(2 * HOUR, abs=0.05)
    assert video.pictures == 120
    assert decode(video.path, video.frames - 1)[0].shape == (360, 640)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_export_of_two_hours_is_cancelled_within_a_second(tmp_path: Path, tag: Tag) -> None:
    asked: list[float] = []
    fractions: list[float] = []

    def enough() -> bool:
        if fractions and fractions[-1] > 0.5:
            asked.append(time.monotonic())
        return bool(asked)

    with pytest.raises(ExportCancelled):
        export(
            load(sometimes(2.0)),
            tmp_path / "out.mp4",
            progress=lambda fraction, _: fractions.append(fraction),
            cancelled=enough,
            workdir=tmp_path / "work",
        )

    assert time.monotonic() - asked[0] < 1.5
    assert tag.gone()
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_stillness_of_hours_can_be_shortened_and_the_map_says_where(watched: Callable[..., Video]) -> None:
    video = watched(sometimes(2.0), max_gap=timedelta(seconds=2))

    assert video.duration_seconds == pytest.approx(120 * 2, abs=10)
    assert video.time_map[-1][1] == pytest.approx(2 * HOUR, abs=0.1)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_fifty_thousand_elements_that_come_at_once_are_there(watched: Callable[..., Video]) -> None:
    video = watched(at_once(50_000))

    before, after = decode(video.path, 20, video.frames - 1)
    assert before[100:300].mean() > 250  # nothing but the line at the top
    assert after[100:300].mean() < 100  # and then a green field


@pytest.mark.long
@pytest.mark.timeout(600)
def test_three_hundred_changes_a_second_are_all_there(watched: Callable[..., Video]) -> None:
    video = watched(busily(60.0))

    assert video.frames == pytest.approx(1500, abs=1)
    assert video.pictures > 1490
