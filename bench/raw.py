"""What a database takes on our table through its raw driver: the limit that a queue of this design cannot pass.

One connection, no producer's checks, no worker: rows are inserted one by one, and claimed and finished by the hundred.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg

from tests.support.servers import mysql_connection

BATCH = 100
COLUMNS = (
    "id, task_type, queue, priority, payload, status, ready, attempt, retry_count, max_retry_count, crash_count, "
    "max_crash_count, interruption_count, payload_version, ahead, version, progress, timeout_seconds, run_at, created_at, updated_at"
)
VALUES = "{id}, 'noop', 'default', 0, '{{\"number\":0}}', 'pending', {true}, 0, 0, 3, 0, 3, 0, 1, {false}, 0, 0, 3600, {now}, {now}, {now}"
DUE = "SELECT id FROM dumbwaiter_tasks WHERE status = 'pending' AND ready AND queue = 'default' ORDER BY priority DESC, run_at, id LIMIT 100"
TAKEN = (
    "status = 'running', ready = {false}, attempt = attempt + 1, version = version + 1, worker_id = 'raw', started_at = {now}, "
    "heartbeat_at = {now}, updated_at = {now}"
)
ENDED = (
    "status = 'success', result = 'null', progress = 1, worker_id = NULL, heartbeat_at = NULL, finished_at = {now}, "
    "updated_at = {now}, version = version + 1"
)


class Driver(Protocol):
    """Three things to do with a connection, each durable when it returns."""

    def insert(self) -> None: ...

    def claim(self) -> Sequence[Any]: ...

    def finish(self, ids: Sequence[Any]) -> None: ...


class Psycopg:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        now, words = "statement_timestamp()", {"true": "true", "false": "false"}
        self._insert = (
            f"INSERT INTO dumbwaiter_tasks ({COLUMNS}) VALUES ({VALUES.format(id='%s', now=now, **words)})"
        )
        self._claim = (
            f"WITH due AS MATERIALIZED ({DUE} FOR UPDATE SKIP LOCKED) UPDATE dumbwaiter_tasks AS t "
            f"SET {TAKEN.format(now=now, **words)} FROM due WHERE t.id = due.id RETURNING t.id, t.task_type, t.payload, t.attempt"
        )
        self._finish = f"UPDATE dumbwaiter_tasks SET {ENDED.format(now=now)} WHERE id = ANY(%s) AND worker_id = 'raw' AND attempt = 1"

    def insert(self) -> None:
        self._connection.execute(self._insert.encode(), (uuid.uuid4(),))

    def claim(self) -> Sequence[Any]:
        return [row[0] for row in self._connection.execute(self._claim.encode()).fetchall()]

    def finish(self, ids: Sequence[Any]) -> None:
        self._connection.execute(self._finish.encode(), (list(ids),))


class PyMySQL:
    """MySQL has no UPDATE … RETURNING: lock and read, then mark, in one transaction; the finish is a join with what was held."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        now, words = "UTC_TIMESTAMP(6)", {"true": "1", "false": "0"}
        self._insert = (
            f"INSERT INTO dumbwaiter_tasks ({COLUMNS}) VALUES ({VALUES.format(id='%s', now=now, **words)})"
        )
        self._due = f"{DUE.replace('AND ready ', 'AND ready = 1 ').replace('SELECT id', 'SELECT id, task_type, payload, attempt')} FOR UPDATE SKIP LOCKED"
        self._claim = f"UPDATE dumbwaiter_tasks SET {TAKEN.format(now=now, **words)} WHERE id IN %s"
        self._finish = f"UPDATE dumbwaiter_tasks SET {ENDED.format(now=now)} WHERE id IN %s AND worker_id = 'raw' AND attempt = 1"

    def insert(self) -> None:
        self._cursor.execute(self._insert, (str(uuid.uuid4()),))

    def claim(self) -> Sequence[Any]:
        self._connection.begin()
        self._cursor.execute(self._due)
        ids = [row[0] for row in self._cursor.fetchall()]
        if ids:
            self._cursor.execute(self._claim, (ids,))
        self._connection.commit()
        return ids

    def finish(self, ids: Sequence[Any]) -> None:
        self._cursor.execute(self._finish, (ids,))


class SQLite3:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
            connection.execute(f"PRAGMA {pragma}")
        # every value but the ids is text of the statement, which is compiled once
        now = f"'{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}'"
        words = {"true": "1", "false": "0"}
        places = ", ".join("?" * BATCH)
        self._insert = (
            f"INSERT INTO dumbwaiter_tasks ({COLUMNS}) VALUES ({VALUES.format(id='?', now=now, **words)})"
        )
        self._claim = f"UPDATE dumbwaiter_tasks SET {TAKEN.format(now=now, **words)} WHERE id IN ({DUE}) RETURNING id, task_type, payload, attempt"
        self._finish = f"UPDATE dumbwaiter_tasks SET {ENDED.format(now=now)} WHERE id IN ({places}) AND worker_id = 'raw' AND attempt = 1"

    def insert(self) -> None:
        self._connection.execute(self._insert, (str(uuid.uuid4()),))

    def claim(self) -> Sequence[Any]:
        return [row[0] for row in self._connection.execute(self._claim).fetchall()]

    def finish(self, ids: Sequence[Any]) -> None:
        self._connection.execute(self._finish, (*ids, *[None] * (BATCH - len(ids))))


@contextlib.contextmanager
def connected(address: str) -> Iterator[Driver]:
    parts = urlsplit(address)
    match parts.scheme:
        case "postgresql":
            with psycopg.connect(address, autocommit=True) as connection:
                yield Psycopg(connection)
        case "sqlite":
            path = Path(parts.path[1:])
            with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as file:
                yield SQLite3(file)
        case _:
            with contextlib.closing(mysql_connection(address)) as session:
                session.select_db(parts.path[1:])
                yield PyMySQL(session)


def insert(address: str, number: int, seconds: float) -> float:
    """Rows a second, each with a commit of its own."""
    with connected(address) as driver:
        driver.insert()
        began, done = time.perf_counter(), 0
        while done < number and (done % 64 or time.perf_counter() - began < seconds):
            driver.insert()
            done += 1
        return done / (time.perf_counter() - began)


def claim_and_finish(address: str, number: int) -> float:
    """Rows a second, a hundred of them claimed, then finished, until none is left. The first hundred are not timed."""
    with connected(address) as driver:
        driver.finish(driver.claim())
        began, done = time.perf_counter(), 0
        while ids := driver.claim():
            driver.finish(ids)
            done += len(ids)
        return min(done, number) / (time.perf_counter() - began)
