"""What the tests of the store speak of: instants, tasks that are asked for, started and ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
import uuid_utils

from dumbwaiter.settings import Settings
from dumbwaiter.store.claiming import Want
from dumbwaiter.store.rows import Finish, NewTask
from dumbwaiter.store.store import Store
from dumbwaiter.task import Outcome, Status, Task
from tests.support.databases import KINDS

# Every database whose locks are by row.
SERVERS = KINDS[1:]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LEASE = timedelta(seconds=20)
# The uuid extension of PostgreSQL's tables and the CHAR(36) of the others take the same text.
NOBODY = "00000000-0000-7000-8000-000000000000"


def at(seconds: float) -> datetime:
    """The instant so many seconds after NOW."""
    return NOW + timedelta(seconds=seconds)


def new_id() -> str:
    return str(uuid_utils.uuid7())


def new(task_type: str = "t", **options: Any) -> NewTask:
    """A task as it is asked for."""
    return NewTask(**{"id": new_id(), "task_type": task_type, "payload": {"a": 1}} | options)


def want(slots: int = 10, *types: str, queue: str = "default", **options: Any) -> Want:
    return Want(queue, slots, types or ("t",), **options)


def enqueued(store: Store, *, now: datetime | None = NOW, **options: Any) -> Task:
    return store.enqueue(new(**options), now=now)[0]


def started(store: Store, *, worker: str = "w1", now: datetime = NOW, **options: Any) -> Task:
    """A task that is enqueued and claimed."""
    task = enqueued(store, now=now, **options)
    claimed = store.claim_one(task.id, worker, want(1, task.task_type), now=now)
    assert claimed is not None
    return claimed


def claimed_ids(
    store: Store, slots: int = 10, *, now: datetime | None = NOW, worker: str = "w1"
) -> list[str]:
    return [task.id for task in store.claim(want(slots), worker, now=now)]


def end(store: Store, task: Task, outcome: Outcome | None = None, *, now: datetime = NOW) -> Status | None:
    """Write the end of an attempt: a success unless said otherwise."""
    return store.finish([Finish(task, outcome or Outcome.succeeded())], now=now)[0]


def row(store: Store, task_id: str) -> dict[str, Any]:
    """The bare row."""
    tasks = store.tables.tasks
    with store.connections.reading() as connection:
        return dict(connection.execute(sa.select(tasks).where(tasks.c.id == task_id)).mappings().one())


def count(store: Store, *conditions: sa.ColumnElement[bool]) -> int:
    statement = sa.select(sa.func.count()).select_from(store.tables.tasks).where(*conditions)
    with store.connections.reading() as connection:
        return int(connection.execute(statement).scalar_one())


def store_of(url: str, **settings: Any) -> Store:
    # a busy machine is no outage; tests of one say how long a request may take
    return Store(Settings.load({"database": url, "request_timeout": 30, **settings}, environ={}))


def emptied(store: Store) -> None:
    """Leave nothing in the tables but what the installation is, however long it takes: there may be a hundred thousand."""
    with store.connections.writing(engine=store.connections.unhurried_engine) as connection:
        for table in store.tables.metadata.sorted_tables:
            if table is not store.tables.installation:
                connection.execute(table.delete())


def until(true: Callable[[], bool], what: str, seconds: float = 20) -> None:
    """Wait for an event."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.005)
