"""The rescuer: takes back what dead workers hold, and never what is alive after an outage."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from dumbwaiter.store.store import Store
from dumbwaiter.task import Outcome, Task

log = logging.getLogger("dumbwaiter")

BATCH = 100


class Rescuer:
    """Sweeps every few seconds. Any worker does it, without an election.

    After an outage of the database every heartbeat is old, those of the living too. So a rescuer holds still for one
    lease after its own last failed statement, or after the clock jumped: by then the living have been heard again. And it
    begins after `settle`, some heartbeats long, since it may be the first to reach a database that has just come back.

    An outage need not fail anything: a frozen server, or a SQLite file that somebody keeps locked, answers in the end. So
    slow answers count as an outage, and leases are counted to an instant that was read before the sweep.

    A jump of the clock is no time that passed. Nothing here can undo what was due, but it makes nobody dead: `beat_until` of
    this worker's tasks jumps along, so that a worker whose host slept for hours keeps what it runs; and heartbeats that lie
    ahead of a clock that was set back do not keep what the dead hold. That may have happened before this worker began.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        lease: timedelta,
        sweep: timedelta,
        *,
        settle: timedelta = timedelta(0),
        took: Callable[[Task, Outcome], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._worker = worker
        self._lease = lease
        self._sweep = sweep.total_seconds()
        self._took = took
        self._monotonic = monotonic
        self._still_until = monotonic() + settle.total_seconds()
        self._offset: timedelta | None = None
        self._looked = False

    def begin(self, now: datetime) -> None:
        """It is that time by the database's clock: a jump counts from here, also if it comes before the first round."""
        self._offset = self._offset_at(now)

    def round(self) -> float:
        try:
            return self._round()
        except Exception:
            self._hold_still()
            raise

    def _round(self) -> float:
        asked = self._monotonic()
        around = self._store.around(self._lease)
        now = around.now
        self._mind_jumps(now)
        if around.late or around.silent:
            # also before anything is taken back: where a lock keeps everybody from writing, that is found out here
            self._store.expire()
        self._mind_slowness(asked)
        still = self._still_until - self._monotonic()
        if still > 0:
            return min(still, self._pause())
        rescued = self._store.rescue(self._lease, now=now, limit=BATCH) if around.silent else []
        self._mind_slowness(asked)
        for task, outcome in rescued:
            log.warning("task %s was taken back from a dead worker: %s", task.id, outcome.error_message)
            self._took(task, outcome)
        return 0.0 if len(rescued) == BATCH else self._pause()

    def _pause(self) -> float:
        # jitter only ever shortens it: the promise counts on at most one sweep
        return self._sweep * random.uniform(0.8, 1.0)

    def _hold_still(self) -> None:
        self._still_until = self._monotonic() + self._lease.total_seconds()

    def _mind_slowness(self, asked: float) -> None:
        """While we waited for an answer, others waited to be heard."""
        took = self._monotonic() - asked
        if took > self._lease.total_seconds() / 3:
            log.warning("the database took %.1f s to answer; nothing is taken back for one lease", took)
            self._hold_still()

    def _mind_jumps(self, now: datetime) -> None:
        """A jump of the database's clock (or of ours, after the machine slept) makes leases look longer than they were."""
        offset = self._offset_at(now)
        jump = timedelta(0) if self._offset is None else offset - self._offset
        if abs(jump) > self._lease / 4:
            log.warning("the clock jumped by %s; nothing is taken back for one lease", jump)
            self._hold_still()
            self._store.mind_jump(self._worker, jump)
        elif not self._looked:
            self._store.mind_jump(self._worker, timedelta(0))
        # only now: a round that fails meets the same jump again
        self._offset, self._looked = offset, True

    def _offset_at(self, now: datetime) -> timedelta:
        return now - datetime.fromtimestamp(self._monotonic(), now.tzinfo)
