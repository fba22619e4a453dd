"""A watchdog over answers that are waited for where no Python runs: it cuts the connection of one that does not come."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

# It looks so often, while anything is watched: an answer is given up so much later than it says, at most.
LOOK = 0.25


class Watch:
    """One answer that is waited for, on this socket, until that instant of the monotonic clock."""

    __slots__ = ("bit", "fileno", "until")

    def __init__(self, fileno: int, until: float) -> None:
        self.fileno = fileno
        self.until = until
        self.bit = False

    def cut(self) -> None:
        """Whoever waits hears that the server has gone."""
        self.bit = True
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.fileno)) as same:
            same.shutdown(socket.SHUT_RDWR)


class Watchdog:
    """Watches on a thread of its own, which rests while there is nothing to watch. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """In a child no thread of the parent's goes on, and a lock that one of them held is held for ever."""
        self._lock = threading.Lock()
        self._watches: set[Watch] = set()
        self._something = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def awake(self) -> bool:
        """It can watch: its thread runs, or has been started now. Where no thread can be started it cannot."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = self._started()
        return self._thread is not None

    def _started(self) -> threading.Thread | None:
        thread = threading.Thread(target=self._run, name="dumbwaiter-watchdog", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return None
        return thread

    @contextlib.contextmanager
    def over(self, fileno: int, until: float) -> Iterator[Watch]:
        """In the block an answer is waited for on this socket. `Watch.bit` tells whether it was cut."""
        watch = Watch(fileno, until)
        with self._lock:
            self._watches.add(watch)
        if not self._something.is_set():
            self._something.set()
        try:
            yield watch
        finally:
            # under the lock: what is cut is never a socket that has got this number meanwhile
            with self._lock:
                self._watches.discard(watch)

    def _run(self) -> None:
        while True:
            self._something.wait()
            time.sleep(LOOK)
            with self._lock:
                if not self._watches:
                    self._something.clear()
                now = time.monotonic()
                for watch in self._watches:
                    if now > watch.until and not watch.bit:
                        watch.cut()


WATCHDOG = Watchdog()
