"""Why due tasks are left where they are: said once for each reason, so that nobody wonders at a queue that stands still."""

from __future__ import annotations

import logging
import time

from dumbwaiter.executors.registry import Registry
from dumbwaiter.store.store import Store
from dumbwaiter.worker.slots import Slots

log = logging.getLogger("dumbwaiter")

# A claim that came back empty although there are slots is common (another worker was faster): look only now and then.
EVERY = 10.0


class Unclaimed:
    """Looks at what is due in a queue of which this worker could take nothing."""

    def __init__(self, store: Store, registry: Registry, slots: Slots) -> None:
        self._store = store
        self._registry = registry
        self._slots = slots
        self._told: set[tuple[str, str, str]] = set()
        self._next = 0.0

    def look(self, queue: str) -> None:
        """Say which types of task wait there for another worker than this one."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY
        for task_type, version in self._store.ready_types(queue):
            why = self._why(task_type, version)
            if why and (queue, task_type, why) not in self._told:
                self._told.add((queue, task_type, why))
                log.warning(
                    "queue %s has due tasks of type %s, and this worker leaves them: %s",
                    queue,
                    task_type,
                    why,
                )

    def _why(self, task_type: str, version: int) -> str:
        """Why this worker will never take such a task; "" if it may."""
        entry = self._registry.get(task_type)
        if entry is None:
            return "that type is not registered in its application"
        if version > entry.version:
            return (
                f"their arguments are of version {version}, and its application knows version {entry.version}"
            )
        lacking = [
            f"{name}={amount:g} (it has {self._slots.capacity.get(name, 0):g})"
            for name, amount in entry.all_needs.items()
            if amount > self._slots.capacity.get(name, 0)
        ]
        return f"they need {', '.join(lacking)}; see --capacity" if lacking else ""
