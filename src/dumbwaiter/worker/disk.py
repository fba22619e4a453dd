"""Whether this host's disks have room: below the reserve no task is claimed that needs disk."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from dumbwaiter.settings import Reserve

log = logging.getLogger("dumbwaiter")

# How old a look may be, in seconds.
FRESH = 2.0
# There must be so much more than the reserve before it counts as room again: at the limit itself nothing should flicker.
MARGIN = 1.1


class Usage(Protocol):
    """What `shutil.disk_usage` gives, in bytes."""

    @property
    def total(self) -> int: ...

    @property
    def free(self) -> int: ...


class Disk:
    """The disks on which these places lie, looked at again every two seconds, when somebody asks.

    `told` is given a sentence when a disk gets short of room, and None once there is room again.
    """

    def __init__(
        self,
        places: Sequence[Path],
        reserve: Reserve,
        *,
        told: Callable[[str | None], object],
        usage: Callable[[Path], Usage] = shutil.disk_usage,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = places
        self._reserve = reserve
        self._told = told
        self._usage = usage
        self._monotonic = monotonic
        self._looked = -FRESH
        self._short: str | None = None

    @property
    def short(self) -> bool:
        """There is less than the reserve on one of them."""
        now = self._monotonic()
        if now - self._looked >= FRESH:
            self._looked = now
            self._look()
        return self._short is not None

    def _look(self) -> None:
        before, margin = self._short, 1.0 if self._short is None else MARGIN
        self._short = next(filter(None, (self._lack(place, margin) for place in self._places)), None)
        if (before is None) == (self._short is None):
            return
        if self._short is not None:
            log.error("%s: tasks that need disk are not claimed until there is room", self._short)
        else:
            log.info("there is room on the disk again: tasks that need it are claimed")
        self._told(self._short)

    def _lack(self, place: Path, margin: float) -> str | None:
        """What is wrong with the disk on which a place lies, or will lie."""
        try:
            usage = self._usage(existing(place))
        except OSError:
            return None  # whoever needs it will say what is wrong
        least = self._reserve.bytes_of(usage.total)
        if usage.free >= least * margin:
            return None
        return f"{usage.free / 2**20:,.0f} MiB are free at {place}, less than the {least / 2**20:,.0f} MiB of disk_reserve"


def existing(place: Path) -> Path:
    """The place, or the nearest directory above it that is there."""
    while not place.exists() and place != place.parent:
        place = place.parent
    return place
