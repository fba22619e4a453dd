"""Every error that Dumbwaiter raises on purpose.

DumbwaiterError
├── ConfigurationError            a setting, a registration or a combination of them cannot work
│   ├── MissingExtra              an optional package is not installed
│   └── NoTransaction             ctx.transaction() was asked for where there is none to be had
├── RefusedError                  what was asked for was refused; nothing was written
│   ├── InvalidArguments          the arguments do not fit the task's signature, or are not JSON
│   ├── InvalidOption             an option of `using(...)` or `enqueue` cannot be
│   ├── UnknownTaskType           nobody registered a task type of that name
│   ├── UnknownTask               there is no task of that id
│   ├── DuplicateTask             a task with this key is active and duplicates are to be rejected
│   ├── TooManyActive             the owner has as many active tasks as are allowed
│   ├── RequestKeyReused          one Idempotency-Key, two different requests
│   ├── InvalidStep               a step's name or value cannot be kept
│   ├── UnknownUpload             there is no such upload, or it is not the task's
│   ├── UploadConflict            the upload is not at the point where that can be done
│   ├── UploadTooLarge            the upload has more bytes than one may have
│   └── IllegalMove               the task's status does not allow that move
├── StoreError                    the database said something that nobody can act on but its operator
│   ├── DatabaseUnavailable       the database cannot be reached or used just now
│   │   └── OutcomeUnknown        … and nobody knows whether the task was registered before it went away
│   ├── SchemaMismatch            the tables are missing, too old or too new
│   ├── WrongEnvironment          the database was installed for another environment
│   └── KeyContended              a key stayed locked by somebody's open transaction
├── FileStoreError                the file store did not do what it was asked
│   └── FileGone                  there is no file under that key
├── LostClaim                     the attempt no longer owns its task; its writes change nothing
├── TaskCancelled                 raised inside a task that was asked to stop
├── CommandFailed                 a command ended with another status than 0
├── MemoryExceeded                a task's processes used more memory than its max_memory=
├── WorkerDied                    recorded, not raised: the worker of an attempt fell silent
└── signals a task may raise
    ├── Fail                      end now as failed, without a retry
    ├── RetryLater                this attempt failed; try again after a delay
    └── Snooze                    nothing failed; come back after a delay, free of charge
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dumbwaiter.task import Task


class DumbwaiterError(Exception):
    """The base of every error that this package raises on purpose."""


class ConfigurationError(DumbwaiterError):
    """A setting, a registration or a combination of them cannot work."""


class MissingExtra(ConfigurationError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package {package}: pip install 'dumbwaiter[{extra}]'")
        self.extra = extra


class NoTransaction(ConfigurationError):
    """`ctx.transaction()` was asked for where there is none to be had: another try would find none either."""

    transient = False


class RefusedError(DumbwaiterError):
    """What was asked for was refused, and nothing was written."""


class InvalidArguments(RefusedError):
    """The arguments do not fit the task's signature, or cannot be stored as JSON.

    `errors` has one entry for each fault: (path of the parameter, what is wrong with it).
    """

    def __init__(self, task_type: str, errors: Sequence[tuple[str, str]]) -> None:
        listed = "; ".join(f"{path}: {fault}" if path else fault for path, fault in errors)
        super().__init__(f"task {task_type!r} cannot be enqueued with these arguments: {listed}")
        self.task_type = task_type
        self.errors = tuple(errors)


class InvalidOption(RefusedError):
    """An option given for one call cannot be."""


class UnknownTaskType(RefusedError):
    """Nobody registered a task type of that name."""

    def __init__(self, task_type: str, known: Sequence[str] = ()) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"there is no task type {task_type!r}; registered here: {names}")
        self.task_type = task_type


class UnknownTask(RefusedError):
    """There is no task of that id."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"there is no task {task_id}")
        self.task_id = task_id


class DuplicateTask(RefusedError):
    """A task with this key is active, and the caller asked for duplicates to be rejected."""

    def __init__(self, task: Task) -> None:
        super().__init__(
            f"task {task.id} of type {task.task_type!r} {task.in_words} already, under the key {task.business_key!r}"
        )
        self.task = task


class TooManyActive(RefusedError):
    """The owner has as many active tasks as are allowed (`max_active_per_owner`): one must end first.

    `active` is how many there are, `most` how many may be; `task_type` is None if those of all types are counted.
    """

    def __init__(self, owner: str | None, *, active: int, most: int, task_type: str | None = None) -> None:
        of_type = "" if task_type is None else f" of type {task_type!r}"
        super().__init__(
            f"owner {owner!r} has {active} active tasks{of_type}, and {most} are allowed (max_active_per_owner); "
            "wait for one to end, or cancel one"
        )
        self.owner = owner
        self.active = active
        self.most = most
        self.task_type = task_type


class RequestKeyReused(RefusedError):
    """One Idempotency-Key was sent for two different requests: another task type, or other arguments."""

    def __init__(self, task: Task) -> None:
        super().__init__(f"this request key was used before, for another request: task {task.id}")
        self.task = task


class IllegalMove(RefusedError):
    """The task's status does not allow that move; `task` is the row as it stands, `way` what to do instead."""

    def __init__(self, task: Task, move: str, *, way: str = "") -> None:
        super().__init__(f"cannot {move} task {task.id}: it {task.in_words}{'; ' + way if way else ''}")
        self.task = task
        self.move = move
        self.way = way


class InvalidStep(RefusedError):
    """The name or the value of a step (`ctx.checkpoint`, `ctx.cursor`, `ctx.keep`) cannot be kept as it is."""

    # the next attempt would say the same
    transient = False


class UnknownUpload(RefusedError):
    """There is no upload of that id: it never was, has expired, or is not this owner's or this task's."""

    transient = False

    def __init__(self, upload_id: str) -> None:
        super().__init__(f"there is no upload {upload_id}, or not for this owner; or it has expired")
        self.upload_id = upload_id


class UploadConflict(RefusedError):
    """The upload is not at the point where that can be done: `why` tells, as a sentence about "it"."""

    transient = False

    def __init__(self, upload_id: str, why: str) -> None:
        super().__init__(f"upload {upload_id}: {why}")
        self.upload_id = upload_id
        self.why = why


class UploadTooLarge(RefusedError):
    """An upload has more than `limit` bytes, which `max_upload` sets."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"an upload may have {limit:,} bytes at most; DUMBWAITER_MAX_UPLOAD sets that")
        self.limit = limit


class StoreError(DumbwaiterError):
    """The database said something that only its operator can act on."""


class DatabaseUnavailable(StoreError):
    """The database cannot be reached or used just now; trying again later may help."""


class OutcomeUnknown(DatabaseUnavailable):
    """The connection was lost while a task was being registered: it may be there, or not.

    `task_id` is the id that it has if it is there: `waiter.get(error.task_id)` tells, once the database answers again. An
    enqueue with `key=` or `request_key=` may simply be repeated: that makes no second task.
    """

    def __init__(self, task_id: str, why: str) -> None:
        super().__init__(
            f"{why}; whether task {task_id} was registered is not known: ask for it by that id when the database answers "
            "again, or repeat the call, which makes no second task if it has a key= or a request_key="
        )
        self.task_id = task_id


class SchemaMismatch(StoreError):
    """The tables are missing, too old or too new for this version of the package."""


class WrongEnvironment(StoreError):
    """The database was installed for another environment than this process runs in."""


class KeyContended(StoreError):
    """A key stayed locked by somebody's open transaction for longer than we wait (5 s)."""


class FileStoreError(DumbwaiterError):
    """The place where files lie did not do what it was asked; `transient` says whether trying again may help."""

    def __init__(self, message: str, *, transient: bool = True) -> None:
        super().__init__(message)
        self.transient = transient


class FileGone(FileStoreError):
    """There is no file under that key."""

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=False)


class LostClaim(DumbwaiterError):
    """The attempt no longer owns its task: whatever it writes changes nothing, so it should stop."""


class TaskCancelled(DumbwaiterError):
    """Raised inside a task that was asked to stop, at its next step."""


class CommandFailed(DumbwaiterError):
    """A command ended with another status than 0."""

    def __init__(self, command: str, status: int, tail: str = "") -> None:
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        super().__init__(f"{command} {how}" + (f": {tail}" if tail else ""))
        self.status = status


class MemoryExceeded(DumbwaiterError):
    """The processes of an isolated task used more memory than its `max_memory=`, and were ended for that.

    Another attempt would most likely use as much, so it is not tried again unless the policy names it:

        @waiter.task("index", isolate=True, max_memory=2 * 1024**3, retry=Retry(on=(MemoryExceeded,)))
        def index(ctx: TaskContext, shelf: str) -> None: ...

    `used` and `allowed` are bytes; `processes` is how many there were.
    """

    transient = False

    def __init__(self, used: int, allowed: int, processes: int) -> None:
        mebibyte = 1024 * 1024
        whose = "the task's process" if processes == 1 else f"the task's {processes} processes together"
        super().__init__(
            f"killed: memory; {whose} used {used / mebibyte:,.0f} MiB, more than the {allowed / mebibyte:,.0f} MiB "
            "that max_memory= allows"
        )
        self.used = used
        self.allowed = allowed
        self.processes = processes


class WorkerDied(DumbwaiterError):
    """Recorded as the error of an attempt whose worker fell silent."""


class Fail(DumbwaiterError):
    """Raise it in a task to end it as failed at once, whatever retries are left.

    `user_message` is shown to the person who asked for the work; `message` only to operators.

        raise Fail("ledger 7 has no rows for 2026-13", user_message="There is no month 13.")
    """

    def __init__(self, message: str, *, user_message: str | None = None) -> None:
        super().__init__(message)
        self.user_message = user_message


class RetryLater(DumbwaiterError):
    """Raise it in a task when this attempt failed but another should be made after `delay`.

    It costs one retry; when none is left the task fails with `message`.

        raise RetryLater(timedelta(minutes=2), "the bank is closed for maintenance")
    """

    def __init__(self, delay: timedelta, message: str = "the task asked to be tried again later") -> None:
        refuse_bare_number("RetryLater", delay)
        super().__init__(message)
        self.delay = delay


class Snooze(DumbwaiterError):
    """Raise it in a task when nothing failed but it is too early: come back after `delay`, free of charge.

    raise Snooze(timedelta(seconds=30))
    """

    def __init__(self, delay: timedelta) -> None:
        refuse_bare_number("Snooze", delay)
        super().__init__(f"snoozed for {delay}")
        self.delay = delay


def refuse_bare_number(name: str, delay: object) -> None:
    """Raised where the task is written, not when its end is."""
    if not isinstance(delay, timedelta):
        raise TypeError(f"{name}({delay!r}): give a timedelta, such as timedelta(seconds=30)")
