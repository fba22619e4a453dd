"""The sweeper: removes what tasks remembered for later attempts once they have ended."""

from __future__ import annotations

import logging
import queue
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dumbwaiter.errors import FileStoreError
from dumbwaiter.store.store import Store

if TYPE_CHECKING:
    from dumbwaiter.files import FileStore

log = logging.getLogger("dumbwaiter")

BATCH = 100
# How soon what nobody told of is found: the worker died with the task's end, or the task was cancelled while it waited.
# A look past 50,000 steps of tasks that run takes 5 to 25 ms.
REST = 30.0


class Sweeper:
    """Is told of tasks that end in this worker, and looks for others. Any worker does it, without an election.

    Kept files go first, then the rows: whoever dies in between leaves rows by which the next sweep finds the rest.
    """

    def __init__(self, store: Store, files: Callable[[], FileStore]) -> None:
        self._store = store
        self._files = files
        self._told: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._next_look = 0.0

    def put(self, task_id: str) -> None:
        """A task that has ended may have left steps."""
        self._told.put(task_id)

    def round(self) -> float:
        ended = self._heard()
        if ended:
            self._forget(ended)
        elif time.monotonic() >= self._next_look:
            ended = self._store.ended_with_steps(limit=BATCH)
            if len(self._forget(ended)) < BATCH:
                self._next_look = time.monotonic() + REST * random.uniform(0.8, 1.0)
        if not self._told.empty():
            return 0.0
        return max(self._next_look - time.monotonic(), 0.0)

    def _heard(self) -> list[str]:
        heard: list[str] = []
        while len(heard) < BATCH and not self._told.empty():
            heard.append(self._told.get_nowait())
        return heard

    def _forget(self, task_ids: list[str]) -> list[str]:
        """Remove the steps of these tasks; those whose files cannot be removed just now keep their rows."""
        if not task_ids:
            return []
        with_files = self._store.with_kept_files(task_ids)
        gone = [task_id for task_id in task_ids if task_id not in with_files or self._delete_kept(task_id)]
        if gone:
            self._store.forget_steps(gone)
        return gone

    def _delete_kept(self, task_id: str) -> bool:
        try:
            self._files().delete_kept(task_id)
        except FileStoreError as error:
            log.warning("kept files of task %s could not be deleted; that is tried again: %s", task_id, error)
            return False
        return True
