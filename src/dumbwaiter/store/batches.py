"""Many rows in one statement: new tasks of one type, and successes, which nearly every end of a short task is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.store.dialects import Instant
from dumbwaiter.store.ending import LET_GO, changes
from dumbwaiter.store.enqueueing import values
from dumbwaiter.store.rows import Database, Finish, NewTask
from dumbwaiter.store.tables import RUNNING
from dumbwaiter.strict_json import dumps
from dumbwaiter.task import Kind, Outcome, Status

# Rows of an id and a JSON text.
Bodies = Sequence[tuple[str, str | None]]
# A larger result goes alone: a hundred of 1 MiB would be one statement of 100 MiB, MySQL's packets have 16.
LARGEST = 16 * 1024


# So many rows, and so many characters of arguments, go into one insert.
ROWS, CHARACTERS = 1_000, 4 * 1024 * 1024


def insert(db: Database, connection: Connection, new: NewTask, bodies: Bodies, now: Instant) -> None:
    """Insert tasks that differ from `new` in nothing but id and arguments."""
    for chunk in chunks(bodies):
        given, parameters = db.dialect.given(chunk)
        connection.execute(inserting(db, new, given, now), parameters)


def inserting(db: Database, new: NewTask, given: sa.Subquery, now: Instant) -> sa.Insert:
    tasks = db.tables.tasks
    row = values(db, new, now) | {"id": given.c.id, "payload": given.c.body}
    columns = [
        value if isinstance(value, sa.ColumnElement) else sa.literal(value, tasks.c[name].type)
        for name, value in row.items()
    ]
    return sa.insert(tasks).from_select(list(row), sa.select(*columns).select_from(given))


def chunks(bodies: Bodies) -> Iterator[Bodies]:
    """The rows in parts that one statement can carry."""
    chunk: list[tuple[str, str | None]] = []
    size = 0
    for id_, body in bodies:
        length = len(body or "")
        if chunk and (len(chunk) == ROWS or size + length > CHARACTERS):
            yield chunk
            chunk, size = [], 0
        chunk.append((id_, body))
        size += length
    if chunk:
        yield chunk


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
    return sum(map(plain, ends)) > 1


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
    """The one update, each row of it under its fence, and its parameters."""
    tasks = db.tables.tasks
    given, parameters = db.dialect.given(rows)
    ended = LET_GO | changes(db, Outcome.succeeded(), now) | {"result": given.c.body}
    statement = (
        sa.update(tasks)
        .where(
            tasks.c.id == given.c.id,
            tasks.c.attempt == 1,
            db.dialect.unindexed(tasks.c.worker_id) == worker,
            db.dialect.unindexed(tasks.c.status) == RUNNING,
            tasks.c.cancel_requested_at.is_(None),
        )
        .values(ended | {"updated_at": now, "version": tasks.c.version + 1})
    )
    return statement, parameters
