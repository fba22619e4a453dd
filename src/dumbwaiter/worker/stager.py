"""The stager: makes due tasks ready, at the latest a second after they are due, and sees for the claimer what waits."""

from __future__ import annotations

import time
from collections.abc import Callable

from dumbwaiter.store.claiming import Concern
from dumbwaiter.store.store import Store

REST = 1.0
BATCH = 500
# For so long after something happened the looks are as frequent as they get.
RECENTLY = 10.0
# At rest, where the database tells of what comes: for hints that were lost. With it a worker at rest makes no more than one
# statement a second, its heartbeat, its sweeps and its listener included.
QUIET = {"postgresql": 2.5, "sqlite": 5.0}  # a commit on SQLite cannot be overlooked
# Where no database tells of anything, soon after something happened.
EAGER = 0.25
# What the claimer waits by itself, since it is woken for whatever there is.
BACKSTOP = 60.0


class Stager:
    """Looks at what will be due, at what is, and whether a suspect waits; one statement tells all three.

    It looks before it writes: on SQLite a write holds up everybody. `suspects` is told whether one waits; `ready` is called if
    something is due, so that the claimer need not ask while there is nothing.
    """

    def __init__(
        self,
        store: Store,
        concern: Callable[[], Concern],
        *,
        suspects: Callable[[bool], None],
        ready: Callable[[], None],
        poll: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._concern = concern
        self._suspects = suspects
        self._ready = ready
        self._poll = poll
        self._monotonic = monotonic
        self._earliest = 0.0
        self._next_poll = 0.0
        self._lively_until = monotonic() + RECENTLY
        self._urgent = False

    def stir(self) -> None:
        """Something happens here: more may come."""
        self._lively_until = self._monotonic() + RECENTLY

    def hurry(self) -> None:
        """Something may be due in a moment: the next round looks, although the last one did just now."""
        self.stir()
        self._urgent = True

    def round(self) -> float:
        early = self._earliest - self._monotonic()
        if early > 0 and not self._urgent:
            return early
        self._urgent = False
        ahead = self._store.ahead(self._concern())
        self._suspects(ahead.suspect)
        now = self._monotonic()
        if ahead.suspect or ahead.ready:
            self._lively_until = now + RECENTLY
        if ahead.ready and now >= self._next_poll:
            self._next_poll = now + self._poll * 0.9  # a look is hardly ever on time to the millisecond
            self._ready()
        wait = self._rest(now)
        if ahead.next_due is not None:
            wait = min(wait, ahead.next_due.total_seconds())
            if wait <= 0:
                wait = 0.0 if self._store.stage(limit=BATCH) else REST
        self._earliest = now + min(wait, REST)
        return wait

    def _rest(self, now: float) -> float:
        lively = now < self._lively_until
        if self._store.hinted:
            return REST if lively else QUIET[self._store.kind]
        return min(EAGER, self._poll) if lively else REST
