"""The housekeeper: removes what nobody needs any more, a little at a time, and rests when nothing is due."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dumbwaiter.errors import FileStoreError
from dumbwaiter.store.store import Store
from dumbwaiter.worker.chores import Chore, Chores, Removed
from dumbwaiter.worker.sweeper import Sweeper

if TYPE_CHECKING:
    from dumbwaiter.files import FileStore

log = logging.getLogger("dumbwaiter")

# How often a worker looks whether anything is due, and how often for what dead workers left on this host.
LOOK, TIDY = 60.0, 3600.0
# Between two batches it rests so many times as long as the last one took: whoever works comes first.
RESTS = 3.0


class Housekeeper:
    """Does the chores of `chores.py`, and those of the sweeper. Any worker does it, without an election.

    It looks once a minute, and at once when told that an attempt of this worker left files; what is due then it does one batch
    a round. A file store that is away is told of once, and asked again at the next look.
    """

    def __init__(
        self,
        store: Store,
        files: Callable[[], FileStore],
        *,
        tidy: Callable[[], object],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._chores = Chores(store, files)
        self._sweeper = Sweeper(store, files)
        self._tidy = tidy
        self._monotonic = monotonic
        self._due: list[Chore] = []
        self._hurried = threading.Event()
        self._next_look = monotonic()
        # what a start does already
        self._next_tidying = monotonic() + TIDY
        self._removed = Removed()
        self._told: str | None = None

    def ended(self, task_id: str) -> None:
        """A task that has ended may have left steps."""
        self._sweeper.put(task_id)

    def hurry(self) -> None:
        """An attempt may have left files that nobody is to see."""
        self._hurried.set()

    def round(self) -> float:
        return min(self._sweeper.round(), self._round())

    def _round(self) -> float:
        now = self._monotonic()
        if now >= self._next_tidying:
            self._next_tidying = now + TIDY * random.uniform(0.9, 1.0)
            self._tidy()
        if not self._due and (self._hurried.is_set() or now >= self._next_look):
            self._look(now)
        if not self._due:
            return max(self._next_look - now, 0.0)
        return self._work()

    def _look(self, now: float) -> None:
        self._hurried.clear()
        self._due = self._chores.due(self._store.prunable())
        self._removed = Removed()
        self._next_look = now + LOOK * random.uniform(0.8, 1.0)

    def _work(self) -> float:
        chore = self._due[0]
        began = self._monotonic()
        try:
            gone, more = chore.once()
        except FileStoreError as error:
            self._give_up(chore, error)
            return 0.0
        self._chores.count(self._removed, chore, gone)
        if not more:
            self._due.pop(0)
            self._told = None
            if not self._due and self._removed.anything:
                log.info("housekeeping: removed %s", self._removed)
        return (self._monotonic() - began) * RESTS

    def _give_up(self, chore: Chore, error: FileStoreError) -> None:
        self._due.remove(chore)
        if self._told != str(error):
            log.warning("%s stay until they can be removed: %s", chore.name, error)
        self._told = str(error)
