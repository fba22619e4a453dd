"""The processes of an export: ended as a group, measured as a group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import psutil

SAMPLE_SECONDS = 0.5
END_SECONDS = 5.0
# What a browser and an encoder need of our environment. Nothing else goes in: they read what strangers made, and what connects to
# databases and storage often stands there.
NEEDED = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "DUMBWAITER_TAG",
    "LANG", "LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH",
    "XDG_DATA_DIRS", "XDG_DATA_HOME", "XDG_CONFIG_DIRS", "XDG_RUNTIME_DIR",
    "FONTCONFIG_FILE", "FONTCONFIG_PATH", "FONTCONFIG_SYSROOT", "FAKETIME", "FAKETIME_SHARED",
    "SNAP", "SNAP_NAME", "SNAP_REVISION", "SNAP_USER_DATA", "SNAP_USER_COMMON",
})  # fmt: skip


def environment() -> dict[str, str]:
    """What programs that handle recordings are given of our environment: nothing that is secret.

    `DUMBWAITER_TAG` is by what a worker finds those that outlived their task.
    """
    return {name: value for name, value in os.environ.items() if name in NEEDED}


class Told(SystemExit):
    """A signal told this process to end: its exit status is 128 and the signal's number."""


@contextlib.contextmanager
def ending_cleanly() -> Iterator[Callable[[], bool]]:
    """Gives what `export` asks whether it is cancelled: TERM, HUP or INT has come.

    The export then ends its processes and removes its files, and the block ends with `Told`. An exception out of the
    signal itself would leave a browser behind that is just being started; only the second signal raises one.
    What whoever started us has ignored (`nohup`) stays ignored.
    """
    told: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        told.append(number)
        if len(told) > 1:
            raise Told(128 + number)

    before = {
        number: signal.signal(number, end)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield lambda: bool(told)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if told:
            raise Told(128 + told[0]) from None


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its own group, its group, and whatever below it has left the group; wait until gone."""
    below = family(process.pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for member in below:
        with contextlib.suppress(psutil.Error):
            member.kill()
    process.wait(END_SECONDS)
    deadline = time.monotonic() + END_SECONDS
    while any(map(alive, below)) and time.monotonic() < deadline:
        time.sleep(0.01)


def alive(process: psutil.Process) -> bool:
    """Whether a process still runs; one that only waits to be reaped (a container's first process may never do so) does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it; empty when it is gone."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def memory_of(pids: list[int]) -> int:
    """Bytes of memory that these processes and all below them take; shared pages are counted once.

    Chromium's sandboxed processes may hide their share from others; then all that is resident is counted.
    """
    return sum(share(process) for pid in pids for process in family(pid))


def share(process: psutil.Process) -> int:
    """One process's part of the memory, in bytes."""
    try:
        with Path(f"/proc/{process.pid}/smaps_rollup").open() as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


class MemoryWatch:
    """A thread that looks at the memory of some processes, and acts once when it is too much."""

    def __init__(self, pids: Callable[[], list[int]], limit: int, act: Callable[[], None]) -> None:
        self._pids, self._limit, self._act = pids, limit, act
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dumbwaiter-memory", daemon=True)
        self.peak = 0
        self.exceeded = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            used = memory_of(self._pids())
            self.peak = max(self.peak, used)
            if used > self._limit:
                self.exceeded = True
                self._act()
                return
