"""oban-py on PostgreSQL: one queue of a hundred."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from oban import Job, Oban, worker
from oban.schema import install

from bench.hand import run
from bench.records import anap, anoop


@worker(queue="default")
class Noop:
    async def process(self, job: Job) -> None:
        await anoop(job.args["number"])


@worker(queue="default")
class Nap:
    async def process(self, job: Job) -> None:
        await anap(job.args["number"])


WORKERS: dict[str, Any] = {"noop": Noop, "nap": Nap}


class Producer:
    def __init__(self, oban: Oban) -> None:
        self._oban = oban

    async def one(self, task: str, number: int) -> None:
        await self._oban.enqueue(WORKERS[task].new({"number": number}))

    async def many(self, task: str, numbers: Sequence[int]) -> None:
        await self._oban.enqueue_many([WORKERS[task].new({"number": number}) for number in numbers])


class Queue:
    def __init__(self, address: str) -> None:
        self._address = address

    def prepare(self) -> None:
        async def prepare() -> None:
            pool = await Oban.create_pool(self._address)
            await install(pool)
            await pool.close()

        asyncio.run(prepare())

    @contextlib.asynccontextmanager
    async def producing(self) -> AsyncIterator[Producer]:
        pool = await Oban.create_pool(self._address, min_size=1, max_size=2)
        yield Producer(Oban(pool=pool))
        await pool.close()

    def work(self, task: str) -> None:
        run(self._work())

    async def _work(self) -> None:
        pool = await Oban.create_pool(self._address, min_size=2, max_size=10)
        async with Oban(pool=pool, queues={"default": 100}):
            await asyncio.Event().wait()
