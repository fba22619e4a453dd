"""The heartbeat process: a small program of its own that proves a worker's life with nothing but the database's driver.

It is run by path, so it imports neither the package nor anything heavy. One JSON line on its standard input says what to
do; after that the worker writes a byte there whenever one of its duties has done a round. The process

- says by a line on its standard output when the first beat has been sent;
- ends when its standard input ends (the worker is gone) or its parent changes (a fork of the worker may still hold the
  other end of the pipe, and then the end never comes);
- skips beats while the worker is stopped or a zombie, and when its duties have not moved for five minutes;
- survives whatever holds up the worker itself: a blocked event loop, C code that keeps the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

# How soon a beat that was undone for somebody's lock is sent again.
AGAIN = 0.02
NOT_ALIVE = frozenset("TtZX")


def main() -> int:
    order = read_order()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # a terminal sends these to the whole group; the worker decides when its heartbeat ends
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, silent)
    sys.path[:] = order["path"]
    beat = Beat(order)
    moved = time.monotonic()
    wait = 0.0
    while True:
        heard = listen(wait)
        if heard is None or os.getppid() != order["parent"]:
            return 0
        if heard:
            moved = time.monotonic()
        wedged = time.monotonic() - moved > order["wedged"]
        if beat.due() and not wedged and state_of(order["parent"]) not in NOT_ALIVE:
            beat()
        wait = beat.wait()


def silent(number: int, frame: Any) -> None:
    raise TimeoutError("the database has not answered in time")


def read_order() -> dict[str, Any]:
    """The first line of standard input, read byte by byte: what follows it must stay in the pipe for select."""
    line = bytearray()
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return json.loads(line)  # type: ignore[no-any-return]


def listen(seconds: float) -> bool | None:
    """Wait so long for the worker to be heard: True if it was, None if it is gone."""
    ready, _, _ = select.select([0], [], [], max(seconds, 0.0))
    if not ready:
        return False
    return True if os.read(0, 65_536) else None


def state_of(pid: int) -> str:
    """The process's state letter (proc(5)), or a letter for "alive" where there is no /proc."""
    try:
        # the name before it may hold anything, spaces and brackets too
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return "R"


class Beat:
    """The statements, and the connection that they are sent on."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._interval = float(order["interval"])
        self._answer = float(order["answer"])
        self._statements = order["statements"]
        self._connect = connector(order["driver"], order["arguments"])
        self._connection: Any = None
        self._next = 0.0
        self._told = ""
        self._said = False

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def wait(self) -> float:
        return self._next - time.monotonic()

    def __call__(self) -> None:
        """One beat. If it cannot be sent it is tried again soon, on a new connection."""
        started = time.monotonic()
        try:
            # not every driver can be told how long to wait for an answer
            signal.setitimer(signal.ITIMER_REAL, self._answer)
            try:
                if self._connection is None:
                    self._connection = self._connect()
                self._send()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            self._next, self._told = started + self._interval, ""
            self._say()
        except Exception as error:  # noqa: BLE001 - each driver has errors of its own, and all mean: try again
            if undone(error):
                self._next = time.monotonic() + AGAIN
                return
            self._tell(str(error))
            self._drop()
            self._next = time.monotonic() + min(self._interval / 4, 1.0)

    def _say(self) -> None:
        """The worker need not beat for itself any longer."""
        if not self._said:
            self._said = True
            with contextlib.suppress(OSError):
                os.write(1, b"\n")

    def _tell(self, trouble: str) -> None:
        """Once for each trouble: a database that is away would fill the log four times a second."""
        if trouble != self._told:
            print(f"dumbwaiter heartbeat: {trouble}", file=sys.stderr, flush=True)
        self._told = trouble

    def _send(self) -> None:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # noqa: UP017 - as old as the driver allows
        cursor = self._connection.cursor()
        try:
            for text, parameters in self._statements:
                cursor.execute(text.replace("$now", now), parameters)
        finally:
            cursor.close()

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
        self._connection = None


def undone(error: Exception) -> bool:
    """MySQL undid the statement for a deadlock or a lock wait: nothing is wrong with the connection."""
    return bool(error.args) and error.args[0] in {1205, 1213}


def connect_mysql(module: Any, arguments: dict[str, Any]) -> Any:
    connection = module.connect(**arguments, autocommit=True)
    with connection.cursor() as cursor:
        # under REPEATABLE READ the update would lock the gaps between its rows, and other people's inserts with them
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return connection


def connect_sqlite(module: Any, arguments: dict[str, Any]) -> Any:
    connection = module.connect(**arguments, isolation_level=None)
    # as the pool's: while nothing happens the beat is the only one that writes, and so the one that cuts a log that has grown
    connection.execute("PRAGMA journal_size_limit = 8388608")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def connector(driver: str, arguments: dict[str, Any]) -> Callable[[], Any]:
    """How to open a connection on which each statement commits by itself."""
    module = importlib.import_module(driver)
    if driver == "psycopg":
        # no options of ours: a pooler refuses them, and the address may have some
        return lambda: module.connect(**arguments, autocommit=True, prepare_threshold=None)
    if driver == "pymysql":
        return lambda: connect_mysql(module, arguments)
    return lambda: connect_sqlite(module, arguments)


if __name__ == "__main__":
    sys.exit(main())
