"""How many active tasks one owner may have: counted in the transaction that inserts another, one such at a time.

One at a time for each owner: by an advisory lock to the end of the transaction on PostgreSQL, by the one write lock there is on
SQLite, and on MySQL by a named lock that is taken before our transaction begins and given back after its commit. A transaction of the
caller's own on MySQL cannot have that lock: two that race there may both pass.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.errors import TooManyActive
from dumbwaiter.store.rows import Database, Limit, NewTask


def admit(db: Database, connection: Connection, new: NewTask, number: int = 1) -> None:
    """Raise TooManyActive if its owner has as many active tasks as are allowed; else hold others of the owner off till the commit."""
    if not new.limits:
        return
    db.dialect.one_at_a_time(connection, str(new.turn))
    for limit in new.limits:
        active = connection.execute(counting(db, new, limit)).scalar_one()
        if active + number > limit.most:
            raise TooManyActive(new.owner, active=active, most=limit.most, task_type=limit.task_type)


def counting(db: Database, new: NewTask, limit: Limit) -> sa.Select[Any]:
    """The number of the owner's active tasks, as far as it matters. Not this one: its insert may be sent a second time."""
    tasks = db.tables.tasks
    active: sa.Select[Any] = sa.select(tasks.c.id).where(
        tasks.c.owner == new.owner, tasks.c.finished_at.is_(None), tasks.c.id != new.id
    )
    if limit.task_type is not None:
        active = active.where(tasks.c.task_type == limit.task_type)
    else:
        # true of all; or SQLite may take the index of all of the owner's tasks, and read those that have ended
        active = active.where(tasks.c.task_type > "")
    return sa.select(sa.func.count()).select_from(active.limit(limit.most).subquery())
