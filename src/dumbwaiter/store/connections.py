"""Connections to the task's database: its own pool, and the caller's connection with the caller's transaction."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import itertools
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from dumbwaiter.errors import ConfigurationError, DatabaseUnavailable, InvalidOption, MissingExtra
from dumbwaiter.store import bulk, impatient, patience
from dumbwaiter.store.dialects import DIALECTS, Dialect, mysql_error
from dumbwaiter.store.pooling import PatientPool
from dumbwaiter.store.prepared import Alone, Prepared
from dumbwaiter.store.types import from_text
from dumbwaiter.store.watchdog import WATCHDOG

T = TypeVar("T")
# Of a worker that serves whatever queue there is, names may come and go.
MOST_PREPARED = 1_000
READING = "dumbwaiter_reading"
# deadlock, lock wait timeout; serialization failure, deadlock detected
MYSQL_AGAIN = frozenset({1213, 1205})
# and: lock not available, which is a lock wait timeout too
POSTGRESQL_AGAIN = frozenset({"40001", "40P01", "55P03"})
# a server that became a standby, or is set to read only: it may take writes again, or another one will
READ_ONLY = frozenset({"25006", 1290, 1792, 1836})
# PyMySQL calls every error that it does not know "operational": unknown column, out of range, not a character of this set,
# too long, and constraints (MySQL's number, MariaDB's number)
STATEMENT_AT_FAULT = frozenset({1054, 1264, 1366, 1406, 3819, 4025})
TRIES = 10
# A lock wait takes up to 5 s, so the tries have a time limit as well.
LOCK_WAIT = 5
LONGEST = 10.0
# Each of our statements has an index. But a plan that was made for an empty table reads all of it, and a prepared statement
# keeps its plan until the table is analysed, a minute later and 100,000 rows larger. (Statements that are planned anew each
# time, as behind a pooler, need none of this.) And no statement of ours is worth compiling: JIT takes 100 ms.
BY_INDEX = " -c enable_seqscan=off -c enable_bitmapscan=off -c jit=off"
SQLITE_PATIENCE = 60.0
# A pooled connection that was asked something so recently is alive, unless it has been ended since. A duty comes back to its
# connection every few seconds, so a ping would double its statements; and if the connection has fallen silent, a ping is
# waited for as long as a statement is.
FRESH_FOR_REQUESTS = 1.0
FRESH_FOR_DUTIES = 15.0
BUSY_TIMEOUT = 30_000


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
        try:
            turn.wait()
        except BaseException:  # KeyboardInterrupt, or an exception set from another thread
            self._leave(turn)
            raise

    def __exit__(self, *_: object) -> None:
        self._hand_over()

    def _leave(self, turn: threading.Event) -> None:
        """Whoever stops waiting must not be handed the lock; nobody would give it back."""
        with self._lock:
            if not turn.is_set():
                self._waiting.remove(turn)
                return
        self._hand_over()

    def _hand_over(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()  # still held: handed over
            else:
                self._held = False


def first_row(cursor: Any) -> Any:
    return cursor.fetchone()


def all_rows(cursor: Any) -> Sequence[Sequence[Any]]:
    rows: Sequence[Sequence[Any]] = cursor.fetchall()
    return rows


def row_count(cursor: Any) -> int:
    return int(cursor.rowcount)


class Use(Enum):
    """What connections are for. Each has a pool of its own, so that a flood of requests holds up no duty and no end.

    The value is (size, overflow): how many connections a process keeps for it, and how many more it may open meanwhile. A
    statement takes a millisecond or two, so few serve many; but requests for one contended key each hold theirs while they wait
    for it, and a connection of user code's own transaction is held as long as that code likes.
    """

    DUTIES = (3, 0)
    REQUESTS = (5, 15)
    USER_CODE = (5, 20)


class Connections:
    """The pools of one database, and how its transactions begin, commit and are tried again."""

    def __init__(self, address: str, *, pgbouncer: bool = False, request: float = 4.0) -> None:
        self.url = normal_url(address)
        self.pgbouncer = pgbouncer
        self.dialect: Dialect = DIALECTS[self.url.get_backend_name()]()
        self._request = request
        self._writers = FairLock()
        self._making = threading.Lock()
        self._engines: dict[Use, Engine] = {}
        self._readers: dict[Engine, Engine] = {}
        self._prepared: dict[Hashable, Sequence[Prepared]] = {}
        FORKED.add(self)

    @property
    def engine(self) -> Engine:
        """The pool for whoever asks: a request, or a duty."""
        return self._engine(Use.REQUESTS if patience.hurried() else Use.DUTIES)

    @property
    def unhurried_engine(self) -> Engine:
        """For user code's transactions: their statements take as long as they need, and leave our pools to us."""
        return self._engine(Use.USER_CODE)

    def _engine(self, use: Use) -> Engine:
        if self.dialect.name == "sqlite":
            use = (
                Use.DUTIES
            )  # a file falls silent for nobody, and has one write lock however many pools there are
        if use not in self._engines:
            with self._making:
                if use not in self._engines:
                    self._engines[use] = self._made(use)
        return self._engines[use]

    def _made(self, use: Use) -> Engine:
        if self.dialect.name == "sqlite":
            return sqlite_engine(self.url)
        size, overflow = use.value
        how: dict[str, Any] = {
            "poolclass": PatientPool,
            "pool_size": size,
            "max_overflow": overflow,
            "pool_pre_ping": True,
        }
        if use is Use.REQUESTS:
            how["pool_timeout"] = self._request
        limited = use is not Use.USER_CODE
        if self.dialect.name == "postgresql":
            engine = postgresql_engine(self.url, pgbouncer=self.pgbouncer, limited=limited, **how)
        else:
            engine = mysql_engine(self.url, limited=limited, **how)
        sa.event.listen(engine, "handle_error", drop_read_only)
        if limited:
            sa.event.listen(engine, "begin", begin)
            ping_rarely(engine, briefly=use is Use.REQUESTS)
        return engine

    @contextlib.contextmanager
    def for_a_request(self) -> Iterator[None]:
        """Somebody waits for what is asked in the block: it is answered or given up within the time for requests."""
        with patience.within(self._request):
            yield

    @contextlib.contextmanager
    def unhurried(self) -> Iterator[Connection]:
        """A connection whose statements may take as long as they need, such as an index on a large table."""
        engine = self._made(Use.USER_CODE)
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection on which each statement stands alone."""
        with told(), self._reader(self.engine).connect() as connection:
            yield connection

    def _reader(self, engine: Engine) -> Engine:
        """The same pool, for connections on which no transaction is begun."""
        reader = self._readers.get(engine)
        if reader is None:
            reader = self._readers[engine] = engine.execution_options(**{READING: True})
        return reader

    @contextlib.contextmanager
    def writing(self, key: str | None = None, *, engine: Engine | None = None) -> Iterator[Connection]:
        """A connection in a transaction that commits at the end of the block and rolls back on an error.

        With a `key`, other transactions with that key are held off where the database needs it.
        """
        self._refuse_to_wait_for_oneself()
        queue = self._writers if self.dialect.name == "sqlite" else contextlib.nullcontext()
        guarding = self.dialect.guarding
        with (
            told(),
            queue,
            (engine or self.engine).connect() as connection,
            guarding(connection, key),
            connection.begin(),
        ):
            yield connection

    @contextlib.contextmanager
    def occupied(self) -> Iterator[None]:
        """Around a transaction in which user code runs: what that code starts must not wait for the same transaction's end."""
        before = OCCUPIED.set((*OCCUPIED.get(), self))
        try:
            yield
        finally:
            OCCUPIED.reset(before)

    def _refuse_to_wait_for_oneself(self) -> None:
        if self.dialect.name == "sqlite" and self in OCCUPIED.get():
            raise InvalidOption(
                "inside ctx.transaction() SQLite's one write lock is taken: pass the connection that it gave, "
                "connection=…, or write after it"
            )

    @contextlib.contextmanager
    def single(self) -> Iterator[Connection]:
        """A connection for one writing statement: without BEGIN and COMMIT, which cost as much again as the statement."""
        with self.writing() if self.dialect.name == "sqlite" else self.reading() as connection:
            yield connection

    def execute_alone(self, alone: Alone, fetch: Callable[[Any], T]) -> T:
        """Write with statements that commit by themselves, on the bare driver: what `fetch` takes of the last one's cursor.

        For what is asked thousands of times a second: SQLAlchemy's own way from a statement to its result takes three times
        as long as the driver's.
        """
        engine = self.engine
        transaction = self._file_alone if self.dialect.name == "sqlite" else contextlib.nullcontext
        with told(), self._driving(engine) as connection, transaction(connection):
            in_bulk = alone.in_bulk and self.dialect.name == "postgresql" and WATCHDOG.awake
            cursor = connection.cursor()
            for one in self._prepared_for(alone):
                parameters: Any = one.parameters(alone.values)
                for listener in engine.dispatch.before_cursor_execute:
                    listener(None, cursor, one.text, parameters, None, False)
                if in_bulk:
                    text, names = one.numbered
                    cursor = bulk.ask(connection, text, [parameters[name] for name in names])
                else:
                    cursor.execute(one.text, parameters)
            found = fetch(cursor)
            cursor.close()
            return found

    def _prepared_for(self, alone: Alone) -> Sequence[Prepared]:
        prepared = self._prepared.get(alone.form)
        if prepared is None:
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.clear()
            driver = self.engine.dialect
            made = alone.statements(driver)
            prepared = self._prepared[alone.form] = [Prepared(one, driver) for one in made]
        return prepared

    def instant(self, found: Any) -> datetime:
        """An instant in a row that the bare driver gave."""
        instant: datetime = from_text(found)
        return instant

    @contextlib.contextmanager
    def _driving(self, engine: Engine) -> Iterator[Any]:
        """A driver's connection from the pool; what it raises is told as SQLAlchemy would."""
        mistaken = engine.dialect.loaded_dbapi.Error
        try:
            pooled = engine.raw_connection()
        except mistaken as error:
            raise wrapped(engine, error) from error
        try:
            yield pooled.driver_connection
        except mistaken as error:
            raised = wrapped(engine, error, pooled.driver_connection)
            if raised.connection_invalidated:
                # SQLAlchemy's own: all that are older go too, those in use when they come back
                engine.pool._invalidate(pooled, error)
            raise raised from error
        except BaseException:
            pooled.invalidate()  # in the middle of an answer, perhaps
            raise
        finally:
            pooled.close()

    @contextlib.contextmanager
    def _file_alone(self, connection: Any) -> Iterator[None]:
        """SQLite's own waiting for its write lock is not fair; see `begin_immediate`."""
        self._refuse_to_wait_for_oneself()
        with self._writers:
            begin_immediate(connection)
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise

    def again(
        self,
        work: Callable[[Connection], T],
        *,
        single: bool = False,
        key: str | None = None,
        tries: int = TRIES,
    ) -> T:
        """Do work in a transaction of its own; if the database undid it for a deadlock or the like, do it again.

        Raises Undone if it was undone too often.
        """

        def once() -> T:
            with self.single() if single else self.writing(key) as connection:
                return work(connection)

        return repeated(once, tries)

    def bare(self) -> tuple[str, dict[str, Any]]:
        """The driver's module and the arguments of its `connect`, for a process that imports nothing but the driver."""
        if self.dialect.name == "sqlite":
            return "sqlite3", {"database": str(Path(str(self.url.database)).absolute()), "timeout": 30}
        _, arguments = self.engine.dialect.create_connect_args(self.url)
        if self.dialect.name == "postgresql":
            # SQLAlchemy hands over its adapters too: an object of this process
            plain = {name: value for name, value in arguments.items() if name != "context"}
            return "psycopg", plain | {"connect_timeout": int(patience.CONNECT)}
        # under REPEATABLE READ the beat of one worker would wait for every running row that another one is writing
        start = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
        return "pymysql", dict(arguments) | {
            "connect_timeout": int(patience.CONNECT),
            "init_command": start,
        }

    def close(self) -> None:
        for engine in list(self._engines.values()):
            engine.dispose()

    def forget_parent(self) -> None:
        """After a fork: the parent's connections stay the parent's, and so do the locks its threads held."""
        self._writers = FairLock()
        self._making = threading.Lock()
        for engine in self._engines.values():
            engine.dispose(close=False)


def repeated(work: Callable[[], T], tries: int = TRIES) -> T:
    """Do work, and again if the database undid it for a deadlock or the like. Raises Undone if it was undone too often."""
    give_up = time.monotonic() + LONGEST
    for number in itertools.count(1):
        try:
            return work()
        except sa.exc.DBAPIError as error:
            if not worth_another_try(error):
                raise
            if number >= tries or time.monotonic() > give_up:
                raise Undone(
                    f"the database undid a transaction {number} times, for locks that others held: "
                    f"{first_line(error.orig)}"
                ) from error
        # without a jittered pause the same ones meet again: 5,122 deadlocks in 60 rounds were measured
        time.sleep(random.uniform(0, 0.003) * number)
    raise AssertionError("unreachable")


# Whose transactions the code at hand runs in; a thread that asyncio.to_thread starts inherits it.
OCCUPIED: contextvars.ContextVar[tuple[Connections, ...]] = contextvars.ContextVar("OCCUPIED", default=())


class Undone(DatabaseUnavailable):
    """The database undid a transaction again and again because others held its locks."""


FORKED: weakref.WeakSet[Connections] = weakref.WeakSet()


def forget_parents() -> None:
    for connections in list(FORKED):
        connections.forget_parent()


os.register_at_fork(after_in_child=forget_parents)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """A database that cannot be reached is told apart from a statement that it refused."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        if unusable(error) or mend(error):
            raise DatabaseUnavailable(
                f"the database cannot be used: {first_line(error.orig)}{mend(error)}"
            ) from error
        raise
    except sa.exc.TimeoutError as error:
        raise DatabaseUnavailable(
            f"no connection to the database was free in time: {first_line(error)}"
        ) from error


def unusable(error: sa.exc.DBAPIError) -> bool:
    """It is the database's state, not the statement, that made it fail."""
    if error.connection_invalidated or read_only(error):
        return True
    if mysql_error(error) in STATEMENT_AT_FAULT or worth_another_try(error):
        return False
    return isinstance(error, sa.exc.OperationalError)


def mend(error: sa.exc.DBAPIError) -> str:
    """What to do about a database that is none, or is not there."""
    said = first_line(error.orig)
    if said == "file is not a database":
        return "; it is another program's or damaged: name another one, DUMBWAITER_DATABASE=sqlite:///path/to/tasks.db"
    # psycopg gives no code (3D000) for what a server says while it is connected to
    missing = code(error) == "3D000" or ("FATAL" in said and "database" in said and "does not exist" in said)
    if missing or mysql_error(error) == 1049:
        return "; Dumbwaiter creates tables but no database: create it (CREATE DATABASE …), then run `dumbwaiter migrate`"
    return ""


def dropped(error: DatabaseUnavailable) -> bool:
    """The connection is gone; a new one may lead to a server that does better."""
    cause = error.__cause__
    return isinstance(cause, sa.exc.DBAPIError) and cause.connection_invalidated


def broke(error: DatabaseUnavailable) -> bool:
    """The connection was lost under way: nobody knows whether the last statement, or the commit, came through."""
    cause = error.__cause__
    return isinstance(cause, sa.exc.DBAPIError) and cause.connection_invalidated and not read_only(cause)


def read_only(error: sa.exc.DBAPIError) -> bool:
    """The server takes no writes: it became a standby, or was set so."""
    return not READ_ONLY.isdisjoint((code(error), mysql_error(error)))


def wrapped(engine: Engine, error: Exception, connection: Any = None) -> sa.exc.DBAPIError:
    """A driver's error as SQLAlchemy would have raised it."""
    dialect = engine.dialect
    raised = sa.exc.DBAPIError.instance(None, None, error, dialect.loaded_dbapi.Error, dialect=dialect)
    assert isinstance(raised, sa.exc.DBAPIError)
    gone = connection is not None and dialect.is_disconnect(error, connection, None)  # type: ignore[arg-type]
    raised.connection_invalidated = gone or read_only(raised)
    return raised


def drop_read_only(context: sa.engine.ExceptionContext) -> None:
    """Drop a connection to a server that takes no writes any more, and all that are idle.

    A new one may reach the server that took over, and an old session may stay read-only when its server is not any more.
    """
    said = context.sqlalchemy_exception
    if isinstance(said, sa.exc.DBAPIError) and read_only(said):
        context.is_disconnect = True


def code(error: sa.exc.DBAPIError) -> str | None:
    """PostgreSQL's code of an error."""
    return getattr(error.orig, "sqlstate", None)


def first_line(error: BaseException | None) -> str:
    text = " ".join(str(part) for part in error.args) if error is not None else ""
    return text.strip().splitlines()[0][:300] if text.strip() else type(error).__name__


def worth_another_try(error: sa.exc.DBAPIError) -> bool:
    """The database undid a transaction that would pass alone."""
    return mysql_error(error) in MYSQL_AGAIN or code(error) in POSTGRESQL_AGAIN


def normal_url(address: str) -> URL:
    """The address with our drivers: `postgresql://` means psycopg, `mysql://` and `mariadb://` PyMySQL."""
    try:
        url = sa.make_url(address)
    except (sa.exc.ArgumentError, ValueError):
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
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT}")
        use_wal(connection)
        for pragma in (
            "synchronous = NORMAL",
            "foreign_keys = ON",
            # without it the -wal file keeps the size of its worst day
            "journal_size_limit = 8388608",
        ):
            connection.execute(f"PRAGMA {pragma}")

    sa.event.listen(engine, "begin", begin)
    return engine


def begin(connection: Connection) -> None:
    """Begin a transaction, on drivers that begin none by themselves.

    A driver that does so for whatever is sent next has to be told before a statement that stands alone, and again after it:
    PyMySQL tells the server each time, which is four round trips for one statement.
    """
    if connection.get_execution_options().get(READING):
        return
    engine, driver = connection.engine, connection.connection.driver_connection
    assert driver is not None
    try:
        if connection.dialect.name == "sqlite":
            # SQLite ignores FOR UPDATE: take the write lock before reading
            begin_immediate(driver)
        else:
            driver.cursor().execute("BEGIN")
    except engine.dialect.loaded_dbapi.Error as error:
        raised = wrapped(engine, error, driver)
        if raised.connection_invalidated:
            engine.pool._invalidate(connection.connection, error)
            connection.invalidate(error)
        raise raised from error


def begin_immediate(connection: Any) -> None:
    """Begin a transaction with SQLite's one write lock. Raises DatabaseUnavailable if it stays taken for a minute.

    SQLite's own waiting looks ten times a second: beside a program that writes without a pause (3 ms in each transaction,
    none between them) sixteen writers on two busy cores met no gap in 30 s. So we look some 400 times a second.
    """
    give_up = time.monotonic() + SQLITE_PATIENCE
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise DatabaseUnavailable(f"the database cannot be used: {first_line(error)}") from error
                if time.monotonic() > give_up:
                    raise DatabaseUnavailable(
                        f"another program kept the SQLite file locked for {SQLITE_PATIENCE:.0f} s; its transactions must be short"
                    ) from error
            time.sleep(random.uniform(0.001, 0.004))
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT}")


def use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to write-ahead logging. The switch does not wait for locks as other statements do, so we do."""
    give_up = time.monotonic() + 30
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
        time.sleep(random.uniform(0.001, 0.02))


def postgresql_engine(url: URL, *, pgbouncer: bool, limited: bool, **how: Any) -> Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtra("psycopg", "postgresql") from None
    connect: dict[str, Any] = {"application_name": "dumbwaiter"}
    if limited:
        connect["autocommit"] = True  # transactions are begun by us
    else:
        connect["connect_timeout"] = int(patience.CONNECT)
    if pgbouncer:
        # in transaction mode the next statement may meet another server connection, which knows no prepared statements
        connect["prepare_threshold"] = None
    else:
        # one row that somebody's open transaction holds must not stop a worker; a pooler refuses such options
        ours = f"-c lock_timeout={LOCK_WAIT}s"
        if limited:
            # instants come as they are wanted: to change the zone of one takes as long as to read it
            ours += f" -c idle_in_transaction_session_timeout={patience.ORPHANED}s -c timezone=UTC{BY_INDEX}"
        connect["options"] = with_option(url, ours)
    # nothing of ours is an hstore, and to look for the type takes a transaction
    engine = sa.create_engine(url, connect_args=connect, use_native_hstore=False, **how)
    sa.event.listen(engine, "connect", read_ids_as_text)
    if limited:
        sa.event.listen(engine, "do_connect", connect_postgresql)
    return engine


def read_ids_as_text(connection: Any, _record: Any) -> None:
    """An id is text to us, and to make a UUID of it and a text of that takes longer than to read the rest of its row."""
    from psycopg.types.string import TextLoader

    connection.adapters.register_loader("uuid", TextLoader)


def connect_postgresql(_dialect: Any, _record: Any, arguments: Any, named: Any) -> Any:
    return impatient.postgresql().connect(
        *arguments, **{"connect_timeout": max(2, int(worth_connecting()))} | named
    )


def worth_connecting() -> float:
    """How long a new connection may take to make. Raises DatabaseUnavailable if there is no time left for one."""
    left = patience.left(patience.CONNECT)
    if left < patience.LEAST:
        raise DatabaseUnavailable("the database has not answered in time")
    return left


def ping_rarely(engine: Engine, *, briefly: bool) -> None:
    """Ask a pooled connection whether it lives only if nobody has used it for a while, or it has something to say.

    Every ping is a round trip, as long as many a statement. A server that ends a connection is heard without it, and one that
    fell silent a moment ago is silent for a ping too.

    `briefly`: give it up while there is still time to make another one.
    """
    ping = engine.dialect.do_ping

    def ask(connection: Any) -> bool:
        if impatient.fresh(connection, FRESH_FOR_REQUESTS if briefly else FRESH_FOR_DUTIES):
            return True
        with patience.within(patience.PING) if briefly else contextlib.nullcontext():
            return ping(connection)

    engine.dialect.do_ping = ask  # type: ignore[method-assign, assignment]


def with_option(url: URL, option: str) -> str:
    """These options, and those in the address, which win."""
    given = url.query.get("options", "")
    return f"{option} {given if isinstance(given, str) else ' '.join(given)}".strip()


def mysql_engine(url: URL, *, limited: bool, **how: Any) -> Engine:
    try:
        import pymysql  # noqa: F401
    except ImportError:
        raise MissingExtra("pymysql", "mysql") from None
    start = (
        f"SET time_zone = '+00:00', innodb_lock_wait_timeout = {LOCK_WAIT}, "
        "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'"
    )
    if limited:
        # to MySQL, which has nothing of the kind, this is a comment
        start += f" /*M! , idle_transaction_timeout = {patience.ORPHANED} */"
    # under REPEATABLE READ a SKIP LOCKED select locks gaps, and claimers stand in each other's way
    level = "READ COMMITTED"
    if not limited:
        return sa.create_engine(
            url, connect_args={"init_command": start}, isolation_level=level, pool_recycle=3600, **how
        )
    # each statement commits by itself unless we began a transaction; SQLAlchemy's own isolation level would end that
    engine = sa.create_engine(
        url, connect_args={"init_command": start, "autocommit": True}, pool_recycle=3600, **how
    )
    sa.event.listen(engine, "do_connect", connect_mysql)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")

    return engine


def connect_mysql(_dialect: Any, _record: Any, arguments: Any, named: Any) -> Any:
    return impatient.mysql()(*arguments, **{"connect_timeout": worth_connecting()} | named)
