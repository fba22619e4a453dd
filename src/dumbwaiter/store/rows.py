"""Rows and values: a task that is to be inserted, a row that was read, an attempt's end that is to be written."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Literal

import sqlalchemy as sa

from dumbwaiter.store.dialects import Dialect, Instant
from dumbwaiter.store.tables import Tables
from dumbwaiter.store.types import in_utc
from dumbwaiter.task import (
    Attempt,
    AttemptOutcome,
    Fence,
    Mark,
    Outcome,
    Progress,
    ResultFile,
    Retention,
    Status,
    Task,
)

# Rows of an id and a JSON text.
Bodies = Sequence[tuple[str, str | None]]
OnDuplicate = Literal["return", "reject", "after", "replace"]


@dataclass(frozen=True, slots=True)
class Database:
    """The two things that every statement is made from: the tables and the dialect."""

    tables: Tables
    dialect: Dialect
    # how long records of a task type are kept
    retention: Callable[[str], Retention] = field(default=lambda _: Retention(), compare=False)

    def now(self, given: datetime | None) -> Instant:
        """The instant to work with: a literal in tests, else the database's clock."""
        return given if given is not None else self.dialect.now()


@dataclass(frozen=True, slots=True)
class Limit:
    """So many active tasks an owner may have, of all types or of one."""

    most: int
    task_type: str | None = None


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task as it is asked for, before it has a row."""

    id: str
    task_type: str
    payload: Mapping[str, Any]
    payload_version: int = 1
    queue: str = "default"
    priority: int = 0
    business_key: str | None = None
    owner: str | None = None
    on_duplicate: OnDuplicate = "return"
    reuse_for: timedelta | None = None
    request_key: str | None = None
    request_hash: str | None = None
    delay: timedelta = timedelta(0)
    run_at: datetime | None = None
    start_before: datetime | None = None
    timeout: timedelta | None = timedelta(hours=1)
    max_retry_count: int = 3
    max_crash_count: int = 3
    retry_of: str | None = None
    # of its owner: checked in the transaction that inserts it
    limits: Sequence[Limit] = ()
    # that it needs: checked and kept for it in the transaction that inserts it
    uploads: Sequence[str] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    # the payload as its JSON text, from whoever has made that already
    body: str | None = None

    @property
    def at_once(self) -> bool:
        """Nobody said when: it may start as soon as it is there."""
        return not self.delay and self.run_at is None

    @property
    def turn(self) -> str | None:
        """What it takes turns by with other enqueues: its owner, whose tasks are counted, or its key."""
        return owner_key(self.owner) if self.limits else self.active_key

    @property
    def active_key(self) -> str | None:
        return (
            None if self.business_key is None else active_key(self.task_type, self.owner, self.business_key)
        )


def owner_key(owner: str | None) -> str:
    """What enqueues of one owner take turns by."""
    return digest("owner", owner or "")


def active_key(task_type: str, owner: str | None, business_key: str) -> str:
    """What is unique among the active tasks: a hash, so that no collation and no length limit can confuse two keys."""
    return digest(task_type, owner or "", business_key)


def next_key(key: str) -> str:
    """The slot of the one task that may wait for the holder of this key."""
    return digest(key, "next")


def request_key(owner: str | None, key: str) -> str:
    """An Idempotency-Key, unique with its owner."""
    return digest(owner or "", key)


def digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()


@dataclass(slots=True)  # not frozen: to make one of those takes three times as long
class Finish:
    """The end of an attempt, as it is to be written: the task as it was claimed, what its end means, its files.

    `mark` is the cursor that the next attempt starts from, if it is not written yet. `remembers`: this attempt may have
    left steps, which go once the task has ended. `published`: it began to store files, which only a success may keep.
    """

    task: Task
    outcome: Outcome
    files: Sequence[ResultFile] = ()
    mark: Mark | None = None
    remembers: bool = False
    published: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Progress of a running attempt, as it is to be written."""

    task: Task
    progress: Progress
    remaining: timedelta | None = None
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How the database sees an attempt that a worker runs."""

    owned: bool
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a worker should know of the table: when something is due next, whether a suspect waits for it, or anything."""

    next_due: timedelta | None
    suspect: bool = False
    ready: bool = False


@dataclass(frozen=True, slots=True)
class Around:
    """What a rescuer sees: the instant at which it looked, and whether anything is too late to start, or silent."""

    now: datetime
    late: bool
    silent: bool


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as the others see it. `slots` are those of each queue, if `queues` names none."""

    name: str
    host: str
    pid: int
    version: str
    queues: Mapping[str, int]
    capacity: Mapping[str, float]
    started_at: datetime
    heartbeat_at: datetime
    stopping: bool
    slots: int = 0
    short_of: str | None = None


# What a task is made of is called as its column is, but for these.
NOT_COLUMNS = {"timeout", "files"}
COLUMNS = tuple(field.name for field in fields(Task) if field.name not in NOT_COLUMNS)
# A claim knows these without reading them: what it writes itself, what a waiting task has not, what only pages look at.
KNOWN_TO_A_CLAIM: Mapping[str, Any] = {
    "status": Status.RUNNING,
    "result": None,
    "progress": 0.0,
    "current_step": None,
    "message": None,
    "progress_at": None,
    "estimated_finish_at": None,
    "estimate_spread": None,
    "finished_at": None,
    "cancel_requested_at": None,
    "retried_as": None,
    "waits_for": None,
    "files": (),
}
# and these are one for all that are claimed together, or written as the start is
TOLD_TO_A_CLAIM = ("queue", "worker_id", "ahead", "updated_at", "heartbeat_at")
READ_BY_A_CLAIM = tuple(
    name for name in COLUMNS if name not in KNOWN_TO_A_CLAIM and name not in TOLD_TO_A_CLAIM
)


def to_task(row: sa.RowMapping, files: Sequence[ResultFile] = ()) -> Task:
    """A row of the tasks table as the value that the rest of the program knows."""
    values = {name: row[name] for name in COLUMNS}
    values["status"] = Status(values["status"])
    return finished(values, row["timeout_seconds"], files=files)


def to_claimed(
    rows: Sequence[Sequence[Any]], read: Mapping[str, Callable[[Any], Any]] | None = None, **told: Any
) -> list[Task]:
    """What a claim read (READ_BY_A_CLAIM and the timeout's seconds) as tasks that run.

    `read` makes values of what the bare driver gives, for the columns that need it.
    """
    known = {**KNOWN_TO_A_CLAIM, **told}
    readers = needed(read or {}, rows)
    claimed = []
    for row in rows:
        # there are thousands a second: one dictionary each, which becomes the task's own
        values = known.copy()
        values.update(zip(READ_BY_A_CLAIM, row, strict=False))
        for name, reader in readers:
            if values[name] is not None:
                values[name] = reader(values[name])
        values["updated_at"] = values["heartbeat_at"] = values["started_at"]
        # asked for by whoever launches it; found here it costs a third
        values["fence"] = Fence(values["id"], values["worker_id"], values["attempt"])
        claimed.append(finished(values, row[-1]))
    return claimed


def needed(
    read: Mapping[str, Callable[[Any], Any]], rows: Sequence[Sequence[Any]]
) -> list[tuple[str, Callable[[Any], Any]]]:
    """Those of the readers that change anything: a connection gives its instants in one zone, and most in UTC."""
    created = rows[0][READ_BY_A_CLAIM.index("created_at")] if rows else None
    in_utc_already = getattr(created, "tzinfo", None) is UTC
    return [(name, reader) for name, reader in read.items() if not (in_utc_already and reader is in_utc)]


def finished(values: dict[str, Any], timeout: float | None, **more: Any) -> Task:
    values.update(more)
    values["timeout"] = None if timeout is None else as_length(timeout)
    values["meta"] = values["meta"] or {}
    return Task.of(values)


@functools.lru_cache
def as_length(seconds: float) -> timedelta:
    """Of one type's tasks it is one, and there are thousands a second."""
    return timedelta(seconds=seconds)


def to_attempt(row: sa.RowMapping) -> Attempt:
    return Attempt(
        number=row["number"],
        worker_id=row["worker_id"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        outcome=AttemptOutcome(row["outcome"]),
        error_type=row["error_type"],
        error=row["error"],
        traceback=row["traceback"],
    )


def to_file(row: sa.RowMapping) -> ResultFile:
    return ResultFile(
        name=row["name"],
        content_type=row["content_type"],
        size=row["size"],
        sha256=row["sha256"],
        object_key=row["object_key"],
        attempt=row["attempt"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        deleted_at=row["deleted_at"],
    )
