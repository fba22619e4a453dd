"""What has become of the tasks that somebody watches: one reader for a whole process, however many watch.

Knows nothing of HTTP: whoever watches is woken by a call, and takes what has changed when it suits them.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dumbwaiter.api.looks import Look, looks
from dumbwaiter.app import Dumbwaiter
from dumbwaiter.task import Status
from dumbwaiter.worker.duty import Duty

# How often the table is asked while somebody watches, in seconds, and how soon after a look another may follow for what
# this process ended itself.
TICK = 0.5
GAP = 0.1
# A place in the queue changes by what others do, which no version tells.
PLACES = 2.0


class Watch:
    """Some tasks that one client watches. What changes is kept until it is taken: of each task the latest look alone.

    So a client that takes nothing for an hour costs no more than one that takes everything at once.
    """

    def __init__(self, feed: Feed, wake: Callable[[], None]) -> None:
        self._feed = feed
        self._wake = wake
        self._untold: dict[str, Look | None] = {}
        self.ids: set[str] = set()
        self._lock = threading.Lock()

    def tell(self, task_id: str, look: Look | None) -> None:
        """Keep it until it is taken; None is a task that is no more."""
        with self._lock:
            self._untold[task_id] = look
        self._wake()

    def take(self) -> tuple[str, Look | None] | None:
        """What has changed longest ago, as it stands now; None if there is nothing to tell."""
        with self._lock:
            task_id = next(iter(self._untold), None)
            return None if task_id is None else (task_id, self._untold.pop(task_id))

    def close(self) -> None:
        self._feed.forget(self)


@dataclass(slots=True)
class Watched:
    """A task that is not final, and who watches it."""

    look: Look
    watches: list[Watch] = field(default_factory=list)


class Feed:
    """Reads, at most every half second, what has changed among all tasks that are watched, and tells who watches them.

    Reads nothing while nobody watches. A database that cannot be reached is waited for; nothing is lost, since what counts is
    how tasks stand and not what happened meanwhile.
    """

    def __init__(self, waiter: Dumbwaiter) -> None:
        self._waiter = weakref.proxy(waiter)
        self._lock = threading.Lock()
        self._watched: dict[str, Watched] = {}
        self._hurried: set[str] = set()
        self._duty: Duty | None = None
        self._unlisten: Callable[[], None] = lambda: None
        self._looked = self._placed = 0.0

    def watch(self, first: Iterable[Look], wake: Callable[[], None], *, known: bool = False) -> Watch:
        """Watch tasks from these looks on, which are told first unless they are `known` already.

        `wake` is called on some thread whenever there is something to take, and must not block.
        """
        watch = Watch(self, wake)
        with self._lock:
            for look in first:
                self._add(look, watch, known=known)
            if self._watched and self._duty is None:
                self._start()
        return watch

    def _add(self, look: Look, watch: Watch, *, known: bool) -> None:
        task_id = look.task.id
        watched = self._watched.get(task_id)
        if not known:
            watch.tell(task_id, look)
        if look.final:
            return  # the reader tells the others
        watch.ids.add(task_id)
        if watched is None:
            self._watched[task_id] = Watched(look, [watch])
            return
        watched.watches.append(watch)
        if watched.look.task.version > look.task.version:
            watch.tell(task_id, watched.look)

    def forget(self, watch: Watch) -> None:
        with self._lock:
            for task_id in watch.ids:
                watched = self._watched.get(task_id)
                if watched is not None and watch in watched.watches:
                    watched.watches.remove(watch)
                    if not watched.watches:
                        del self._watched[task_id]
            if not self._watched:
                self._stop()

    def _start(self) -> None:
        self._duty = Duty("feed", self.look_again)
        self._unlisten = self._waiter.store.on_change(self._hurry)
        self._looked = self._placed = time.monotonic()
        self._duty.start()

    def _stop(self) -> None:
        if self._duty is not None:
            self._duty.stop()
            self._unlisten()
        self._duty = None
        self._hurried.clear()

    def _hurry(self, task_ids: Sequence[str]) -> None:
        """This process ended tasks: no need to wait for the next look."""
        watched = {task_id for task_id in task_ids if task_id in self._watched}
        if watched:
            with self._lock:
                self._hurried |= watched
                duty = self._duty
            if duty is not None:
                duty.wake()

    def look_again(self) -> float:
        """One round: what has changed since the last look is told. The seconds until the next one."""
        began = time.monotonic()
        since = began - self._looked
        if since < TICK and (not self._hurried or since < GAP):
            return (GAP if self._hurried else TICK) - since
        with self._lock:
            ids = list(self._watched if since >= TICK else self._hurried & self._watched.keys())
            self._hurried.clear()
            before = {task_id: self._watched[task_id].look for task_id in ids}
        self._tell(before, self._changed(before))
        self._looked = began
        return max(TICK - (time.monotonic() - began), GAP)

    def _changed(self, before: Mapping[str, Look]) -> dict[str, Look | None]:
        """Of these looks those that are no longer true, with the new one; None where the task is no more."""
        store = self._waiter.store
        versions, now = store.versions(list(before))
        if now is None:
            return dict.fromkeys(before)
        places = time.monotonic() - self._placed >= PLACES
        moved = {task_id for task_id, look in before.items() if versions.get(task_id) != look.task.version}
        tasks = {task.id: task for task in store.several(list(moved))} if moved else {}
        changed: dict[str, Look | None] = {task_id: None for task_id in moved if task_id not in tasks}
        for task_id, look in before.items():
            # a time that passed is a change too, and so is what others do ahead in the queue
            turned = look.task.phase(now) != look.task.phase(look.now)
            if task_id not in moved and (turned or (places and look.task.status is Status.PENDING)):
                tasks[task_id] = look.task
        if places:
            self._placed = time.monotonic()
        for look in looks(self._waiter, list(tasks.values()), now):
            if look.mark != before[look.task.id].mark:
                changed[look.task.id] = look
        return changed

    def _tell(self, before: Mapping[str, Look], changed: Mapping[str, Look | None]) -> None:
        with self._lock:
            for task_id, look in changed.items():
                watched = self._watched.get(task_id)
                if watched is None or watched.look is not before[task_id]:
                    continue  # somebody came or went meanwhile: the next look will tell
                for watch in watched.watches:
                    watch.tell(task_id, look)
                if look is None or look.final:
                    del self._watched[task_id]
                else:
                    watched.look = look
            if not self._watched:
                self._stop()


FEEDS: weakref.WeakKeyDictionary[Dumbwaiter, Feed] = weakref.WeakKeyDictionary()
MAKING = threading.Lock()


def feed_of(waiter: Dumbwaiter) -> Feed:
    """The one feed of this application in this process."""
    with MAKING:
        if waiter not in FEEDS:
            FEEDS[waiter] = Feed(waiter)
        return FEEDS[waiter]
