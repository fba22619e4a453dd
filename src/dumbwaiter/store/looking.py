"""What pages ask: an owner's tasks, the latest of a key, and what has changed among those that somebody watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.retry import storable
from dumbwaiter.store.dialects import Instant
from dumbwaiter.store.rows import Database, to_file, to_task
from dumbwaiter.task import ResultFile, Status, Task

# So many ids go into one statement.
IDS = 500


def of_owner(db: Database, owner: str | None) -> sa.ColumnElement[bool]:
    """Who is nobody has the tasks of nobody."""
    column = db.tables.tasks.c.owner
    return column.is_(None) if owner is None else column == owner


def recent(
    db: Database, connection: Connection, owner: str | None, *, task_type: str | None, limit: int
) -> list[Task]:
    """The owner's newest tasks, the newest first."""
    statement = recent_statement(db, owner, task_type=task_type, limit=limit)
    if any(text is not None and storable(text) != text for text in (owner, task_type)):
        return []  # no task can have it, and not every database takes the question
    return with_files(db, connection, connection.execute(statement).mappings().all())


def recent_statement(
    db: Database, owner: str | None, *, task_type: str | None = None, limit: int
) -> sa.Select[Any]:
    tasks = db.tables.tasks
    statement = sa.select(tasks).where(of_owner(db, owner)).order_by(tasks.c.id.desc()).limit(limit)
    return statement if task_type is None else statement.where(tasks.c.task_type == task_type)


def latest(db: Database, connection: Connection, task_type: str, key: str, owner: str | None) -> Task | None:
    """The owner's newest task of a type under a business key."""
    if any(text is not None and storable(text) != text for text in (task_type, key, owner)):
        return None
    rows = connection.execute(latest_statement(db, task_type, key, owner)).mappings().all()
    return next(iter(with_files(db, connection, rows)), None)


def latest_statement(db: Database, task_type: str, key: str, owner: str | None) -> sa.Select[Any]:
    tasks = db.tables.tasks
    keyed = (tasks.c.task_type == task_type, tasks.c.business_key == key, of_owner(db, owner))
    return sa.select(tasks).where(*keyed).order_by(tasks.c.id.desc()).limit(1)


def several(db: Database, connection: Connection, ids: Sequence[str]) -> list[Task]:
    """Those of the tasks that there are, with their files."""
    tasks = db.tables.tasks
    found: list[Task] = []
    for start in range(0, len(ids), IDS):
        statement = sa.select(tasks).where(tasks.c.id.in_(ids[start : start + IDS]))
        found += with_files(db, connection, connection.execute(statement).mappings().all())
    return found


def versions(
    db: Database, connection: Connection, ids: Sequence[str], now: Instant
) -> tuple[Mapping[str, int], datetime | None]:
    """The versions of those of the tasks that there are, and the instant at which that was so; none if there are none."""
    found: dict[str, int] = {}
    seen_at = now if isinstance(now, datetime) else None
    for start in range(0, len(ids), IDS):
        for row in connection.execute(versions_statement(db, ids[start : start + IDS], now)):
            found[row[0]] = row[1]
            seen_at = row[2] if len(row) > 2 else seen_at
    return found, seen_at


def versions_statement(db: Database, ids: Sequence[str], now: Instant) -> sa.Select[Any]:
    tasks = db.tables.tasks
    columns: list[Any] = [tasks.c.id, tasks.c.version]
    if not isinstance(now, datetime):
        columns.append(now.label("now"))
    return sa.select(*columns).where(tasks.c.id.in_(ids))


def with_files(db: Database, connection: Connection, rows: Sequence[sa.RowMapping]) -> list[Task]:
    """The rows as tasks; those that succeeded have their files, which all come by one statement."""
    succeeded = [row["id"] for row in rows if row["status"] == Status.SUCCESS.value]
    files: dict[str, list[ResultFile]] = {}
    if succeeded:
        table = db.tables.files
        statement = (
            sa.select(table).where(table.c.task_id.in_(succeeded)).order_by(table.c.task_id, table.c.name)
        )
        for row in connection.execute(statement).mappings():
            files.setdefault(row["task_id"], []).append(to_file(row))
    return [to_task(row, tuple(files.get(row["id"], ()))) for row in rows]
