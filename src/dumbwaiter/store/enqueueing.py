"""Putting a task into the table, and what a business key or a request key does to that."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.errors import DuplicateTask, InvalidOption, KeyContended, RequestKeyReused
from dumbwaiter.retry import storable
from dumbwaiter.store import limits, uploads
from dumbwaiter.store.dialects import PATIENCE, STAYED_LOCKED, Instant, moved
from dumbwaiter.store.ending import FARTHEST, cancel_pending, request_cancel
from dumbwaiter.store.rows import Bodies, Database, NewTask, next_key, to_task
from dumbwaiter.store.types import LongText, Timestamp
from dumbwaiter.strict_json import dumps, loads
from dumbwaiter.task import Status, Task

# So many rows, and so many characters of arguments, go into one insert.
ROWS, CHARACTERS = 1_000, 4 * 1024 * 1024


def enqueue(
    db: Database, connection: Connection, new: NewTask, now: Instant, *, own: bool = True
) -> tuple[str, bool]:
    """The id of the task that the caller should look at, and whether it is the new one.

    `own` says that the transaction is ours, not the caller's. Raises DuplicateTask, RequestKeyReused, KeyContended, TooManyActive, and
    UnknownUpload or UploadConflict for uploads that it may not have.
    """
    if not new.uploads:
        return insert(db, connection, new, now, own=own)
    uploads.take(db, connection, new.uploads, new.owner, now)
    task_id, created = insert(db, connection, new, now, own=own)
    if created:
        uploads.use(db, connection, [(task_id, one) for one in new.uploads])
    return task_id, created


def insert(
    db: Database, connection: Connection, new: NewTask, now: Instant, *, own: bool
) -> tuple[str, bool]:
    if new.active_key is None and new.request_key is None and not new.limits:
        return insert_plain(db, connection, new, now)
    with db.dialect.patient(connection, own=own):
        return insert_once(db, connection, new, now)


def insert_once(db: Database, connection: Connection, new: NewTask, now: Instant) -> tuple[str, bool]:
    """Insert a task unless its request or its key stands for another one."""
    replayed = by_request_key(db, connection, new)
    if replayed is not None:
        return replayed, replayed == new.id
    if new.active_key is None:
        return insert_plain(db, connection, new, now)
    reusable = still_valid(db, connection, new, now)
    if reusable is not None:
        return reusable, False
    return insert_keyed(db, connection, new, new.active_key, now)


def put(db: Database, connection: Connection, new: NewTask, row: dict[str, Any]) -> bool:
    """Insert the row, if its owner may have one more. False if a key of its is taken."""
    limits.admit(db, connection, new)
    return db.dialect.insert_once(connection, db.tables.tasks, row)


def insert_plain(db: Database, connection: Connection, new: NewTask, now: Instant) -> tuple[str, bool]:
    """A task without a business key collides with nothing, unless its request is being sent twice at this moment.

    Or its insert is: one whose commit nobody heard of is sent again under the same id.
    """
    if put(db, connection, new, values(db, new, now)):
        return new.id, True
    replayed = by_request_key(db, connection, new, locked=True)
    if replayed is not None:
        return replayed, replayed == new.id
    if new.request_key is None:
        return new.id, True
    raise KeyContended("the same request is being made by another transaction; send it again")


def insert_keyed(
    db: Database, connection: Connection, new: NewTask, key: str, now: Instant
) -> tuple[str, bool]:
    """One active task for each key: look, insert unless somebody was faster, look again.

    Looking first costs one read and spares MySQL the lock that a failed insert leaves on the holder's row.
    """
    give_up = time.monotonic() + PATIENCE
    tries = 0
    while True:
        holder = by_active_key(db, connection, key, locked=tries > 0)
        if holder is not None:
            settled = settle_duplicate(db, connection, new, holder, now)
            if settled is not None:
                return settled
        elif put(db, connection, new, values(db, new, now, key)):
            return new.id, True
        tries += 1
        if new.request_key is not None and (replayed := by_request_key(db, connection, new, locked=True)):
            return replayed, replayed == new.id
        if time.monotonic() > give_up:
            raise KeyContended(STAYED_LOCKED)
        time.sleep(random.uniform(0, 0.003) * tries)


def settle_duplicate(
    db: Database, connection: Connection, new: NewTask, holder: Task, now: Instant
) -> tuple[str, bool] | None:
    """What becomes of an enqueue whose key is taken; None if the holder ended meanwhile and we should look again."""
    if holder.id == new.id:
        return new.id, True
    ending = holder.status is Status.RUNNING and holder.cancel_requested_at is not None
    match new.on_duplicate:
        case "reject" if not ending:
            raise DuplicateTask(holder)
        case "return" if not ending:
            return holder.id, False
        case "replace" if holder.status is Status.PENDING:
            if cancel_pending(db, connection, holder, now, f"replaced by task {new.id}", takes_key=True):
                drop_follower(db, connection, new, holder, now)
            return None
        case "replace":
            request_cancel(db, connection, holder, now)
            drop_follower(db, connection, new, holder, now)
            return queue_behind(db, connection, new, holder, now)
        case _:
            return queue_behind(db, connection, new, holder, now)


def queue_behind(
    db: Database, connection: Connection, new: NewTask, holder: Task, now: Instant
) -> tuple[str, bool] | None:
    """Wait for the holder of the key, in the one slot there is for that; a second asker gets the first one's task."""
    if not still_active(db, connection, holder):
        return None
    slot = next_key(str(holder.active_key))
    follower = by_active_key(db, connection, slot, locked=True)
    if follower is not None and new.on_duplicate == "reject" and follower.id != new.id:
        raise DuplicateTask(follower)
    if follower is not None:
        return follower.id, follower.id == new.id
    row = values(db, new, now, slot) | {"waits_for": holder.id, "ready": False}
    return (new.id, True) if put(db, connection, new, row) else None


def drop_follower(db: Database, connection: Connection, new: NewTask, holder: Task, now: Instant) -> None:
    follower = by_active_key(db, connection, next_key(str(holder.active_key)), locked=True)
    if follower is not None and follower.id != new.id:
        cancel_pending(db, connection, follower, now, f"replaced by task {new.id}", takes_key=True)


def still_active(db: Database, connection: Connection, holder: Task) -> bool:
    """The holder has not ended, and will not before this transaction does.

    On PostgreSQL KEY SHARE is held off by the finish alone (it changes a unique column), so heartbeats go on.
    """
    tasks = db.tables.tasks
    statement = (
        sa.select(tasks.c.active_key)
        .where(tasks.c.id == holder.id)
        .with_for_update(read=True, key_share=True)
    )
    return connection.execute(statement).scalar() == holder.active_key


def by_active_key(db: Database, connection: Connection, key: str, *, locked: bool = False) -> Task | None:
    """The holder of a key. `locked` sees rows committed after this transaction's snapshot on MySQL."""
    tasks = db.tables.tasks
    statement = sa.select(tasks).where(tasks.c.active_key == key)
    if locked and db.dialect.name == "mysql":
        statement = statement.with_for_update(read=True)
    row = connection.execute(statement).mappings().first()
    return None if row is None else to_task(row)


def by_request_key(db: Database, connection: Connection, new: NewTask, *, locked: bool = False) -> str | None:
    """The task that the same request made before. Raises RequestKeyReused if that had another body."""
    if new.request_key is None:
        return None
    tasks = db.tables.tasks
    statement = sa.select(tasks).where(tasks.c.request_key == new.request_key)
    if locked and db.dialect.name == "mysql":
        statement = statement.with_for_update(read=True)
    row = connection.execute(statement).mappings().first()
    if row is None:
        return None
    if row["request_hash"] != new.request_hash:
        raise RequestKeyReused(to_task(row))
    return str(row["id"])


def still_valid(db: Database, connection: Connection, new: NewTask, now: Instant) -> str | None:
    """The newest success under this key that is young enough to be given out again, with all its files still there."""
    if new.reuse_for is None:
        return None
    tasks, files = db.tables.tasks, db.tables.files
    gone = sa.exists().where(
        files.c.task_id == tasks.c.id,
        sa.or_(files.c.deleted_at.is_not(None), files.c.expires_at <= now),
    )
    statement = (
        sa.select(tasks.c.id)
        .where(
            tasks.c.task_type == new.task_type,
            tasks.c.business_key == new.business_key,
            tasks.c.owner.is_(None) if new.owner is None else tasks.c.owner == new.owner,
            tasks.c.status == Status.SUCCESS,
            tasks.c.finished_at > moved(now, -new.reuse_for, db.dialect),
            sa.not_(gone),
        )
        .order_by(tasks.c.id.desc())
        .limit(1)
    )
    found = connection.execute(statement).scalar()
    return None if found is None else str(found)


def refuse_unstorable(new: NewTask) -> None:
    """Raise InvalidOption for what one of the databases could not store: the same on all of them."""
    lengths = {"key": (new.business_key, 200), "owner": (new.owner, 200), "queue": (new.queue, 100)}
    for name, (text, limit) in lengths.items():
        if text is None:
            continue
        if len(text) > limit:
            raise InvalidOption(f"{name}: {len(text)} characters are too many; at most {limit}")
        if storable(text) != text:
            raise InvalidOption(f"{name} {text!r}: a NUL or a lone surrogate cannot be stored")
    if not new.queue:
        raise InvalidOption("queue: give it a name of at least one character")
    if not -100 <= new.priority <= 100:
        raise InvalidOption(f"priority {new.priority} is not within -100…100")
    if new.delay > FARTHEST:
        raise InvalidOption(f"delay {new.delay} is longer than {FARTHEST.days} days")
    for name, instant in (("run_at", new.run_at), ("start_before", new.start_before)):
        if instant is not None and instant.tzinfo is None:
            raise InvalidOption(
                f"{name} {instant} has no time zone; use an aware datetime, as datetime.now(UTC)"
            )


# What every new task has.
AT_FIRST: dict[str, Any] = {
    "status": Status.PENDING.value,
    "ready": True,
    "attempt": 0,
    "retry_count": 0,
    "crash_count": 0,
    "interruption_count": 0,
    "ahead": False,
    "version": 0,
    "progress": 0.0,
}
# Columns whose JSON is made before the statement is: the new task is told by it too.
AS_TEXT: dict[str, sa.types.TypeEngine[Any]] = {"payload": LongText(), "meta": LongText()}


def values(db: Database, new: NewTask, now: Instant, key: str | None = None) -> dict[str, Any]:
    """The row of a new task. It is ready at once unless it is due later."""
    delay = max(new.delay, timedelta(0))
    run_at: Any = new.run_at if new.run_at is not None else moved(now, delay, db.dialect) if delay else now
    ready: Any = not delay if new.run_at is None else due(new.run_at, now)
    return asked_for(new) | {
        "active_key": key,
        "request_key": new.request_key,
        "request_hash": new.request_hash,
        **AT_FIRST,
        "ready": ready,
        "run_at": run_at,
        "created_at": now,
        "updated_at": now,
    }


def asked_for(new: NewTask) -> dict[str, Any]:
    """The part of its row that says what somebody wants done."""
    return {
        "id": new.id,
        "task_type": new.task_type,
        "queue": new.queue,
        "priority": new.priority,
        "business_key": new.business_key,
        "owner": new.owner,
        "payload": dict(new.payload),
        "payload_version": new.payload_version,
        "max_retry_count": new.max_retry_count,
        "max_crash_count": new.max_crash_count,
        "timeout_seconds": None if new.timeout is None else new.timeout.total_seconds(),
        "start_before": new.start_before,
        "retry_of": new.retry_of,
        "meta": dict(new.meta) or None,
    }


def is_plain(new: NewTask) -> bool:
    """It has no key of any kind, so there is nothing to look for before it is inserted, and it may start at once."""
    return (
        new.at_once
        and new.business_key is None
        and new.request_key is None
        and not new.uploads
        and not new.limits
    )


def inserting_one(
    db: Database, driver: sa.Dialect, given: Collection[str], now: Instant, *, telling: bool
) -> Sequence[sa.Executable]:
    """The insert of a plain task whose row has these columns, as parameters; it gives back the instant at which it was made.

    It gives back nothing if there is such a task already. If `now` is a value, it is a parameter of that name. `telling`:
    where the database can, it wakes the workers at the commit.
    """
    tasks = db.tables.tasks
    instant = sa.bindparam("now", type_=Timestamp) if isinstance(now, datetime) else now
    row: dict[str, Any] = {
        name: sa.bindparam(name, type_=AS_TEXT.get(name, tasks.c[name].type)) for name in given
    }
    instants = dict.fromkeys(("run_at", "created_at", "updated_at"), instant)
    known: dict[str, sa.ColumnElement[Any]] = {
        name: sa.literal_column(written(value)) for name, value in AT_FIRST.items()
    }
    whole = row | known | instants
    return db.dialect.inserting_one(db.tables, whole, driver, telling=telling)


def written(value: str | float | bool) -> str:
    """A value as every database reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else str(value)


def plain_row(new: NewTask) -> dict[str, Any]:
    """The parameters of `inserting_one`: what is not null, and JSON as its text."""
    row = {name: value for name, value in asked_for(new).items() if value is not None}
    row["payload"] = new.body or dumps(new.payload)
    if new.meta:
        row["meta"] = dumps(new.meta)
    return row


def plain_task(db: Database, row: Mapping[str, Any], at: datetime) -> Task:
    """The task that was inserted so at that instant, without reading it."""
    read: dict[str, Any] = db.tables.blank_task | AT_FIRST | dict(row)
    read |= {name: loads(row[name]) for name in AS_TEXT if name in row}
    read |= {"run_at": at, "created_at": at, "updated_at": at}
    return to_task(cast(sa.RowMapping, read))


def due(run_at: datetime, now: Instant) -> Any:
    if isinstance(now, datetime):
        return run_at <= now
    return now >= run_at


def insert_many(db: Database, connection: Connection, new: NewTask, bodies: Bodies, now: Instant) -> None:
    """Insert tasks that differ from `new` in nothing but id and arguments. Raises TooManyActive."""
    limits.admit(db, connection, new, len(bodies))
    for chunk in chunks(bodies):
        connection.execute(inserting(db, new, db.dialect.given(), now), db.dialect.carrying(chunk))


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
