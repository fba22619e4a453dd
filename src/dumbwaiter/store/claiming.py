"""Taking tasks for a worker: atomically, in order, and only what that worker can start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.sql.dml import ReturningUpdate

from dumbwaiter.store.dialects import Instant, moved
from dumbwaiter.store.fronts import Band, Place, bands, parameters, within
from dumbwaiter.store.prepared import Alone
from dumbwaiter.store.rows import READ_BY_A_CLAIM, Database, to_claimed, to_task
from dumbwaiter.store.tables import PENDING, ZERO
from dumbwaiter.store.types import Timestamp
from dumbwaiter.task import Status, Task

# How new the arguments may be, for the types that have more than one version of them.
Versions = Mapping[str, int]
# Capacities are sums and differences of fractions: 0.3 - 0.1 - 0.1 is a little less than 0.1.
ROUNDING = 1e-9
# More suspects at once than this come of a whole fleet's death; then two workers may stop claiming for them.
MOST_SUSPECTS = 200


@dataclass(frozen=True, slots=True)
class Want:
    """What a worker asks for: so many tasks of one queue, of these types, within what it has free.

    `needs` names for the types that need something how much of what; `free` is what the worker has of that.
    `beat_for` is added to a task's own timeout: so long after its start heartbeats still count.

    `in_process` are the types that take the worker along when they crash. Those of their tasks that have crashed one (the
    *suspects*) are left: they are claimed only `alone`, and then nothing else is.

    `ahead`: not all of them may find a slot at once. Of these the table says that they have not begun, until
    `keeping.begin`: a worker that dies before costs them nothing.
    """

    queue: str
    slots: int
    types: Sequence[str]
    needs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    free: Mapping[str, float] = field(default_factory=dict)
    beat_for: timedelta = timedelta(seconds=33)
    in_process: Sequence[str] = ()
    alone: bool = False
    versions: Versions = field(default_factory=dict)
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Concern:
    """Which suspects are a worker's business: of these types, in these queues (None: in any)."""

    types: Sequence[str]
    queues: Sequence[str] | None = None
    versions: Versions = field(default_factory=dict)

    def includes(self, task: Task) -> bool:
        return (
            task.task_type in self.types
            and task.payload_version <= self.versions.get(task.task_type, 1)
            and (self.queues is None or task.queue in self.queues)
        )


def startable(
    types: Sequence[str], needs: Mapping[str, Mapping[str, float]], free: Mapping[str, float]
) -> list[str]:
    """The types of which at least one task could start now."""
    return [name for name in types if fits(needs.get(name, {}), free)]


def fits(need: Mapping[str, float], free: Mapping[str, float]) -> bool:
    return all(free.get(name, 0) + ROUNDING >= amount for name, amount in need.items())


def chosen(candidates: Sequence[tuple[str, str]], want: Want) -> list[str]:
    """Of (id, type) in the order in which they should run, the ids that can all start together. Pure."""
    free = dict(want.free)
    taken = []
    for task_id, task_type in candidates:
        need = want.needs.get(task_type, {})
        if fits(need, free):
            taken.append(task_id)
            for name, amount in need.items():
                free[name] -= amount
    return taken


def at_once(db: Database, want: Want) -> bool:
    """Whether one statement can claim that: the database returns what it has updated, and nothing is to be counted."""
    return db.dialect.returning and not limited(want)


def in_order(tasks: Sequence[Task]) -> list[Task]:
    """As they should run. RETURNING keeps no order."""
    # by the last first, since a sort keeps what is equal as it was: a third of the time that one key of all three takes
    ordered = sorted(tasks, key=attrgetter("id"))
    ordered.sort(key=attrgetter("run_at"))
    ordered.sort(key=attrgetter("priority"), reverse=True)
    return ordered


def limited(want: Want) -> bool:
    """Whether what could start needs a capacity, so that not everything that is found may be taken."""
    return any(want.needs.get(name) for name in startable(want.types, want.needs, want.free))


def has_front(db: Database, want: Want) -> bool:
    """Whether a claim may begin where the last one ended. Not if that passed over what is to be taken later."""
    return db.dialect.ends_looks and not want.alone and not limited(want)


def due(
    db: Database, want: Want, now: Instant, *columns: sa.Column[Any], band: Band | None = None
) -> sa.Select[Any]:
    """The first due rows of the queue (or of a part of it), locked; rows that others have locked are passed over."""
    tasks = db.tables.tasks
    return (
        sa.select(*columns)
        .where(
            *startable_now(db, now),
            *in_fit_company(db, want),
            tasks.c.queue == want.queue,
            tasks.c.task_type.in_(want.types),
            known_version(db, want.versions),
            *(within(tasks, band) if band is not None else ()),
        )
        .order_by(tasks.c.priority.desc(), tasks.c.run_at, tasks.c.id)
        .limit(slots(want))
        .with_for_update(skip_locked=True)
    )


def startable_now(db: Database, now: Instant) -> tuple[sa.ColumnElement[bool], ...]:
    """Due, nobody's, and not too late: `start_before` binds the first attempt only, a retry has started in time."""
    tasks = db.tables.tasks
    in_time = sa.or_(tasks.c.start_before.is_(None), tasks.c.attempt > 0, tasks.c.start_before > now)
    return tasks.c.ready, tasks.c.status == PENDING, in_time


def known_version(db: Database, versions: Versions) -> sa.ColumnElement[bool]:
    """Arguments that the worker's application can read; newer ones wait for a newer worker."""
    tasks = db.tables.tasks
    newer = [
        sa.and_(tasks.c.task_type == name, tasks.c.payload_version <= version)
        for name, version in versions.items()
    ]
    return sa.or_(tasks.c.payload_version <= 1, *newer)


def in_fit_company(db: Database, want: Want) -> tuple[sa.ColumnElement[bool], ...]:
    """Beside others only what cannot take them along, as far as anybody knows; alone only what could."""
    tasks = db.tables.tasks
    if want.alone:
        return (tasks.c.crash_count > ZERO,)
    if not want.in_process:
        return ()
    # as one of two alternatives the count tempts no planner to serve the claim by the index of the suspects
    return (sa.or_(tasks.c.crash_count == ZERO, tasks.c.task_type.not_in(want.in_process)),)


def taking(db: Database, want: Want, worker: str, now: Instant) -> sa.Update:
    """The update that makes rows this worker's: the attempt is charged here."""
    tasks = db.tables.tasks
    return sa.update(tasks).values(
        status=Status.RUNNING.value,
        ready=False,
        attempt=tasks.c.attempt + 1,
        version=tasks.c.version + 1,
        worker_id=worker,
        ahead=want.ahead,
        reserved_by=None,
        started_at=now,
        heartbeat_at=now,
        updated_at=now,
        beat_until=db.dialect.after(now, tasks.c.timeout_seconds + want.beat_for.total_seconds()),
        progress=0.0,
        current_step=None,
        progress_at=None,
    )


def claim_alone(db: Database, want: Want, worker: str, now: Instant, *, places: Sequence[Place]) -> Alone:
    """The claim as one statement for the bare driver: lock, mark and read.

    All claims of a worker that differ in numbers only have one form: to make the statement takes Python a millisecond, more
    than the database needs to find what it asks for.
    """
    versions = tuple(sorted(want.versions.items()))
    form = (
        "claim",
        worker,
        want.queue,
        tuple(want.types),
        tuple(want.in_process),
        versions,
        want.beat_for,
        want.alone,
        want.ahead,
        len(places),
        type(now),
    )
    values: dict[str, Any] = {"slots": want.slots, **parameters(places)}
    instant = now
    if isinstance(now, datetime):
        instant, values["now"] = sa.bindparam("now", type_=Timestamp, required=False), now
    return Alone(
        form,
        lambda _: [claiming_at_once(db, want, worker, instant, places=len(places))],
        values,
        in_bulk=True,
    )


def claiming_at_once(
    db: Database, want: Want, worker: str, now: Instant, *, places: int = 0
) -> ReturningUpdate[Any]:
    """The claim as one statement. With `places` it looks at the parts of the queue that these make (`fronts.parameters`).

    MATERIALIZED is a fence for PostgreSQL's planner: without it, `IN (SELECT … LIMIT 3 FOR UPDATE SKIP LOCKED)` under a
    nested-loop plan ran its subquery for each outer row and claimed 161 rows.
    """
    tasks = db.tables.tasks
    selected = (parts(db, want, now, places) if places else due(db, want, now, tasks.c.id)).cte("due")
    if db.dialect.name == "postgresql":
        selected = selected.prefix_with("MATERIALIZED")
    update = taking(db, want, worker, now).where(db.dialect.among(tasks.c.id, sa.select(selected.c.id)))
    return update.returning(*read(db))


def read(db: Database) -> list[sa.Column[Any]]:
    """What a claim reads of its rows: each column costs as much as a tenth of the statement."""
    tasks = db.tables.tasks
    return [*(tasks.c[name] for name in READ_BY_A_CLAIM), tasks.c.timeout_seconds]


def parts(db: Database, want: Want, now: Instant, places: int) -> sa.CompoundSelect[Any]:
    """The first due rows of several parts of the queue: of each as many as those before it have left to take."""
    found: list[sa.CTE] = []
    for number, band in enumerate(bands(places)):
        left: sa.ColumnElement[int] = slots(want)
        for before in found:
            left -= sa.select(sa.func.count()).select_from(before).scalar_subquery()
        part = due(db, want, now, db.tables.tasks.c.id, band=band).limit(left)
        found.append(part.cte(f"part_{number}").prefix_with("MATERIALIZED"))
    return sa.union_all(*(sa.select(one.c.id) for one in found))


def slots(want: Want) -> sa.BindParameter[int]:
    return sa.bindparam("slots", want.slots, sa.Integer)


def claim_in_steps(db: Database, connection: Connection, want: Want, worker: str, now: Instant) -> list[Task]:
    """Lock, choose, mark, read: for databases without UPDATE … RETURNING, and where needs must be counted."""
    tasks = db.tables.tasks
    candidates = connection.execute(due(db, want, now, tasks.c.id, tasks.c.task_type)).all()
    ids = chosen([(row[0], row[1]) for row in candidates], want)
    if not ids:
        return []
    connection.execute(taking(db, want, worker, now).where(tasks.c.id.in_(ids)))
    rows = connection.execute(sa.select(*read(db)).where(tasks.c.id.in_(ids))).all()
    return to_claimed(rows, queue=want.queue, worker_id=worker, ahead=want.ahead)


def claim_one(
    db: Database, connection: Connection, want: Want, worker: str, now: Instant, *, task_id: str
) -> Task | None:
    """Make one given task this worker's, if it is due and nobody's: what an engine that was handed an id does."""
    tasks = db.tables.tasks
    update = taking(db, want, worker, now).where(
        tasks.c.id == task_id,
        *startable_now(db, now),
        *in_fit_company(db, want),
        tasks.c.task_type.in_(want.types),
        known_version(db, want.versions),
    )
    taken = connection.execute(update).rowcount == 1
    if not taken:
        return None
    return to_task(connection.execute(sa.select(tasks).where(tasks.c.id == task_id)).mappings().one())


def suspects(db: Database, queues: Sequence[str] | None) -> tuple[sa.ColumnElement[bool], ...]:
    """What has crashed a worker and is ready again."""
    tasks = db.tables.tasks
    crashed = (tasks.c.ready, tasks.c.status == PENDING, tasks.c.crash_count > ZERO)
    return crashed if queues is None else (*crashed, tasks.c.queue.in_(queues))


def any_suspect(db: Database, concern: Concern) -> sa.ColumnElement[bool]:
    """Whether a suspect waits that is this worker's business."""
    if not concern.types:
        return sa.false()
    ours = db.tables.tasks.c.task_type.in_(concern.types)
    return sa.exists().where(*suspects(db, concern.queues), ours, known_version(db, concern.versions))


def reserve(
    db: Database, connection: Connection, concern: Concern, worker: str, now: Instant, *, lease: timedelta
) -> str | None:
    """Write down that this worker claims nothing until it can run a suspect alone: the id of that one.

    None if there is none, or if another worker does so for one of these queues: one at a time stops, the others go on. A
    reservation of a worker that is stopping, or has been silent for a lease, is void.

    It is no claim. Whoever is empty first takes the suspect, and the reservation with it. The rows are locked in their
    order, and not passed over when locked, so that of two that reserve at once the second sees what the first has written.
    """
    tasks, workers = db.tables.tasks, db.tables.workers
    silent_since = moved(now, -lease, db.dialect)
    valid = sa.exists().where(
        workers.c.name == tasks.c.reserved_by,
        workers.c.heartbeat_at >= silent_since,
        sa.not_(workers.c.stopping),
    )
    waiting = (
        sa.select(tasks.c.id, tasks.c.task_type, tasks.c.reserved_by, valid, tasks.c.payload_version)
        .where(*suspects(db, concern.queues))
        .order_by(tasks.c.queue, tasks.c.priority.desc(), tasks.c.run_at, tasks.c.id)
        .limit(MOST_SUSPECTS)
        .with_for_update()
    )
    rows = connection.execute(waiting).all()
    if any(row[3] and row[2] != worker for row in rows):
        return None
    could = (row for row in rows if row[1] in concern.types and row[4] <= concern.versions.get(row[1], 1))
    first = next((str(row[0]) for row in could), None)
    if first is not None:
        connection.execute(sa.update(tasks).where(tasks.c.id == first).values(reserved_by=worker))
    return first


def reserved(db: Database, connection: Connection, task_id: str, worker: str) -> bool:
    """Whether the task still waits, and for this worker."""
    tasks = db.tables.tasks
    waits = (tasks.c.id == task_id, tasks.c.reserved_by == worker, tasks.c.ready)
    return connection.execute(sa.select(sa.literal(1)).where(*waits)).first() is not None


def queues_with_work(db: Database, connection: Connection) -> list[str]:
    """The queues in which something is ready, found by stepping through the index: one look-up a queue."""
    tasks = db.tables.tasks
    found: list[str] = []
    while True:
        statement = sa.select(tasks.c.queue).where(tasks.c.ready, tasks.c.status == PENDING)
        if found:
            statement = statement.where(tasks.c.queue > found[-1])
        name = connection.execute(statement.order_by(tasks.c.queue).limit(1)).scalar()
        if name is None:
            return found
        found.append(str(name))


def ready_types(db: Database, connection: Connection, queue: str, limit: int = 100) -> list[tuple[str, int]]:
    """The types of the first tasks that are due in a queue, with the versions of their arguments."""
    tasks = db.tables.tasks
    first = (
        sa.select(tasks.c.task_type, tasks.c.payload_version)
        .where(tasks.c.ready, tasks.c.status == PENDING, tasks.c.queue == queue)
        .order_by(tasks.c.priority.desc(), tasks.c.run_at, tasks.c.id)
        .limit(limit)
    ).subquery()
    kinds = sa.select(first.c.task_type, first.c.payload_version).distinct()
    return [(str(row[0]), int(row[1])) for row in connection.execute(kinds)]
