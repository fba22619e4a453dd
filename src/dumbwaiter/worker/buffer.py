"""The buffer: short tasks that are claimed before a slot is free for them, so that a slot never waits for the database.

Each claim takes a millisecond or more, and a task that does next to nothing takes less: with nothing in hand a worker would
mostly wait. What waits here is ours by the table, but the table says that it is `ahead`: if the worker dies before it has
begun, that costs the task the number of an attempt and nothing else.

Most of it begins without a word to the database. It is over before anybody looks, and of what is not the watcher tells the
table soon. A first attempt that kills its worker before that has cost its task nothing, and is found out at its second: so
what is no first attempt, or must not be repeated, is *announced* before it begins.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import islice, takewhile

from dumbwaiter.executors.registry import Registry
from dumbwaiter.task import Fence, Task
from dumbwaiter.worker.slots import Slots

# So much work, in seconds, is kept at hand, and so many tasks at most: more would only wait here instead of in the table.
AT_HAND = 0.1
MOST = 800
# After so many ends it is known how long a queue's tasks take; a longer one counts for so much of the mean at once.
ENOUGH = 20
WEIGHT = 0.05
# What has waited here for so long is not short work's business any more. It is far less than a lease: a worker that was
# stopped for long enough to lose its tasks begins none of these.
LATE = 1.0


class Length:
    """How long the tasks of one queue take, as a mean of which the last ones are most; and what follows from that."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        # of tasks so short the most there may be is at hand
        self._shortest = slots * AT_HAND / MOST
        self._ends = 0
        self._mean = 0.0
        # how many tasks are as much work as is to be at hand; none while they are long, or nobody knows
        self.at_hand = 0

    def ended(self, seconds: float) -> None:
        if self.at_hand == MOST and seconds <= self._shortest:
            return  # the mean is as short, and stays so
        self._ends += 1
        self._mean += (seconds - self._mean) * max(WEIGHT, 1 / self._ends)
        short = self._ends >= ENOUGH and self._mean <= AT_HAND
        self.at_hand = min(MOST, int(self._slots * AT_HAND / max(self._mean, 1e-6))) if short else 0


class Buffer:
    """What is claimed and waits in this worker for a slot, in the order in which it was claimed.

    `launch` starts a task whose slot has been taken; `announce` writes that attempts begin and returns those that still own
    their tasks; `give_back` takes a task that is not to begin here.
    """

    def __init__(
        self,
        slots: Slots,
        registry: Registry,
        *,
        launch: Callable[[Task], None],
        announce: Callable[[Sequence[Fence]], Collection[Fence]],
        give_back: Callable[[Task], None],
        late: float = LATE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = slots
        self._registry = registry
        self._launch = launch
        self._announce = announce
        self._give_back = give_back
        self._late = late
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[float, Task]]] = {}
        # on their way to a slot, or back into the table: ours until that is known elsewhere
        self._leaving: set[Fence] = set()
        self._returning: set[Fence] = set()
        self._lengths: dict[str, Length] = {}
        self._feeding: set[str] = set()
        self._closed = False

    # how much

    def ended(self, queue: str, seconds: float) -> None:
        """A task of this queue ran for so long."""
        length = self._lengths.get(queue)
        if length is None:
            length = self._lengths.setdefault(queue, Length(self._slots.limit(queue)))
        length.ended(seconds)

    def room(self, queue: str) -> int:
        """How many tasks of this queue to claim beyond its free slots. None until half of what it holds has gone."""
        length = self._lengths.get(queue)
        if length is None or self._closed:
            return 0
        waits = len(self._waiting.get(queue, ()))
        return length.at_hand - waits if waits * 2 <= length.at_hand else 0

    def enough(self, queue: str) -> bool:
        """There is no need to claim anything for this queue now."""
        return bool(self._waiting.get(queue)) and not self.room(queue)

    def calls(self, queue: str) -> bool:
        """The claimer has something to do for this queue: there is room, or what is next is to be announced."""
        try:
            _, first = self._waiting[queue][0]
        except (KeyError, IndexError):  # nothing waits, or what waited has just begun
            return True
        return formal(first) or self.room(queue) > 0

    @property
    def empty(self) -> bool:
        """Nothing waits here, and so nothing can become late."""
        return not any(self._waiting.values())

    @property
    def fences(self) -> tuple[Fence, ...]:
        """Of all that waits here, and of what is on its way out."""
        with self._lock:
            waiting = self._waiting.values()
            return (*(task.fence for one in waiting for _, task in one), *self._leaving, *self._returning)

    # in and out

    def put(self, tasks: Sequence[Task]) -> None:
        """Take what was claimed ahead. `feed` lets it begin."""
        since = self._monotonic()
        with self._lock:
            closed = self._closed
            if not closed:
                for task in tasks:
                    self._waiting.setdefault(task.queue, deque()).append((since, task))
        if closed:
            self._return(tasks)

    def feed(self, queue: str) -> None:
        """Let tasks begin for which there are slots. Called by whoever gave a slot back, on any thread."""
        if queue not in self._waiting:
            return
        with self._lock:
            if queue in self._feeding:
                return  # whoever does it looks once more before it ends
            self._feeding.add(queue)
        task = self._next(queue)
        while task is not None:
            self._launch(task)
            task = self._next(queue, task)

    def _next(self, queue: str, launched: Task | None = None) -> Task | None:
        with self._lock:
            if launched is not None:
                self._leaving.discard(launched.fence)
            waiting = self._waiting[queue]
            if waiting and not formal(waiting[0][1]):
                since, task = waiting[0]
                young = self._monotonic() - since <= self._late
                if young and self._slots.take_free(queue, self._registry[task.task_type]):
                    waiting.popleft()
                    self._leaving.add(task.fence)
                    return task
            self._feeding.discard(queue)
            return None

    def announce(self) -> None:
        """Let begin what begins with a word to the database, where it is next and has a slot. Called by the claimer alone.

        Raises what the database raises; nothing is lost then.
        """
        for queue in list(self._waiting):
            first = self._first_formal(queue)
            if not first:
                continue
            ours = self._announce([task.fence for task in first])
            for task in first:
                if self._taken(task) and task.fence in ours:
                    self._slots.take(queue, self._registry[task.task_type])
                    self._launch(replace(task, ahead=False))
            self.feed(queue)

    def _first_formal(self, queue: str) -> list[Task]:
        """As many of the next tasks as have a slot and are to be announced."""
        with self._lock:
            first = (task for _, task in self._waiting[queue])
            return list(islice(takewhile(formal, first), self._slots.free(queue)))

    def _taken(self, task: Task) -> bool:
        """Take out the next task. False if it was given back meanwhile."""
        with self._lock:
            waiting = self._waiting[task.queue]
            if not waiting or waiting[0][1] is not task:
                return False
            waiting.popleft()
            return True

    def give_back_late(self) -> None:
        """Give back what has waited for too long: its slots have gone to tasks that are not short."""
        late = self._taken_out(older_than=self._monotonic() - self._late)
        for queue in {task.queue for task in late}:
            # those tasks say nothing until they end, and the same would be claimed ahead again
            self._lengths.pop(queue, None)
        self._return(late)

    def close(self) -> None:
        """Give everything back; whatever comes from now on goes back at once."""
        with self._lock:
            self._closed = True
        self._return(self._taken_out(older_than=float("inf")))

    def returned(self, fence: Fence) -> None:
        """It is written that the task was given back."""
        with self._lock:
            self._returning.discard(fence)

    def _taken_out(self, *, older_than: float) -> list[Task]:
        out = []
        with self._lock:
            for one in self._waiting.values():
                while one and one[0][0] < older_than:
                    out.append(one.popleft()[1])
            # they are ours until that is written
            self._returning.update(task.fence for task in out)
        return out

    def _return(self, tasks: Sequence[Task]) -> None:
        with self._lock:
            self._returning.update(task.fence for task in tasks)
        for task in tasks:
            self._give_back(task)


def formal(task: Task) -> bool:
    """It begins with a word: it must not be repeated, or was taken from a dead worker before it is known to have begun."""
    return task.attempt > 1 or task.max_crash_count == 0
