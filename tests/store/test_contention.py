"""Many applications and workers on one table: keys in transactions that may come to nothing, and MySQL's gaps and deadlocks."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter.store.store import Store
from dumbwaiter.task import Status
from tests.store import clients, racing
from tests.store.world import count, store_of
from tests.support.databases import Kind
from tests.support.own_servers import served

# Clients, keys, how long a transaction stays open. SQLite lets one after the other write, and who waits looks ten times a second:
# a key takes seconds there.
FEW, SOME, MANY = (8, 5, 0.02), (50, 40, 0.02), (50, 200, 0.02)


def callers(kind: str, level: str, size: tuple[int, int, float]) -> Any:
    marks = [] if kind == "sqlite" else [pytest.mark.service(kind)]
    marks += [pytest.mark.long] if size is not FEW else []
    return pytest.param(kind, level, size, marks=marks, id=f"{size[0]} on {kind} {level}".lower().rstrip())


CALLERS = [
    # the levels that applications have by default
    callers("postgresql", "READ COMMITTED", FEW),
    callers("mysql", "REPEATABLE READ", FEW),
    callers("sqlite", "", SOME),
    *(
        callers(kind, level, MANY)
        for kind in ("postgresql", "mysql")
        for level in ("READ COMMITTED", "REPEATABLE READ")
    ),
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "level", "size"), CALLERS)
def test_a_key_has_one_task_if_any_of_those_who_asked_in_transactions_has_committed(
    empty_store, kind: Kind, level: str, size: tuple[int, int, float]
) -> None:
    askers, keys, pause = size
    # all of a server's usual hundred connections would be theirs, and nothing left for the tests beside this one
    room = roomy(kind) if kind != "sqlite" and askers > FEW[0] else contextlib.nullcontext(empty_store(kind))
    with room as store:
        asked(store, askers, level, keys, pause)


@contextlib.contextmanager
def roomy(kind: Kind) -> Iterator[Store]:
    """A store on a server of its own."""
    with served(kind, connections=200) as server:
        store = store_of(server.database.url)
        store.schema.migrate()
        yield store
        store.close()


def asked(store: Store, askers: int, level: str, keys: int, pause: float) -> None:
    arguments = [(store.settings.database, level, keys, pause)] * askers

    told = racing.raced_by(clients.asking, arguments, keys)

    there = {task.id: task.business_key for task in store.find(limit=100_000)}
    assert max(Counter(there.values()).values()) == 1
    for number in range(keys):
        given = {of_one[number] for of_one in told} - {None}
        assert given == {task_id for task_id, key in there.items() if key == f"k{number}"}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_order_and_its_task_are_both_there_or_neither_whenever_its_application_is_killed(
    store: Store,
) -> None:
    kills = 170
    with store.connections.writing() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS orders"))
        connection.execute(sa.text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))
    for number in range(kills):
        racing.killed(clients.ordering, (store.settings.database, number * 100_000), random.uniform(0, 0.1))

    # a server may be about to carry out the last commit when its client is gone
    before = None
    while before != (found := both(store)):
        before = found
    with store.connections.writing() as connection:
        connection.execute(sa.text("DROP TABLE orders"))
    orders, tasks = found
    assert orders == tasks
    print(f"\n{store.kind}: {kills} kills, {len(orders)} orders")
    assert len(orders) >= kills


def both(store: Store) -> tuple[list[int], list[int]]:
    with store.connections.reading() as connection:
        orders = list(connection.execute(sa.text("SELECT id FROM orders ORDER BY id")).scalars())
    return orders, sorted(task.payload["order"] for task in store.find(limit=1_000_000))


@pytest.mark.service("mysql")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "size",
    [
        pytest.param((3, 2, 300), id="three workers"),
        pytest.param((10, 4, 10_000), id="ten workers", marks=pytest.mark.long),
    ],
)
def test_mysql_shows_no_deadlock_to_producers_and_gives_each_task_to_one_worker(
    empty_store, size: tuple[int, int, int]
) -> None:
    store: Store = empty_store("mysql")
    workers, producers, tasks = size
    url = store.settings.database
    before = deadlocks(store)
    parts: list[tuple[Any, tuple[Any, ...]]] = [
        *((clients.working, (url, f"w{number}", tasks)) for number in range(workers)),
        *((clients.producing, (url, batches)) for batches in shares(tasks, producers)),
        (clients.holding, (url, 3)),
    ]

    told = racing.raced_by(clients.doing, [(work.__name__, *given) for work, given in parts], seconds=600)

    claimed = [task_id for ids, _ in told[:workers] for task_id in ids]
    print(
        f"\ndeadlocks on the server meanwhile: {deadlocks(store) - before}; tasks of each: {[len(ids) for ids, _ in told[:workers]]}"
    )
    assert told[workers:-1] == [[]] * producers
    assert (len(claimed), len(set(claimed))) == (tasks, tasks)
    assert count(store, store.tables.tasks.c.status == Status.SUCCESS) == tasks
    assert [longest for _, longest in told[:workers] if longest > 1] == []


def shares(tasks: int, producers: int) -> list[list[int]]:
    """For each producer the sizes of its batches, from 1 to 500, of which all together are so many tasks."""
    shares: list[list[int]] = []
    for _ in range(producers):
        left, batches = tasks // producers, []
        while left:
            batches.append(min(left, random.randint(1, min(500, max(tasks // 10, 1)))))
            left -= batches[-1]
        shares.append(batches)
    return shares


def deadlocks(store: Store) -> int:
    """Since the server's start, in all its databases."""
    with store.connections.reading() as connection:
        found = connection.execute(sa.text("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")).all()
    return int(found[0][1]) if found else 0
