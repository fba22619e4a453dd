"""The finisher: writes the ends of attempts, several in one transaction, and keeps each until it is written."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Sequence
from datetime import timedelta

from dumbwaiter.errors import StoreError
from dumbwaiter.retry import message, type_name
from dumbwaiter.store.rows import Finish
from dumbwaiter.store.store import Store
from dumbwaiter.task import AttemptOutcome, Kind, Outcome, Status

log = logging.getLogger("dumbwaiter")

# of 200, 400 and 1,000 this was the fastest on PostgreSQL, with as many at hand
BATCH = 400
IDLE = 60.0


class Finisher:
    """Takes ends from any thread and writes them in the order in which they came.

    `settled` is given those that were written together, each with the status that its task got.
    """

    def __init__(
        self, store: Store, settled: Callable[[Sequence[tuple[Finish, Status | None]]], None]
    ) -> None:
        self._store = store
        self._settled = settled
        self._ends: queue.SimpleQueue[Finish] = queue.SimpleQueue()
        self._batch: list[Finish] = []

    def put(self, end: Finish) -> None:
        self._ends.put(end)

    @property
    def empty(self) -> bool:
        """Everything that was put has been written."""
        return not self._batch and self._ends.empty()

    def round(self) -> float:
        """Write what there is. A batch that could not be written is kept, and tried again in the next round."""
        while not self._batch_is_full() and not self._ends.empty():
            self._batch.append(self._ends.get_nowait())
        if not self._batch:
            return IDLE
        self._write()
        return 0.0 if not self._ends.empty() else IDLE

    def _batch_is_full(self) -> bool:
        return len(self._batch) >= BATCH

    def _write(self) -> None:
        try:
            written = self._store.finish(self._batch)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - _write_alone finds and tells which one it was
            # one end that the database refuses must not hold up the others
            written = [self._write_alone(end) for end in self._batch]
        batch, self._batch = list(zip(self._batch, written, strict=True)), []
        told = log.isEnabledFor(logging.INFO)
        for end, status in batch:
            if told or status is not Status.SUCCESS:
                tell(end, status)
        self._settled(batch)

    def _write_alone(self, end: Finish) -> Status | None:
        """Write one end; if the database refuses what it says, write that instead."""
        try:
            return self._store.finish([end])[0]
        except StoreError:
            raise
        except Exception as error:
            log.exception("the database refused the end of task %s", end.task.id)
            return self._store.finish([Finish(end.task, refused(error), published=end.published)])[0]


def tell(end: Finish, status: Status | None) -> None:
    """One line for each end of an attempt: what it was, how it went, and what comes next."""
    task, outcome = end.task, end.outcome
    name = f"{task.task_type} {task.id}, attempt {task.attempt}"
    match outcome.kind:
        case _ if status is None:
            log.warning(
                "attempt %d of task %s had lost its task: its end was not recorded", task.attempt, task.id
            )
        case _ if status is Status.CANCELLED:
            log.info("%s: cancelled", name)
        case _ if status is Status.SUCCESS:  # whatever came after its own transaction
            log.info("%s: success", name)
        case Kind.RETRY:
            log.warning(
                "%s: %s, again in %s: %s", name, failed(outcome), shown(outcome.delay), outcome.error_message
            )
        case Kind.FAIL:
            log.error(
                "%s: %s for good: %s\n%s",
                name,
                failed(outcome),
                outcome.error_message,
                outcome.traceback or "",
            )
        case Kind.SNOOZE:
            log.info("%s: comes back in %s", name, shown(outcome.delay))
        case _:
            log.info("%s: back in its queue: %s", name, outcome.error_message)


def failed(outcome: Outcome) -> str:
    return outcome.attempt_outcome.value.replace("_", " ")


def shown(delay: timedelta) -> str:
    return f"{delay.total_seconds():.1f} s" if delay < timedelta(minutes=2) else str(delay).split(".")[0]


def refused(error: Exception) -> Outcome:
    return Outcome(
        Kind.FAIL,
        AttemptOutcome.FAILED,
        error_type=type_name(error),
        error_message=f"the database refused what was to be written at the end of this attempt: {message(error)}"[
            :2_000
        ],
    )
