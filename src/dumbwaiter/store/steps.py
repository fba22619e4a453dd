"""What an attempt remembers for later ones: results of steps, a cursor, kept files. Every write is under its fence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.errors import LostClaim
from dumbwaiter.store.dialects import Instant
from dumbwaiter.store.keeping import holds
from dumbwaiter.store.rows import Database
from dumbwaiter.task import Fence, KeptFile, Mark, Recalled

RESULT, CURSOR, FILE = "result", "cursor", "file"


def lost(fence: Fence) -> LostClaim:
    return LostClaim(f"attempt {fence.attempt} no longer owns task {fence.task_id}")


def lock(db: Database, connection: Connection, fence: Fence) -> bool:
    """Hold the task's row, so that the fence still stands when this transaction commits. False if it does not stand."""
    tasks = db.tables.tasks
    statement = sa.select(tasks.c.id).where(*holds(db, fence)).with_for_update()
    return connection.execute(statement).first() is not None


def recall(db: Database, connection: Connection, fence: Fence) -> Recalled:
    """What earlier attempts left, without the results themselves, which may be large. Raises LostClaim."""
    tasks, steps = db.tables.tasks, db.tables.steps
    cursor = sa.case((steps.c.kind == CURSOR, steps.c.result), else_=None)
    rows = connection.execute(
        sa.select(steps.c.kind, steps.c.name, steps.c.progress, cursor)
        .select_from(tasks.outerjoin(steps, steps.c.task_id == tasks.c.id))
        .where(*holds(db, fence))
    ).all()
    if not rows:
        raise lost(fence)
    return Recalled(
        results=tuple(name for kind, name, _, _ in rows if kind == RESULT),
        cursor=next((value for kind, _, _, value in rows if kind == CURSOR), None),
        fraction=max((fraction for _, _, fraction, _ in rows if fraction is not None), default=None),
    )


def result(db: Database, connection: Connection, fence: Fence, name: str) -> Any:
    """The stored result of a step. Raises LostClaim."""
    return found(db, connection, fence, RESULT, name)[0]


def kept(db: Database, connection: Connection, fence: Fence, name: str) -> KeptFile | None:
    """The file that was kept under that name, or None. Raises LostClaim."""
    about, key = found(db, connection, fence, FILE, name)
    return None if key is None else KeptFile(key, about["size"], about["sha256"])


def found(db: Database, connection: Connection, fence: Fence, kind: str, name: str) -> tuple[Any, str | None]:
    """What a row says, or nothing where there is none."""
    tasks, steps = db.tables.tasks, db.tables.steps
    one = sa.and_(steps.c.task_id == tasks.c.id, steps.c.kind == kind, steps.c.name == name)
    row = connection.execute(
        sa.select(steps.c.result, steps.c.object_key)
        .select_from(tasks.outerjoin(steps, one))
        .where(*holds(db, fence))
    ).first()
    if row is None:
        raise lost(fence)
    return row[0], row[1]


def remember(
    db: Database,
    connection: Connection,
    fence: Fence,
    name: str,
    value: Any,
    *,
    fraction: float | None,
    now: Instant,
) -> None:
    """Write the result of a step. Raises LostClaim."""
    if not lock(db, connection, fence):
        raise lost(fence)
    values = {"attempt": fence.attempt, "result": value, "progress": fraction}
    put(db, connection, (fence.task_id, RESULT, name), values, now)


def mark(
    db: Database, connection: Connection, marks: Sequence[tuple[Fence, Mark]], now: Instant
) -> list[Fence]:
    """Write where attempts are in their work; which of them it was written for. The others own their tasks no more."""
    # by id, as the ends and the heartbeat: two that lock the same rows in one order cannot deadlock
    ordered = sorted(marks, key=lambda one: one[0].task_id)
    owned = [(fence, one) for fence, one in ordered if lock(db, connection, fence)]
    for fence, one in owned:
        put_mark(db, connection, fence, one, now)
    return [fence for fence, _ in owned]


def put_mark(db: Database, connection: Connection, fence: Fence, one: Mark, now: Instant) -> None:
    """Write the cursor of an attempt whose fence holds."""
    values = {"attempt": fence.attempt, "result": one.value, "progress": one.fraction}
    put(db, connection, (fence.task_id, CURSOR, ""), values, now)


def promise(db: Database, connection: Connection, fence: Fence, name: str, now: Instant) -> None:
    """Say that a file is about to be kept, before its first byte is: so the sweep finds it, whoever dies when.

    Raises LostClaim.
    """
    if not lock(db, connection, fence):
        raise lost(fence)
    put(db, connection, (fence.task_id, FILE, name), {"attempt": fence.attempt}, now)


def keep(
    db: Database,
    connection: Connection,
    fence: Fence,
    name: str,
    file: KeptFile,
    *,
    fraction: float | None,
    now: Instant,
) -> str | None:
    """Let a name stand for a file that is stored; the key of the one that it stood for. Raises LostClaim."""
    if not lock(db, connection, fence):
        raise lost(fence)
    values = {
        "attempt": fence.attempt,
        "result": {"size": file.size, "sha256": file.sha256},
        "object_key": file.object_key,
        "progress": fraction,
    }
    return put(db, connection, (fence.task_id, FILE, name), values, now)


def put(
    db: Database, connection: Connection, key: tuple[str, str, str], values: dict[str, Any], now: Instant
) -> str | None:
    """Insert or change the row of (task, kind, name); this transaction holds the task. The object's key that it had."""
    steps = db.tables.steps
    task_id, kind, name = key
    one = (steps.c.task_id == task_id, steps.c.kind == kind, steps.c.name == name)
    before = connection.execute(sa.select(steps.c.object_key).where(*one)).first()
    if before is not None:
        connection.execute(sa.update(steps).where(*one).values(values))
        return before[0]  # type: ignore[no-any-return]
    row = {"task_id": task_id, "kind": kind, "name": name, "created_at": now}
    connection.execute(sa.insert(steps).values(row | values))
    return None


def of_ended(db: Database, connection: Connection, limit: int) -> list[str]:
    """Tasks that have ended, or are no more, and still have steps."""
    tasks = db.tables.tasks
    held = sa.select(db.tables.steps.c.task_id).distinct().subquery()
    statement = (
        sa.select(held.c.task_id)
        .select_from(held.outerjoin(tasks, tasks.c.id == held.c.task_id))
        .where(sa.or_(tasks.c.id.is_(None), tasks.c.finished_at.is_not(None)))
        .limit(limit)
    )
    return [row[0] for row in connection.execute(statement)]


def with_files(db: Database, connection: Connection, task_ids: Sequence[str]) -> set[str]:
    """Those of the tasks that kept files, or began to."""
    steps = db.tables.steps
    statement = (
        sa.select(steps.c.task_id).where(steps.c.task_id.in_(task_ids), steps.c.kind == FILE).distinct()
    )
    return {row[0] for row in connection.execute(statement)}


def forget(db: Database, connection: Connection, task_ids: Sequence[str]) -> None:
    steps = db.tables.steps
    connection.execute(sa.delete(steps).where(steps.c.task_id.in_(task_ids)))
