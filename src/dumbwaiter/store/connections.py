"""Connections to the task's database: its own pool, and the caller's connection with the caller's transaction."""

from __future__ import annotations

import collections
import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from dumbwaiter.errors import ConfigurationError, DatabaseUnavailable, MissingExtra
from dumbwaiter.store.dialects import DIALECTS, Dialect, mysql_error

T = TypeVar("T")
READING = "dumbwaiter_reading"
# deadlock, lock wait timeout; serialization failure, deadlock detected
MYSQL_AGAIN = frozenset({1213, 1205})
POSTGRESQL_AGAIN = frozenset({"40001", "40P01"})
TRIES = 10


class FairLock:
    """A lock that is given out in the order in which it was asked for.

    SQLite's busy handler is not fair: of 16 writers one waited 1.4 s while others wrote thousands of times.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = False
        self._waiting: collections.deque[threading.Event] = collections.deque()

    def __enter__(self) -> None:
        with self._lock:
            if not self._held:
                self._held = True
                return
            turn = threading.Event()
            self._waiting.append(turn)
        turn.wait()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()  # still held: handed over
            else:
                self._held = False


class Connections:
    """The pool of one database, and how its transactions begin, commit and are tried again."""

    def __init__(self, address: str, *, pgbouncer: bool = False) -> None:
        self.url = normal_url(address)
        self._pgbouncer = pgbouncer
        self.dialect: Dialect = DIALECTS[self.url.get_backend_name()]()
        self._writers = FairLock()

    @cached_property
    def engine(self) -> Engine:
        match self.dialect.name:
            case "sqlite":
                return sqlite_engine(self.url)
            case "postgresql":
                return postgresql_engine(self.url, pgbouncer=self._pgbouncer)
            case _:
                return mysql_engine(self.url)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection on which each statement stands alone."""
        with told(), self.engine.connect() as connection:
            if self.dialect.name == "sqlite":
                yield connection.execution_options(**{READING: True})
            else:
                yield connection.execution_options(isolation_level="AUTOCOMMIT")

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection in a transaction that commits at the end of the block and rolls back on an error."""
        queue = self._writers if self.dialect.name == "sqlite" else contextlib.nullcontext()
        with told(), queue, self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def single(self) -> Iterator[Connection]:
        """A connection for one writing statement: without BEGIN and COMMIT, which cost as much again as the statement."""
        with self.writing() if self.dialect.name == "sqlite" else self.reading() as connection:
            yield connection

    def again(self, work: Callable[[Connection], T], *, single: bool = False) -> T:
        """Do work in a transaction of its own; if the database undid it for a deadlock or the like, do it again."""
        for tries in range(1, TRIES + 1):
            try:
                with self.single() if single else self.writing() as connection:
                    return work(connection)
            except sa.exc.DBAPIError as error:
                if tries == TRIES or not worth_another_try(error):
                    raise
                # without a jittered pause the same ones meet again: 5,122 deadlocks in 60 rounds were measured
                time.sleep(random.uniform(0, 0.003) * tries)
        raise AssertionError("unreachable")

    def bare(self) -> tuple[str, dict[str, Any]]:
        """The driver's module and the arguments of its `connect`, for a process that imports nothing but the driver."""
        if self.dialect.name == "sqlite":
            return "sqlite3", {"database": str(Path(str(self.url.database)).absolute()), "timeout": 30}
        _, arguments = self.engine.dialect.create_connect_args(self.url)
        module = "psycopg" if self.dialect.name == "postgresql" else "pymysql"
        return module, dict(arguments) | {"connect_timeout": 10}

    def close(self) -> None:
        if "engine" in self.__dict__:
            self.engine.dispose()


@contextlib.contextmanager
def told() -> Iterator[None]:
    """A database that cannot be reached is told apart from a statement that it refused."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        if error.connection_invalidated or (
            isinstance(error, sa.exc.OperationalError) and not worth_another_try(error)
        ):
            raise DatabaseUnavailable(f"the database cannot be used: {first_line(error.orig)}") from error
        raise
    except sa.exc.TimeoutError as error:
        raise DatabaseUnavailable(
            f"no connection to the database was free in time: {first_line(error)}"
        ) from error


def first_line(error: BaseException | None) -> str:
    text = " ".join(str(part) for part in error.args) if error is not None else ""
    return text.strip().splitlines()[0][:300] if text.strip() else type(error).__name__


def worth_another_try(error: sa.exc.DBAPIError) -> bool:
    """The database undid a transaction that would pass alone."""
    return mysql_error(error) in MYSQL_AGAIN or getattr(error.orig, "sqlstate", None) in POSTGRESQL_AGAIN


def normal_url(address: str) -> URL:
    """The address with our drivers: `postgresql://` means psycopg, `mysql://` and `mariadb://` PyMySQL."""
    try:
        url = sa.make_url(address)
    except sa.exc.ArgumentError:
        raise ConfigurationError(
            "the database address cannot be read; write sqlite:///path/to/tasks.db, postgresql://user@host/name "
            "or mysql://user@host/name"
        ) from None
    backend = url.get_backend_name()
    if backend == "postgres":
        url, backend = url.set(drivername="postgresql"), "postgresql"
    if backend not in DIALECTS:
        raise ConfigurationError(
            f"{backend} is not a database that Dumbwaiter knows: sqlite, postgresql, mysql or mariadb"
        )
    match backend:
        case "postgresql":
            return url.set(drivername="postgresql+psycopg")
        case "sqlite":
            if url.database in (None, "", ":memory:"):
                raise ConfigurationError(
                    "a SQLite database in memory is gone with its process; give a path to a file"
                )
            return url.set(drivername="sqlite+pysqlite")
        case _:
            return url.set(drivername="mysql+pymysql").update_query_dict({"charset": "utf8mb4"})


def sqlite_engine(url: URL) -> Engine:
    path = Path(str(url.database))
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(
        url, connect_args={"timeout": 30, "check_same_thread": False}, pool_size=5, max_overflow=50
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # the driver's own BEGIN is deferred: a transaction that reads first and writes then fails at once with
        # SQLITE_BUSY_SNAPSHOT, whatever the busy timeout. So transactions are begun here, by us.
        connection.isolation_level = None
        for pragma in (
            "busy_timeout = 30000",
            "journal_mode = WAL",
            "synchronous = NORMAL",
            "foreign_keys = ON",
            # without it the -wal file keeps the size of its worst day
            "journal_size_limit = 8388608",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # SQLite ignores FOR UPDATE: take the write lock before reading
        if not connection.get_execution_options().get(READING):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def postgresql_engine(url: URL, *, pgbouncer: bool) -> Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtra("psycopg", "postgresql") from None
    connect: dict[str, Any] = {"connect_timeout": 10, "application_name": "dumbwaiter"}
    if pgbouncer:
        # in transaction mode the next statement may meet another server connection, which knows no prepared statements
        connect["prepare_threshold"] = None
    return sa.create_engine(url, connect_args=connect, pool_size=5, max_overflow=20, pool_pre_ping=True)


def mysql_engine(url: URL) -> Engine:
    try:
        import pymysql  # noqa: F401
    except ImportError:
        raise MissingExtra("pymysql", "mysql") from None
    start = (
        "SET time_zone = '+00:00', innodb_lock_wait_timeout = 5, "
        "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'"
    )
    return sa.create_engine(
        url,
        connect_args={"connect_timeout": 10, "init_command": start},
        # under REPEATABLE READ a SKIP LOCKED select locks gaps, and claimers stand in each other's way
        isolation_level="READ COMMITTED",
        pool_size=5,
        max_overflow=20,
        pool_pre_ping=True,
        pool_recycle=3600,
    )
