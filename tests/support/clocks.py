"""Clocks that are wrong: what a process needs in its environment to believe in another time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.services import faketime_library


def shifted(by: str) -> dict[str, str]:
    """Under a clock that is ahead or behind for as long as the process lives: "+1h", "-1h"."""
    return {"FAKETIME": by, **preloaded()}


class Clock:
    """A clock that jumps while a process runs under it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set("+0")

    def set(self, by: str) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(f"{by}\n", encoding="utf-8")
        # in one step: a process reads the file at each look on the clock
        new.replace(self._path)

    @property
    def environment(self) -> dict[str, str]:
        return {"FAKETIME_TIMESTAMP_FILE": str(self._path), "FAKETIME_NO_CACHE": "1", **preloaded()}


def preloaded() -> dict[str, str]:
    # the monotonic clock knows nothing of jumps on real machines either, and faked it would hold up waits
    return {
        "LD_PRELOAD": faketime_library(),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }


def shared() -> dict[Path, int]:
    """What processes under faketime share with their children, by the pid of whoever made it."""
    return {path: int(path.name.rpartition("_")[2]) for path in Path("/dev/shm").glob("*faketime_s*_*")}


@contextmanager
def swept_shared_memory() -> Iterator[None]:
    """Remove what a process that was killed leaves there: not every version lets that be switched off."""
    before = shared()
    yield
    for path, pid in shared().items():
        if path not in before and not psutil.pid_exists(pid):
            path.unlink(missing_ok=True)
