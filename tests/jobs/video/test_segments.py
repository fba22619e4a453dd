"""Where a video is cut into segments, and who makes which."""

from __future__ import annotations

import random

import pytest

from dumbwaiter.jobs.video.segments import PICTURES, cut, share_out, weight

RNG = random.Random(11)
SESSIONS = {
    "one frame": bytearray(b"\1"),
    "a short one": bytearray(b"\1" * 50),
    "ten idle minutes": bytearray(b"\1" + bytes(14_999)),
    "busy all the time": bytearray(b"\1" * 3_000),
    "busy at the end": bytearray(bytes(9_000) + b"\1" * 900),
    "now and then": bytearray(RNG.random() < 0.3 for _ in range(5_000)),
}


@pytest.mark.parametrize("session", list(SESSIONS))
def test_segments_cover_every_frame_once_and_weigh_about_the_same(session: str) -> None:
    likely = SESSIONS[session]
    segments = cut(likely)

    assert [segment.number for segment in segments] == list(range(len(segments)))
    assert [segment.first for segment in segments] == [0, *(segment.end for segment in segments[:-1])]
    assert segments[-1].end == len(likely)
    weights = [weight(likely, segment.first, segment.end) for segment in segments]
    assert max(weights) - min(weights) <= 2
    assert max(weights) <= PICTURES * 1.5


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("session", list(SESSIONS))
def test_every_segment_has_one_worker_and_none_has_much_more_than_the_others(
    session: str, workers: int
) -> None:
    likely = SESSIONS[session]
    segments = cut(likely)
    shares = share_out(segments, likely, workers)

    assert [segment for share in shares for segment in share.segments] == segments
    assert 1 <= len(shares) <= workers
    whole = weight(likely, 0, len(likely))
    assert max(share.weight for share in shares) <= whole / workers + PICTURES * 1.5


def test_what_is_left_over_after_a_crash_is_shared_anew() -> None:
    likely = SESSIONS["busy all the time"]
    missing = [segment for segment in cut(likely) if segment.number not in {0, 1, 5}]

    shares = share_out(missing, likely, 2)
    assert [segment for share in shares for segment in share.segments] == missing
    assert abs(shares[0].weight - shares[1].weight) <= PICTURES * 1.5


def test_nothing_left_over_is_nobodys_work() -> None:
    assert share_out([], SESSIONS["a short one"], 2) == []
