"""Processes that are other people's applications, or workers: a module of its own, since they import it; see racing.py."""

from __future__ import annotations

import fcntl
import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dumbwaiter.errors import KeyContended
from dumbwaiter.store.connections import worth_another_try
from dumbwaiter.store.rows import Finish
from dumbwaiter.store.store import Store
from dumbwaiter.task import Outcome
from tests.store.racing import meet
from tests.store.world import LEASE, new, store_of, want


def engine_of(url: str, isolation: str) -> sa.Engine:
    """An application's own engine. On SQLite it begins as our documents say: with the write lock."""
    address = store_of(url).connections.url
    if address.get_backend_name() == "sqlite":
        engine = sa.create_engine(address, isolation_level="AUTOCOMMIT")
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        return engine
    return sa.create_engine(address, isolation_level=isolation)


def asking(pipe: Pipe, url: str, isolation: str, keys: int, pause: float) -> None:
    """For each key one transaction with an enqueue: of ten three roll back, three commit late, four at once.

    Tells of each round: the id that a committed transaction was given, None if it rolled back or was told of a conflict.
    """
    store, engine = store_of(url), engine_of(url, isolation)
    # A store's first look at a caller's connection takes one of its own: fifty at once would be all that a server has.
    with Path(__file__).open() as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        asked(store, engine, "first", "not at all", 0)
        store.connections.close()
    told: list[str | None] = []
    for number in range(keys):
        meet(pipe)
        how = random.choices(("at once", "late", "not at all"), (4, 3, 3))[0]
        told.append(asked(store, engine, f"k{number}", how, pause))
    pipe.send(told)
    engine.dispose()
    store.close()


def asked(store: Store, engine: sa.Engine, key: str, how: str, pause: float) -> str | None:
    while True:
        try:
            with engine.connect() as connection, connection.begin() as transaction:
                if engine.dialect.name != "sqlite":
                    connection.execute(sa.text("SELECT 1"))  # a snapshot, under REPEATABLE READ
                task, _ = store.enqueue(new(business_key=key), connection=connection)
                if how != "at once":
                    time.sleep(pause)
                if how == "not at all":
                    transaction.rollback()
                    return None
            return task.id
        except KeyContended:
            return None
        except sa.exc.DBAPIError as error:
            # under REPEATABLE READ the database may tell a caller to begin again, as with any other statement
            if not worth_another_try(error):
                raise


def working(pipe: Pipe, url: str, name: str, tasks: int) -> None:
    """A worker's statements without a pause, until so many tasks have ended. Tells what it claimed, and its longest row of vain claims."""
    store = store_of(url)
    store.schema.ensure()
    meet(pipe)
    claimed: list[str] = []
    vain = longest = 0
    while len(claimed) < tasks and count_ended(store) < tasks:
        got = store.claim(want(5), name)
        store.heartbeat(name)
        store.finish([Finish(task, Outcome.succeeded()) for task in got])
        store.stage()
        store.rescue(LEASE)
        claimed += [task.id for task in got]
        vain = vain + 1 if not got and count_ready(store) >= 100 else 0
        longest = max(longest, vain)
    pipe.send((claimed, longest))
    store.close()


def producing(pipe: Pipe, url: str, batches: list[int]) -> None:
    """Batches in transactions of the application's own, at MySQL's default level, and single tasks between them."""
    store, engine = store_of(url), engine_of(url, "REPEATABLE READ")
    store.schema.ensure()
    meet(pipe)
    faults: list[str] = []
    for size in batches:
        try:
            with engine.begin() as connection:
                for _ in range(size - 1):
                    store.enqueue(new(), connection=connection)
            store.enqueue(new())
        except Exception as error:  # noqa: BLE001 - each would be an error that the product showed
            faults.append(repr(error))
    pipe.send(faults)
    engine.dispose()
    store.close()


def holding(pipe: Pipe, url: str, rounds: int) -> None:
    """Somebody's transactions that lock gaps of the task table: a search that finds nothing, FOR UPDATE, and then thinks."""
    store, engine = store_of(url), engine_of(url, "REPEATABLE READ")
    meet(pipe)
    tasks = store.tables.tasks
    search = sa.select(tasks.c.id).where(
        tasks.c.status == "pending", tasks.c.ready, tasks.c.queue == "nobody"
    )
    for _ in range(rounds):
        with engine.begin() as connection:
            connection.execute(search.with_for_update()).all()
            time.sleep(0.5)
    pipe.send(rounds)
    engine.dispose()
    store.close()


def count_ended(store: Store) -> int:
    return _count(store, store.tables.tasks.c.status == "success")


def count_ready(store: Store) -> int:
    return _count(store, store.tables.tasks.c.ready)


def _count(store: Store, condition: Any) -> int:
    statement = sa.select(sa.func.count()).select_from(store.tables.tasks).where(condition)
    with store.connections.reading() as connection:
        return int(connection.execute(statement).scalar_one())


def doing(pipe: Pipe, work: str, *given: Any) -> None:
    """One of the works above, by its name: processes of several kinds meet in one race."""
    works: dict[str, Callable[..., None]] = {
        "working": working,
        "producing": producing,
        "holding": holding,
    }
    works[work](pipe, *given)


def ordering(pipe: Pipe, url: str, first: int) -> None:
    """An application that takes orders, each with its task in one transaction, until it is killed; it meets after the first."""
    store, engine = store_of(url), engine_of(url, "READ COMMITTED")
    for number in range(first, first + 100_000):
        with engine.connect() as connection, connection.begin():
            connection.execute(sa.text("INSERT INTO orders (id) VALUES (:id)"), {"id": number})
            asked = new(payload={"order": number}, business_key=f"order-{number}")
            store.enqueue(asked, connection=connection)
        if number == first:
            meet(pipe)
