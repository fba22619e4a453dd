"""Which moment each frame shows: at one pace, and faster where nothing happens."""

from __future__ import annotations

import math
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbwaiter.jobs.video.errors import ImpossibleOption
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import plan
from dumbwaiter.jobs.video.recording import load
from dumbwaiter.jobs.video.timeline import Piece, lay
from tests.jobs.video.support import page


def test_a_part_begins_and_ends_where_it_was_asked_to() -> None:
    made = plan(load(page(seconds=10)), Options(start=timedelta(seconds=2), end=timedelta(seconds=5)))

    assert made.frames == 76
    assert (made.times.moment(0), made.times.moment(75)) == (2_000, 5_000)


def test_an_end_behind_the_recordings_is_its_end() -> None:
    assert plan(load(page(seconds=10)), Options(end=timedelta(minutes=1))).frames == 251


def test_a_start_behind_the_end_is_refused_with_where_that_is() -> None:
    with pytest.raises(ImpossibleOption, match=r"the recording lasts 10\.0 s"):
        plan(load(page(seconds=10)), Options(start=timedelta(seconds=11)))
    with pytest.raises(ImpossibleOption, match="is not before"):
        Options(start=timedelta(seconds=3), end=timedelta(seconds=3))


def test_a_long_stillness_is_shortened_and_the_map_says_so() -> None:
    timeline, frames = lay(0, 100_000, 40, [1_000, 91_000, 95_000], max_gap_ms=2_000)

    # three times nothing happens for more than two seconds
    assert timeline.corners(frames, 25) == (
        (0.0, 0.0),
        (1.0, 1.0),
        (3.0, 91.0),
        (5.0, 95.0),
        (7.0, 100.0),
        (7.04, 100.04),
    )


def test_what_is_no_longer_than_allowed_stays_as_it_is() -> None:
    timeline, frames = lay(0, 10_000, 40, [2_000, 4_000, 6_000, 8_000], max_gap_ms=2_000)

    assert timeline.pieces == (Piece(0, 0, 40),)
    assert frames == 251


moments = st.lists(st.floats(0, 600_000), max_size=30)


@given(
    moments=moments,
    interval=st.sampled_from([1000 / 60, 1000 / 24, 40.0, 100.0]),
    gap=st.sampled_from([100.0, 1_500.0, 7_000.0]),
    start=st.sampled_from([0.0, 33.0, 4_000.0]),
    length=st.floats(0, 600_000),
)
def test_frames_go_forward_and_show_everything_that_happens(moments, interval, gap, start, length):
    end = start + length
    timeline, frames = lay(start, end, interval, moments, gap)
    shown = [timeline.moment(frame) for frame in range(frames)]

    assert shown[0] == start
    assert shown[-1] >= end - 0.001
    assert frames == 1 or shown[-2] < end
    assert all(a < b for a, b in pairwise(shown))
    # nothing that happens is late: but in a stillness a frame is no further than usual from the one before
    for moment in (one for one in moments if start <= one <= end):
        frame = timeline.frame(moment)
        assert shown[frame] >= moment - 0.001
        assert frame == 0 or shown[frame - 1] < moment
    still = [b - a for a, b in pairwise(shown) if b - a > interval * 1.01]
    assert len(still) <= (len(timeline.pieces) - 1) * math.ceil(gap / interval)
