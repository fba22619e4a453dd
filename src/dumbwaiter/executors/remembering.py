"""The steps of an attempt that runs in this worker: rows in the store, files in the file store, all under its fence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dumbwaiter.errors import DatabaseUnavailable, FileGone, FileStoreError, LostClaim
from dumbwaiter.executors.base import Running
from dumbwaiter.store.store import Store
from dumbwaiter.task import KeptFile, Mark, Recalled

if TYPE_CHECKING:
    from dumbwaiter.files import FileStore

T = TypeVar("T")
log = logging.getLogger("dumbwaiter")

# While the database is away a finished step waits with its result: to run it again would cost more.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0


class StoredMemory:
    """What one attempt remembers. A database that is away is waited for until the attempt is asked to stop."""

    def __init__(self, store: Store, files: Callable[[], FileStore], running: Running, *, limit: int) -> None:
        self.limit = limit
        self._store = store
        self._files = files
        self._running = running

    def recall(self) -> Recalled:
        fence = self._running.remembering()
        if fence.attempt == 1:
            # nothing was before it, so nothing needs to be read
            return Recalled()
        return self._patiently(lambda: self._store.recall(fence))

    def result(self, name: str) -> Any:
        fence = self._running.remembering()
        return self._patiently(lambda: self._store.step_result(fence, name))

    def remember(self, name: str, value: Any) -> None:
        fence, fraction = self._running.remembering(), self._running.fraction
        self._patiently(lambda: self._store.remember(fence, name, value, fraction=fraction))

    def mark(self, value: Any) -> None:
        self._running.mark(Mark(value, self._running.fraction))

    def keep(self, name: str, path: Path) -> None:
        """The row first, then the file, then the row names it: whoever dies in between, the sweep finds the task."""
        from dumbwaiter.files import kept_key

        fence, fraction = self._running.remembering(), self._running.fraction
        self._patiently(lambda: self._store.promise_file(fence, name))
        key = kept_key(fence.task_id, fence.attempt, name)
        try:
            stored = self._files().put(path, key, filename=name)
            file = KeptFile(key, stored.size, stored.sha256)
            before = self._patiently(lambda: self._store.keep_file(fence, name, file, fraction=fraction))
        except (LostClaim, FileStoreError):
            self._remove(key)
            raise
        if before is not None and before != key:
            self._remove(before)

    def restore(self, name: str, into: Path) -> bool:
        fence = self._running.remembering()
        file = self._patiently(lambda: self._store.kept_file(fence, name))
        if file is None:
            return False
        try:
            self._files().fetch(file.object_key, into, size=file.size, sha256=file.sha256)
        except FileGone:
            # what was kept only spares work: the task does it again
            log.warning("task %s kept %r, and the file store has it no more", fence.task_id, name)
            return False
        return True

    def _patiently(self, work: Callable[[], T]) -> T:
        pause = FIRST_PAUSE
        while True:
            try:
                return work()
            except DatabaseUnavailable:
                if self._running.wait(pause) is not None or self._running.ended:
                    raise
            pause = min(pause * 2, LONGEST_PAUSE)

    def _remove(self, key: str) -> None:
        try:
            self._files().delete([key])
        except FileStoreError as error:
            log.warning("a kept file of task %s stays until it ends: %s", self._running.task.id, error)
