"""Many successes in one statement: what nearly every end of a short task is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.store.dialects import Instant
from dumbwaiter.store.ending import LET_GO, changes
from dumbwaiter.store.rows import Bodies, Database, Finish
from dumbwaiter.store.tables import RUNNING
from dumbwaiter.store.types import Timestamp
from dumbwaiter.strict_json import dumps
from dumbwaiter.task import Kind, Outcome, Status

# A larger result goes alone: a hundred of 1 MiB would be one statement of 100 MiB, MySQL's packets have 16.
LARGEST = 16 * 1024


def plain(end: Finish) -> bool:
    """A success with nothing beside it: no history to write, no file, no key for which another task may wait."""
    return (
        end.outcome.kind is Kind.SUCCEED
        and end.task.attempt == 1
        and end.task.active_key is None
        and not end.files
    )


def several(ends: Sequence[Finish]) -> bool:
    """There is more than one to write at once."""
    return len(list(islice(filter(plain, ends), 2))) > 1


def succeed(db: Database, connection: Connection, ends: Sequence[Finish], now: Instant) -> set[str]:
    """Write the plain successes among these ends of one worker; the ids of those that stand in the table now.

    The others, one that lost its task or whose cancel came first among them, are left to `ending.finish`.
    """
    worker = ends[0].task.worker_id
    results = {end.task.id: text(end) for end in ends if plain(end) and end.task.worker_id == worker}
    rows = sorted((id_, result) for id_, result in results.items() if len(result or "") <= LARGEST)
    if len(rows) < 2:
        return set()
    statement, parameters = succeeding(db, worker, rows, now)
    if connection.execute(statement, parameters).rowcount == len(rows):
        return {id_ for id_, _ in rows}
    tasks = db.tables.tasks
    standing = sa.select(tasks.c.id).where(
        tasks.c.id.in_([id_ for id_, _ in rows]),
        tasks.c.status == Status.SUCCESS.value,
        tasks.c.attempt == 1,
    )
    return set(connection.execute(standing).scalars())


def text(end: Finish) -> str | None:
    return None if end.outcome.result is None else dumps(end.outcome.result)


def succeeding(
    db: Database, worker: str | None, rows: Bodies, now: Instant
) -> tuple[sa.Update, dict[str, object]]:
    """The one update, each row of it under its fence, and its parameters.

    The statement is made once: to make it takes Python as long as the database takes for a dozen rows.
    """
    given, parameters = db.dialect.given(rows)
    parameters["worker"] = worker
    instant = now
    if isinstance(now, datetime):
        instant, parameters["now"] = sa.bindparam("now", type_=Timestamp), now
    key = ("succeeding", isinstance(now, datetime))
    if key not in db.kept:
        db.kept[key] = updating(db, given, instant)
    statement: sa.Update = db.kept[key]
    return statement, parameters


def updating(db: Database, given: sa.Subquery, now: Instant) -> sa.Update:
    tasks = db.tables.tasks
    ended = LET_GO | changes(db, Outcome.succeeded(), now) | {"result": given.c.body}
    return (
        sa.update(tasks)
        .where(
            tasks.c.id == given.c.id,
            tasks.c.attempt == 1,
            db.dialect.unindexed(tasks.c.worker_id) == sa.bindparam("worker", type_=tasks.c.worker_id.type),
            db.dialect.unindexed(tasks.c.status) == RUNNING,
            tasks.c.cancel_requested_at.is_(None),
        )
        .values(ended | {"updated_at": now, "version": tasks.c.version + 1})
    )
