"""Directories that say in their name whose they are, so that the next export removes what one that was killed has left."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

PROFILE, WORK = "dumbwaiter-chromium-", "dumbwaiter-video-"


def named(prefix: str) -> str:
    """How the name of a directory of this process begins: its process id, and when it began, for ids come again."""
    me = psutil.Process()
    return f"{prefix}{me.pid}-{int(me.create_time())}-"


@contextlib.contextmanager
def work_directory() -> Iterator[Path]:
    """A temporary directory for one export. What killed exports of before left is removed first."""
    sweep()
    with tempfile.TemporaryDirectory(prefix=named(WORK)) as directory:
        yield Path(directory)


def sweep() -> None:
    """Remove what processes that are no more left in the temporary directory."""
    for prefix in (PROFILE, WORK):
        for path in Path(tempfile.gettempdir()).glob(f"{prefix}[0-9]*-[0-9]*-*"):
            pid, started = path.name.removeprefix(prefix).split("-")[:2]
            if not lives(pid, started):
                shutil.rmtree(path, ignore_errors=True)


def lives(pid: str, started: str) -> bool:
    """Whether the process with this id is the one that began then."""
    try:
        return int(psutil.Process(int(pid)).create_time()) == int(started)
    except (psutil.Error, ValueError):
        return False
