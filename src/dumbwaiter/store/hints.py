"""How often this process tells workers elsewhere that something is due."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from dumbwaiter.errors import DatabaseUnavailable

# A notification makes PostgreSQL commit one transaction after the other, whoever notifies, and each of them syncs the disk. So
# many at once are as good as none; after that, so many a second.
BURST = 5
PER_SECOND = 50.0
# How long the thread that tells waits for more: to start one takes longer than to tell.
LINGER = 0.5


class Hints:
    """Tells at once while there is little to tell, and gathers what comes faster.

    Whoever enqueues asks before its statement whether that may carry a hint (`take`); if not, it says after its commit that
    there is something (`give_later`), which is told at most 1/PER_SECOND s later. So the last task of a flood is told of too,
    and no hint is sent before the commit that it speaks of. A worker that is at work looks by itself.

    What the process's sudden death keeps untold is found by the workers' polling.
    """

    def __init__(
        self, tell: Callable[[Sequence[str]], None], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell = tell
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._saved = float(BURST)
        self._counted_at = monotonic()
        self._untold: set[str] = set()
        self._teller: threading.Thread | None = None
        FORKED.add(self)

    def take(self) -> bool:
        """Whether one more hint may be given now."""
        with self._lock:
            now = self._monotonic()
            self._saved = min(self._saved + (now - self._counted_at) * PER_SECOND, BURST)
            self._counted_at = now
            if self._saved < 1:
                return False
            self._saved -= 1
            return True

    def give_later(self, queue: str) -> None:
        """Something in the queue has been committed of which no hint was given."""
        with self._lock:
            self._untold.add(queue)
            if self._teller is not None:
                return
            # not a daemon: what was enqueued last is told of though the process ends just then
            self._teller = threading.Thread(target=self._tell_on, name="dumbwaiter-hints", daemon=False)
        try:
            self._teller.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            self._teller = None
            self._tell_untold()

    def close(self) -> None:
        """Tell what is untold before the connections are closed."""
        self._tell_untold()

    def _tell_on(self) -> None:
        """Tell in turn what comes; after a while without anything the thread ends, and the next flood gets another one."""
        quiet_since = self._monotonic()
        while True:
            time.sleep(1 / PER_SECOND)
            if self._untold:
                if self.take():
                    self._tell_untold()
                quiet_since = self._monotonic()
                continue
            over = self._monotonic() - quiet_since > LINGER or not threading.main_thread().is_alive()
            with self._lock:
                if over and not self._untold:
                    self._teller = None
                    return

    def _tell_untold(self) -> None:
        # one at a time: whoever closes waits for what is being told
        with self._telling:
            with self._lock:
                queues, self._untold = sorted(self._untold), set()
            if queues:
                # a hint, no more; and whoever enqueues next hears of the outage
                with contextlib.suppress(DatabaseUnavailable):
                    self._tell(queues)

    def _forget_parent(self) -> None:
        """After a fork: the thread is the parent's, and so is what it has to tell."""
        self._lock, self._telling = threading.Lock(), threading.Lock()
        self._untold, self._teller = set(), None


FORKED: weakref.WeakSet[Hints] = weakref.WeakSet()


def forget_parents() -> None:
    for hints in list(FORKED):
        hints._forget_parent()


os.register_at_fork(after_in_child=forget_parents)


class NoHints(Hints):
    """For databases that tell nobody anything: nothing is held back."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)

    def take(self) -> bool:
        return True

    def give_later(self, queue: str) -> None:
        """Nobody would hear it."""
