"""What the frames of one export cost, so that progress tells of time and not of frames: a picture takes a hundred held frames. Pure.

Which frames will need a picture is told by the recording: an event changes the page, and what follows a mouse moves for two frames
more. What a picture and a held frame take is begun with what they took where this was written, and learned as the export goes on: the
machine may be slower, or the page move all the time without any event.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate

from dumbwaiter.jobs.video.plan import Plan

# The player moves the pointer for 50 ms after each position.
TRAILING_FRAMES = 2
# Seconds, on two cores at 1280 × 720; and with how many frames of each kind that counts as much. A held frame is encoded too where
# each is in the file.
PICTURE, HELD, HELD_AND_ENCODED = 0.035, 0.0002, 0.004
PRIOR = 25
# Browser, page and player are there before the first frame: so many seconds.
START = 1.2
# Frames that are drawn but not written are done in part: of the whole way to the end of the file, this much.
DRAWING = 0.15


def busy(moments: Iterable[float], grid: Plan) -> bytearray:
    """For each frame whether it is likely to need a picture. `moments` are milliseconds since the recording began."""
    frames = bytearray(grid.frames)
    for moment in moments:
        # frame k shows what has happened by k intervals
        first = max(-int(-moment // grid.interval_ms), 0)
        for frame in range(first, min(first + 1 + TRAILING_FRAMES, grid.frames)):
            frames[frame] = 1
    frames[:1] = b"\1"
    return frames


class Effort:
    """How much of an export's time has gone, by the frames that are drawn and those that are written."""

    def __init__(self, pictures: bytearray, *, constant_rate: bool = False) -> None:
        self._usual = PICTURE, HELD_AND_ENCODED if constant_rate else HELD
        self._pictures = array("L", [0, *accumulate(pictures)])
        self._frames = len(pictures)
        self._picture, self._held = self._usual
        self._spent, self._seen = [0.0, 0.0], [0, 0]
        self._at: tuple[float, int] | None = None
        self._done = 0.0
        self._before = (0, 0)

    def done(self, drawn: int, written: int, seconds: float) -> float:
        """The fraction of the time that has gone, once so many frames are drawn and written, after so many seconds.

        It never goes back. If what was learned says that less has gone than was told, it goes on at half the speed until that
        is true.
        """
        drawn = min(drawn, self._frames)
        before, self._before = self._before, (drawn, min(written, drawn))
        self._learn(self._before[1], seconds)
        was, left = self._left(before), self._left(self._before)
        gone = 1 - left / (START + self._cost(self._frames))
        if gone < self._done:
            gone = self._done + (1 - self._done) * (was - left) / max(was, 1e-9) / 2
        self._done = min(max(gone, self._done), 1.0)
        return self._done

    def _left(self, frames: tuple[int, int]) -> float:
        """The seconds that are left once so many frames are drawn and written."""
        drawn, written = frames
        return self._cost(self._frames) - self._cost(written) * (1 - DRAWING) - self._cost(drawn) * DRAWING

    def _cost(self, frames: int) -> float:
        pictures = self._pictures[frames]
        return pictures * self._picture + (frames - pictures) * self._held

    def _learn(self, written: int, seconds: float) -> None:
        """What the frames took that were written since the last time, shared out as the two kinds were thought to take."""
        if self._at is None:
            if written:
                self._at = (seconds, written)
            return
        then, before = self._at
        passed = seconds - then
        if written <= before or passed <= 0:
            return
        self._at = (seconds, written)
        pictures = self._pictures[written] - self._pictures[before]
        held = written - before - pictures
        thought = pictures * self._picture + held * self._held
        for kind, (number, each) in enumerate(((pictures, self._picture), (held, self._held))):
            self._seen[kind] += number
            self._spent[kind] += passed * number * each / thought
        # one kind alone tells of the other too: half of it (in logarithms) is the machine's speed
        usual = self._seen[0] * self._usual[0] + self._seen[1] * self._usual[1]
        speed = (sum(self._spent) / usual) ** 0.5
        self._picture, self._held = (
            (spent + each * speed * PRIOR) / (seen + PRIOR)
            for spent, seen, each in zip(self._spent, self._seen, self._usual, strict=True)
        )
