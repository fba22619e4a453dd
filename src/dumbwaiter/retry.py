"""When a failed attempt runs again, and which errors are worth it. Pure: no clock, no database."""

from __future__ import annotations

import random
import traceback as traceback_module
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dumbwaiter.errors import (
    ConfigurationError,
    DumbwaiterError,
    Fail,
    RefusedError,
    RetryLater,
    Snooze,
    TaskCancelled,
)
from dumbwaiter.task import AttemptOutcome, Kind, Outcome, Task

# Errors that the same arguments will raise again: another try only delays the bad news.
DETERMINISTIC: tuple[type[BaseException], ...] = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    NameError,
    AssertionError,
    ArithmeticError,
    NotImplementedError,
    ImportError,
    SyntaxError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
# A status code on the error (httpx, requests, botocore and our own) decides before its class does.
WORTH_A_RETRY_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 32 * 1024


@dataclass(frozen=True, slots=True)
class Retry:
    """When a failed task is tried again.

    The delay before retry n (from 1) is `base * factor ** (n - 1)`, at most `cap`, varied by ± `jitter` (a fraction);
    or `delays[n - 1]` if delays are given by hand (the last one repeats). Deterministic errors (bad values, missing
    files, refused permissions) are not retried unless named in `on`; nothing named in `never` is.

        Retry(max_retries=5, on=(ValueError,))
        Retry(delays=[timedelta(seconds=10), timedelta(minutes=5)])

    Raises ConfigurationError if a number makes no sense.
    """

    max_retries: int = 3
    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(minutes=10)
    jitter: float = 0.2
    delays: Sequence[timedelta] = ()
    on: tuple[type[BaseException], ...] = ()
    never: tuple[type[BaseException], ...] = ()
    on_timeout: bool = True

    def __post_init__(self) -> None:
        if self.max_retries < 0 or self.max_retries > 10_000:
            raise ConfigurationError(f"Retry(max_retries={self.max_retries}): give a number from 0 to 10,000")
        if not 0 <= self.jitter < 1:
            raise ConfigurationError(f"Retry(jitter={self.jitter}): give a fraction from 0 to below 1")
        if self.factor < 1 or self.base < timedelta(0) or any(delay < timedelta(0) for delay in self.delays):
            raise ConfigurationError("Retry: a factor below 1 or a negative delay makes no sense")

    def delay(self, retry: int, chance: float | None = None) -> timedelta:
        """How long to wait before retry number `retry` (from 1). `chance` in 0…1 fixes the jitter, for tests."""
        if self.delays:
            plain = self.delays[min(retry, len(self.delays)) - 1]
        else:
            plain = min(self.base * self._growth(retry), self.cap)
        spread = random.random() if chance is None else chance
        return plain * (1 + self.jitter * (2 * spread - 1))

    def _growth(self, retry: int) -> float:
        """How often the base fits into the delay, never more often than it fits into the cap: no overflow at retry 10,000."""
        most = max(self.cap / self.base, 0.0) if self.base else 1.0
        try:
            return min(self.factor ** (retry - 1), most)
        except OverflowError:
            return most

    def worth(self, error: BaseException) -> bool:
        """Whether another try could end differently."""
        if isinstance(error, RemoteError):
            return error.worth
        if isinstance(error, (Fail, *self.never)):
            return False
        if isinstance(error, (RetryLater, *self.on)):
            return True
        status = status_code(error)
        if status is not None:
            return status in WORTH_A_RETRY_STATUS
        if isinstance(error, (ConfigurationError, RefusedError)):
            return False
        if isinstance(error, DumbwaiterError):
            return bool(getattr(error, "transient", True))
        # UnicodeError and JSONDecodeError are ValueErrors, so they are covered
        return not isinstance(error, DETERMINISTIC)


class RemoteError(Exception):
    """An error that was raised in another process, as far as it could be told in JSON (see `described`)."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(str(told.get("message", "")))
        self.error_type = str(told.get("error_type", "Exception"))
        self.traceback = str(told.get("traceback", ""))
        self.user_message: str | None = told.get("user_message")
        self.worth = bool(told.get("worth", True))
        seconds = told.get("delay")
        self.delay = None if seconds is None else timedelta(seconds=float(seconds))
        self.meaning = str(told.get("meaning", "failure"))


def described(error: BaseException, policy: Retry) -> dict[str, Any]:
    """What another process must know of an error to decide what it means: the JSON that `RemoteError` reads."""
    meaning = (
        "snooze" if isinstance(error, Snooze) else "cancel" if isinstance(error, TaskCancelled) else "failure"
    )
    delay = error.delay if isinstance(error, Snooze) else retry_after(error)
    return {
        "error_type": type_name(error),
        "message": message(error),
        "traceback": formatted(error),
        "user_message": user_message(error),
        "worth": policy.worth(error),
        "delay": None if delay is None else delay.total_seconds(),
        "meaning": meaning,
    }


def decide(task: Task, error: BaseException, policy: Retry) -> Outcome:
    """What this error means for the task: end as failed, try again after a delay, or come back for free."""
    meaning = error.meaning if isinstance(error, RemoteError) else None
    if isinstance(error, Snooze) or meaning == "snooze":
        return Outcome.snoozed(getattr(error, "delay", None) or timedelta(0))
    if isinstance(error, TaskCancelled) or meaning == "cancel":
        return Outcome.cancelled()
    return failure(task, error, policy, worth=policy.worth(error))


def timed_out(task: Task, policy: Retry) -> Outcome:
    """What running out of time means for the task: a failure like another, retried unless the policy says no."""
    error = TimeoutError(f"the task ran longer than its timeout of {task.timeout}")
    return failure(task, error, policy, worth=policy.on_timeout, how=AttemptOutcome.TIMED_OUT)


def failure(
    task: Task,
    error: BaseException,
    policy: Retry,
    *,
    worth: bool,
    how: AttemptOutcome = AttemptOutcome.FAILED,
) -> Outcome:
    """A failed attempt: retried if the error is worth it and a retry is left, else the end."""
    left = worth and task.retry_count < task.max_retry_count
    asked = retry_after(error)
    delay = asked if asked is not None else policy.delay(task.retry_count + 1)
    return Outcome(
        Kind.RETRY if left else Kind.FAIL,
        how,
        delay=delay if left else timedelta(0),
        error_type=type_name(error),
        error_message=message(error),
        user_message=user_message(error),
        traceback=formatted(error),
    )


def crashed(task: Task, why: str) -> Outcome:
    """What the death of a worker means for the task that it held: back into the queue, until the crash budget is spent.

    A budget of 0 is for work that must not be repeated: nobody knows whether it was done.
    """
    if task.cancel_requested_at is not None:
        return Outcome.cancelled("cancelled on request; its worker had died")
    if task.ahead:
        return Outcome.given_back(f"{why}; the task had not begun")
    count = task.crash_count + 1
    if task.max_crash_count == 0:
        return Outcome(
            Kind.FAIL,
            AttemptOutcome.CRASHED,
            error_type="unknown-outcome",
            error_message=f"{why}; the task may or may not have done its work, and max_crashes=0 forbids to repeat it",
        )
    if count >= task.max_crash_count:
        times = "once" if count == 1 else f"{count} times"
        return Outcome(
            Kind.FAIL,
            AttemptOutcome.CRASHED,
            error_type="WorkerDied",
            error_message=f"the worker died while running this task ({times}); the last time: {why}",
        )
    return Outcome.rescued(why)


def interrupted(task: Task, limit: int = 20) -> Outcome:
    """What a stopping worker means for the task that it runs: back into the queue, free of charge, though not for ever."""
    if task.interruption_count < limit:
        return Outcome.released()
    return Outcome(
        Kind.FAIL,
        AttemptOutcome.INTERRUPTED,
        error_type="interrupted",
        error_message=f"the task was interrupted by stopping workers {limit + 1} times and never came to an end",
    )


def status_code(error: BaseException) -> int | None:
    """The HTTP status that an error carries, where the common clients keep it."""
    for holder in (error, attribute(error, "response")):
        for name in ("status_code", "status", "code"):
            value = attribute(holder, name)
            if isinstance(value, int) and 100 <= value < 600:
                return value
    return None


def retry_after(error: BaseException) -> timedelta | None:
    """How long the error itself asks us to wait: `RetryLater`, or a Retry-After header in seconds (RFC 9110, 10.2.3)."""
    if isinstance(error, RetryLater | RemoteError):
        return error.delay
    headers = attribute(attribute(error, "response"), "headers")
    try:
        seconds = float(headers["retry-after"]) if headers is not None else -1.0
    except Exception:  # noqa: BLE001 - whatever somebody else's headers raise, they ask for nothing
        return None
    return timedelta(seconds=min(seconds, 86_400)) if seconds >= 0 else None


def type_name(error: BaseException) -> str:
    """The error's class as operators search for it: `module.Class`, builtins by their bare name."""
    if isinstance(error, RemoteError):
        return error.error_type
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def attribute(holder: Any, name: str) -> Any:
    """What somebody else's error says of itself; None if it does not, or cannot: a property may raise anything."""
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - the end of a task must not hang on a broken property of its error
        return None


def message(error: BaseException) -> str:
    """The error's text, never longer than 2,000 characters, even of an error that cannot be printed."""
    return storable(printed(error) or type(error).__name__)[:MESSAGE_LIMIT]


def user_message(error: BaseException) -> str | None:
    """What the error says to the person who asked for the work, if anything; a text that is translated late as well."""
    told = attribute(error, "user_message")
    return None if told is None else storable(printed(told))[:MESSAGE_LIMIT]


def printed(value: Any) -> str:
    try:
        return str(value)
    except BaseException as unprintable:  # noqa: BLE001 - a broken __str__ must not take the worker with it
        return f"(the error's text could not be made: {type(unprintable).__name__})"


def formatted(error: BaseException) -> str:
    """The traceback, at most 32 KiB: its head and its tail, since causes stand at both ends."""
    if isinstance(error, RemoteError):
        return shortened(error.traceback, TRACEBACK_LIMIT)
    try:
        text = "".join(traceback_module.format_exception(error))
    except BaseException as unprintable:  # noqa: BLE001 - see printed()
        text = f"(no traceback: it could not be printed, {type(unprintable).__name__})"
    return shortened(storable(text), TRACEBACK_LIMIT)


def shortened(text: str, limit: int) -> str:
    """The head and the tail of a text that is longer than `limit` bytes in UTF-8."""
    data = text.encode()
    if len(data) <= limit:
        return text
    half = (limit - 40) // 2
    cut = len(data) - 2 * half
    return f"{data[:half].decode(errors='ignore')}\n… {cut} bytes left out …\n{data[-half:].decode(errors='ignore')}"


def storable(text: str) -> str:
    """The text as every database takes it: no NUL (PostgreSQL refuses it), no lone surrogate."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()
