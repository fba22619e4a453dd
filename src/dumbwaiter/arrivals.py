"""What this process is receiving: how many bytes of each upload are on their way, so that parts which come at once keep to one limit."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from dumbwaiter.errors import UploadTooLarge


class Coming:
    """A part while it comes, and what is known of those that have come beside it."""

    def __init__(self, arrivals: Arrivals, upload_id: str, number: int) -> None:
        self._arrivals = arrivals
        self.upload_id = upload_id
        self.number = number
        self.size = 0
        self.finished: dict[int, int] = {}

    def know(self, sizes: Mapping[int, int]) -> None:
        """These parts are stored, by their numbers. What was stored here meanwhile is known better."""
        self.finished = {**sizes, **self.finished}

    def counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces, until a byte too many comes of the upload as a whole. Raises UploadTooLarge."""
        for piece in pieces:
            self._arrivals.count(self, len(piece))
            yield piece

    def stored(self, size: int) -> None:
        """It has come: for the others it is no more on its way, and there."""
        self._arrivals.stored(self, size)


class Arrivals:
    """Counts what comes of uploads that have `limit` bytes each at most."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._coming: dict[str, list[Coming]] = {}

    @contextmanager
    def part(self, upload_id: str, number: int) -> Iterator[Coming]:
        """A part that comes now; what came of it is forgotten at the end, for it is stored by then, or removed."""
        coming = Coming(self, upload_id, number)
        with self._lock:
            self._coming.setdefault(upload_id, []).append(coming)
        try:
            yield coming
        finally:
            with self._lock:
                self._leave(coming)

    def count(self, coming: Coming, size: int) -> None:
        with self._lock:
            coming.size += size
            if not fits(coming, self._coming[coming.upload_id], self._limit):
                raise UploadTooLarge(self._limit)

    def stored(self, coming: Coming, size: int) -> None:
        with self._lock:
            self._leave(coming)
            for other in self._coming.get(coming.upload_id, ()):
                other.finished[coming.number] = size

    def _leave(self, coming: Coming) -> None:
        beside = self._coming.get(coming.upload_id, [])
        if coming in beside:
            beside.remove(coming)
            if not beside:
                del self._coming[coming.upload_id]


def fits(coming: Coming, all_coming: Iterable[Coming], limit: int) -> bool:
    """Whether the upload keeps to its limit if all that is coming of it is stored, as far as it has come.

    A part that is sent again takes the place of the one before, and may come while that is thought to be coming still: of one
    number the longest counts. What comes under one number many times over has its limit too, at twice that.
    """
    sizes = {number: size for number, size in coming.finished.items() if number != coming.number}
    total = 0
    for one in all_coming:
        total += one.size
        sizes[one.number] = max(sizes.get(one.number, 0), one.size)
    return sum(sizes.values()) <= limit and total <= 2 * limit
