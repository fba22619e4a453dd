"""The clerk: remembers how long tasks of each type take, for estimates, and writes it down seldom."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dumbwaiter.eta import History
from dumbwaiter.executors.base import Running
from dumbwaiter.store.store import Store

# What was seen is written after so long, whatever its number.
WRITE_EVERY = 10.0
# What other workers wrote is read again after so long, while something runs that wants it.
READ_EVERY = 60.0
# Of short tasks one is enough for so long.
SHORT, PAUSE = 0.5, 0.05


class Durations:
    """Histories by task type: of the table, and of what has ended here since. Its methods may be called from any thread."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[str, History] = {}
        self._fresh: dict[str, History] = {}
        self._seen: dict[str, float] = {}
        self._read_at: float | None = None

    def of(self, task_type: str) -> History | None:
        """How long such tasks took; None if none is known to have succeeded."""
        now = self._monotonic()
        if self._read_at is None or now >= self._read_at + READ_EVERY:
            self._known = self._store.durations()
            self._read_at = now
        with self._lock:
            known, fresh = self._known.get(task_type), self._fresh.get(task_type)
        if known is None or fresh is None:
            return known or fresh
        return known.merged(fresh)

    def succeeded(self, running: Running, now: float) -> None:
        """An attempt has succeeded at that moment of the monotonic clock. Later attempts may have had less to do."""
        if running.task.attempt > 1:
            return
        task_type, seconds = running.task.task_type, now - running.started
        if seconds < SHORT and now < self._seen.get(task_type, 0.0) + PAUSE:
            return
        self._seen[task_type] = now
        history = running.history(seconds)
        with self._lock:
            before = self._fresh.get(task_type)
            self._fresh[task_type] = history if before is None else before.merged(history)

    def round(self) -> float:
        """Write what is new. What cannot be written is kept for the next round."""
        with self._lock:
            fresh, self._fresh = self._fresh, {}
        if fresh:
            try:
                written = self._store.add_durations(fresh)
            except BaseException:
                self._keep(fresh)
                raise
            with self._lock:
                self._known = {**self._known, **written}
            self._keep({name: history for name, history in fresh.items() if name not in written})
        return WRITE_EVERY

    def _keep(self, unwritten: dict[str, History]) -> None:
        with self._lock:
            for task_type, history in unwritten.items():
                later = self._fresh.get(task_type)
                self._fresh[task_type] = history if later is None else history.merged(later)
