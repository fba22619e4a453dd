"""Where waiting tasks stand in their queues: some statements, however many tasks are asked about, and however many wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.outlook import MOST_AHEAD, AtWork, Line, Lines, Server, Waiting
from dumbwaiter.store import durations
from dumbwaiter.store.rows import Database
from dumbwaiter.store.tables import PENDING
from dumbwaiter.task import Task

# So many queues are looked at in one statement.
QUEUES = 20
# More that runs in one queue is not looked at.
MOST_RUNNING = 1_000


# What comes first in a queue: the priority negated, when it was due, the id; and its type.
Key = tuple[int, datetime, str, str]


@dataclass(frozen=True, slots=True)
class Depth:
    """How far down a queue to look: to the last of the tasks that are asked about."""

    priority: int
    run_at: datetime


def depths(tasks: Sequence[Task]) -> dict[str, Depth]:
    """For each queue the last of these tasks, in the order in which they will run. Pure."""
    last: dict[str, Depth] = {}
    for task in tasks:
        depth, before = Depth(task.priority, task.run_at), last.get(task.queue)
        if before is None or (-depth.priority, depth.run_at) > (-before.priority, before.run_at):
            last[task.queue] = depth
    return last


def lines(
    db: Database, connection: Connection, tasks: Sequence[Task], *, lease: timedelta, now: datetime
) -> Lines:
    """The queues in which these tasks wait, down to the last of them."""
    down_to = depths(tasks)
    if not down_to:
        return Lines({})
    first = first_of(db, connection, down_to)
    running = at_work(db, connection, list(down_to))
    paused = paused_among(db, connection, list(down_to))
    found = {
        queue: line_of(queue, keys, running.get(queue, ()), paused=queue in paused)
        for queue, keys in first.items()
    }
    types = {one.task_type for line in found.values() for one in line.waiting}
    types |= {one.task_type for line in found.values() for one in line.running}
    histories = durations.known(db, connection, types) if types else {}
    return Lines(found, servers(db, connection, now - lease), histories)


def line_of(queue: str, keys: Sequence[Key], running: Sequence[AtWork], *, paused: bool) -> Line:
    waiting = [Waiting(task_id, task_type) for _, _, task_id, task_type in keys[:MOST_AHEAD]]
    end = keys[MOST_AHEAD - 1][:3] if len(keys) > MOST_AHEAD else None
    return Line(queue, waiting, running, end, paused)


def first_of(db: Database, connection: Connection, down_to: Mapping[str, Depth]) -> dict[str, list[Key]]:
    """The first that wait in each queue, at most one more than are counted, in order."""
    found: dict[str, list[Key]] = {queue: [] for queue in down_to}
    queues = list(down_to)
    for begin in range(0, len(queues), QUEUES):
        some = {queue: down_to[queue] for queue in queues[begin : begin + QUEUES]}
        for row in connection.execute(looking(db, some)):
            found[str(row.queue)].append((-row.priority, row.run_at, str(row.id), str(row.task_type)))
    return {queue: sorted(keys)[: MOST_AHEAD + 1] for queue, keys in found.items()}


def looking(db: Database, down_to: Mapping[str, Depth]) -> sa.CompoundSelect[Any]:
    """The parts of the claim's index that lie before these places: of each queue what has a higher priority, and its own.

    In two parts, since no database looks for `priority > 0 OR (priority = 0 AND run_at <= …)` by an index of both.
    """
    parts: list[sa.Select[Any]] = []
    for queue, depth in down_to.items():
        for part in (higher(db, queue, depth), own(db, queue, depth)):
            limited = part.limit(MOST_AHEAD + 1).subquery()
            parts.append(sa.select(*limited.c))
    return sa.union_all(*parts)


def ready(db: Database, queue: str) -> sa.Select[Any]:
    tasks = db.tables.tasks
    return (
        sa.select(tasks.c.queue, tasks.c.priority, tasks.c.run_at, tasks.c.id, tasks.c.task_type)
        .where(tasks.c.ready, tasks.c.status == PENDING, tasks.c.queue == queue)
        .order_by(tasks.c.priority.desc(), tasks.c.run_at, tasks.c.id)
    )


def higher(db: Database, queue: str, depth: Depth) -> sa.Select[Any]:
    return ready(db, queue).where(db.tables.tasks.c.priority > depth.priority)


def own(db: Database, queue: str, depth: Depth) -> sa.Select[Any]:
    tasks = db.tables.tasks
    return ready(db, queue).where(tasks.c.priority == depth.priority, tasks.c.run_at <= depth.run_at)


def at_work(db: Database, connection: Connection, queues: Sequence[str]) -> dict[str, list[AtWork]]:
    """What runs in these queues. Found by the heartbeats: as many rows as run anywhere."""
    tasks = db.tables.tasks
    statement = (
        sa.select(
            tasks.c.queue,
            tasks.c.task_type,
            tasks.c.worker_id,
            tasks.c.started_at,
            tasks.c.estimated_finish_at,
        )
        .where(tasks.c.heartbeat_at.is_not(None), tasks.c.queue.in_(queues))
        .limit(MOST_RUNNING)
    )
    found: dict[str, list[AtWork]] = {}
    for queue, *about in connection.execute(statement):
        found.setdefault(str(queue), []).append(AtWork(*about))
    return found


def paused_among(db: Database, connection: Connection, names: Sequence[str]) -> set[str]:
    queues = db.tables.queues
    statement = sa.select(queues.c.name).where(queues.c.name.in_(names), queues.c.paused)
    return set(connection.execute(statement).scalars())


def servers(db: Database, connection: Connection, heard_since: datetime) -> list[Server]:
    """The workers that claim: alive, and not being stopped."""
    workers = db.tables.workers
    statement = sa.select(workers.c.name, workers.c.queues, workers.c.slots, workers.c.capacity).where(
        workers.c.heartbeat_at >= heard_since, sa.not_(workers.c.stopping)
    )
    return [
        Server(str(name), queues or {"": slots}, capacity)
        for name, queues, slots, capacity in connection.execute(statement)
    ]
