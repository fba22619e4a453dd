"""Celery on RabbitMQ: results ignored; two processes for no-ops, a hundred greenlets for sleepers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from celery import Celery

from bench.records import nap, noop

app = Celery("bench", broker=os.environ.get("BENCH_ADDRESS"))
app.conf.update(
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=64,
    worker_send_task_events=False,
)
TASKS = {"noop": app.task(name="noop")(noop), "nap": app.task(name="nap")(nap)}
POOLS = {
    "noop": ("--pool", "prefork", "--concurrency", "2"),
    "nap": ("--pool", "gevent", "--concurrency", "100", "--prefetch-multiplier", "4"),
}
QUIET = ("--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat")


class Producer:
    async def one(self, task: str, number: int) -> None:
        TASKS[task].delay(number)

    async def many(self, task: str, numbers: Sequence[int]) -> None:
        """Celery has no call for many."""
        for number in numbers:
            TASKS[task].delay(number)


class Queue:
    def __init__(self, address: str) -> None:
        self._address = address

    def prepare(self) -> None:
        with app.connection_for_write() as connection:
            connection.default_channel.queue_delete("celery")

    @contextlib.asynccontextmanager
    async def producing(self) -> AsyncIterator[Producer]:
        yield Producer()

    def work(self, task: str) -> None:
        program = str(Path(sys.executable).with_name("celery"))
        os.execv(program, [program, "-A", "bench.queues.celery:app", "worker", *POOLS[task], *QUIET])
