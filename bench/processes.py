"""What a process and all that it started use: processor time, memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil

GONE = (psutil.NoSuchProcess, psutil.AccessDenied)


def tree(pid: int | None) -> list[psutil.Process]:
    with contextlib.suppress(*GONE):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def cpu(pid: int | None) -> float:
    """Seconds of user and system time, those of children that have ended and were waited for included."""
    total = 0.0
    for process in tree(pid):
        with contextlib.suppress(*GONE):
            total += sum(process.cpu_times()[:4])
    return total


def proportional_mb(pid: int) -> float:
    """The memory that is theirs: a page that several share counts once among them."""
    return sum(kilobytes(pid, "smaps_rollup", "Pss")) / 1024


def peak_mb(pid: int) -> float:
    """The most that each had resident, added up; a page that they share counts for each."""
    return sum(kilobytes(pid, "status", "VmHWM")) / 1024


def kilobytes(pid: int, file: str, name: str) -> Iterator[int]:
    for process in tree(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process.pid}/{file}").read_text().splitlines():
                if line.startswith(f"{name}:"):
                    yield int(line.split()[1])


def listens(pid: int, port: int) -> bool:
    """One of them, and nobody else, has this port."""
    for process in tree(pid):
        with contextlib.suppress(*GONE):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return True
    return False
