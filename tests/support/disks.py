"""Small disks, to fill up."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


class Disk:
    """A disk of a few MB, and something on it that takes up all the room it has."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._ballast = place / "ballast"

    @property
    def free(self) -> int:
        figures = os.statvfs(self.place)
        return figures.f_bavail * figures.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Until no more than so many bytes are free."""
        with self._ballast.open("ab", buffering=0) as file:
            while self.free > leave:
                file.write(b"\0" * 4096)

    def empty(self) -> None:
        self._ballast.unlink()


@contextlib.contextmanager
def disk(place: Path, megabytes: int) -> Iterator[Disk]:
    """Mounted at this place, until the end of the block."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "dumbwaiter", place], check=True)
    try:
        yield Disk(place)
    finally:
        # a worker that still has a file open there must not keep it mounted for everybody
        subprocess.run(["umount", "--lazy", place], check=True)
