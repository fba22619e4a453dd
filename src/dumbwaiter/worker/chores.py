"""What housekeeping removes, a bounded batch at a time: expired files, what dead attempts left, old records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dumbwaiter.errors import FileStoreError
from dumbwaiter.store.pruning import Belongings, Prunable
from dumbwaiter.store.store import Store
from dumbwaiter.uploads import sweep_uploads

if TYPE_CHECKING:
    from dumbwaiter.files import FileStore

log = logging.getLogger("dumbwaiter")

# Fewer gain nothing: what a transaction of ten statements costs by itself is more than what a hundred rows do.
FEWEST, FIRST, MOST = 100, 200, 1_000
# A batch that keeps the database busy for longer than this is halved next time, one of less than half of it doubled. It is some ten
# statements, the longest of them a few times as long as the others.
LONG = 0.1
# Files that cannot be deleted stand at the front of their queue; so many are passed over before a round gives up.
PASSED_OVER = 1_000
IN_A_ROW = 3

T = TypeVar("T")


@dataclass(slots=True)
class Removed:
    """What was removed: files that had expired, attempts whose leftovers went, records, uploads, directories of dead workers."""

    files: int = 0
    leftovers: int = 0
    records: int = 0
    uploads: int = 0
    work_directories: int = 0

    @property
    def anything(self) -> bool:
        return self != Removed()

    def __str__(self) -> str:
        """As a line of a log has it."""
        parts = [
            counted(self.files, "expired file", "expired files"),
            counted(self.leftovers, "attempt's leftovers", "attempts' leftovers"),
            counted(self.records, "old record", "old records"),
            counted(self.uploads, "upload", "uploads"),
            counted(self.work_directories, "dead worker's directory", "dead workers' directories"),
        ]
        return ", ".join(filter(None, parts)) or "nothing"


def counted(number: int, one: str, several: str) -> str:
    """So many of them; nothing for none."""
    return f"{number:,} {one if number == 1 else several}" if number else ""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch came to: how many were due, how many are gone now, the seconds that the database was busy with it."""

    found: int
    gone: int
    seconds: float


class Chore:
    """One kind of thing to remove. `batch` removes at most `limit`, and passes over `skip` that could not be removed."""

    def __init__(self, name: str, batch: Callable[[int, int], Batch]) -> None:
        self.name = name
        self._batch = batch
        self._limit = FIRST
        self._skip = 0

    def begin(self) -> None:
        """A new round: what could not be removed in the last one is tried again."""
        self._skip = 0

    def once(self) -> tuple[int, bool]:
        """Do one batch: how many are gone, and whether there may be more. Raises FileStoreError if the file store is away."""
        limit = self._limit
        done = self._batch(limit, self._skip)
        self._skip += done.found - done.gone
        if done.seconds > LONG:
            self._limit = max(limit // 2, FEWEST)
        elif done.seconds < LONG / 2 and done.found == limit:
            self._limit = min(limit * 2, MOST)
        return done.gone, done.found == limit and self._skip < PASSED_OVER


class Chores:
    """Everything that is to be removed from one installation. Any process may do it, several at once too.

    Whatever breaks off in between leaves rows by which the next round finds the rest.
    """

    def __init__(self, store: Store, files: Callable[[], FileStore]) -> None:
        self._store = store
        self._files = files
        self._refused = 0
        self.files = Chore("expired files", self._expire_files)
        self.leftovers = Chore("files of attempts that did not succeed", self._sweep_leftovers)
        self.records = Chore("old records", self._prune_records)
        self.uploads = Chore("uploads that nobody took", self._sweep_uploads)

    def due(self, prunable: Prunable) -> list[Chore]:
        """The chores for which there is something to do, each at its beginning."""
        wanted = {
            self.leftovers: prunable.leftovers,
            self.files: prunable.files,
            self.records: prunable.records,
            # after the records, which may have held some
            self.uploads: prunable.uploads or prunable.records,
        }
        chosen = [chore for chore, due in wanted.items() if due]
        for chore in chosen:
            chore.begin()
        return chosen

    def run(self, rest: Callable[[float], object] = time.sleep) -> Removed:
        """Do all there is to do, with rests between the batches. Raises FileStoreError, StoreError."""
        removed = Removed()
        for chore in self.due(self._store.prunable()):
            more = True
            while more:
                began = time.monotonic()
                gone, more = chore.once()
                self.count(removed, chore, gone)
                if more:
                    rest(time.monotonic() - began)
        return removed

    def count(self, removed: Removed, chore: Chore, gone: int) -> None:
        if chore is self.files:
            removed.files += gone
        elif chore is self.leftovers:
            removed.leftovers += gone
        elif chore is self.records:
            removed.records += gone
        else:
            removed.uploads += gone

    def _expire_files(self, limit: int, skip: int) -> Batch:
        watch = Stopwatch()
        found = watch.time(lambda: self._store.expired_files(limit=limit, skip=skip))
        deleted = set(self._delete(file.object_key for file in found))
        gone = [file for file in found if file.object_key in deleted]
        if gone:
            watch.time(lambda: self._store.mark_deleted(gone))
        return Batch(len(found), len(gone), watch.seconds)

    def _sweep_leftovers(self, limit: int, skip: int) -> Batch:
        watch = Stopwatch()
        found = watch.time(lambda: self._store.leftovers(limit=limit, skip=skip))
        gone = [one for one in found if self._delete_attempt(*one)]
        if gone:
            watch.time(lambda: self._store.swept(gone))
        return Batch(len(found), len(gone), watch.seconds)

    def _prune_records(self, limit: int, skip: int) -> Batch:
        watch = Stopwatch()
        found = watch.time(lambda: self._store.old_records(limit=limit, skip=skip))
        if not found:
            return Batch(0, 0, watch.seconds)
        belongings = watch.time(lambda: self._store.belongings(found))
        kept = self._cannot_empty(belongings)
        gone = [task_id for task_id in found if task_id not in kept]
        if gone:
            watch.time(lambda: self._store.prune(gone))
        return Batch(len(found), len(gone), watch.seconds)

    def _sweep_uploads(self, limit: int, skip: int) -> Batch:
        began = time.monotonic()
        gone = sweep_uploads(self._store, self._files(), limit)
        return Batch(gone, gone, time.monotonic() - began)

    def _cannot_empty(self, belongings: Mapping[str, Belongings]) -> set[str]:
        """Delete what these tasks have in the file store; those of which something is still there."""
        keys = {key: task_id for task_id, of_task in belongings.items() for key in of_task.keys}
        deleted = set(self._delete(keys))
        full = {task_id for key, task_id in keys.items() if key not in deleted}
        for task_id, of_task in belongings.items():
            emptied = [self._delete_attempt(task_id, number) for number in of_task.attempts]
            if of_task.kept:
                emptied.append(self._delete_kept(task_id))
            if not all(emptied):
                full.add(task_id)
        return full

    def _delete(self, keys: Iterable[str]) -> Sequence[str]:
        """The keys under which there is nothing any more. Raises FileStoreError if the file store is away."""
        wanted = list(keys)
        if not wanted:
            return wanted
        try:
            self._files().delete(wanted)
        except FileStoreError:
            return [key for key in wanted if self._delete_one(key)]
        return wanted

    def _delete_one(self, key: str) -> bool:
        return self._does(lambda: self._files().delete([key]), f"file {key}")

    def _delete_kept(self, task_id: str) -> bool:
        return self._does(lambda: self._files().delete_kept(task_id), f"kept files of task {task_id}")

    def _delete_attempt(self, task_id: str, attempt: int) -> bool:
        return self._does(
            lambda: self._files().delete_attempt(task_id, attempt),
            f"files of attempt {attempt} of task {task_id}",
        )

    def _does(self, delete: Callable[[], None], what: str) -> bool:
        """Whether it was deleted. One that cannot be must not hold up the rest; several in a row mean that nothing can be."""
        try:
            delete()
        except FileStoreError as error:
            self._refused += 1
            if self._refused >= IN_A_ROW:
                self._refused = 0
                raise
            log.warning("%s could not be deleted; that is tried again: %s", what, error)
            return False
        self._refused = 0
        return True


class Stopwatch:
    """Adds up the seconds that some calls took."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def time(self, work: Callable[[], T]) -> T:
        began = time.monotonic()
        try:
            return work()
        finally:
            self.seconds += time.monotonic() - began
