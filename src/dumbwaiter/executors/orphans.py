"""Processes that dead workers left behind, found by a tag in their environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dumbwaiter.executors.guardian import (
    LINUX,
    TAG,
    Process,
    descendants,
    frozen,
    process,
    processes,
    send_signal,
)
from dumbwaiter.executors.workdirs import dead

PREFIX = f"{TAG}=".encode()
# Killed processes go within milliseconds; one that hangs in the kernel is not worth holding up a worker's start.
SECONDS = 5.0


def sweep(root: Path) -> int:
    """End what dead workers left running on this machine; returns how many processes that were.

    A worker is dead if its lock file under `root` is there and not held, so this comes before `workdirs.sweep`, which
    removes those files. Processes of living workers, and of workers with another root, are not touched. Reads /proc on
    Linux; elsewhere the processes whose environment psutil may read.
    """
    names = dead(root)
    return end_tagged(lambda tag: tag.rsplit(":", 2)[0] in names) if names else 0


def end_tagged(wanted: Callable[[str], bool]) -> int:
    """End every process whose tag is wanted, with all that it started; returns how many there were."""
    if not LINUX:
        return end_by_psutil(wanted)
    until = time.monotonic() + SECONDS
    ended: set[tuple[int, int]] = set()
    while (found := frozen(lambda: condemned(wanted))) and time.monotonic() < until:
        for one in found:
            send_signal(one, signal.SIGKILL)
            ended.add((one.pid, one.started))
        time.sleep(0.002)
    return len(ended)


def condemned(wanted: Callable[[str], bool]) -> list[Process]:
    """Those with a wanted tag and what stems from them (Chromium overwrites its environment); never us, nor our parents."""
    table = processes()
    spared = {1, *line_of(os.getpid(), table)}
    roots = [one for one in table.values() if one.alive and one.pid not in spared and wanted(tag_of(one.pid))]
    below = descendants((one.pid for one in roots), table)
    return [one for one in {one.pid: one for one in (*roots, *below)}.values() if one.pid not in spared]


def line_of(pid: int, table: dict[int, Process]) -> Iterator[int]:
    """A process and its parents."""
    while pid > 0:
        yield pid
        one = table.get(pid) or process(pid)
        pid = one.parent if one is not None else 0


def tag_of(pid: int) -> str:
    """The tag in a process's environment; empty without one, or if we may not look."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    found = [entry for entry in environ.split(b"\0") if entry.startswith(PREFIX)]
    return os.fsdecode(found[-1][len(PREFIX) :]) if found else ""


def end_by_psutil(wanted: Callable[[str], bool]) -> int:
    """Where there is no /proc. psutil checks a process's start time before it signals."""
    import psutil

    ended = 0
    spared = {1, os.getpid(), *(one.pid for one in psutil.Process().parents())}
    for one in psutil.process_iter():
        try:
            if one.pid not in spared and wanted(one.environ().get(TAG, "")):
                one.kill()
                ended += 1
        except (psutil.Error, OSError):
            continue
    return ended
