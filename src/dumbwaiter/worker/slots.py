"""How much a worker has free: slots for each queue, and named capacities."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from dumbwaiter.errors import ConfigurationError
from dumbwaiter.executors.registry import PROCESS, TaskType
from dumbwaiter.retry import storable

log = logging.getLogger("dumbwaiter")

FIRST_REST, LONGEST_REST = 1.0, 60.0


class Slots:
    """Slots per queue, and capacities such as `chromium=1`: taken when a task is launched, given back at its end."""

    def __init__(
        self,
        queues: Mapping[str, int] | None,
        each: int,
        capacity: Mapping[str, float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._check(queues, each, capacity)
        self._given = None if queues is None else dict(queues)
        self._each = each
        self._capacity = dict(capacity)
        self._used: dict[str, int] = {}
        self._taken: dict[str, float] = {}
        self._lock = threading.Lock()
        self._drought = Drought(monotonic)

    @staticmethod
    def _check(queues: Mapping[str, Any] | None, each: int, capacity: Mapping[str, Any]) -> None:
        """Raises ConfigurationError for a worker that would never start anything, and would not say so."""
        if queues is not None and not queues:
            raise ConfigurationError("queues={}: name at least one, or leave it out to serve all there are")
        for name, slots in {"slots": each}.items() if queues is None else queues.items():
            if not name or storable(name) != name or not isinstance(slots, int) or slots < 1:
                raise ConfigurationError(f"slots of a worker: {name!r}={slots!r}; give a name and at least 1")
        for name, amount in capacity.items():
            if not isinstance(amount, int | float) or not 0 <= amount < math.inf:
                raise ConfigurationError(f"capacity of a worker: {name!r}={amount!r}; give a number from 0")

    @property
    def any_queue(self) -> bool:
        """Nobody said which queues: this worker serves whatever there is."""
        return self._given is None

    @property
    def queues(self) -> Mapping[str, int]:
        return self._given or {}

    @property
    def capacity(self) -> Mapping[str, float]:
        return self._capacity

    def free(self, queue: str) -> int:
        """How many more tasks of this queue may start."""
        limit = self._each if self._given is None else self._given.get(queue, 0)
        with self._lock:
            return max(limit - self._used.get(queue, 0), 0)

    def free_capacity(self) -> Mapping[str, float]:
        with self._lock:
            free = {name: total - self._taken.get(name, 0) for name, total in self._capacity.items()}
            if PROCESS in free:
                free[PROCESS] = min(free[PROCESS], self._drought.most)
            return free

    def take(self, queue: str, entry: TaskType) -> None:
        with self._lock:
            self._used[queue] = self._used.get(queue, 0) + 1
            for name, amount in entry.all_needs.items():
                self._taken[name] = self._taken.get(name, 0) + amount

    def give_back(self, queue: str, entry: TaskType) -> None:
        with self._lock:
            self._used[queue] -= 1
            for name, amount in entry.all_needs.items():
                self._taken[name] -= amount

    def no_process(self, why: str) -> None:
        """This machine starts no process just now: nothing that needs one is claimed for a while, longer each time."""
        with self._lock:
            self._drought.begin(why)

    def process_started(self) -> None:
        """It does again."""
        with self._lock:
            self._drought.over()


class Drought:
    """A time without new processes: how long to rest, and then one try at a time until one has succeeded."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._rest = 0.0
        self._until = 0.0

    def begin(self, why: str) -> None:
        # of several that fail together the first one counts
        if self._monotonic() < self._until:
            return
        if not self._rest:
            log.error(
                "no process can be started here, so nothing that needs one is claimed until one can: %s; look at the limits "
                "of processes, memory and open files",
                why,
            )
        self._rest = min(max(self._rest * 2, FIRST_REST), LONGEST_REST)
        self._until = self._monotonic() + self._rest

    def over(self) -> None:
        if self._rest and self._monotonic() >= self._until:
            log.info("processes can be started again")
            self._rest = 0.0

    @property
    def most(self) -> float:
        """How many may be started at once now."""
        if not self._rest:
            return math.inf
        return 0.0 if self._monotonic() < self._until else 1.0
