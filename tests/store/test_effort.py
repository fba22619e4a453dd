"""What a claim reads: as much with a million rows behind it as with none, counted by the databases themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter.store.store import Store
from tests.store.plans import sent
from tests.store.world import NOW, at, store_of, want
from tests.support.databases import Database
from tests.support.filling import analyse, due_later, fill, finished


@pytest.fixture
def fresh(database: Database) -> Iterator[Store]:
    """A database that never held anything: what was deleted costs PostgreSQL reads too."""
    store = store_of(database.url)
    store.schema.migrate()
    yield store
    store.close()


def works(store: Store) -> dict[str, Callable[[], object]]:
    return {
        "claim": lambda: store.claim(want(3, queue="ours"), "w1", now=at(60)),
        "claim in steps": lambda: store.claim(
            want(3, queue="ours", needs={"t": {"c": 1}}, free={"c": 3}), "w1", now=at(60)
        ),
        "claim of nothing": lambda: store.claim(want(3, queue="nobody's"), "w1", now=at(60)),
        "stage": lambda: store.stage(now=at(60)),
    }


def efforts(store: Store) -> dict[str, int]:
    """How much each statement reads. Nothing of what it does is kept."""
    analyse(store)
    found = {}
    for name, work in works(store).items():
        with_rows = sent(store, lambda work=work: undone(store, work))[0]  # type: ignore[misc]
        found[name] = effort(store, *with_rows)
    return found


def undone(store: Store, work: Callable[[], object]) -> None:
    """Only to see the statement; a claim takes rows, which are given back."""
    work()
    tasks = store.tables.tasks
    with store.connections.writing() as connection:
        connection.execute(
            sa.update(tasks)
            .where(tasks.c.worker_id == "w1")
            .values(
                status="pending",
                ready=True,
                attempt=0,
                worker_id=None,
                heartbeat_at=None,
                started_at=None,
                beat_until=None,
            )
        )


def effort(store: Store, statement: str, parameters: Any) -> int:
    count = {"sqlite": steps_of_sqlite, "postgresql": blocks_of_postgresql, "mysql": rows_of_mysql}[
        store.kind
    ]
    with store.connections.engine.connect() as connection, connection.begin() as transaction:
        found = count(connection, statement, parameters)
        transaction.rollback()
    return found


def steps_of_sqlite(connection: sa.Connection, statement: str, parameters: Any) -> int:
    """Instructions of its virtual machine."""
    driver: Any = connection.connection.driver_connection
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    driver.set_progress_handler(step, 1)
    try:
        driver.execute(statement, parameters).fetchall()
    finally:
        driver.set_progress_handler(None, 0)
    return steps


def blocks_of_postgresql(connection: sa.Connection, statement: str, parameters: Any) -> int:
    cursor = connection.connection.cursor()
    cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters)
    [told] = cursor.fetchall()[0]
    [plan] = told if isinstance(told, list) else json.loads(told)
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


def rows_of_mysql(connection: sa.Connection, statement: str, parameters: Any) -> int:
    """Rows that InnoDB was asked for."""
    cursor = connection.connection.cursor()
    cursor.execute("FLUSH STATUS")
    cursor.execute(statement, parameters)
    cursor.fetchall()
    cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(value) for _, value in cursor.fetchall())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "rows", [5_000, pytest.param(1_000_000, marks=pytest.mark.long)], ids="{:,} rows".format
)
def test_a_claim_reads_no_more_for_a_backlog_other_queues_the_future_and_the_past(
    fresh: Store, rows: int
) -> None:
    # ten are ours
    fill(fresh, 10, {"queue": "ours"}, first=4 * rows, at=NOW)
    alone = efforts(fresh)
    for priority in (-5, 0, 5, 50):
        fill(fresh, rows // 10, {"priority": priority}, first=priority * 1_000_000 + 10**9, at=NOW)
    fill(fresh, rows // 5, due_later(at(86_400 * 365)), first=rows, at=NOW)
    fill(fresh, rows * 2 // 5, finished(NOW), first=2 * rows, at=NOW)

    among_many = efforts(fresh)

    print(f"\n{fresh.kind}, {rows:,} rows: alone {alone}, among many {among_many}")
    for name, read in among_many.items():
        assert read <= 2 * alone[name] + 10, name
