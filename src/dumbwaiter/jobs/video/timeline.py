"""Which moment of the recording each frame of a video shows. Pure.

Frames stand at equal distances in the video. In the recording they do too, but where a long stillness is shortened: there each frame
steps further. So the way from frames to moments is a line with corners; a `Piece` is what lies between two of them.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

# A time that is a whole number of frames but for rounding gets no frame more.
ROUNDING = 1e-6


class Piece(NamedTuple):
    """Frames from `frame` on: the first shows the recording's moment `at_ms`, each further one `interval_ms` more."""

    frame: int
    at_ms: float
    interval_ms: float

    def moment(self, frame: int) -> float:
        """What `frame` shows, in milliseconds since the recording began."""
        return self.at_ms + (frame - self.frame) * self.interval_ms

    def frames_to(self, moment: float) -> int:
        """How many frames after the first of this piece it takes to show what has happened by `moment`."""
        if not self.interval_ms:
            return 0  # what it shows stays
        return max(math.ceil((moment - self.at_ms) / self.interval_ms - ROUNDING), 0)


@dataclass(frozen=True)
class Timeline:
    """The moments of all frames. After the last that was asked for they go on at the last piece's pace."""

    pieces: tuple[Piece, ...]

    def moment(self, frame: int) -> float:
        """The moment that a frame shows, in milliseconds since the recording began."""
        return self.pieces[bisect.bisect_right(self.pieces, frame, key=lambda piece: piece.frame) - 1].moment(
            frame
        )

    def frame(self, moment: float) -> int:
        """The first frame that shows what has happened by `moment`."""
        at = max(bisect.bisect_left(self.pieces, moment, key=lambda piece: piece.at_ms) - 1, 0)
        return self.pieces[at].frame + self.pieces[at].frames_to(moment)

    def corners(self, frames: int, fps: int) -> tuple[tuple[float, float], ...]:
        """Seconds of the video, and of the recording, at each corner and at the end: between them one is linear in the other."""
        at = [*(piece.frame for piece in self.pieces if piece.frame < frames), frames]
        return tuple((round(frame / fps, 6), round(self.moment(frame) / 1000, 6)) for frame in at)


def lay(
    start_ms: float,
    end_ms: float,
    interval_ms: float,
    moments: Iterable[float] = (),
    max_gap_ms: float | None = None,
) -> tuple[Timeline, int]:
    """The timeline of the part from `start_ms` to `end_ms`, and how many frames it has.

    One frame more than fits, or the last event falls off. `moments` are when something happens; a stillness between two of them that is
    longer than `max_gap_ms` is shown in as many frames as that would take.
    """
    pieces = [Piece(0, start_ms, interval_ms)]
    if max_gap_ms is not None:
        shortened = math.ceil(max_gap_ms / interval_ms - ROUNDING)
        for still, until in gaps(moments, start_ms, end_ms, max_gap_ms):
            last = pieces[-1]
            frame = last.frame + last.frames_to(still)
            left = until - last.moment(frame)
            if left > shortened * interval_ms:
                if frame == last.frame:
                    pieces.pop()  # one stillness follows another
                pieces.append(Piece(frame, last.moment(frame), left / shortened))
                pieces.append(Piece(frame + shortened, until, interval_ms))
    return Timeline(tuple(pieces)), pieces[-1].frame + pieces[-1].frames_to(end_ms) + 1


def held(timeline: Timeline, frames: int, more: int) -> tuple[Timeline, int]:
    """The same with so many frames more, in which the last one stays: nothing of what comes after the part is shown."""
    if not more:
        return timeline, frames
    last = frames - 1
    # the first piece stays as it is: its pace leads up to it
    stays = Piece(max(last, 1), timeline.moment(last), 0.0)
    before = tuple(piece for piece in timeline.pieces if piece.frame < stays.frame)
    return Timeline((*before, stays)), frames + more


def gaps(
    moments: Iterable[float], start_ms: float, end_ms: float, longer_than: float
) -> Sequence[tuple[float, float]]:
    """The times without any moment that are longer than so many milliseconds, as (from, to)."""
    inside = sorted(moment for moment in moments if start_ms < moment < end_ms)
    return [(a, b) for a, b in pairwise([start_ms, *inside, end_ms]) if b - a > longer_than]
