"""The listener: wakes the claimer when something may be due. Only a hint; polling goes on underneath."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dumbwaiter.store.store import Store


class Listener:
    """Listens to what this process makes ready, and to what the database tells of others."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        self._store = store
        self._wake = wake
        self._stopped = threading.Event()
        self._forget = store.on_ready(lambda _queue: wake())

    def round(self) -> float:
        """Listen until stopped or the connection breaks."""
        self._store.listen(self._wake, self._stopped)
        return 60.0

    def stop(self) -> None:
        self._stopped.set()
        self._forget()
