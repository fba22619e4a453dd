"""The claimer: asks for as many tasks as there are free slots, and launches what it gets."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

from dumbwaiter.executors.registry import Registry
from dumbwaiter.store.claiming import Want
from dumbwaiter.store.store import Store
from dumbwaiter.task import Fence, Task
from dumbwaiter.worker.slots import Slots
from dumbwaiter.worker.unclaimed import Unclaimed

log = logging.getLogger("dumbwaiter")

# After its grace time and this much more, a task that still runs is not kept alive by heartbeats any longer.
BEAT_MARGIN = timedelta(seconds=30)


class Claimer:
    """Claims what this worker can start, highest priority first, each queue within its slots."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        slots: Slots,
        worker: str,
        *,
        launch: Callable[[Task], None],
        running: Callable[[], Iterable[Fence]],
        poll: timedelta,
        grace: timedelta,
    ) -> None:
        self._store = store
        self._registry = registry
        self._slots = slots
        self._worker = worker
        self._launch = launch
        self._running = running
        self._poll = poll.total_seconds()
        self._beat_for = grace + BEAT_MARGIN
        self._unclaimed = Unclaimed(store, registry, slots)
        self._uncertain = False
        self._turn = 0
        self._closed = False
        self._disowned = False

    def close(self) -> None:
        """Claim nothing from now on."""
        self._closed = True

    def disown(self) -> None:
        """A claim whose answer comes after this is left to the rescuer: the worker is about to end."""
        self._disowned = True

    @property
    def open(self) -> bool:
        return not self._closed

    def round(self) -> float:
        if self._closed:
            return 60.0
        if self._uncertain:
            self._take_up_unknown()
        more = False
        for queue in self._in_turn(self._queues()):
            want = self._want(queue)
            if want is None:
                continue
            claimed = len(self._claim(want))
            if not claimed:
                self._unclaimed.look(queue)
            more |= claimed == want.slots
        return 0.0 if more else self._poll * random.uniform(0.8, 1.0)

    def _in_turn(self, queues: Sequence[str]) -> Sequence[str]:
        """Another one first each time: a long queue must not keep a capacity from all that come after it."""
        self._turn += 1
        first = self._turn % max(len(queues), 1)
        return [*queues[first:], *queues[:first]]

    def _queues(self) -> Sequence[str]:
        """The queues to ask in. One cheap read tells in which of several there is anything."""
        named = list(self._slots.queues)
        if len(named) == 1 and self._store.kind != "sqlite":
            return named
        # on SQLite a claim takes the one write lock there is, so look before
        ready = self._store.queues_with_work()
        return ready if self._slots.any_queue else [queue for queue in named if queue in ready]

    def _want(self, queue: str) -> Want | None:
        free = self._slots.free(queue)
        if free == 0:
            return None
        needs: dict[str, Mapping[str, float]] = {
            entry.name: entry.all_needs for entry in self._registry if entry.all_needs
        }
        types = tuple(entry.name for entry in self._registry)
        return Want(queue, free, types, needs, self._slots.free_capacity(), self._beat_for)

    def _claim(self, want: Want) -> list[Task]:
        try:
            claimed = self._store.claim(want, self._worker)
        except Exception:
            # the database may have made tasks ours without our hearing of it; our own heartbeat would keep them for ever
            self._uncertain = True
            raise
        if self._disowned:
            return []
        for task in claimed:
            self._take_up(task)
        return claimed

    def _take_up(self, task: Task) -> None:
        self._slots.take(task.queue, self._registry[task.task_type])
        self._launch(task)

    def _take_up_unknown(self) -> None:
        """Launch what the table says is ours and we do not know of: claims whose answer was lost."""
        # in this order: one that ends in between is in neither, and must not be started a second time
        known = set(self._running())
        held = self._store.held(self._worker)
        for task in held:
            if task.fence not in known:
                log.info("task %s was claimed by a statement whose answer was lost; it starts now", task.id)
                self._take_up(task)
        self._uncertain = False
