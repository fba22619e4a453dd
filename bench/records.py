"""What the tasks of a measurement leave behind: a record each, in a file that no queue knows of.

Standard library only: it runs in the environment of whatever is measured.
"""

from __future__ import annotations

import asyncio
import functools
import os
import struct
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

NAP = 0.010
VARIABLE = "BENCH_RECORDS"
RECORD = struct.Struct("<qqq")


@dataclass(frozen=True)
class Record:
    """One run of a task: the number that it was given, when its first line ran and when it ended, in ns of this machine's clock."""

    number: int
    began: int
    ended: int


@functools.cache
def _file() -> int:
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)


def note(number: int, began: int) -> None:
    """One write for each record: the system keeps appends of several processes apart."""
    os.write(_file(), RECORD.pack(number, began, time.time_ns()))


def noop(number: int) -> None:
    note(number, time.time_ns())


def nap(number: int) -> None:
    began = time.time_ns()
    time.sleep(NAP)
    note(number, began)


async def anoop(number: int) -> None:
    note(number, time.time_ns())


async def anap(number: int) -> None:
    began = time.time_ns()
    await asyncio.sleep(NAP)
    note(number, began)


@dataclass(frozen=True)
class Records:
    """The file as those see it who look from outside."""

    path: Path

    def clear(self) -> None:
        """Forget everything. Not by removing the file: a worker that holds it open would write to one that nobody reads."""
        self.path.write_bytes(b"")

    def count(self) -> int:
        return self.path.stat().st_size // RECORD.size if self.path.exists() else 0

    def read(self) -> list[Record]:
        whole = self.count() * RECORD.size
        return [Record(*fields) for fields in RECORD.iter_unpack(self.path.read_bytes()[:whole])]

    def wrong(self, expected: range) -> str:
        """What is wrong with the numbers that were seen, in words; nothing if each was seen once."""
        seen = Counter(record.number for record in self.read())
        lost = [number for number in expected if number not in seen]
        twice = [number for number, times in seen.items() if times > 1]
        strange = [number for number in seen if number not in expected]
        faults = {"lost": lost, "run twice": twice, "never asked for": strange}
        return "; ".join(
            f"{len(numbers)} {what}, such as {numbers[0]}" for what, numbers in faults.items() if numbers
        )
