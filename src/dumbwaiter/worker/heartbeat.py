"""The worker's side of its heartbeat: starts the process, tells it that the duties move, starts it anew if it died."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from dumbwaiter.executors.tree import CannotStartThread, start_thread
from dumbwaiter.store.store import Store

log = logging.getLogger("dumbwaiter")

PROGRAM = Path(__file__).with_name("beat.py")
# A server that does not answer a beat for so long, or for half a lease, is tried again on a new connection: when an outage
# ends, the worker is to be heard of before anybody's lease without it is over.
ANSWER = timedelta(seconds=10)
# Duties that have not moved for so long are wedged for good: then silence is right, and another worker takes over.
WEDGED = timedelta(minutes=5)
# The death of the process is heard of at once; this is for where no more threads can be started to wait for it.
LOOK = 1.0


class Heartbeat:
    """One small process for each worker (never for each slot: psycopg costs 37 MB).

    `fallen` is called, on a thread of its own, when the process has ended: `round` should be called soon.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        interval: timedelta,
        *,
        lease: timedelta,
        fallen: Callable[[], None],
    ) -> None:
        self._store = store
        self._worker = worker
        self._interval = interval
        self._answer = min(lease / 2, ANSWER)
        self._fallen = fallen
        self._process: subprocess.Popen[bytes] | None = None
        self._beats = False
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            self._process = self._begin()

    def round(self) -> float:
        """Look after the process: one that died is replaced at once, well within the lease.

        Until the process says that it beats, the beats are ours: a busy machine takes seconds to start it, and a lease may be over
        by then.
        """
        if self._replaced() or not self._heard():
            self._store.heartbeat(self._worker)
            return min(self._interval.total_seconds(), LOOK)
        return LOOK

    def _heard(self) -> bool:
        """The process has sent a beat."""
        with self._lock:
            if not self._beats and self._process is not None and self._process.stdout is not None:
                look = select.poll()  # select() knows no file numbers beyond 1,023
                look.register(self._process.stdout, select.POLLIN)
                self._beats = bool(look.poll(0)) and self._process.stdout.read(1) != b""
            return self._beats or self._process is None

    def _replaced(self) -> bool:
        with self._lock:
            if self._process is None or self._process.poll() is None:
                return False
            log.warning(
                "the heartbeat process ended with status %s; a new one starts", self._process.returncode
            )
            close(self._process)
            self._process = self._begin()
            return True

    def moved(self) -> None:
        """A duty has done a round."""
        with self._lock:
            pipe = None if self._process is None else self._process.stdin
            if pipe is not None:
                # a full pipe means that the process has enough to read
                with contextlib.suppress(OSError, ValueError):
                    os.write(pipe.fileno(), b".")

    def stop(self) -> None:
        """End it: its tasks have ended, or are nobody's."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        close(process)
        try:
            process.wait(0.3)  # longer only if the database does not answer it
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _begin(self) -> subprocess.Popen[bytes]:
        driver, arguments = self._store.connections.bare()
        order = {
            "driver": driver,
            "arguments": arguments,
            "statements": self._store.heartbeat_statements(self._worker),
            "interval": self._interval.total_seconds(),
            "answer": self._answer.total_seconds(),
            "wedged": WEDGED.total_seconds(),
            "parent": os.getpid(),
            "path": [entry for entry in sys.path if entry],
        }
        self._beats = False
        # by path and isolated: importing the package would cost it 40 MB and a second
        process = subprocess.Popen(
            [sys.executable, "-I", str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        os.set_blocking(process.stdin.fileno(), False)
        with contextlib.suppress(CannotStartThread):
            start_thread(self._wait_for, process, name="dumbwaiter-heartbeat-end")
        return process

    def _wait_for(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._fallen()


def close(process: subprocess.Popen[bytes]) -> None:
    """Our ends of its pipes: without them it ends."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
