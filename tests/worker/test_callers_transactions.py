"""A worker beside callers' open transactions: it starts what was committed, once it was, and nothing of what was not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import sqlalchemy as sa

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import Status, Task
from dumbwaiter.worker.loop import Worker
from tests.support.workers import Place, ended


@dataclass
class Caller:
    """An application with a connection of its own, and what it committed."""

    waiter: Dumbwaiter
    connection: sa.Connection
    kept: list[Task] = field(default_factory=list)
    about_to_commit: float = 0.0

    def order(self, number: int) -> Task:
        self.connection.execute(sa.text("INSERT INTO orders (id) VALUES (:id)"), {"id": number})
        return self.waiter.enqueue("doze", {"seconds": 0}, connection=self.connection, meta={"order": number})


def commits_late(caller: Caller) -> None:
    with caller.connection.begin():
        caller.kept.append(caller.order(1))
        time.sleep(1)  # the worker looks several times meanwhile
        caller.about_to_commit = time.time()


def rolls_back(caller: Caller) -> None:
    with caller.connection.begin() as transaction:
        caller.order(2)
        time.sleep(0.5)
        transaction.rollback()


def raises(caller: Caller) -> None:
    with contextlib.suppress(ZeroDivisionError), caller.connection.begin():
        caller.order(3)
        raise ZeroDivisionError


def undoes_a_savepoint(caller: Caller) -> None:
    with caller.connection.begin():
        caller.kept.append(caller.order(4))
        inner = caller.connection.begin_nested()
        caller.order(5)
        inner.rollback()
        with caller.connection.begin_nested():
            caller.kept.append(caller.order(6))


def undoes_what_is_around(caller: Caller) -> None:
    with caller.connection.begin() as transaction:
        with caller.connection.begin_nested():
            caller.order(7)
        transaction.rollback()


WAYS = (commits_late, rolls_back, raises, undoes_a_savepoint, undoes_what_is_around)


def test_no_task_starts_before_its_callers_commit_and_none_without_one(
    here: Place, waiter: Dumbwaiter, start_worker: Callable[..., Worker]
) -> None:
    with waiter.store.connections.writing() as connection:
        connection.execute(sa.text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))
    start_worker()
    engine = sa.create_engine(waiter.store.connections.url)
    if waiter.store.kind == "sqlite":
        begin_as_documented(engine)
    with engine.connect() as connection:
        caller = Caller(waiter, connection)
        for way in WAYS:
            way(caller)
    kept = caller.kept
    found = ended(waiter, kept)
    last = waiter.enqueue("doze", {"seconds": 0})
    ended(waiter, [last])  # whatever else was to start has started by now

    assert {task.status for task in found} == {Status.SUCCESS}
    assert {entry.task_id for entry in here.starts()} == {task.id for task in [*kept, last]}
    assert min(entry.at for entry in here.starts(kept[0].id)) >= caller.about_to_commit
    with waiter.store.connections.reading() as reading:
        orders = reading.execute(sa.text("SELECT id FROM orders ORDER BY id")).scalars().all()
    assert orders == sorted(task.meta["order"] for task in kept)
    engine.dispose()


def begin_as_documented(engine: sa.Engine) -> None:
    """As SQLAlchemy's pages tell for SQLite: without it the driver begins no transaction before a savepoint."""

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: object, _record: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
