"""Fills the table of tasks with as many rows as a test or a measurement wants behind it, in one statement for each kind of row."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from dumbwaiter.store import enqueueing
from dumbwaiter.store.rows import NewTask
from dumbwaiter.store.store import Store

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
# A statement that writes a million rows must not be one transaction: MariaDB would keep all of it for a rollback.
CHUNK = 100_000
THOUSAND = 1_000

Row = Mapping[str, Any]


def finished(at: datetime = LONG_AGO) -> Row:
    """A row that ended well."""
    return {"status": "success", "ready": False, "attempt": 1, "finished_at": at + timedelta(seconds=1)}


def running(worker: str, at: datetime = LONG_AGO) -> Row:
    """A row that a worker holds."""
    return {"status": "running", "ready": False, "attempt": 1, "worker_id": worker, "heartbeat_at": at}


def due_later(at: datetime, priority: int = 0) -> Row:
    """A row of the future."""
    return {"ready": False, "run_at": at, "priority": priority}


def fill(
    store: Store,
    number: int,
    change: Row | None = None,
    *,
    task_type: str = "t",
    first: int = 0,
    at: datetime = LONG_AGO,
) -> None:
    """Add so many rows, each as a new task's but for `change`; the ids count up from `first`.

    The arguments of a task are `{"number": …}`, which count up too.
    """
    base = enqueueing.values(store.db, NewTask("", task_type, {}), at)
    for begin in range(first, first + number, CHUNK):
        with store.connections.unhurried() as connection:
            connection.execute(
                inserting(store, dict(base) | dict(change or {}), begin, min(CHUNK, first + number - begin))
            )
            connection.commit()


def inserting(store: Store, row: Row, first: int, number: int) -> sa.Insert:
    tasks = store.tables.tasks
    # MariaDB ends a recursion after 1,000 rounds, so a thousand numbers are joined with themselves
    small = sa.select(sa.literal(0, sa.Integer).label("number")).cte("small", recursive=True)
    small = small.union_all(sa.select(small.c.number + 1).where(small.c.number < THOUSAND - 1))
    thousands, ones = small.alias("thousands"), small.alias("ones")
    place = thousands.c.number * THOUSAND + ones.c.number
    joined = thousands.join(ones, place < number)
    counted = sa.select((place + first).label("number")).select_from(joined).subquery("counted")
    given: dict[str, sa.ColumnElement[Any]] = {
        name: sa.literal(value, tasks.c[name].type) for name, value in row.items() if value is not None
    }
    given |= {"id": counted_id(store, counted.c.number), "payload": counted_payload(store, counted.c.number)}
    selected = sa.select(*(value.label(name) for name, value in given.items())).select_from(counted)
    return sa.insert(tasks).from_select(list(given), selected)


def counted_id(store: Store, number: sa.ColumnElement[int]) -> sa.ColumnElement[Any]:
    """A UUID that sorts by its number, as those of real tasks sort by their time."""
    start = "00000000-0000-7000-8000-"
    match store.kind:
        case "sqlite":
            return sa.func.printf(f"{start}%012x", number)
        case "postgresql":
            text = sa.func.lpad(sa.func.to_hex(number), 12, "0")
            return sa.cast(sa.literal(start).concat(text), sa.UUID(as_uuid=False))
        case _:
            return sa.func.concat(start, sa.func.lpad(sa.func.lower(sa.func.hex(number)), 12, "0"))


def counted_payload(store: Store, number: sa.ColumnElement[int]) -> sa.ColumnElement[Any]:
    parts = ('{"number":', sa.cast(number, sa.String(20)), "}")
    if store.kind == "mysql":
        return sa.func.concat(*parts)
    return sa.literal(parts[0], sa.Text).concat(parts[1]).concat(sa.literal(parts[2], sa.Text))


def analyse(store: Store) -> None:
    """Have the database learn what is in the table."""
    name = store.tables.tasks.name
    words = {"mysql": f"ANALYZE TABLE {name}", "postgresql": f"ANALYZE {name}"}.get(store.kind, "ANALYZE")
    with store.connections.reading() as connection:
        connection.execute(sa.text(words)).close()
