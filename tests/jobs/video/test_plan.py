"""The frame grid and the picture: pure arithmetic."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dumbwaiter.jobs.video.errors import ImpossibleOption, TooLong
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import picture, plan
from dumbwaiter.jobs.video.recording import load
from tests.jobs.video.support import page


@pytest.mark.parametrize(
    ("seconds", "frames"), [(1.0, 26), (1.001, 27), (0.04, 2), (0.0, 1), (6.719, 169), (36.32, 909)]
)
def test_the_last_event_has_a_frame(seconds: float, frames: int) -> None:
    assert plan(load(page(seconds=seconds)), Options()).frames == frames


@pytest.mark.parametrize(("speed", "frames"), [(1.0, 251), (2.0, 126), (0.5, 501), (4.0, 64)])
def test_at_another_speed_the_last_event_has_its_frame_too(speed: float, frames: int) -> None:
    made = plan(load(page(seconds=10)), Options(speed=speed))

    assert made.frames == frames
    assert made.interval_ms == 40 * speed
    assert (made.frames - 1) * made.interval_ms >= 10_000


def test_what_counts_as_too_long_is_the_video() -> None:
    with pytest.raises(TooLong, match=r"0:00:20 at this speed"):
        plan(load(page(seconds=10)), Options(speed=0.5, max_duration=timedelta(seconds=15)))


@pytest.mark.parametrize(
    ("viewport", "size"),
    [
        ((1280, 720), (1280, 720)),
        ((1023, 577), (1022, 576)),
        ((2560, 1440), (1920, 1080)),
        ((100_000, 100_000), (1920, 1920)),
        ((390, 844), (390, 844)),
        ((1, 1), (16, 16)),
        ((100_000, 10), (1920, 16)),
    ],
)
def test_the_picture_is_even_and_bounded(viewport: tuple[int, int], size: tuple[int, int]) -> None:
    assert picture(viewport, Options())[:2] == size


def test_an_option_out_of_range_is_named() -> None:
    with pytest.raises(ImpossibleOption, match="fps=0: give a number from 1 to 60"):
        Options(fps=0)
    with pytest.raises(ImpossibleOption, match="hold"):
        Options(hold=timedelta(hours=1))
