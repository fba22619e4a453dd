"""The end of an attempt and the end of a task: every write that takes a task out of a status, each under its fence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.errors import IllegalMove, LostClaim, TaskCancelled
from dumbwaiter.retry import MESSAGE_LIMIT, TRACEBACK_LIMIT, shortened, storable
from dumbwaiter.store import keeping, steps
from dumbwaiter.store.dialects import Instant, moved
from dumbwaiter.store.rows import Database, Finish, next_key, to_task
from dumbwaiter.store.tables import PENDING, RUNNING
from dumbwaiter.store.types import Timestamp
from dumbwaiter.task import AttemptOutcome, Kind, Outcome, ResultFile, Status, Task

# No delay is longer: later than the year 9999 no database has a name for.
FARTHEST = timedelta(days=3650)
# What every end clears: whoever held the task holds it no more.
LET_GO: dict[str, Any] = {
    "worker_id": None,
    "heartbeat_at": None,
    "beat_until": None,
    "estimated_finish_at": None,
    "ahead": False,
}


# What the next attempt has not said yet.
NOT_YET = ("current_step", "message", "progress_at")


def finish(db: Database, connection: Connection, end: Finish, now: Instant) -> Status | None:
    """Write what the end of an attempt means. The status the task has now, or None if the attempt did not own it any more.

    A cancel that was asked before this write wins, even if the function returned: one conditional update decides. An end
    that was written before is told again: its writer may have lost the connection before it heard of the commit.
    """
    outcome = end.outcome
    if outcome.kind is not Kind.CANCEL and not move(
        db, connection, end.task, outcome, now, files=end.files, uncancelled=True
    ):
        outcome = Outcome.cancelled()
    elif outcome.kind is not Kind.CANCEL:
        left = end.published and outcome.kind is not Kind.SUCCEED
        settle(db, connection, end.task, outcome, now, leftovers=left)
        record_files(db, connection, end, now)
        record_mark(db, connection, end, now)
        return outcome.status
    if not move(db, connection, end.task, outcome, now):
        return written_before(db, connection, end)
    settle(db, connection, end.task, outcome, now, leftovers=end.published)
    return outcome.status


def succeed(db: Database, connection: Connection, end: Finish, now: Instant) -> None:
    """Write a success in the transaction of the task's own writes. Raises TaskCancelled, LostClaim: it must be undone then."""
    if not move(db, connection, end.task, end.outcome, now, files=end.files, uncancelled=True):
        refuse_unowned(db, connection, end.task)
        raise LostClaim(f"attempt {end.task.attempt} no longer owns task {end.task.id}")
    settle(db, connection, end.task, end.outcome, now)
    record_files(db, connection, end, now)


def refuse_unowned(db: Database, connection: Connection, task: Task) -> None:
    """Raise LostClaim unless the attempt owns its task, TaskCancelled if it was asked to end."""
    standing = keeping.standing(db, connection, [task.fence])[task.fence]
    if not standing.owned:
        raise LostClaim(f"attempt {task.attempt} no longer owns task {task.id}")
    if standing.cancel_requested:
        raise TaskCancelled(f"task {task.id} was asked to stop: cancel")


def written_before(db: Database, connection: Connection, end: Finish) -> Status | None:
    """What this very end of the attempt made of the task, if it stands in the table already.

    A success stands whatever else the attempt says after it: its own transaction wrote it, perhaps without hearing of it.
    """
    tasks, attempts, task = db.tables.tasks, db.tables.attempts, end.task
    of_attempt = (attempts.c.task_id == task.id, attempts.c.number == task.attempt)
    outcome = connection.execute(sa.select(attempts.c.outcome).where(*of_attempt)).scalar()
    if outcome is not None:
        if outcome == AttemptOutcome.SUCCESS.value:
            return Status.SUCCESS
        if outcome == end.outcome.attempt_outcome.value:
            return end.outcome.status
        return Status.CANCELLED if outcome == AttemptOutcome.CANCELLED.value else None
    # the success of a first attempt leaves no history, only the row
    row = connection.execute(sa.select(tasks.c.status, tasks.c.attempt).where(tasks.c.id == task.id)).first()
    succeeded = row is not None and row[0] == Status.SUCCESS.value and row[1] == task.attempt
    return Status.SUCCESS if succeeded else None


def move(
    db: Database,
    connection: Connection,
    task: Task,
    outcome: Outcome,
    now: Instant,
    *,
    files: Sequence[ResultFile] = (),
    uncancelled: bool = False,
) -> bool:
    """The one update that takes a running task out of that status. False if the fence did not hold."""
    tasks = db.tables.tasks
    values = LET_GO | changes(db, outcome, now) | {"updated_at": now, "version": tasks.c.version + 1}
    if outcome.status.final:
        values["prune_at"] = pruned_at(db, task.task_type, outcome.status, now, files)
    statement = (
        sa.update(tasks)
        .where(
            tasks.c.id == task.id,
            tasks.c.attempt == task.attempt,
            tasks.c.worker_id == task.worker_id,
            tasks.c.status == RUNNING,
        )
        .values(values)
    )
    if uncancelled:
        statement = statement.where(tasks.c.cancel_requested_at.is_(None))
    return connection.execute(statement).rowcount == 1


def changes(db: Database, outcome: Outcome, now: Instant) -> dict[str, Any]:
    """The columns that an outcome changes, beside those that every end does."""
    tasks = db.tables.tasks
    told = {
        "error_type": text(outcome.error_type, 200),
        "error_message": text(outcome.error_message, MESSAGE_LIMIT),
        "user_message": text(outcome.user_message, MESSAGE_LIMIT),
    }
    final = {"status": outcome.status.value, "finished_at": now, "active_key": None}
    again = {"status": Status.PENDING.value, "progress": 0.0, **dict.fromkeys(NOT_YET)}
    match outcome.kind:
        case Kind.SUCCEED:
            return final | told | {"result": outcome.result, "progress": 1.0}
        case Kind.FAIL | Kind.CANCEL:
            return final | told
        case Kind.RETRY:
            return again | told | later(db, outcome.delay, now) | {"retry_count": tasks.c.retry_count + 1}
        case Kind.SNOOZE:
            return again | later(db, outcome.delay, now)
        case Kind.RELEASE:
            return again | {"ready": True, "interruption_count": tasks.c.interruption_count + 1}
        case Kind.GIVE_BACK:
            return again | {"ready": True}
        case Kind.RESCUE:
            return again | told | {"ready": True, "crash_count": tasks.c.crash_count + 1}


def pruned_at(
    db: Database, task_type: str, status: Status, now: Instant, files: Sequence[ResultFile] = ()
) -> Any:
    """When the record of a task that ends now may go: after its time, and not before its files. None: never."""
    kept = db.retention(task_type).of(status)
    if kept is None or any(file.expires_at is None for file in files):
        return None
    at = moved(now, kept, db.dialect)
    last = max((file.expires_at for file in files if file.expires_at is not None), default=None)
    if last is None:
        return at
    if isinstance(at, datetime):
        return max(at, last)
    gone = sa.literal(last, Timestamp)
    return sa.case((at < gone, gone), else_=at)


def text(given: str | None, limit: int) -> str | None:
    """A text as every database takes it: what a task raised must never keep its end from being written."""
    return None if given is None else storable(given)[:limit]


def later(db: Database, delay: timedelta, now: Instant) -> dict[str, Any]:
    delay = min(delay, FARTHEST)
    return {"ready": delay <= timedelta(0), "run_at": moved(now, delay, db.dialect)}


def settle(
    db: Database,
    connection: Connection,
    task: Task,
    outcome: Outcome,
    now: Instant,
    *,
    leftovers: bool = False,
) -> None:
    """What follows an end in the same transaction: the history, and the task that waited for this one's key."""
    if outcome.attempt_outcome is not AttemptOutcome.SUCCESS or task.attempt > 1:
        record_attempt(db, connection, task, outcome, now, leftovers=leftovers)
    if outcome.status.final:
        promote(db, connection, task, now)


def record_attempt(
    db: Database,
    connection: Connection,
    task: Task,
    outcome: Outcome,
    now: Instant,
    *,
    leftovers: bool = False,
) -> None:
    """Write the history of an attempt; `leftovers`: it may have stored files, which nobody is to see."""
    row = {
        "task_id": task.id,
        "number": task.attempt,
        "worker_id": task.worker_id,
        "started_at": task.started_at,
        "ended_at": now,
        "outcome": outcome.attempt_outcome.value,
        "error_type": text(outcome.error_type, 200),
        "error": text(outcome.error_message, MESSAGE_LIMIT),
        "traceback": None
        if outcome.traceback is None
        else shortened(storable(outcome.traceback), TRACEBACK_LIMIT),
        "sweep_at": now if leftovers else None,
    }
    connection.execute(sa.insert(db.tables.attempts).values(row))


def record_files(db: Database, connection: Connection, end: Finish, now: Instant) -> None:
    """The files become visible with the success, in its transaction."""
    if end.outcome.kind is not Kind.SUCCEED or not end.files:
        return
    # of two publishes under one name the last wins
    for file in {file.name: file for file in end.files}.values():
        connection.execute(sa.insert(db.tables.files).values(file_values(end.task, file, now)))


def record_mark(db: Database, connection: Connection, end: Finish, now: Instant) -> None:
    """The next attempt starts where this one was."""
    if end.mark is not None and not end.outcome.status.final:
        steps.put_mark(db, connection, end.task.fence, end.mark, now)


def file_values(task: Task, file: ResultFile, now: Instant) -> dict[str, Any]:
    return {
        "task_id": task.id,
        "name": file.name,
        "attempt": file.attempt,
        "content_type": file.content_type,
        "size": file.size,
        "sha256": file.sha256,
        "object_key": file.object_key,
        "created_at": now,
        "expires_at": file.expires_at,
    }


def promote(db: Database, connection: Connection, task: Task, now: Instant) -> None:
    """The task that waited for this one's key gets the key and, if it is due, may start."""
    if task.active_key is None:
        return
    tasks = db.tables.tasks
    statement = (
        sa.update(tasks)
        .where(tasks.c.active_key == next_key(task.active_key))
        .values(
            active_key=task.active_key,
            waits_for=None,
            ready=tasks.c.run_at <= now,
            updated_at=now,
            version=tasks.c.version + 1,
        )
    )
    connection.execute(statement)


def cancel(db: Database, connection: Connection, task_id: str, now: Instant, why: str) -> Task | None:
    """Cancel a task: at once if it waits, by request if it runs. None if there is no such task.

    Raises IllegalMove if it ended before. The row is locked first, so a claim or a finish comes wholly before or after.
    """
    task = locked(db, connection, task_id)
    if task is None:
        return None
    if task.status.final:
        raise IllegalMove(task, "cancel")
    if task.status is Status.PENDING:
        cancel_pending(db, connection, task, now, why)
    else:
        request_cancel(db, connection, task, now)
    return locked(db, connection, task_id)


def locked(db: Database, connection: Connection, task_id: str, *, shared: bool = False) -> Task | None:
    """The row as it stands now, held until the transaction ends."""
    tasks = db.tables.tasks
    statement = sa.select(tasks).where(tasks.c.id == task_id).with_for_update(read=shared)
    row = connection.execute(statement).mappings().first()
    return None if row is None else to_task(row)


def cancel_pending(
    db: Database, connection: Connection, task: Task, now: Instant, why: str, *, takes_key: bool = False
) -> bool:
    """End a task that has not started. False if a claim was faster. If the caller takes its key, no follower gets it."""
    tasks = db.tables.tasks
    statement = (
        sa.update(tasks)
        .where(tasks.c.id == task.id, tasks.c.status == Status.PENDING.value)
        .values(
            status=Status.CANCELLED.value,
            ready=False,
            waits_for=None,
            active_key=None,
            reserved_by=None,
            finished_at=now,
            updated_at=now,
            cancel_requested_at=now,
            error_message=why,
            version=tasks.c.version + 1,
            prune_at=pruned_at(db, task.task_type, Status.CANCELLED, now),
        )
    )
    ended = connection.execute(statement).rowcount == 1
    if ended and not takes_key:
        promote(db, connection, task, now)
    return ended


def request_cancel(db: Database, connection: Connection, task: Task, now: Instant) -> None:
    """Ask whoever runs the task to end it. A second request changes nothing."""
    tasks = db.tables.tasks
    connection.execute(
        sa.update(tasks)
        .where(
            tasks.c.id == task.id,
            tasks.c.status == Status.RUNNING.value,
            tasks.c.cancel_requested_at.is_(None),
        )
        .values(cancel_requested_at=now, updated_at=now, version=tasks.c.version + 1)
    )


def rescue(
    db: Database,
    connection: Connection,
    now: Instant,
    *,
    lease: timedelta,
    decide: Callable[[Task, str], Outcome],
    limit: int,
) -> list[tuple[Task, Outcome]]:
    """Take back what silent workers hold: each task with what that means for it, as `decide` says.

    A worker that is heard of by its own row is alive, though a lock kept its beat from a task's row: that one is taken
    back only when its time is over.
    """
    tasks, workers = db.tables.tasks, db.tables.workers
    silent_since = moved(now, -lease, db.dialect)
    alive = sa.exists().where(workers.c.name == tasks.c.worker_id, workers.c.heartbeat_at >= silent_since)
    silent = (
        sa.select(tasks)
        .where(
            tasks.c.heartbeat_at.is_not(None),
            tasks.c.heartbeat_at < silent_since,
            tasks.c.status == RUNNING,
            sa.or_(tasks.c.beat_until <= now, sa.not_(alive)),
        )
        .order_by(tasks.c.heartbeat_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rescued = []
    for row in connection.execute(silent).mappings().all():
        task = to_task(row)
        outcome = decide(
            task, f"worker {task.worker_id} was last heard of at {task.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC"
        )
        if move(db, connection, task, outcome, now):
            begun = outcome.attempt_outcome is not AttemptOutcome.NOT_BEGUN
            settle(db, connection, task, outcome, now, leftovers=begun)
            rescued.append((task, outcome))
    return rescued


def expire(db: Database, connection: Connection, now: Instant, limit: int) -> list[Task]:
    """End what was to start before an instant that has passed, and has not. A retry did start in time."""
    tasks = db.tables.tasks
    late = (
        sa.select(tasks)
        .where(tasks.c.status == PENDING, tasks.c.start_before <= now, tasks.c.attempt == 0)
        .order_by(tasks.c.start_before)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    expired: Sequence[Task] = [to_task(row) for row in connection.execute(late).mappings().all()]
    return [
        task
        for task in expired
        if cancel_pending(db, connection, task, now, "expired: it had not started in time")
    ]
