"""Progress of an export tells of time: pictures weigh more than held frames, and as much as they turn out to."""

from __future__ import annotations

import random
import statistics

import pytest

from dumbwaiter.jobs.video.effort import START, Effort, busy
from dumbwaiter.jobs.video.plan import Plan

GRID = Plan(fps=25, frames=3_000, width=1280, height=720, scale=1.0)


def exported(
    frames: bytearray, *, picture: float, held: float, constant_rate: bool = False
) -> list[tuple[float, float]]:
    """What an export tells whose frames take so long: (share of the time, fraction)."""
    effort, now, told = Effort(frames, constant_rate=constant_rate), START, []
    lag = 20 if constant_rate else 0
    for frame, needs_picture in enumerate(frames, 1):
        now += picture if needs_picture else held
        told.append((now, effort.done(frame, max(frame - lag, 0), now)))
    end = now + lag * held
    told.append((end, effort.done(len(frames), len(frames), end)))
    return [(moment / end, fraction) for moment, fraction in told]


def sessions() -> dict[str, bytearray]:
    """Where in two minutes something happens."""
    rng = random.Random(7)
    scattered = bytearray(rng.random() < 0.2 for _ in range(3_000))
    return {
        "all the time": bytearray(b"\1" * 3_000),
        "never": bytearray(3_000),
        "at first": bytearray(b"\1" * 600 + bytes(2_400)),
        "at last": bytearray(bytes(2_400) + b"\1" * 600),
        "now and then": bytearray((bytes(80) + b"\1" * 20) * 30),
        "anywhere": scattered,
    }


@pytest.mark.parametrize("session", list(sessions()))
@pytest.mark.parametrize(
    ("picture", "held", "constant_rate"),
    [
        (0.035, 0.0002, False),
        (0.1, 0.0006, False),
        (0.02, 0.0001, False),
        (0.02, 0.001, False),
        (0.035, 0.004, True),
        (0.1, 0.012, True),
        (0.02, 0.001, True),
        (0.03, 0.03, True),
    ],
)
def test_progress_is_the_share_of_the_time(session, picture, held, constant_rate):
    told = exported(sessions()[session], picture=picture, held=held, constant_rate=constant_rate)
    apart = [abs(fraction - share) for share, fraction in told if share > 0.1]

    # of a page that moves all the time nobody knows until it is seen
    assert statistics.median(apart) < (0.25 if held == picture else 0.15)
    assert told[-1][1] == pytest.approx(1.0)
    assert [fraction for _, fraction in told] == sorted(fraction for _, fraction in told)


def test_by_frames_it_would_not_be():
    """So that the test above can fail."""
    frames = sessions()["at last"]
    told = exported(frames, picture=0.035, held=0.004)
    by_frames = [abs(number / len(frames) - share) for number, (share, _) in enumerate(told, 1)]

    assert statistics.median(by_frames) > 0.2


def test_a_frame_is_busy_if_something_has_happened_by_then_and_for_two_more():
    frames = busy([0.0, 1000.0, 1001.0, 5000.0], GRID)
    busy_frames = [number for number, one in enumerate(frames) if one]

    assert busy_frames == [0, 1, 2, 25, 26, 27, 28, 125, 126, 127]


def test_moments_outside_of_the_video_count_for_nothing():
    assert sum(busy([-50.0, 1e9], GRID)) == 3
    assert sum(busy([], GRID)) == 1
