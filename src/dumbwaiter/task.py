"""A task, where it stands, and the moves that are legal. Pure: no clock, no database."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, NamedTuple


class Status(StrEnum):
    """Where a task stands. A retry is `pending` again, with a later `run_at`."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """A row in a final status never changes again."""
        return self in FINAL


FINAL = frozenset({Status.SUCCESS, Status.FAILED, Status.CANCELLED})
ACTIVE = frozenset({Status.PENDING, Status.RUNNING})

IN_WORDS = {
    Status.PENDING: "is waiting",
    Status.RUNNING: "is running",
    Status.SUCCESS: "has succeeded",
    Status.FAILED: "has failed",
    Status.CANCELLED: "was cancelled",
}

Phase = Literal["queued", "scheduled", "retrying", "running", "cancelling", "success", "failed", "cancelled"]
Display = Literal["none", "working", "ready", "retry"]


class Move(NamedTuple):
    """One legal change of status: who makes it, and on what occasion."""

    before: Status | None
    after: Status
    by: str
    when: str


# The drawing and the table in docs/explanation/states.md are generated from this list, and the conformance suite
# checks that the store makes no other move.
MOVES: tuple[Move, ...] = (
    Move(None, Status.PENDING, "producer", "enqueue"),
    Move(Status.PENDING, Status.RUNNING, "claimer", "claim: due, a slot free, its needs met"),
    Move(Status.PENDING, Status.CANCELLED, "anyone allowed", "cancel before it started"),
    Move(Status.PENDING, Status.CANCELLED, "stager", "expired: not started before `start_before`"),
    Move(Status.RUNNING, Status.SUCCESS, "finisher", "the function returned"),
    Move(Status.RUNNING, Status.PENDING, "finisher", "retry: it failed, and a retry is left"),
    Move(Status.RUNNING, Status.PENDING, "finisher", "snooze: it asked to come back later"),
    Move(Status.RUNNING, Status.PENDING, "finisher", "release: the worker is being stopped"),
    Move(
        Status.RUNNING,
        Status.PENDING,
        "finisher",
        "give back: taken ahead of a free slot, it got none soon enough",
    ),
    Move(Status.RUNNING, Status.FAILED, "finisher", "it failed, and no retry is left or worth while"),
    Move(Status.RUNNING, Status.CANCELLED, "finisher", "cancel was asked while it ran"),
    Move(Status.RUNNING, Status.PENDING, "rescuer", "rescue: its worker fell silent for a lease"),
    Move(Status.RUNNING, Status.FAILED, "rescuer", "its workers died too often (the crash budget)"),
    Move(Status.RUNNING, Status.CANCELLED, "rescuer", "cancel was asked and its worker is dead"),
)
LEGAL = frozenset((move.before, move.after) for move in MOVES)


class AttemptOutcome(StrEnum):
    """How one attempt ended, as the history of a task tells it."""

    SUCCESS = "success"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    INTERRUPTED = "interrupted"
    NOT_BEGUN = "not_begun"
    SNOOZED = "snoozed"
    LOST = "lost"


class Fence(NamedTuple):
    """What every write of a running attempt is conditional on: this row, this worker, this attempt."""

    task_id: str
    worker_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a task that ended."""

    number: int
    worker_id: str
    started_at: datetime
    ended_at: datetime
    outcome: AttemptOutcome
    error_type: str | None = None
    error: str | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A file that a task published: visible only once the task has succeeded."""

    name: str
    content_type: str
    size: int
    sha256: str
    object_key: str
    attempt: int
    created_at: datetime | None = None
    expires_at: datetime | None = None
    deleted_at: datetime | None = None

    def available(self, now: datetime) -> bool:
        """The file is still there and its link may be given out."""
        return self.deleted_at is None and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True)
class Task:
    """One durable unit of work that somebody asked for, as the row stood when it was read."""

    id: str
    task_type: str
    queue: str
    status: Status
    payload: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    run_at: datetime
    priority: int = 0
    business_key: str | None = None
    owner: str | None = None
    result: Any = None
    attempt: int = 0
    retry_count: int = 0
    max_retry_count: int = 3
    crash_count: int = 0
    max_crash_count: int = 3
    interruption_count: int = 0
    ahead: bool = False
    worker_id: str | None = None
    version: int = 0
    payload_version: int = 1
    progress: float = 0.0
    current_step: str | None = None
    message: str | None = None
    progress_at: datetime | None = None
    estimated_finish_at: datetime | None = None
    estimate_spread: float | None = None
    error_type: str | None = None
    error_message: str | None = None
    user_message: str | None = None
    timeout: timedelta | None = None
    start_before: datetime | None = None
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    retry_of: str | None = None
    retried_as: str | None = None
    waits_for: str | None = None
    active_key: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[ResultFile] = ()

    @classmethod
    def of(cls, values: dict[str, Any]) -> Task:
        """A task with a value for each of its fields, which keeps the dictionary: a tenth of what the constructor costs, and a
        claim reads hundreds.
        """
        task = object.__new__(cls)
        object.__setattr__(task, "__dict__", values)
        return task

    @cached_property
    def fence(self) -> Fence:
        """The fence of the attempt that holds this task. Only a running task has one."""
        if self.status is not Status.RUNNING or self.worker_id is None:
            raise ValueError(f"task {self.id} is {self.status}: only a running task has a fence")
        return Fence(self.id, self.worker_id, self.attempt)

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt: hand it to payment providers and the like."""
        return f"dumbwaiter-{self.id}"

    @property
    def counted_attempt(self) -> int:
        """Which of its `max_attempts` it is at: what counts is failures. The number of the run is `attempt`.

        A stopped worker, a crash and a snooze cost no retry, so they do not move it. While a retry waits, it is the coming one.
        """
        return self.retry_count + 1

    @property
    def max_attempts(self) -> int:
        """How often it may be tried before a failure is its end."""
        return self.max_retry_count + 1

    def phase(self, now: datetime) -> Phase:
        """The status in a person's words; `now` tells a scheduled task from a queued one."""
        if self.status is Status.RUNNING:
            return "cancelling" if self.cancel_requested_at else "running"
        if self.status is Status.PENDING:
            if self.retry_count and self.run_at > now:
                return "retrying"
            return "scheduled" if self.run_at > now else "queued"
        return self.status.value  # type: ignore[return-value]

    @property
    def in_words(self) -> str:
        """How it stands, as a sentence about it goes on: it `is running`, `has succeeded`."""
        if self.status is Status.RUNNING and self.cancel_requested_at:
            return "is being cancelled"
        return IN_WORDS[self.status]

    def display(self, now: datetime) -> Display:
        """What a page should show: the work going on, the download, or the offer to make it again."""
        if not self.status.final:
            return "working"
        if self.status is Status.SUCCESS and all(file.available(now) for file in self.files):
            return "ready"
        return "retry"

    def remaining(self, now: datetime) -> timedelta | None:
        """The estimated time left, never negative; None while nothing is known, and once it was asked to stop."""
        if self.status is not Status.RUNNING or self.estimated_finish_at is None or self.cancel_requested_at:
            return None
        return max(self.estimated_finish_at - now, timedelta(0))

    def remaining_range(self, now: datetime) -> tuple[timedelta, timedelta] | None:
        """Between what times the time left is likely to lie; None until tasks of this type have told."""
        left = self.remaining(now)
        if left is None or self.estimate_spread is None:
            return None
        return left / self.estimate_spread, left * self.estimate_spread

    def run_time(self, now: datetime) -> timedelta | None:
        """How long its attempt has run, or its last one ran; None while it waits, and if it ended waiting."""
        if self.started_at is None or self.status is Status.PENDING or self.ended_waiting:
            return None
        return max((self.finished_at or now) - self.started_at, timedelta(0))

    @property
    def ended_waiting(self) -> bool:
        """It was cancelled before an attempt, or between two: such a cancel is asked and done in one instant."""
        return self.status is Status.CANCELLED and self.cancel_requested_at == self.finished_at


class Kind(StrEnum):
    """What an attempt's end means for the row."""

    SUCCEED = "succeed"
    RETRY = "retry"
    FAIL = "fail"
    CANCEL = "cancel"
    RELEASE = "release"
    GIVE_BACK = "give_back"
    RESCUE = "rescue"
    SNOOZE = "snooze"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt means for its row: decided by pure code (`retry.py`), written in one place (`Store.finish`)."""

    kind: Kind
    attempt_outcome: AttemptOutcome
    result: Any = None
    delay: timedelta = timedelta(0)
    error_type: str | None = None
    error_message: str | None = None
    user_message: str | None = None
    traceback: str | None = None

    @property
    def status(self) -> Status:
        """The status that the row will have."""
        return {
            Kind.SUCCEED: Status.SUCCESS,
            Kind.FAIL: Status.FAILED,
            Kind.CANCEL: Status.CANCELLED,
        }.get(self.kind, Status.PENDING)

    @classmethod
    def succeeded(cls, result: Any = None) -> Outcome:
        return cls(Kind.SUCCEED, AttemptOutcome.SUCCESS, result=result)

    @classmethod
    def cancelled(cls, why: str = "cancelled on request") -> Outcome:
        return cls(Kind.CANCEL, AttemptOutcome.CANCELLED, error_message=why)

    @classmethod
    def released(cls, why: str = "the worker was stopped") -> Outcome:
        return cls(Kind.RELEASE, AttemptOutcome.INTERRUPTED, error_message=why)

    @classmethod
    def given_back(cls, why: str = "it was claimed ahead, and had not begun") -> Outcome:
        """It never ran: nothing is charged but the attempt's number."""
        return cls(Kind.GIVE_BACK, AttemptOutcome.NOT_BEGUN, error_message=why)

    @classmethod
    def rescued(cls, why: str) -> Outcome:
        return cls(Kind.RESCUE, AttemptOutcome.CRASHED, error_type="WorkerDied", error_message=why)

    @classmethod
    def snoozed(cls, delay: timedelta) -> Outcome:
        return cls(Kind.SNOOZE, AttemptOutcome.SNOOZED, delay=delay)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the record of a task is kept after its end, by how it ended; None is for ever."""

    success: timedelta | None = timedelta(days=30)
    failed: timedelta | None = timedelta(days=7)
    cancelled: timedelta | None = timedelta(days=1)

    def of(self, status: Status) -> timedelta | None:
        """Of a task with this final status."""
        match status:
            case Status.SUCCESS:
                return self.success
            case Status.FAILED:
                return self.failed
            case Status.CANCELLED:
                return self.cancelled
        raise ValueError(f"a task that {IN_WORDS[status]} has not ended")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt has come: a fraction from 0 to 1, the step it is at, and a message, in the person's words.

    None is what nobody said anything of; an empty message takes back the one before.
    """

    fraction: float | None = None
    step: str | None = None
    message: str | None = None

    def after(self, later: Progress) -> Progress:
        """This progress with a later report laid over it; the fraction never goes back. A message is of its step alone."""
        known = [value for value in (self.fraction, later.fraction) if value is not None]
        step = self.step if later.step is None else later.step
        message = self.message if later.message is None else later.message
        if step != self.step and later.message is None and self.message:
            message = ""
        return Progress(max(known, default=None), step, message)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where an attempt is in its work (`ctx.cursor`), and how far it had come by then."""

    value: Any
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Recalled:
    """What the attempts before this one left: which steps have results, where they were, and how far they had come."""

    results: Sequence[str] = ()
    cursor: Any = None
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file that an attempt kept for later ones."""

    object_key: str
    size: int
    sha256: str


def clamped(fraction: float) -> float | None:
    """A reported fraction as it may be stored: within 0…1, NaN ignored. 1.0 is reached only at success."""
    if math.isnan(fraction):
        return None
    return min(max(float(fraction), 0.0), 0.999)
