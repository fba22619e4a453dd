"""Many successes in one statement: what nearly every end of a short task is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.store.dialects import Instant
from dumbwaiter.store.ending import LET_GO, changes
from dumbwaiter.store.prepared import Alone
from dumbwaiter.store.rows import Database, Finish
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


def succeed(db: Database, ends: Sequence[Finish], now: Instant) -> tuple[Alone, list[str]]:
    """One update for the plain successes among these ends of one worker, each row of it under its fence; and their ids.

    Fewer than two are left to `ending.finish`, as are those that it does not find: one that lost its task, or whose cancel
    came first. And those whose records are kept for another time than those of the first.
    """
    worker = next(filter(plain, ends)).task.worker_id
    successes = [end for end in ends if plain(end) and end.task.worker_id == worker]
    times = {name: db.retention(name).success for name in {end.task.task_type for end in successes}}
    kept = times[successes[0].task.task_type]
    results = {end.task.id: text(end) for end in successes if times[end.task.task_type] == kept}
    rows = sorted((id_, result) for id_, result in results.items() if len(result or "") <= LARGEST)
    values = {**db.dialect.carrying(rows), "worker": worker}
    if isinstance(now, datetime):
        values["now"] = now
        if kept is not None:
            values["pruned"] = now + kept
    elif kept is not None:
        values["kept"] = kept.total_seconds()
    form = ("succeed", type(now), kept is None)
    alone = Alone(form, lambda _: [succeeding(db, now, prunes=kept is not None)], values, in_bulk=True)
    return alone, [id_ for id_, _ in rows]


def standing(db: Database, connection: Connection, ids: Sequence[str]) -> set[str]:
    """Of these first attempts those whose success stands in the table."""
    tasks = db.tables.tasks
    found = sa.select(tasks.c.id).where(
        tasks.c.id.in_(ids), tasks.c.status == Status.SUCCESS.value, tasks.c.attempt == 1
    )
    return set(connection.execute(found).scalars())


def text(end: Finish) -> str | None:
    return None if end.outcome.result is None else dumps(end.outcome.result)


def succeeding(db: Database, now: Instant, *, prunes: bool) -> sa.Update:
    """The update of `succeed`, whose values are parameters; so is the instant, if it is a value."""
    tasks, given = db.tables.tasks, db.dialect.given()
    instant, pruned = now, None
    if isinstance(now, datetime):
        instant = sa.bindparam("now", type_=Timestamp, required=False)
    if prunes and isinstance(now, datetime):
        pruned = sa.bindparam("pruned", type_=Timestamp, required=False)
    elif prunes:
        pruned = db.dialect.after(now, sa.bindparam("kept", type_=sa.Double, required=False))
    ended = LET_GO | changes(db, Outcome.succeeded(), instant) | {"result": given.c.body}
    return (
        sa.update(tasks)
        .where(
            tasks.c.id == given.c.id,
            tasks.c.attempt == 1,
            db.dialect.unindexed(tasks.c.worker_id) == sa.bindparam("worker", type_=tasks.c.worker_id.type),
            db.dialect.unindexed(tasks.c.status) == RUNNING,
            tasks.c.cancel_requested_at.is_(None),
        )
        .values(ended | {"updated_at": instant, "version": tasks.c.version + 1, "prune_at": pruned})
    )
