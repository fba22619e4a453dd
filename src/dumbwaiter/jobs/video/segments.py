"""Parts of a video that are made, kept and joined by themselves: where they are cut, and who makes which. Pure.

They are cut on the frame grid, by what the recording says of its work and not by what is found on the way: every attempt, and every
number of workers, makes the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# After about so many pictures a new segment begins: it is the most that is done again after a crash.
PICTURES = 150
# Of a frame that no event touches. It takes a hundredth of a picture, but an endless animation may draw it all the same; and each
# segment costs a quarter of a second.
HELD = 0.03


class Segment(NamedTuple):
    """The frames from `first` to the one before `end`."""

    number: int
    first: int
    end: int

    @property
    def frames(self) -> int:
        """How many they are."""
        return self.end - self.first


def weight(likely: Sequence[int], first: int, end: int) -> float:
    """How much work these frames are, in pictures. `likely` says for each whether it needs one."""
    busy = sum(likely[first:end])
    return busy + (end - first - busy) * HELD


def cut(likely: Sequence[int], pictures: int = PICTURES) -> list[Segment]:
    """Segments of equal weight, of about so many pictures each."""
    total = weight(likely, 0, len(likely))
    number = max(round(total / pictures), 1)
    segments: list[Segment] = []
    first, done = 0, 0.0
    for frame, busy in enumerate(likely, 1):
        done += 1 if busy else HELD
        if frame == len(likely) or done >= total * (len(segments) + 1) / number > 0:
            segments.append(Segment(len(segments), first, frame))
            first = frame
    return segments


@dataclass(frozen=True)
class Share:
    """What one worker makes: segments in order, and how much work they are."""

    segments: tuple[Segment, ...]
    weight: float


def share_out(segments: Iterable[Segment], likely: Sequence[int], workers: int) -> list[Share]:
    """Share segments among workers: each gets neighbours, and about as much work as the others.

    Going to a share's beginning costs its worker the replay of everything before, without pictures.
    """
    weighed = [(segment, weight(likely, segment.first, segment.end)) for segment in segments]
    total = sum(each for _, each in weighed)
    shares: list[list[tuple[Segment, float]]] = [[] for _ in range(workers)]
    done = 0.0
    for segment, each in weighed:
        # where its middle lies
        at = int((done + each / 2) / total * workers)
        shares[min(at, workers - 1)].append((segment, each))
        done += each
    return [
        Share(tuple(segment for segment, _ in share), sum(each for _, each in share))
        for share in shares
        if share
    ]
