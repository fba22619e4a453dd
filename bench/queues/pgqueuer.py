"""PgQueuer on PostgreSQL: no limit on how much runs at once, batches of 100, as its documentation has it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries
from pgqueuer.models import Job

from bench.hand import run
from bench.records import anap, anoop


class Producer:
    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def one(self, task: str, number: int) -> None:
        await self._queries.enqueue(task, b"%d" % number, 0)

    async def many(self, task: str, numbers: Sequence[int]) -> None:
        payloads: list[bytes | None] = [b"%d" % number for number in numbers]
        await self._queries.enqueue([task] * len(payloads), payloads, [0] * len(payloads))


class Queue:
    def __init__(self, address: str) -> None:
        self._address = address

    def prepare(self) -> None:
        async def install() -> None:
            connection = await asyncpg.connect(self._address)
            await Queries(AsyncpgDriver(connection)).install()
            await connection.close()

        asyncio.run(install())

    @contextlib.asynccontextmanager
    async def producing(self) -> AsyncIterator[Producer]:
        connection = await asyncpg.connect(self._address)
        yield Producer(Queries(AsyncpgDriver(connection)))
        await connection.close()

    def work(self, task: str) -> None:
        run(self._work())

    async def _work(self) -> None:
        pool = await asyncpg.create_pool(self._address, min_size=2, max_size=10)
        worker = PgQueuer.from_asyncpg_pool(pool)

        @worker.entrypoint("noop")
        async def _(job: Job) -> None:
            await anoop(int(job.payload or b""))

        @worker.entrypoint("nap")
        async def _(job: Job) -> None:
            await anap(int(job.payload or b""))

        await worker.run(batch_size=100)
