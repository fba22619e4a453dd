"""The caller's connection: of which kinds it may be, how our statements run on it, and whether it leads to our tables.

Whatever the driver, the statements are those of the store and run on a SQLAlchemy connection. A bare driver's connection is
lent to one, which never commits, rolls back or closes it: the transaction is the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import weakref
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import NullPool

from dumbwaiter.errors import DatabaseUnavailable, InvalidOption
from dumbwaiter.store.connections import Connections
from dumbwaiter.store.tables import Tables

T = TypeVar("T")
KINDS = (
    "give a SQLAlchemy Connection or Session, a psycopg, PyMySQL or sqlite3 connection, or, with aenqueue, an AsyncConnection "
    "or AsyncSession of SQLAlchemy or psycopg; for other drivers there is waiter.statement(…)"
)
ASYNCHRONOUS = "connection= is asynchronous: use `await ….aenqueue(…)`"


class Callers:
    """What the store knows of connections that are not its own."""

    def __init__(self, connections: Connections, tables: Tables) -> None:
        self._connections = connections
        self._tables = tables
        self._installed_at: datetime | None = None
        # those that were found to lead to our tables
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        # without it every statement on a lent connection would be compiled anew
        self._compiled: dict[Any, Any] = {}

    @contextlib.contextmanager
    def borrowed(self, given: Any) -> Iterator[Connection]:
        """The caller's connection as our statements run on it. Raises InvalidOption unless it leads to our tables."""
        if (lent := self._lent(given)) is None:
            connection = sqlalchemy_connection(given)
            self._recognise(connection)
            yield connection
            return
        kind, cursor = lent
        self._same_kind(kind)
        with self._lending(Lent(given, cursor)) as connection:
            self._recognise(connection)
            yield connection

    def _lent(self, given: Any) -> tuple[str, Callable[[], Any]] | None:
        """Of a bare driver's connection the database it speaks to, and how a plain cursor is made of it."""
        if isinstance(given, Bridge):
            return "postgresql", given.cursor
        if isinstance(given, sqlite3.Connection):
            # not given.cursor(): its rows are what the caller's row_factory makes of them
            return "sqlite", lambda: sqlite3.Cursor(given)
        if isinstance(given, driver_class("psycopg", "Connection")):
            from psycopg.rows import tuple_row

            return "postgresql", lambda: sys.modules["psycopg"].Cursor(given, row_factory=tuple_row)
        if isinstance(given, driver_class("pymysql", "Connection")):
            return "mysql", lambda: sys.modules["pymysql"].cursors.Cursor(given)
        return None

    @contextlib.contextmanager
    def _lending(self, lent: Lent) -> Iterator[Connection]:
        ours = self._connections.engine
        pool = NullPool(lambda: lent, reset_on_return=None, dialect=ours.dialect)
        engine = Engine(pool, ours.dialect, self._connections.url)
        with engine.connect() as connection:
            yield connection.execution_options(compiled_cache=self._compiled)

    # which database

    def _same_kind(self, kind: str) -> None:
        if kind != self._connections.dialect.name:
            raise InvalidOption(
                f"connection= leads to another database than the tasks': {kind}, not {self._ours}"
            )

    @property
    def _ours(self) -> str:
        return self._connections.url.render_as_string(hide_password=True)

    def _recognise(self, connection: Connection) -> None:
        """Raise InvalidOption unless this connection sees our tables. Asks once for each of a server's connections."""
        if connection.engine is self._connections.engine:
            return
        kind = connection.dialect.name.replace("mariadb", "mysql")
        self._same_kind(kind)
        if kind == "sqlite":
            self._same_file(connection)
            return
        driver = connection.connection.driver_connection
        known = driver.given if isinstance(driver, Lent) else driver
        if known not in self._known:
            self._same_tables(connection)
            self._known.add(known)

    def _same_file(self, connection: Connection) -> None:
        """Not by reading a table: a deferred transaction that has read may not write any more."""
        files = {row[1]: row[2] for row in connection.exec_driver_sql("PRAGMA database_list")}
        ours = Path(str(self._connections.url.database))
        path = Path(files.get("main") or ":memory:")
        if not (path.exists() and ours.exists() and path.samefile(ours)):
            raise InvalidOption(
                f"connection= leads to another database than the tasks': the file {path}, not {ours}"
            )

    def _same_tables(self, connection: Connection) -> None:
        """By the instant of their installation, which no two databases share."""
        table = self._tables.installation
        found = None
        if sa.inspect(connection).has_table(table.name, schema=table.schema):
            found = connection.execute(sa.select(table.c.installed_at)).scalar()
        if found is None or (found != self._installed_at and found != self._installation()):
            name = {"postgresql": sa.func.current_database(), "mysql": sa.func.database()}[
                self._connections.dialect.name
            ]
            seen = connection.execute(sa.select(name)).scalar()
            raise InvalidOption(
                f"connection= leads to another database than the tasks': {seen}"
                f"{'' if found else ', where there is no table ' + str(table)}, not {self._ours}"
            )

    def _installation(self) -> datetime | None:
        with self._connections.reading() as own:
            self._installed_at = own.execute(sa.select(self._tables.installation.c.installed_at)).scalar()
        return self._installed_at


def driver_class(module: str, name: str) -> Any:
    """A class of a driver, if that is imported: an object of it cannot exist before."""
    return getattr(sys.modules.get(module), name, ())


def sqlalchemy_connection(given: Any) -> Connection:
    """The SQLAlchemy connection itself, or a session's. Raises InvalidOption for anything else."""
    if isinstance(given, Connection):
        return given
    if hasattr(given, "run_sync") or isinstance(given, driver_class("psycopg", "AsyncConnection")):
        raise InvalidOption(ASYNCHRONOUS)
    connection = getattr(given, "connection", None)
    if callable(connection) and isinstance(found := connection(), Connection):
        return found
    raise InvalidOption(f"connection= is a {type(given).__module__}.{type(given).__qualname__}; {KINDS}")


class Lent:
    """A bare driver's connection as SQLAlchemy sees it: with plain cursors, and never ended by us."""

    def __init__(self, given: Any, cursor: Callable[[], Any]) -> None:
        self.given = given.connection if isinstance(given, Bridge) else given
        self.cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.given, name)

    def commit(self) -> None:
        """It is the caller's transaction."""

    def rollback(self) -> None:
        """It is the caller's transaction."""

    def close(self) -> None:
        """It is the caller's connection."""


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """SQLite's refusal to write in a transaction that began by reading, told with its cure."""
    try:
        yield
    except sa.exc.OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY_SNAPSHOT:
            raise DatabaseUnavailable(
                "this SQLite transaction has read, somebody else has written since, and now it cannot write any more: "
                "begin it with BEGIN IMMEDIATE, and roll it back and repeat it now"
            ) from error
        raise


# asynchronous connections


def is_asynchronous(given: Any) -> bool:
    """A psycopg AsyncConnection; SQLAlchemy's have a bridge of their own, `run_sync`."""
    return isinstance(given, driver_class("psycopg", "AsyncConnection"))


async def bridged(connection: Any, work: Callable[[Any], T]) -> T:
    """Do synchronous work on an asynchronous connection: on a thread, whose statements the caller's loop executes.

    If the caller is cancelled, no statement runs after that: the connection is the caller's again.
    """
    bridge = Bridge(connection, asyncio.get_running_loop())
    at_work = asyncio.ensure_future(asyncio.to_thread(work, bridge))
    try:
        return await asyncio.shield(at_work)
    except asyncio.CancelledError:
        bridge.close()
        await asyncio.gather(at_work, return_exceptions=True)
        raise


class Bridge:
    """An asynchronous psycopg connection as a thread beside its event loop uses it."""

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.connection = connection
        self._loop = loop
        self._closed = False
        self._asked: asyncio.Task[Any] | None = None

    def cursor(self) -> BridgeCursor:
        from psycopg.rows import tuple_row

        cursor = sys.modules["psycopg"].AsyncCursor(self.connection, row_factory=tuple_row)
        return BridgeCursor(self, cursor)

    def wait(self, method: Callable[..., Any], *given: Any) -> Any:
        """On the thread: have the loop do it, and wait for what comes of it."""
        return asyncio.run_coroutine_threadsafe(self._ask(method, given), self._loop).result()

    async def _ask(self, method: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        if self._closed:
            raise asyncio.CancelledError
        self._asked = asyncio.current_task()
        try:
            return await method(*given)
        finally:
            self._asked = None

    def close(self) -> None:
        """On the loop: nothing more is asked, and what is being asked is given up."""
        self._closed = True
        if self._asked is not None:
            self._asked.cancel()


class BridgeCursor:
    """A psycopg AsyncCursor whose methods wait."""

    def __init__(self, bridge: Bridge, cursor: Any) -> None:
        self._bridge = bridge
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, statement: str, parameters: Any = None) -> None:
        self._bridge.wait(self._cursor.execute, statement, parameters)

    def fetchone(self) -> Any:
        return self._bridge.wait(self._cursor.fetchone)

    def fetchmany(self, size: int = 0) -> Any:
        return self._bridge.wait(self._cursor.fetchmany, size)

    def fetchall(self) -> Any:
        return self._bridge.wait(self._cursor.fetchall)

    def close(self) -> None:
        """A closed cursor is told by the connection alone, which is not ours to end: let it go."""
