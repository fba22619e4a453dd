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

NO_PROCESS = "no process can be started here, so nothing that needs one is claimed"
NO_THREAD = "no thread can be started here, so nothing is claimed"
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
        self._processes = Drought(NO_PROCESS, "processes", monotonic)
        self._threads = Drought(NO_THREAD, "threads", monotonic)

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
    def each(self) -> int:
        """The slots of each queue, if none is named."""
        return self._each

    @property
    def capacity(self) -> Mapping[str, float]:
        return self._capacity

    def free(self, queue: str) -> int:
        """How many more tasks of this queue may start."""
        with self._lock:
            return self._free(queue)

    def _free(self, queue: str) -> int:
        return int(min(max(self.limit(queue) - self._used.get(queue, 0), 0), self._threads.most))

    def limit(self, queue: str) -> int:
        """How many tasks of this queue may run at once."""
        return self._each if self._given is None else self._given.get(queue, 0)

    def free_capacity(self) -> Mapping[str, float]:
        with self._lock:
            free = {name: total - self._taken.get(name, 0) for name, total in self._capacity.items()}
            if PROCESS in free:
                free[PROCESS] = min(free[PROCESS], self._processes.most)
            return free

    def take(self, queue: str, entry: TaskType) -> None:
        with self._lock:
            self._take(queue, entry)

    def take_free(self, queue: str, entry: TaskType) -> bool:
        """Take a slot, for a task that needs nothing else, if one is free."""
        with self._lock:
            # as `free` has it, for what is asked at each end of a short task
            if self._used.get(queue, 0) >= self.limit(queue) or self._threads.most < 1:
                return False
            self._take(queue, entry)
            return True

    def _take(self, queue: str, entry: TaskType) -> None:
        self._used[queue] = self._used.get(queue, 0) + 1
        for name, amount in entry.all_needs.items():
            self._taken[name] = self._taken.get(name, 0) + amount

    def give_back(self, queue: str, entry: TaskType) -> None:
        with self._lock:
            self._used[queue] -= 1
            for name, amount in entry.all_needs.items():
                self._taken[name] -= amount

    def cannot_start(self, entry: TaskType, why: str) -> None:
        """This machine starts no process just now: nothing that needs one is claimed for a while, longer each time.

        Where not even a thread could be started, nothing at all is claimed.
        """
        with self._lock:
            (self._processes if PROCESS in entry.all_needs else self._threads).begin(why)

    def started(self, entry: TaskType) -> None:
        """It does again. A coroutine tells nothing of that."""
        if entry.executor == "coroutine":
            return
        with self._lock:
            if PROCESS in entry.all_needs:
                self._processes.over()
            elif entry.executor == "thread":
                self._threads.over()


class Drought:
    """A time without new processes or threads: how long to rest, and then one try at a time until one has succeeded."""

    def __init__(self, sentence: str, what: str, monotonic: Callable[[], float]) -> None:
        self._sentence = sentence
        self._what = what
        self._monotonic = monotonic
        self._rest = 0.0
        self._until = 0.0

    def begin(self, why: str) -> None:
        # of several that fail together the first one counts
        if self._monotonic() < self._until:
            return
        if not self._rest:
            log.error(
                "%s until one can: %s; look at the limits of processes, memory and open files",
                self._sentence,
                why,
            )
        self._rest = min(max(self._rest * 2, FIRST_REST), LONGEST_REST)
        self._until = self._monotonic() + self._rest

    def over(self) -> None:
        if self._rest and self._monotonic() >= self._until:
            log.info("%s can be started again", self._what)
            self._rest = 0.0

    @property
    def most(self) -> float:
        """How many may be started at once now."""
        if not self._rest:
            return math.inf
        return 0.0 if self._monotonic() < self._until else 1.0
