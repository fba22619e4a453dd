"""Directories that are held while they are in use, so that the next export removes what one that was killed has left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROFILE, WORK = "dumbwaiter-chromium-", "dumbwaiter-video-"
# Between a directory's making and its lock nobody may take it for left over.
YOUNG_SECONDS = 60.0

# The descriptors that hold this process's directories. The lock goes with the process, however it ends, and is seen by other
# containers that share the directory, where a process id says nothing; and no clock that is set moves it.
HELD: dict[Path, int] = {}


def hold(prefix: str) -> Path:
    """A new temporary directory of this process, which nobody sweeps while it lives; `remove` lets go of it."""
    path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))
    HELD[path] = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # on a file system without locks nothing is ever taken for left over
    with contextlib.suppress(OSError):
        fcntl.flock(HELD[path], fcntl.LOCK_EX | fcntl.LOCK_NB)
    return path


def remove(path: Path) -> None:
    """Remove a directory with what is in it; what cannot be removed stays."""
    shutil.rmtree(path, ignore_errors=True)
    held = HELD.pop(path, None)
    if held is not None:
        os.close(held)


@contextlib.contextmanager
def work_directory() -> Iterator[Path]:
    """A temporary directory for one export. What killed exports of before left is removed first."""
    sweep()
    path = hold(WORK)
    try:
        yield path
    finally:
        remove(path)


def sweep() -> None:
    """Remove what processes that are no more left in the temporary directory."""
    for prefix in (PROFILE, WORK):
        for path in Path(tempfile.gettempdir()).glob(f"{prefix}[0-9]*-*"):
            if is_left(path):
                shutil.rmtree(path, ignore_errors=True)


def is_left(path: Path) -> bool:
    """Whether nobody holds a directory that is not new."""
    try:
        if time.time() - path.stat().st_mtime < YOUNG_SECONDS:
            return False
        looked = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(looked, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(looked)
    return True
