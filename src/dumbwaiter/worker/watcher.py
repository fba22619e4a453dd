"""The watcher: sees what running attempts cannot see for themselves, and ends those that should end.

Cancel requests, lost claims and timeouts; and it writes down how far each attempt has come.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from dumbwaiter.errors import TaskCancelled
from dumbwaiter.executors.base import Ended, Running
from dumbwaiter.executors.context import Stop
from dumbwaiter.run import Runner
from dumbwaiter.store.rows import Standing
from dumbwaiter.store.store import Store
from dumbwaiter.worker.forecaster import Forecaster

log = logging.getLogger("dumbwaiter")

# A cancel is promised to be seen within a second.
LOOK = 0.5
IDLE = 60.0
# What was killed and still has not reported its end after this long is given up.
GIVE_UP = 10.0


class Watcher:
    """Looks after what runs in this worker."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        running: Callable[[], Sequence[Running]],
        grace: timedelta,
        forecaster: Forecaster,
    ) -> None:
        self._store = store
        self._runner = runner
        self._forecaster = forecaster
        self._running = running
        self._grace = grace.total_seconds()
        self.abandoned = 0
        self._looking = False
        self._timing = False

    @property
    def looking(self) -> bool:
        """Its next round comes by itself, within LOOK. If not, it is to be woken for what starts."""
        return self._looking

    def may_miss(self, running: Running) -> bool:
        """Whether its timekeeping is to be woken for what starts: its next round may come too late."""
        timeout = running.task.timeout
        return not self._timing or (timeout is not None and timeout.total_seconds() < LOOK)

    def round(self) -> float:
        looked = self._looking
        # before the list is read: what is added to it later finds that this one has to be woken
        self._looking = False
        running = self._running()
        if not running:
            return IDLE
        self._looking = True
        if not looked:
            # the first after a rest: of what begins now nobody has said anything yet
            return LOOK
        self._write_begun(running)
        self._look(running)
        self._write_progress(running)
        self._write_marks(running)
        return LOOK

    def keep_time(self) -> float:
        """End what is over its time. Without the database, which may be silent for as long as it likes."""
        self._timing = False
        running = self._running()
        if not running:
            return IDLE
        self._timing = True
        self._end_overdue(running)
        return self._until_next(running)

    def ask(self, running: Running, reason: Stop) -> None:
        """Ask an attempt to end, and pass that on to whatever runs it."""
        if running.ask_stop(reason):
            log.info("task %s is asked to stop: %s", running.task.id, reason)
            self._runner.executor(running).ask(running)

    def end(self, running: Running) -> None:
        """End it now. What cannot be ended is abandoned: its task ends, and what it still writes is fenced."""
        if self._runner.executor(running).kill(running) or running.ended:
            return
        self.abandon(running)

    def abandon(self, running: Running) -> None:
        if running.complete(
            Ended(error=TaskCancelled("it did not stop when it was asked to, and was abandoned"))
        ):
            running.abandoned = True
            self.abandoned += 1
            log.warning(
                "task %s (%s) did not stop within %.0f s of being asked and cannot be ended from outside: it was abandoned; "
                "isolate=True makes such tasks killable",
                running.task.id,
                running.task.task_type,
                self._grace,
            )

    def _end_overdue(self, running: Sequence[Running]) -> None:
        now = time.monotonic()
        for one in running:
            if one.deadline is not None and now >= one.deadline:
                self.ask(one, Stop.TIMEOUT)
            if one.stop_asked is None or now < one.stop_asked + self._grace:
                continue
            self.end(one)
            if now > one.stop_asked + self._grace + GIVE_UP:
                self.abandon(one)

    def _write_begun(self, running: Sequence[Running]) -> None:
        """What began without a word to the database, and still runs."""
        fresh = {one.task.fence: one for one in running if not one.begun and not one.ended}
        if fresh:
            for fence in self._store.begin(list(fresh)):
                fresh[fence].begun = True

    def _look(self, running: Sequence[Running]) -> None:
        """Which attempts were asked to end by somebody else, or belong to another worker by now."""
        at_work = {one.task.fence: one for one in running if not one.ended}
        if at_work:
            for fence, standing in self._store.standing(list(at_work)).items():
                self._obey(at_work[fence], standing)

    def _obey(self, one: Running, standing: Standing) -> None:
        if one.ended or one.committing or one.committed:
            return
        if not standing.owned:
            self.ask(one, Stop.LOST)
        elif standing.cancel_requested:
            self.ask(one, Stop.CANCEL)

    def _write_progress(self, running: Sequence[Running]) -> None:
        made = [self._forecaster.report(one) for one in running if not one.ended]
        if reports := [report for report in made if report is not None]:
            self._store.report(reports)

    def _write_marks(self, running: Sequence[Running]) -> None:
        """Where they are in their work. What cannot be written stays fresh, and goes with the next round or the end."""
        fresh = [(one, mark) for one in running if not one.ended and (mark := one.fresh_mark()) is not None]
        if not fresh:
            return
        written = set(self._store.mark([(one.task.fence, mark) for one, mark in fresh]))
        for one, mark in fresh:
            if one.task.fence in written:
                one.mark_written(mark)

    def _until_next(self, running: Sequence[Running]) -> float:
        now = time.monotonic()
        instants = [one.deadline for one in running if one.deadline is not None and one.stop_asked is None]
        instants += [one.stop_asked + self._grace for one in running if one.stop_asked is not None]
        soonest = min((instant - now for instant in instants if instant > now), default=LOOK)
        return max(min(soonest, LOOK), 0.01)
