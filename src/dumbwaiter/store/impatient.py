"""Driver connections that give up on a server which does not answer. No driver has a setting for the whole of an answer.

psycopg has none at all; PyMySQL's counts anew with each byte, so that one byte a second was an answer for ever.
"""

from __future__ import annotations

import functools
import itertools
import select
import time
from collections.abc import Generator
from typing import Any

from dumbwaiter.store import patience

SERVER_LOST = 2013
IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS, in what MySQL says after each command


def said(limit: float) -> str:
    return f"the server has not answered for {limit:.0f} s"


def fresh(connection: Any, seconds: float) -> bool:
    """It answered so recently, and nothing has come from the server since: not even that it ends the connection."""
    if time.monotonic() - getattr(connection, "asked_at", 0.0) > seconds:
        return False
    look = select.poll()  # select() knows no file numbers beyond 1,023
    look.register(connection.fileno(), select.POLLIN)
    return not look.poll(0)


@functools.cache
def postgresql() -> Any:
    """The class of psycopg's connections, with a limit."""
    import psycopg

    idle = psycopg.pq.TransactionStatus.IDLE

    class Impatient(psycopg.Connection[Any]):
        asked_at = 0.0

        def __init__(self, *args: Any, **how: Any) -> None:
            super().__init__(*args, **how)
            # the names of what `bulk` has prepared on it, and the numbers of further ones
            self.named: dict[str, bytes] = {}
            self.numbers = itertools.count()

        def rollback(self) -> None:
            # the pool wants one whenever a connection comes back
            if self.pgconn.transaction_status != idle:
                super().rollback()

        def wait(self, gen: Any, *args: Any, **how: Any) -> Any:
            return super().wait(self._limited(gen), *args, **how)

        def _limited(self, talk: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
            self.asked_at = began = time.monotonic()
            until = patience.until(patience.ANSWER)
            try:
                wanted = next(talk)
                while True:
                    # psycopg comes back ten times a second, with nothing if nothing was heard
                    heard = yield wanted
                    if not heard and time.monotonic() > until:
                        self.pgconn.finish()  # so that the pool sees that it is dead
                        raise psycopg.OperationalError(said(time.monotonic() - began))
                    wanted = talk.send(heard)
            except StopIteration as end:
                return end.value

    return Impatient


def tls(connection: Any, said: Any) -> Any:
    """How a connection of PyMySQL is encrypted; for all of those where nobody said how it is the same.

    Loading the certificates takes some milliseconds and 0.4 MB, much of which is not given back: in an outage a worker grew by a megabyte
    each few seconds.
    """
    plain: Any = type(connection).__base__
    return plain._create_ssl_ctx(connection, said) if said else usual_tls()


@functools.cache
def usual_tls() -> Any:
    """PyMySQL's own: encrypt where it can, without looking at certificates."""
    import pymysql

    plain: Any = pymysql.connections.Connection
    return plain._create_ssl_ctx(plain, {})


@functools.cache
def mysql() -> Any:
    """The class of PyMySQL's connections, with a limit."""
    import pymysql

    plain: Any = pymysql.connections.Connection  # its stubs know nothing of what is overridden here

    class Impatient(plain):  # type: ignore[misc]
        _until = 0.0
        asked_at = 0.0

        def fileno(self) -> int:
            return self._sock.fileno()  # type: ignore[no-any-return]

        _create_ssl_ctx = tls

        def rollback(self) -> None:
            # the pool wants one whenever a connection comes back, and this driver would send it
            if self.server_status & IN_TRANSACTION:
                super().rollback()

        def connect(self, sock: Any = None) -> None:
            self._clock(self.connect_timeout)
            super().connect(sock)

        def _execute_command(self, command: Any, sql: Any) -> None:
            self._clock(patience.ANSWER)
            super()._execute_command(command, sql)

        def _clock(self, limit: float) -> None:
            self.asked_at = time.monotonic()
            self._until = patience.until(limit)
            # once for each command: settimeout() lets go of the interpreter's lock
            self._read_timeout = self._write_timeout = max(self._until - self.asked_at, 0.01)

        def _read_bytes(self, num_bytes: int) -> bytes:
            """As PyMySQL reads them, but in pieces, and until an instant instead of so long for each."""
            heard = b""
            while len(heard) < num_bytes:
                try:
                    left = self._until - time.monotonic()
                    if left <= 0:
                        raise TimeoutError
                    if heard or self._sock.gettimeout() is None:
                        self._sock.settimeout(left)
                    piece = self._rfile.read1(num_bytes - len(heard))
                except TimeoutError:
                    raise self._lost(said(time.monotonic() - self.asked_at)) from None
                except OSError as error:
                    raise self._lost(f"the connection was lost: {error}") from None
                if not piece:
                    raise self._lost("the server closed the connection")
                heard += piece
            return heard

        def _lost(self, why: str) -> pymysql.err.OperationalError:
            self._force_close()
            return pymysql.err.OperationalError(SERVER_LOST, why)

    return Impatient
