"""How much a worker has free: slots for each queue, and named capacities."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

from dumbwaiter.errors import ConfigurationError
from dumbwaiter.executors.registry import TaskType


class Slots:
    """Slots per queue, and capacities such as `chromium=1`: taken when a task is launched, given back at its end."""

    def __init__(self, queues: Mapping[str, int] | None, each: int, capacity: Mapping[str, float]) -> None:
        self._check(queues, each, capacity)
        self._given = None if queues is None else dict(queues)
        self._each = each
        self._capacity = dict(capacity)
        self._used: dict[str, int] = {}
        self._taken: dict[str, float] = {}
        self._lock = threading.Lock()

    @staticmethod
    def _check(queues: Mapping[str, Any] | None, each: int, capacity: Mapping[str, Any]) -> None:
        """Raises ConfigurationError for a worker that would never start anything, and would not say so."""
        if queues is not None and not queues:
            raise ConfigurationError("queues={}: name at least one, or leave it out to serve all there are")
        for name, slots in {"slots": each}.items() if queues is None else queues.items():
            if not name or not isinstance(slots, int) or slots < 1:
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
            return {name: total - self._taken.get(name, 0) for name, total in self._capacity.items()}

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
