"""Dumbwaiter itself, on whichever database the address names: a hundred slots, everything else as it comes."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from bench.records import anap, anoop
from dumbwaiter import Dumbwaiter

SLOTS = 100


class Producer:
    def __init__(self, waiter: Dumbwaiter) -> None:
        self._waiter = waiter

    async def one(self, task: str, number: int) -> None:
        self._waiter.enqueue(task, {"number": number})

    async def many(self, task: str, numbers: Sequence[int]) -> None:
        self._waiter.enqueue_many(task, [{"number": number} for number in numbers])


class Queue:
    def __init__(self, address: str) -> None:
        self.waiter = Dumbwaiter(address)
        self.waiter.task("noop")(anoop)
        self.waiter.task("nap")(anap)

    def prepare(self) -> None:
        self.waiter.migrate()

    @contextlib.asynccontextmanager
    async def producing(self) -> AsyncIterator[Producer]:
        yield Producer(self.waiter)
        self.waiter.close()

    def work(self, task: str) -> None:
        if claims := os.environ.get("BENCH_CLAIMS"):
            time_claims(self.waiter.store, claims)
        statements = os.environ.get("BENCH_STATEMENTS")
        if statements and self.waiter.store.kind == "sqlite":
            write_statements(self.waiter.store.connections.engine, statements)
        self.waiter.worker({"default": SLOTS}).run()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        worker = self.waiter.worker({"default": SLOTS})
        worker.start()
        yield
        worker.stop(hurry=True)
        worker.join()


def time_claims(store: Any, path: str) -> None:
    """Have each claim that found something leave a line: how many, and how many seconds it took."""
    claim = store.claim

    def timed(*args: Any, **options: Any) -> Any:
        began = time.perf_counter()
        claimed = claim(*args, **options)
        took = time.perf_counter() - began
        if claimed:
            with open(path, "a", encoding="utf-8") as lines:  # noqa: PTH123 - one append, on a claimer's way
                lines.write(json.dumps([len(claimed), took]) + "\n")
        return claimed

    store.claim = timed


def write_statements(engine: sa.Engine, path: str) -> None:
    """Have SQLite say each statement that it is sent, BEGIN and COMMIT too: a line each. Servers count by themselves."""
    lines = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    @sa.event.listens_for(engine, "connect")
    def trace(connection: Any, _record: Any) -> None:
        connection.set_trace_callback(lambda text: os.write(lines, f"{' '.join(text.split())}\n".encode()))
