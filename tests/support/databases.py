"""Fresh empty databases for tests, one per test, on each kind of server."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import pytest

from tests.support import servers, services

if TYPE_CHECKING:
    import psycopg
    import pymysql

    Connection = psycopg.Connection[tuple[object, ...]] | pymysql.Connection[pymysql.cursors.Cursor]

Kind = Literal["sqlite", "postgresql", "mysql"]

KINDS = [
    pytest.param("sqlite"),
    pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
    pytest.param("mysql", marks=pytest.mark.service("mysql")),
]
"""Parametrise by this to run on every database: `@pytest.mark.parametrize("kind", KINDS)`."""

SQLITE_AT_ONCE = [
    KINDS[0],
    *(pytest.param(*one.values, marks=[*one.marks, pytest.mark.long]) for one in KINDS[1:]),
]
"""As KINDS, for what takes long and hardly depends on the database: on servers among the long tests only."""


@dataclass(frozen=True)
class Database:
    """An empty database of a test's own."""

    kind: Kind
    url: str


class Databases:
    """Makes databases and drops them again; one per pytest process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count()
        self._made: list[Database] = []
        self._swept: set[Kind] = set()

    def make(self, kind: Kind) -> Database:
        """A new empty database. Costs about 1 ms on SQLite and MariaDB, 25 ms on PostgreSQL."""
        name = f"{_ours()}{os.getpid()}_{next(self._numbers)}"
        database = Database(kind, self._create(kind, name))
        self._made.append(database)
        return database

    def drop(self, database: Database) -> None:
        """Drop a database, ending connections that are still open to it."""
        self._made.remove(database)
        name = _name(database.url)
        if database.kind == "sqlite":
            for path in self._directory.glob(f"{name}.db*"):
                path.unlink()
        elif database.kind == "postgresql":
            with _postgresql() as connection:
                connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        else:
            with _mysql() as connection:
                _drop_mysql(connection, name)

    def close(self) -> None:
        """Drop what is left."""
        for database in list(self._made):
            self.drop(database)

    def _create(self, kind: Kind, name: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{self._directory / name}.db"
        if kind == "postgresql":
            with _postgresql() as connection:
                self._sweep_once(kind, connection)
                connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        else:
            with _mysql() as connection:
                self._sweep_once(kind, connection)
                with connection.cursor() as cursor:
                    cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return re.sub(r"^(\w+://[^/?]*)/?[^?]*", rf"\1/{name}", _server(kind))

    def _sweep_once(self, kind: Kind, connection: Connection) -> None:
        """Drop what test runs that were killed left behind."""
        if kind in self._swept:
            return
        self._swept.add(kind)
        with connection.cursor() as cursor:
            cursor.execute("SELECT datname FROM pg_database" if kind == "postgresql" else "SHOW DATABASES")
            for name in [str(row[0]) for row in cursor.fetchall()]:
                if name.startswith(_ours()) and not _alive(name):
                    # workers of such a run may live on, and be connected
                    force = " WITH (FORCE)" if kind == "postgresql" else ""
                    cursor.execute(f"DROP DATABASE IF EXISTS {name}{force}")


def sessions(database: Database) -> int:
    """How many connections a server has to this database; 0 for a file."""
    return len(_sessions(database))


def end_sessions(database: Database) -> int:
    """End every connection to this database at the server; how many those were."""
    numbers = _sessions(database)
    for number in numbers:
        # one of them may have gone by itself meanwhile
        with contextlib.suppress(Exception):
            if database.kind == "postgresql":
                with _postgresql() as server:
                    server.execute("SELECT pg_terminate_backend(%s)", (number,))
            else:
                with _mysql() as mysql, mysql.cursor() as cursor:
                    cursor.execute(f"KILL {number}")
    return len(numbers)


def _sessions(database: Database) -> list[int]:
    name = _name(database.url)
    if database.kind == "sqlite":
        return []
    if database.kind == "postgresql":
        with _postgresql() as server:
            rows = server.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s", (name,)).fetchall()
        return [int(str(row[0])) for row in rows]
    with _mysql() as mysql, mysql.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,))
        return [int(row[0]) for row in cursor.fetchall()]


def _ours() -> str:
    """The prefix of the names of this machine's test databases: another machine may use the same server."""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
        return f"dwt_{hashlib.sha256(f'{socket.gethostname()}{namespace}'.encode()).hexdigest()[:6]}_"
    return f"dwt_{hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]}_"


def _alive(name: str) -> bool:
    try:
        os.kill(int(name.removeprefix(_ours()).split("_")[0]), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def _name(url: str) -> str:
    return Path(urlsplit(url).path).stem


@contextlib.contextmanager
def _postgresql() -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    import psycopg

    with psycopg.connect(_server("postgresql"), autocommit=True, connect_timeout=5) as connection:
        yield connection


@contextlib.contextmanager
def _mysql() -> Iterator[pymysql.Connection[pymysql.cursors.Cursor]]:
    with contextlib.closing(servers.mysql_connection(_server("mysql"))) as connection:
        yield connection


@functools.cache
def _server(kind: Kind) -> str:
    return services.find(kind)


def _drop_mysql(connection: pymysql.Connection[pymysql.cursors.Cursor], name: str) -> None:
    with connection.cursor() as cursor:
        # DROP waits for ever for a connection that still holds a metadata lock, so end those first.
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,))
        for (thread,) in cursor.fetchall():
            with contextlib.suppress(Exception):
                cursor.execute(f"KILL {int(thread)}")
        cursor.execute(f"DROP DATABASE IF EXISTS {name}")
