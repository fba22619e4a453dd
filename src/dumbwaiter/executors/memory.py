"""How much memory a process uses together with all that it started."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from dumbwaiter.executors.guardian import LINUX, children_of, contents, descendants, processes

PAGE = os.sysconf("SC_PAGE_SIZE")
PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)


class Usage(NamedTuple):
    """Bytes in use, and by how many processes."""

    size: int
    processes: int


def excess(guardian: int, limit: int) -> Usage | None:
    """What the tree under a guardian uses, if that is more than the limit; None also where it cannot be known.

    Resident sizes are cheap (4 µs a process) but count a page once for each process that shares it: forks of a large process
    look like many. So they only raise the suspicion, and proportional sizes decide, which the kernel gathers page by page
    (2.6 ms for 400 MiB).
    """
    if not LINUX:
        return None
    pids = tree(guardian)
    if total(pids, resident) <= limit:
        return None
    used = total(pids, proportional)
    return Usage(used, len(pids)) if used > limit else None


def tree(root: int) -> list[int]:
    """The pids of all that stems from a process, without itself; what ends meanwhile is no fault."""
    try:
        found: list[int] = []
        waiting = [root]
        while waiting:
            children = children_of(waiting.pop())
            found.extend(children)
            waiting.extend(children)
    except FileNotFoundError:
        # it ended while we looked, or this kernel keeps no lists of children
        return [one.pid for one in descendants((root,), processes())]
    return found


def total(pids: list[int], measure: Callable[[int], int]) -> int:
    size = 0
    for pid in pids:
        try:
            size += measure(pid)
        except (OSError, IndexError):
            continue  # it has ended, or is not ours to look at
    return size


def resident(pid: int) -> int:
    return int(contents(f"/proc/{pid}/statm").split()[1]) * PAGE


def proportional(pid: int) -> int:
    """Its own pages, and its share of those it has with others. Its resident size where the kernel does not tell."""
    try:
        found = PSS.search(contents(f"/proc/{pid}/smaps_rollup"))
    except OSError:
        found = None
    return resident(pid) if found is None else int(found[1]) * 1024
