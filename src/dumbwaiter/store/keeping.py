"""Keeping the table going: heartbeats, progress, making due tasks ready, and who works here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.retry import storable
from dumbwaiter.store.claiming import Concern, any_suspect
from dumbwaiter.store.dialects import Instant, moved
from dumbwaiter.store.rows import Ahead, Around, Database, Report, Standing, WorkerRow
from dumbwaiter.store.tables import PENDING, RUNNING
from dumbwaiter.task import Fence, Status, clamped


def beating(db: Database, worker: Any, now: Instant) -> sa.Update:
    """The heartbeat: one statement for all the tasks of a worker.

    It beats only for tasks within their time (timeout, grace, 30 s): a worker that neither ends a task nor notices must
    not keep it for ever. Found by the index on heartbeat_at, as many rows as run anywhere; on MySQL by the worker's own.

    Where the database can, rows that somebody has locked are passed over: a caller's open transaction may hold one task
    (it replaces it, say), and must not silence all the others of its worker.
    """
    tasks = db.tables.tasks
    held = (
        *db.dialect.running(tasks),
        tasks.c.worker_id == worker,
        sa.or_(tasks.c.beat_until.is_(None), tasks.c.beat_until > now),
    )
    update = sa.update(tasks).values(heartbeat_at=now)
    if db.dialect.name != "postgresql":
        return update.where(*held)
    free = sa.select(tasks.c.id).where(*held).with_for_update(skip_locked=True).cte("held")
    return update.where(db.dialect.among(tasks.c.id, sa.select(free.prefix_with("MATERIALIZED").c.id)))


def move_time(db: Database, connection: Connection, worker: str, by: timedelta) -> None:
    """The clock jumped ahead: the time in which a worker's heartbeats count moves along, for its tasks' own does not jump."""
    tasks = db.tables.tasks
    held = (*db.dialect.running(tasks), tasks.c.worker_id == worker, tasks.c.status == Status.RUNNING.value)
    until = db.dialect.after(tasks.c.beat_until, by.total_seconds())
    connection.execute(sa.update(tasks).where(*held).values(beat_until=until))


def forget_the_future(db: Database, connection: Connection, now: Instant) -> None:
    """The clock was set back: a heartbeat of what is the future now would keep what a dead worker holds until then."""
    for table in (db.tables.tasks, db.tables.workers):
        key, beat = next(iter(table.primary_key)), table.c.heartbeat_at
        ahead = sa.select(key).where(beat > now).with_for_update(skip_locked=True)
        if ids := list(connection.execute(ahead).scalars()):
            connection.execute(sa.update(table).where(key.in_(ids), beat > now).values(heartbeat_at=now))


def worker_beating(db: Database, worker: Any, now: Instant) -> sa.Update:
    workers = db.tables.workers
    return sa.update(workers).where(workers.c.name == worker).values(heartbeat_at=now)


def beat_at_once(db: Database, worker: Any, now: Instant) -> list[sa.Update]:
    """A heartbeat in as few statements as the database lets it be."""
    first, second = worker_beating(db, worker, now), beating(db, worker, now)
    if db.dialect.name != "postgresql":
        # first the worker's own row, which nobody else locks: it says that the worker lives, come what may
        return [first, second]
    # both in one: the second waits for nobody there
    return [second.add_cte(first.returning(db.tables.workers.c.name).cte("alive"))]


def report(db: Database, connection: Connection, reports: Sequence[Report], now: Instant) -> None:
    """Write how far running attempts have come. Progress never goes back within an attempt."""
    tasks = db.tables.tasks
    for entry in reports:
        values: dict[str, Any] = {"updated_at": now, "progress_at": now, "version": tasks.c.version + 1}
        fraction = None if entry.progress.fraction is None else clamped(entry.progress.fraction)
        if fraction is not None:
            further = tasks.c.progress > fraction
            values["progress"] = sa.case((further, tasks.c.progress), else_=fraction)
        if entry.progress.step is not None:
            values["current_step"] = storable(entry.progress.step)[:200]
        if entry.progress.message is not None:
            values["message"] = storable(entry.progress.message)[:500] or None
        if entry.remaining is not None:
            values["estimated_finish_at"] = moved(now, entry.remaining, db.dialect)
            values["estimate_spread"] = entry.spread
        fence = entry.task.fence
        connection.execute(sa.update(tasks).where(*holds(db, fence)).values(values))


def holds(db: Database, fence: Fence) -> tuple[sa.ColumnElement[bool], ...]:
    """The fence as conditions."""
    tasks = db.tables.tasks
    return (
        tasks.c.id == fence.task_id,
        tasks.c.attempt == fence.attempt,
        tasks.c.worker_id == fence.worker_id,
        tasks.c.status == Status.RUNNING.value,
    )


def standing(db: Database, connection: Connection, fences: Sequence[Fence]) -> dict[Fence, Standing]:
    """Which of these attempts still own their tasks, and which were asked to end."""
    tasks = db.tables.tasks
    columns = (tasks.c.id, tasks.c.attempt, tasks.c.worker_id, tasks.c.status, tasks.c.cancel_requested_at)
    rows = connection.execute(
        sa.select(*columns).where(tasks.c.id.in_([fence.task_id for fence in fences]))
    ).all()
    found = {
        Fence(row[0], row[2], row[1]): row[4] is not None for row in rows if row[3] == Status.RUNNING.value
    }
    return {fence: Standing(fence in found, found.get(fence, False)) for fence in fences}


def begin(db: Database, connection: Connection, fences: Sequence[Fence]) -> None:
    """Note that attempts which were claimed ahead have begun: from now on the death of their worker counts."""
    tasks = db.tables.tasks
    connection.execute(
        sa.update(tasks)
        .where(
            tasks.c.id.in_([fence.task_id for fence in fences]),
            sa.tuple_(tasks.c.id, tasks.c.attempt).in_([(fence.task_id, fence.attempt) for fence in fences]),
            tasks.c.worker_id == fences[0].worker_id,
            tasks.c.status == RUNNING,
        )
        .values(ahead=False)
    )


def stage(db: Database, connection: Connection, now: Instant, limit: int) -> tuple[int, list[str]]:
    """Make ready what has become due, the earliest first: how many, and in which queues."""
    tasks = db.tables.tasks
    waiting = (
        tasks.c.status == PENDING,
        sa.not_(tasks.c.ready),
        tasks.c.waits_for.is_(None),
    )
    due = (
        sa.select(tasks.c.id, tasks.c.queue)
        .where(*waiting, tasks.c.run_at <= now)
        .order_by(tasks.c.run_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = connection.execute(due).all()
    if not rows:
        return 0, []
    connection.execute(
        sa.update(tasks).where(tasks.c.id.in_([row[0] for row in rows]), *waiting).values(ready=True)
    )
    return len(rows), sorted({row[1] for row in rows})


def ahead(db: Database, connection: Connection, concern: Concern, now: Instant) -> Ahead:
    """How long until the next task that waits for its time is due, and whether a suspect waits for this worker, or anything."""
    tasks = db.tables.tasks
    ours = () if concern.queues is None else (tasks.c.queue.in_(concern.queues),)
    ready = sa.exists().where(tasks.c.ready, tasks.c.status == PENDING, *ours)
    clock = () if isinstance(now, datetime) else (now,)
    earliest = (
        sa.select(tasks.c.run_at)
        .where(tasks.c.status == PENDING, sa.not_(tasks.c.ready), tasks.c.waits_for.is_(None))
        .order_by(tasks.c.run_at)
        .limit(1)
    ).scalar_subquery()
    found = connection.execute(sa.select(earliest, any_suspect(db, concern), ready, *clock)).one()
    left = None if found[0] is None else found[0] - (now if isinstance(now, datetime) else found[3])
    return Ahead(left, bool(found[1]), bool(found[2]))


def around(db: Database, connection: Connection, now: Instant, lease: timedelta) -> Around:
    """Whether there is anything for `ending.expire` and `ending.rescue` to look at more closely."""
    tasks = db.tables.tasks
    late = sa.exists().where(tasks.c.status == PENDING, tasks.c.start_before <= now, tasks.c.attempt == 0)
    silent = sa.exists().where(
        tasks.c.heartbeat_at.is_not(None), tasks.c.heartbeat_at < moved(now, -lease, db.dialect)
    )
    clock = () if isinstance(now, datetime) else (now,)
    found = connection.execute(sa.select(late, silent, *clock)).one()
    return Around(now if isinstance(now, datetime) else found[2], bool(found[0]), bool(found[1]))


def register(db: Database, connection: Connection, worker: WorkerRow, now: Instant) -> None:
    """Write the row of a worker that starts. A second time too: of a commit without an answer nobody knows whether it passed."""
    workers = db.tables.workers
    connection.execute(sa.delete(workers).where(workers.c.name == worker.name))
    values = {
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "queues": dict(worker.queues),
        "slots": worker.slots,
        "capacity": dict(worker.capacity),
        "started_at": now,
        "heartbeat_at": now,
        "stopping": False,
    }
    connection.execute(sa.insert(workers).values(values))


def forget_silent(db: Database, connection: Connection, now: Instant, after: timedelta) -> None:
    """Forget workers that have not been heard of for so long."""
    workers = db.tables.workers
    connection.execute(sa.delete(workers).where(workers.c.heartbeat_at < moved(now, -after, db.dialect)))


def to_worker(row: sa.RowMapping) -> WorkerRow:
    return WorkerRow(
        name=row["name"],
        host=row["host"],
        pid=row["pid"],
        version=row["version"],
        queues=row["queues"],
        capacity=row["capacity"],
        started_at=row["started_at"],
        heartbeat_at=row["heartbeat_at"],
        stopping=row["stopping"],
        slots=row["slots"],
        short_of=row["short_of"],
    )
