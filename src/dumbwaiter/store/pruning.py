"""What is to be removed, and removing it: expired files, what dead attempts left, old records. Each statement is bounded.

The file store comes first, the tables after it: whoever dies in between leaves rows by which the next one finds the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.store.dialects import Instant, moved
from dumbwaiter.store.rows import Database
from dumbwaiter.store.steps import FILE
from dumbwaiter.store.types import Timestamp
from dumbwaiter.store.uploads import let_go
from dumbwaiter.task import AttemptOutcome

# A worker that fell silent may still be storing a file when its attempt is swept; it hears that it lost its task long before.
LOOK_AGAIN = timedelta(hours=1)


class StoredFile(NamedTuple):
    """A published file: its task, its name, and where it lies."""

    task_id: str
    name: str
    object_key: str


@dataclass(frozen=True, slots=True)
class Prunable:
    """What there is to remove."""

    files: bool
    leftovers: bool
    records: bool
    uploads: bool


@dataclass(slots=True)
class Belongings:
    """What lies in the file store of a task: files by key, attempts that may have left some, kept files."""

    keys: list[str] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    kept: bool = False


def expired(db: Database, now: Instant) -> tuple[sa.ColumnElement[bool], ...]:
    files = db.tables.files
    return (files.c.deleted_at.is_(None), files.c.expires_at.is_not(None), files.c.expires_at <= now)


def left(db: Database, now: Instant) -> tuple[sa.ColumnElement[bool], ...]:
    attempts = db.tables.attempts
    return (attempts.c.sweep_at.is_not(None), attempts.c.sweep_at <= now)


def old(db: Database, now: Instant) -> tuple[sa.ColumnElement[bool], ...]:
    tasks = db.tables.tasks
    return (tasks.c.prune_at.is_not(None), tasks.c.prune_at <= now)


def nobodys(db: Database, now: Instant) -> tuple[sa.ColumnElement[bool], ...]:
    return (db.tables.uploads.c.expires_at <= now,)


def prunable(db: Database, connection: Connection, now: Instant) -> Prunable:
    """One look at the front of four indexes."""
    looks = (sa.exists().where(*what(db, now)) for what in (expired, left, old, nobodys))
    found = connection.execute(sa.select(*looks)).one()
    return Prunable(*(bool(value) for value in found))


def expired_files(
    db: Database, connection: Connection, now: Instant, limit: int, skip: int
) -> list[StoredFile]:
    files = db.tables.files
    statement = (
        sa.select(files.c.task_id, files.c.name, files.c.object_key)
        .where(*expired(db, now))
        .order_by(files.c.expires_at)
        .limit(limit)
        .offset(skip)
    )
    return [StoredFile(*row) for row in connection.execute(statement)]


def mark_deleted(db: Database, connection: Connection, gone: Sequence[StoredFile], now: Instant) -> None:
    files = db.tables.files
    statement = (
        sa.update(files)
        .where(
            files.c.task_id.in_(sorted({file.task_id for file in gone})),
            files.c.object_key.in_([file.object_key for file in gone]),
            files.c.deleted_at.is_(None),
        )
        .values(deleted_at=now)
    )
    connection.execute(statement)


def leftovers(
    db: Database, connection: Connection, now: Instant, limit: int, skip: int
) -> list[tuple[str, int]]:
    attempts = db.tables.attempts
    statement = (
        sa.select(attempts.c.task_id, attempts.c.number)
        .where(*left(db, now))
        .order_by(attempts.c.sweep_at)
        .limit(limit)
        .offset(skip)
    )
    return [(row[0], row[1]) for row in connection.execute(statement)]


def swept(db: Database, connection: Connection, gone: Sequence[tuple[str, int]], now: Instant) -> None:
    """Nothing is left of these attempts. Those whose worker fell silent are looked at once more, later."""
    attempts = db.tables.attempts
    silent = sa.and_(
        attempts.c.outcome == AttemptOutcome.CRASHED.value, attempts.c.sweep_at == attempts.c.ended_at
    )
    again = moved(now, LOOK_AGAIN, db.dialect)
    later = sa.literal(again, Timestamp) if isinstance(again, datetime) else again
    statement = (
        sa.update(attempts)
        .where(
            attempts.c.task_id.in_(sorted({task_id for task_id, _ in gone})),
            sa.tuple_(attempts.c.task_id, attempts.c.number).in_(gone),
        )
        .values(sweep_at=sa.case((silent, later), else_=sa.null()))
    )
    connection.execute(statement)


def old_records(db: Database, connection: Connection, now: Instant, limit: int, skip: int) -> list[str]:
    tasks = db.tables.tasks
    statement = (
        sa.select(tasks.c.id).where(*old(db, now)).order_by(tasks.c.prune_at).limit(limit).offset(skip)
    )
    return [str(found) for found in connection.execute(statement).scalars()]


def belongings(db: Database, connection: Connection, task_ids: Sequence[str]) -> Mapping[str, Belongings]:
    """One look for all of them."""
    files, attempts, steps = db.tables.files, db.tables.attempts, db.tables.steps
    nothing: Any = sa.null()
    # not as a condition: planners would look through all leftovers for those of these tasks
    may_have_left = sa.case((attempts.c.sweep_at.is_not(None), attempts.c.number), else_=0)
    parts = (
        sa.select(files.c.task_id, files.c.object_key, nothing.label("number")).where(
            files.c.task_id.in_(task_ids), files.c.deleted_at.is_(None)
        ),
        sa.select(attempts.c.task_id, nothing, may_have_left).where(attempts.c.task_id.in_(task_ids)),
        sa.select(steps.c.task_id, nothing, nothing).where(
            steps.c.task_id.in_(task_ids), steps.c.kind == FILE
        ),
    )
    found: dict[str, Belongings] = {}
    for task_id, key, number in connection.execute(sa.union_all(*parts)):
        if number == 0:
            continue
        of_task = found.setdefault(str(task_id), Belongings())
        if key is not None:
            of_task.keys.append(key)
        elif number is not None:
            of_task.attempts.append(number)
        else:
            of_task.kept = True
    return found


def prune(db: Database, connection: Connection, task_ids: Sequence[str], now: Instant) -> int:
    """Remove these records as far as nobody else is at it: a second pruner passes over them."""
    tasks = db.tables.tasks
    locked = (
        sa.select(tasks.c.id).where(tasks.c.id.in_(task_ids), *old(db, now)).with_for_update(skip_locked=True)
    )
    ids = sorted(str(found) for found in connection.execute(locked).scalars())
    if not ids:
        return 0
    let_go(db, connection, ids, now)
    for table in (db.tables.attempts, db.tables.steps, db.tables.files):
        connection.execute(sa.delete(table).where(table.c.task_id.in_(ids)))
    connection.execute(sa.delete(tasks).where(tasks.c.id.in_(ids)))
    return len(ids)
