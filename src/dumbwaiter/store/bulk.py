"""Statements of duties that ask for hundreds of rows, or write as many, on PostgreSQL.

psycopg reads an answer piece by piece, and for each of them, ten and more, it waits for the interpreter's lock twice. While an
event loop is busy that takes a millisecond or two each time; and at each system call of its own the loop wakes the one that waits,
in vain. Here libpq waits for all of the answer, and the lock is asked for once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dumbwaiter.store import patience
from dumbwaiter.store.impatient import said
from dumbwaiter.store.watchdog import WATCHDOG

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGresult

FORGOTTEN = b"26000"  # invalid_sql_statement_name


class Answer:
    """The whole answer to a statement, with as much of a cursor as is asked for."""

    def __init__(self, connection: Connection[Any], result: PGresult) -> None:
        self._connection = connection
        self._result = result

    @property
    def rowcount(self) -> int:
        return self._result.command_tuples or 0

    def fetchall(self) -> list[tuple[Any, ...]]:
        from psycopg.adapt import Transformer

        read = Transformer(self._connection)
        read.set_pgresult(self._result)
        return read.load_rows(0, self._result.ntuples, tuple)

    def close(self) -> None:
        """There is nothing to let go of."""


def ask(connection: Any, text: str, values: Sequence[Any]) -> Answer:
    """Carry out a statement whose parameters are numbered, on one of `impatient`'s connections.

    Raises what psycopg raises; an OperationalError too if the server has not answered in time.
    """
    import psycopg

    driver = connection.pgconn
    connection.asked_at = began = time.monotonic()
    with WATCHDOG.over(driver.socket, patience.until(patience.ANSWER)) as watch:
        result = answered(connection, text, values)
    if watch.bit:
        driver.finish()  # so that the pool sees that it is dead
        raise psycopg.OperationalError(said(time.monotonic() - began))
    if is_good(result):
        return Answer(connection, result)
    if driver.status != psycopg.pq.ConnStatus.OK:
        raise psycopg.OperationalError(result.get_error_message())
    raise psycopg.errors.error_from_result(result)


def answered(connection: Any, text: str, values: Sequence[Any]) -> PGresult:
    from psycopg.adapt import PyFormat, Transformer
    from psycopg.pq import DiagnosticField

    driver = connection.pgconn
    # as texts, whose types the server knows from their places
    sent = Transformer(connection).dump_sequence(values, [PyFormat.TEXT] * len(values))
    result: PGresult
    if connection.prepare_threshold is None:
        result = driver.exec_params(text.encode(), sent)
        return result
    if text in connection.named:
        result = driver.exec_prepared(connection.named[text], sent)
        if result.error_field(DiagnosticField.SQLSTATE) != FORGOTTEN:
            return result
        # somebody had the session forget what it had prepared, as psycopg does after a DROP; nothing has been done
    name = f"dumbwaiter_{next(connection.numbers)}".encode()
    result = driver.prepare(name, text.encode())
    if is_good(result):
        connection.named[text] = name
        result = driver.exec_prepared(name, sent)
    return result


def is_good(result: PGresult) -> bool:
    from psycopg.pq import ExecStatus

    return result.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
