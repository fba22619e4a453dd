"""The one shape of all loops: do one round, return how long to wait, survive whatever happens."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from dumbwaiter.errors import DumbwaiterError

log = logging.getLogger("dumbwaiter")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


class Duty:
    """A duty on a thread of its own.

    `work` does one round and returns the seconds to wait before the next; `wake` cuts the wait short. A round that raises
    is logged and tried again after a pause that grows to 5 s: a lost database is survived for ever.
    """

    def __init__(
        self, name: str, work: Callable[[], float], *, alive: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self._work = work
        self._alive = alive
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._pause = 0.0
        self._busy_since: float | None = None
        self._told: type[BaseException] | None = None
        self._thread = threading.Thread(target=self._run, name=f"dumbwaiter-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        # cheaper for the many calls that find it woken: the flag is cleared before a round, never during one
        if not self._wake.is_set():
            self._wake.set()

    def stop(self) -> None:
        """No further round; the one going on is not interrupted."""
        self._stopped.set()
        self._wake.set()

    def join(self, timeout: float | None = None) -> bool:
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    @property
    def failing(self) -> bool:
        """The last round raised."""
        return self._pause > 0

    def busy_for(self) -> float:
        """How many seconds the round that goes on has taken so far; 0 between rounds."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def _run(self) -> None:
        while not self._stopped.is_set():
            # cleared before the round: a wake that comes during it is for the next one
            self._wake.clear()
            self._busy_since = time.monotonic()
            wait = self._round()
            self._busy_since = None
            if self._alive is not None:
                self._alive()
            if wait > 0:
                self._wake.wait(wait)

    def _round(self) -> float:
        try:
            wait = self._work()
        except Exception as error:  # noqa: BLE001 - a duty survives everything; _tell says what it was
            self._tell(error)
            self._pause = min(max(self._pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
            return self._pause * random.uniform(0.5, 1.0)
        if self._pause:
            log.info("%s goes on", self.name)
        self._pause, self._told = 0.0, None
        return wait

    def _tell(self, error: Exception) -> None:
        """One line when an outage begins; a traceback for what nobody expected."""
        if isinstance(error, DumbwaiterError):
            if self._told is not type(error):
                log.warning("%s waits: %s", self.name, error)
        else:
            log.error("%s failed, and tries again", self.name, exc_info=error)
        self._told = type(error)
