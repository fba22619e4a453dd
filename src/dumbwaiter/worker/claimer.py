"""The claimer: asks for as many tasks as there are free slots, and launches what it gets."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta

from dumbwaiter.executors.registry import Registry, TaskType
from dumbwaiter.store.claiming import Concern, Versions, Want, startable
from dumbwaiter.store.store import Store
from dumbwaiter.task import Fence, Task
from dumbwaiter.worker.buffer import LATE, Buffer
from dumbwaiter.worker.slots import Slots
from dumbwaiter.worker.solitude import Solitude, Step
from dumbwaiter.worker.unclaimed import Unclaimed

log = logging.getLogger("dumbwaiter")

# After its grace time and this much more, a task that still runs is not kept alive by heartbeats any longer.
BEAT_MARGIN = timedelta(seconds=30)


class Claimer:
    """Claims what this worker can start, highest priority first, each queue within its slots.

    What has crashed a worker before, and would take this one along, it claims alone: see `solitude.py`.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        slots: Slots,
        buffer: Buffer,
        worker: str,
        *,
        launch: Callable[[Task], None],
        running: Callable[[], Collection[Fence]],
        poll: timedelta,
        grace: timedelta,
        lease: timedelta,
        short_of_disk: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._registry = registry
        self._slots = slots
        self._buffer = buffer
        self._worker = worker
        self._launch = launch
        self._running = running
        self._poll = poll.total_seconds()
        self._beat_for = grace + BEAT_MARGIN
        self._lease = lease
        self._short_of_disk = short_of_disk
        self._solitude = Solitude()
        # nobody has looked yet, and a worker that starts is empty: a suspect is never served sooner than now
        self._solitude.hear(True)
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

    @property
    def concern(self) -> Concern:
        """The suspects that this worker could run, once nothing else runs here."""
        types = [entry.name for entry in self._entries() if entry.in_process]
        could = startable(types, self._needs(), self._slots.capacity)
        return Concern(could, None if self._slots.any_queue else list(self._slots.queues), self._versions())

    def hear_of_suspects(self, waits: bool) -> None:
        """Somebody has looked whether a task of our concern waits."""
        self._solitude.hear(waits)

    @property
    def minds_ends(self) -> bool:
        """It may be waiting for the end of what runs here to be written."""
        return self._solitude.minds_ends

    def round(self) -> float:
        if self._closed:
            return 60.0
        if self._uncertain:
            self._take_up_unknown()
        self._buffer.give_back_late()
        self._buffer.announce()
        step = self._solitude.step(self._running())
        if step is Step.NOTHING and self._must_wait():
            return self._pause()
        if step is Step.RESERVE and self._reserve():
            # what ran when the step was decided may have ended in the meantime
            return 0.0
        if step is Step.SUSPECT and self._claim_alone():
            return self._pause()
        claimed, more = self._claim_as_usual()
        if step is Step.USUAL_FIRST and not claimed and self._claim_alone():
            return self._pause()
        return 0.0 if more else self._pause()

    def _pause(self) -> float:
        pause = self._poll * random.uniform(0.8, 1.0)
        # what was claimed ahead and gets no slot is not to wait here for a look that nothing else asks for
        return pause if self._buffer.empty else min(pause, LATE / 2)

    def _claim_as_usual(self) -> tuple[int, bool]:
        """How many, and whether there may be more."""
        number, more = 0, False
        for queue in self._in_turn(self._queues()):
            want = self._want(queue)
            if want is None:
                continue
            claimed = len(self._claim(want))
            if not claimed:
                self._unclaimed.look(queue)
            number += claimed
            more |= claimed == want.slots
        return number, more

    def _must_wait(self) -> bool:
        """Whether what this worker has stopped claiming for is still to come, or runs. If not, it goes on as usual."""
        reserved = self._solitude.reserved
        if reserved is None or self._store.reserved(reserved, self._worker):
            return True
        log.info(
            "worker %s claims as usual again: task %s does not wait for it any more", self._worker, reserved
        )
        self._solitude.give_up()
        return False

    def _reserve(self) -> bool:
        """Stop claiming, unless another worker has done so; one at a time."""
        reserved = self._store.reserve(self.concern, self._worker, self._lease)
        if reserved is None:
            self._solitude.in_vain()
            return False
        log.warning(
            "worker %s stops claiming until what runs has ended: task %s has crashed a worker and runs alone",
            self._worker,
            reserved,
        )
        self._solitude.drain(reserved)
        return True

    def _claim_alone(self) -> bool:
        """Take one suspect, the one that waits for this worker before others. Nothing runs here at this moment."""
        concern, reserved = self.concern, self._solitude.reserved
        queues = [queue for queue in self._in_turn(self._queues()) if self._slots.free(queue)]
        if queues and reserved is not None:
            if self._claim(self._alone("", concern), reserved):
                return True
            self._solitude.give_up()
        for queue in queues:
            if self._claim(self._alone(queue, concern)):
                return True
        self._solitude.in_vain()
        return False

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
        self._buffer.feed(queue)
        free, needs = self._slots.free(queue), self._needs()
        # what needs more than a slot is never claimed ahead
        ahead = 0 if needs else self._buffer.room(queue)
        if free + ahead == 0 or (not ahead and self._buffer.enough(queue)):
            return None
        entries = self._entries()
        return Want(
            queue,
            free + ahead,
            tuple(entry.name for entry in entries),
            needs,
            self._slots.free_capacity(),
            self._beat_for,
            in_process=tuple(entry.name for entry in entries if entry.in_process),
            versions=self._versions(),
            ahead=ahead > 0,
        )

    def _alone(self, queue: str, concern: Concern) -> Want:
        """One suspect, by a worker that has all of its capacity free."""
        return Want(
            queue,
            1,
            concern.types,
            self._needs(),
            self._slots.capacity,
            self._beat_for,
            alone=True,
            versions=concern.versions,
        )

    def _entries(self) -> Sequence[TaskType]:
        """The types that this host has the room for."""
        entries = list(self._registry)
        if any(entry.needs_disk for entry in entries) and self._short_of_disk():
            return [entry for entry in entries if not entry.needs_disk]
        return entries

    def _needs(self) -> Mapping[str, Mapping[str, float]]:
        return {entry.name: entry.all_needs for entry in self._registry if entry.all_needs}

    def _versions(self) -> Versions:
        return {entry.name: entry.version for entry in self._registry if entry.version > 1}

    def _claim(self, want: Want, task_id: str | None = None) -> list[Task]:
        """Claim and launch; if a task is named, that one."""
        try:
            if task_id is None:
                claimed = self._store.claim(want, self._worker)
            else:
                one = self._store.claim_one(task_id, self._worker, want)
                claimed = [] if one is None else [one]
        except Exception:
            # the database may have made tasks ours without our hearing of it; our own heartbeat would keep them for ever
            self._uncertain = True
            raise
        if self._disowned:
            return []
        self._take_up(claimed)
        return claimed

    def _take_up(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if not task.ahead:
                self._launch_now(task)
        self._buffer.put([task for task in tasks if task.ahead])
        self._buffer.announce()
        for queue in {task.queue for task in tasks if task.ahead}:
            self._buffer.feed(queue)

    def _launch_now(self, task: Task) -> None:
        entry = self._registry[task.task_type]
        if task.crash_count and entry.in_process:
            log.info("task %s has crashed a worker before: it runs alone", task.id)
            self._solitude.begin(task.fence)
        self._slots.take(task.queue, entry)
        self._launch(task)

    def _take_up_unknown(self) -> None:
        """Launch what the table says is ours and we do not know of: claims whose answer was lost."""
        # in this order: one that ends in between is in neither, and must not be started a second time
        known = set(self._running())
        unknown = [task for task in self._store.held(self._worker) if task.fence not in known]
        self._uncertain = False
        for task in unknown:
            log.info("task %s was claimed by a statement whose answer was lost; it starts now", task.id)
        self._take_up(unknown)
