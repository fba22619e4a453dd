"""Huey on SQLite: its own durability (no fsync), threads, and a look every 10 to 50 ms in place of 0.1 to 10 s."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from huey import SqliteHuey

from bench.records import nap, noop

huey = SqliteHuey("bench", filename=urlsplit(os.environ.get("BENCH_ADDRESS", "")).path[1:], results=False)
TASKS = {"noop": huey.task(name="noop")(noop), "nap": huey.task(name="nap")(nap)}
THREADS = {"noop": "1", "nap": "20"}


class Producer:
    async def one(self, task: str, number: int) -> None:
        TASKS[task](number)

    async def many(self, task: str, numbers: Sequence[int]) -> None:
        """Huey has no call for many."""
        for number in numbers:
            TASKS[task](number)


class Queue:
    def __init__(self, address: str) -> None:
        self._address = address

    def prepare(self) -> None:
        """The tables are made at the first use."""

    @contextlib.asynccontextmanager
    async def producing(self) -> AsyncIterator[Producer]:
        yield Producer()

    def work(self, task: str) -> None:
        found = [Path(sys.executable).with_name(name) for name in ("huey_consumer", "huey_consumer.py")]
        program = next(str(path) for path in found if path.exists())
        looks = ("--delay", "0.01", "--max-delay", "0.05")
        threads = ("--worker-type", "thread", "--workers", THREADS[task])
        os.execv(program, [program, "bench.queues.huey.huey", *threads, *looks, "--quiet", "--no-periodic"])
