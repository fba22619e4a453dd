"""Dumbwaiter on PostgreSQL as an adapter of a bench for task queues that is not ours.

That bench copies this file among its adapters, which import `common`, a module of its own: addresses, and the tasks `noop`
and `sleep`. META is read without importing it. Its environment `dumbwaiter` needs this package with the extra `postgresql`.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator

import common  # type: ignore[import-not-found, unused-ignore]

from dumbwaiter import Dumbwaiter

META = {
    "venv": "dumbwaiter",
    "backend": "pg",
    "left": "select (select count(*) from dumbwaiter_tasks where status = 'pending' and ready) + (select count(*) from dumbwaiter_tasks where heartbeat_at is not null)",
    "table": "dumbwaiter_tasks",
    "hist_table": "dumbwaiter_tasks",
    "keys": {"id": "gen_random_uuid()"},
    "settings": "1 process, worker({'default': 100}), coroutines; everything else as it comes",
}


class Session:
    """What enqueues: one by one, and a thousand a call."""

    def __init__(self, waiter: Dumbwaiter) -> None:
        self._waiter = waiter

    def one(self, task: str, i: int) -> None:
        self._waiter.enqueue(task, {"i": i})

    def bulk(self, task: str, numbers: range) -> None:
        self._waiter.enqueue_many(task, [{"i": i} for i in numbers])


async def noop(i: int) -> None:
    await common.anoop(i)


async def sleep(i: int) -> None:
    await common.asleep(i)


class Adapter:
    """The three functions that an adapter offers, for one address."""

    def __init__(self, address: str) -> None:
        place = tempfile.gettempdir()
        self._waiter = Dumbwaiter(address, files=f"{place}/bench-files", workdir=f"{place}/bench-work")
        self._waiter.task("noop")(noop)
        self._waiter.task("sleep")(sleep)

    def setup(self) -> None:
        self._waiter.migrate()

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        yield Session(self._waiter)
        self._waiter.close()

    def worker(self, task: str) -> None:
        self._waiter.worker({"default": 100}).run()


adapter = Adapter(common.PG_DSN)
setup, session, worker = adapter.setup, adapter.session, adapter.worker
