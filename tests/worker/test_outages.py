"""A database that is locked or silent for longer than a lease, under a worker that lives."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dumbwaiter import Dumbwaiter, Retry, TaskContext
from dumbwaiter.executors.registry import Registry, TaskType
from dumbwaiter.executors.signature import Signature
from dumbwaiter.task import Fence, Status
from dumbwaiter.worker.claimer import Claimer
from dumbwaiter.worker.loop import Worker
from dumbwaiter.worker.slots import Slots
from tests.store.proxies import Mode, proxied
from tests.support.databases import Database, Kind
from tests.support.waiting import until

SHORT: dict[str, Any] = {
    "lease": "1s",
    "heartbeat": "200ms",
    "sweep": "200ms",
    "poll": "100ms",
    "grace": "500ms",
}


@contextmanager
def working(waiter: Dumbwaiter) -> Iterator[Worker]:
    worker = waiter.worker()
    worker.start()
    try:
        yield worker
    finally:
        worker.stop(hurry=True)
        assert worker.join(15)
        waiter.close()


def test_a_sqlite_file_that_was_locked_for_longer_than_a_lease_starts_nothing_again(tmp_path: Path) -> None:
    waiter = Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db", **SHORT)
    started, go_on = threading.Event(), threading.Event()

    @waiter.task("long")
    def long() -> None:
        started.set()
        go_on.wait(30)

    task = long.enqueue()
    with working(waiter) as worker:
        assert started.wait(10)
        # past the time for which a new worker takes nothing back
        until(lambda: worker._rescuer._still_until < time.monotonic())
        backup = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
        backup.execute("BEGIN IMMEDIATE")
        time.sleep(2)
        backup.execute("ROLLBACK")
        backup.close()
        back = waiter.store.now()
        until(lambda: (beat := waiter.get(task.id).heartbeat_at) is not None and beat > back)
        go_on.set()
        done = until(lambda: found if (found := waiter.get(task.id)).status.final else None)

    assert (Status.SUCCESS, 1, 0) == (done.status, done.attempt, done.crash_count)


@pytest.mark.service("postgresql")
def test_a_silent_database_holds_up_neither_a_timeout_nor_the_stop(
    make_database: Callable[[Kind], Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumbwaiter.worker.loop.FLUSH", 0.5)
    monkeypatch.setattr("dumbwaiter.worker.loop.BRIEFLY", 0.5)
    with proxied(make_database("postgresql").url) as (proxy, url):
        waiter = Dumbwaiter(url, files=str(tmp_path / "files"), workdir=str(tmp_path / "work"), **SHORT)
        waiter.migrate()

        @waiter.task("long", timeout=timedelta(seconds=1.5), retry=Retry(max_retries=0))
        def long(ctx: TaskContext) -> None:
            ctx.sleep(60)

        long.enqueue()
        with working(waiter) as worker:
            [running] = until(lambda: worker.running)
            proxy.mode = Mode.BLACKHOLE
            until(lambda: running.ended, 4)
            asked = time.monotonic()
            worker.stop(hurry=True)
            assert worker.join(15)
            assert time.monotonic() - asked < 8


def test_a_task_that_ends_while_lost_claims_are_looked_for_is_not_started_again() -> None:
    """The look into the table finds it; when that answer is there it has ended, and the worker has forgotten it."""
    known = [Fence("id", "w1", 1)]
    launched: list[Any] = []

    class Row:
        id, queue, task_type = "id", "default", "t"
        fence = Fence("id", "w1", 1)

    class Table:
        def held(self, worker: str) -> list[Row]:
            known.clear()
            return [Row()]

    registry = Registry()
    registry.add(TaskType("t", print, Signature("t", lambda: None)))
    claimer = Claimer(
        Table(),  # type: ignore[arg-type]
        registry,
        Slots({"default": 1}, 1, {}),
        "w1",
        launch=launched.append,
        running=lambda: tuple(known),
        poll=timedelta(seconds=1),
        grace=timedelta(seconds=1),
        lease=timedelta(seconds=20),
    )
    claimer._take_up_unknown()

    assert launched == []
