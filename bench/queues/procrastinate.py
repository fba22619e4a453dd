"""Procrastinate on PostgreSQL: 20 no-ops or 100 sleepers at once, which is where each of the two was fastest."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import procrastinate

from bench.hand import run
from bench.records import anap, anoop


class Producer:
    def __init__(self, app: procrastinate.App) -> None:
        self._app = app

    async def one(self, task: str, number: int) -> None:
        await self._app.tasks[task].defer_async(number=number)

    async def many(self, task: str, numbers: Sequence[int]) -> None:
        await self._app.tasks[task].batch_defer_async(*({"number": number} for number in numbers))


class Queue:
    def __init__(self, address: str) -> None:
        connector = procrastinate.PsycopgConnector(conninfo=address, min_size=2, max_size=10)
        self._app = procrastinate.App(connector=connector)
        self._app.task(name="noop")(anoop)
        self._app.task(name="nap")(anap)

    def prepare(self) -> None:
        async def prepare() -> None:
            async with self._app.open_async():
                await self._app.schema_manager.apply_schema_async()

        asyncio.run(prepare())

    @contextlib.asynccontextmanager
    async def producing(self) -> AsyncIterator[Producer]:
        async with self._app.open_async():
            yield Producer(self._app)

    def work(self, task: str) -> None:
        run(self._work({"noop": 20, "nap": 100}[task]))

    async def _work(self, concurrency: int) -> None:
        async with self._app.open_async():
            await self._app.run_worker_async(concurrency=concurrency, shutdown_graceful_timeout=1)
