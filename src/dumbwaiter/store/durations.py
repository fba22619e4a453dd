"""How long tasks of each type took lately: one row a type, kept by the workers that ran them, for estimates."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.eta import History
from dumbwaiter.store.dialects import Instant
from dumbwaiter.store.rows import Database


def known(
    db: Database, connection: Connection, task_types: Collection[str] | None = None
) -> dict[str, History]:
    """What is known of these task types, or of all."""
    durations = db.tables.durations
    statement = sa.select(durations.c.task_type, durations.c.history)
    if task_types is not None:
        statement = statement.where(durations.c.task_type.in_(sorted(task_types)))
    return {str(row[0]): History.from_json(row[1]) for row in connection.execute(statement)}


def add(
    db: Database, connection: Connection, fresh: Mapping[str, History], now: Instant
) -> dict[str, History]:
    """Merge what was seen with what is known: all of it by type. What another worker writes first at this moment is left out."""
    durations = db.tables.durations
    # in one order, so that two workers wait for each other and do not deadlock
    locked = (
        sa.select(durations.c.task_type, durations.c.history)
        .where(durations.c.task_type.in_(sorted(fresh)))
        .order_by(durations.c.task_type)
        .with_for_update()
    )
    before = {str(row[0]): History.from_json(row[1]) for row in connection.execute(locked).all()}
    after: dict[str, History] = {}
    for task_type, history in sorted(fresh.items()):
        if task_type in before:
            merged = before[task_type].merged(history)
            change = {"history": merged.as_json(), "updated_at": now}
            connection.execute(sa.update(durations).where(durations.c.task_type == task_type).values(change))
        else:
            merged = history
            row = {"task_type": task_type, "history": merged.as_json(), "updated_at": now}
            try:
                with connection.begin_nested():
                    connection.execute(sa.insert(durations).values(row))
            except sa.exc.IntegrityError:
                continue
        after[task_type] = merged
    return after
