"""Where the databases differ: the clock, the arithmetic of time, taking rows, and inserting at most once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.errors import KeyContended
from dumbwaiter.store import patience
from dumbwaiter.store.tables import Tables
from dumbwaiter.store.types import Id, Json, Timestamp, sortable

Instant = datetime | sa.ColumnElement[Any]
# How long, in seconds, an enqueue waits for whoever holds its key in an open transaction.
PATIENCE = 5.0
STAYED_LOCKED = (
    f"the key stayed locked for {PATIENCE:.0f} s by another transaction that enqueued it and has not ended; "
    "commit soon after an enqueue, then try again"
)
POSTGRESQL_LOCKED = "55P03"
MYSQL_LOCKED = 1205
DUPLICATE = 1062  # on MySQL
# made once: every statement has one
STATEMENT_TIMESTAMP = sa.func.statement_timestamp(type_=Timestamp)
UTC_TIMESTAMP = sa.func.utc_timestamp(sa.literal_column("6"), type_=Timestamp)


def moved(instant: Instant, by: timedelta, dialect: Dialect) -> Instant:
    """An instant moved by a fixed duration: in Python where it is a value, by the database where it is an expression."""
    if isinstance(instant, datetime):
        return instant + by
    moved_by: Instant = dialect.after(instant, by.total_seconds())
    return moved_by


class Dialect:
    """What the statements ask of a database. One subclass for each kind."""

    name = ""
    # True if UPDATE … RETURNING gives the new row in one statement
    returning = True
    # True if a look at part of an index ends where that part does, and does not step over what is dead beyond
    ends_looks = False

    def now(self) -> Instant:
        """The database's clock, constant within one statement."""
        raise NotImplementedError

    def after(self, instant: Instant, seconds: Any) -> Any:
        """The instant so many seconds (a number or a column) later."""
        raise NotImplementedError

    def running(self, tasks: sa.Table) -> tuple[sa.ColumnElement[bool], ...]:
        """What else to say of a worker's running tasks, so that the right index serves the search."""
        return (tasks.c.heartbeat_at.is_not(None),)

    def insert_once(self, connection: Connection, table: sa.Table, values: dict[str, Any]) -> bool:
        """Insert a row unless its `active_key` or `request_key` is taken. False if it is; the transaction lives on."""
        raise NotImplementedError

    def inserting_one(
        self, tables: Tables, row: dict[str, Any], driver: sa.Dialect, *, telling: bool
    ) -> Sequence[sa.Executable]:
        """What inserts a row of the tasks, of which the last statement gives back `created_at`; nothing if it is there.

        `telling`: it also says so to the workers that listen, where they can.
        """
        raise NotImplementedError

    @contextlib.contextmanager
    def guarding(self, connection: Connection, key: str | None) -> Iterator[None]:
        """Hold other enqueues of this key off around a transaction, where the insert itself cannot."""
        yield

    def one_at_a_time(self, connection: Connection, key: str) -> None:
        """Let no other transaction of this key go on before this one ends, where `guarding` and the write lock do not."""

    @contextlib.contextmanager
    def patient(self, connection: Connection, *, own: bool) -> Iterator[None]:
        """Wait for somebody's open transaction no longer than PATIENCE, then raise KeyContended.

        If the connection is not our `own`, its transaction lives on and keeps its settings.
        """
        yield

    def unindexed(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """The column in a form that no index serves, where the planner would otherwise miss the primary key."""
        return column

    def among(self, column: sa.ColumnElement[Any], chosen: sa.Select[Any]) -> sa.ColumnElement[bool]:
        """The column has one of the few values that were chosen, and is looked up by its index."""
        return column.in_(chosen)

    # a table made of parameters, pairs of an id and a text: of one, as JSON, unless a dialect says otherwise
    pairs = ""

    def given(self) -> sa.Subquery:
        """Rows of an id and a body (JSON text) as something to select from; `carrying` makes the parameters that they are."""
        return sa.text(self.pairs).columns(id=Id, body=Json).subquery("given")

    def carrying(self, rows: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
        """The parameters of a statement that selects from `given`."""
        return {"pairs": json.dumps(rows, ensure_ascii=False)}

    def notify(self, connection: Connection, channel: str, queue: str) -> None:
        """Wake the workers that listen, once the transaction commits."""


class PostgreSQL(Dialect):
    name = "postgresql"
    ends_looks = True
    # arrays, which the server reads at once, rather than JSON
    pairs = "SELECT id, body FROM unnest(CAST(:ids AS uuid[]), CAST(:bodies AS text[])) AS pairs (id, body)"

    def now(self) -> Instant:
        # not now(), which stands still through a transaction; and not clock_timestamp(), which is volatile, so that no
        # index could serve a comparison with it
        return STATEMENT_TIMESTAMP

    def after(self, instant: Instant, seconds: Any) -> Any:
        interval = sa.func.make_interval(0, 0, 0, 0, 0, 0, sa.cast(seconds, sa.Double))
        start = sa.literal(instant, Timestamp) if isinstance(instant, datetime) else instant
        return sa.type_coerce(sa.cast(start, sa.DateTime(timezone=True)) + interval, Timestamp)

    def insert_once(self, connection: Connection, table: sa.Table, values: dict[str, Any]) -> bool:
        from sqlalchemy.dialects import postgresql

        # DO NOTHING, never DO UPDATE: that would lock the active row to the end of the caller's transaction and with it
        # the finish of that task
        statement = postgresql.insert(table).values(values).on_conflict_do_nothing().returning(table.c.id)
        return connection.execute(statement).first() is not None

    def inserting_one(
        self, tables: Tables, row: dict[str, Any], driver: sa.Dialect, *, telling: bool
    ) -> Sequence[sa.Executable]:
        from sqlalchemy.dialects import postgresql

        tasks = tables.tasks
        insert = postgresql.insert(tasks).values(row).on_conflict_do_nothing()
        if not telling:
            return [insert.returning(tasks.c.created_at)]
        made = insert.returning(tasks.c.created_at, tasks.c.queue).cte("made")
        # the channel is ours and never changes, so it is no parameter
        told = sa.func.pg_notify(sa.literal_column(f"'{tables.channel}'"), made.c.queue)
        return [sa.select(made.c.created_at, told)]

    def one_at_a_time(self, connection: Connection, key: str) -> None:
        number = int.from_bytes(bytes.fromhex(key[:16]), signed=True)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.literal(number, sa.BigInteger))))

    @contextlib.contextmanager
    def patient(self, connection: Connection, *, own: bool) -> Iterator[None]:
        if own:
            connection.execute(lock_timeout(f"{PATIENCE:.0f}s"))
            with contended(POSTGRESQL_LOCKED), patience.allowing(PATIENCE + 1):
                yield
            return
        if getattr(connection.connection.driver_connection, "autocommit", False):
            yield  # there is no transaction to keep, nor to wait with
            return
        before = connection.execute(sa.select(sa.func.current_setting("lock_timeout"))).scalar()
        # an error ends a PostgreSQL transaction, unless it happened within a savepoint
        with contended(POSTGRESQL_LOCKED), connection.begin_nested():
            connection.execute(lock_timeout(f"{PATIENCE:.0f}s"))
            yield
            connection.execute(lock_timeout(str(before)))

    def among(self, column: sa.ColumnElement[Any], chosen: sa.Select[Any]) -> sa.ColumnElement[bool]:
        # The planner expects a tenth of all that is ready of a LIMIT whose value it does not know, and so hashed the whole
        # table (20,000 rows, 5 ms) for a join with what was chosen. Of an array it expects ten elements, whatever they are.
        return column == sa.any_(sa.func.array(chosen.scalar_subquery()))

    def carrying(self, rows: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
        return {"ids": array([id_ for id_, _ in rows]), "bodies": array([body for _, body in rows])}

    def notify(self, connection: Connection, channel: str, queue: str) -> None:
        connection.execute(sa.select(sa.func.pg_notify(channel, queue)))


class SQLite(Dialect):
    name = "sqlite"
    pairs = (
        "SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS body FROM json_each(:pairs)"
    )

    def now(self) -> Instant:
        # SQLite's own clock is this host's too, but has milliseconds only, and unixepoch('subsec') gives NULL on 3.40
        return datetime.now(UTC)

    def after(self, instant: Instant, seconds: Any) -> Any:
        if isinstance(instant, datetime) and isinstance(seconds, int | float):
            return instant + timedelta(seconds=seconds)
        start = sortable(instant) if isinstance(instant, datetime) else instant
        # julian-day arithmetic keeps milliseconds; padded to the six digits that every stored instant has
        moved_text = sa.func.strftime(
            "%Y-%m-%dT%H:%M:%f", start, sa.cast(seconds, sa.String).concat(" seconds")
        )
        return sa.type_coerce(moved_text.concat("000Z"), Timestamp)

    def insert_once(self, connection: Connection, table: sa.Table, values: dict[str, Any]) -> bool:
        from sqlalchemy.dialects import sqlite

        statement = sqlite.insert(table).values(values).on_conflict_do_nothing().returning(table.c.id)
        return connection.execute(statement).first() is not None

    def inserting_one(
        self, tables: Tables, row: dict[str, Any], driver: sa.Dialect, *, telling: bool
    ) -> Sequence[sa.Executable]:
        from sqlalchemy.dialects import sqlite

        tasks = tables.tasks
        return [sqlite.insert(tasks).values(row).on_conflict_do_nothing().returning(tasks.c.created_at)]


class MySQL(Dialect):
    """MySQL 8 and MariaDB 10.6 and later."""

    name = "mysql"
    returning = False
    # the id in the character set of the column, which otherwise would be converted row by row, without its index
    pairs = (
        "SELECT id, body FROM JSON_TABLE(:pairs, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', "
        "body LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]')) AS pairs"
    )

    def now(self) -> Instant:
        # NOW() follows the session's time zone, UTC_TIMESTAMP does not
        return UTC_TIMESTAMP

    def after(self, instant: Instant, seconds: Any) -> Any:
        start = sa.literal(instant, Timestamp) if isinstance(instant, datetime) else instant
        microseconds = sa.func.round(seconds * 1_000_000)
        return sa.func.timestampadd(sa.text("MICROSECOND"), microseconds, start, type_=Timestamp)

    def unindexed(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        # joined with a hundred ids MariaDB took all running rows, and locked them, rather than those of the ids
        return sa.func.concat(column, type_=column.type)

    def running(self, tasks: sa.Table) -> tuple[sa.ColumnElement[bool], ...]:
        # nothing: InnoDB locks every row that it scans, and by heartbeat_at that would be everybody's
        return ()

    def insert_once(self, connection: Connection, table: sa.Table, values: dict[str, Any]) -> bool:
        # a plain INSERT that catches 1062: INSERT IGNORE and ON DUPLICATE KEY end in deadlock storms while tasks finish
        # (2,900 in 100 rounds of 50 processes), and IGNORE turns NULL into ''. 1062 undoes the statement only.
        try:
            connection.execute(sa.insert(table).values(values))
        except sa.exc.IntegrityError as error:
            if mysql_error(error) == DUPLICATE:
                return False
            raise
        return True

    def inserting_one(
        self, tables: Tables, row: dict[str, Any], driver: sa.Dialect, *, telling: bool
    ) -> Sequence[sa.Executable]:
        tasks = tables.tasks
        insert = sa.insert(tasks).values(row)
        if driver.insert_returning:  # MariaDB
            return [insert.returning(tasks.c.created_at)]
        return [insert, sa.select(tasks.c.created_at).where(tasks.c.id == row["id"])]

    @contextlib.contextmanager
    def guarding(self, connection: Connection, key: str | None) -> Iterator[None]:
        # without it racing enqueues of one key deadlock while tasks finish (9 to 5,000 times in 100 rounds). On the
        # connection that inserts: with one of their own, as many threads as the pool is large would wait for each other
        if key is None:
            yield
            return
        name = f"dw:{key[:56]}"  # lock names have at most 64 characters on MySQL
        with patience.allowing(PATIENCE + 1):
            taken = connection.execute(sa.select(sa.func.get_lock(name, PATIENCE))).scalar()
        connection.commit()
        if taken != 1:
            raise KeyContended(STAYED_LOCKED)
        try:
            yield
        finally:
            # a connection that broke has given the lock back already
            with contextlib.suppress(sa.exc.DBAPIError, sa.exc.PendingRollbackError):
                connection.execute(sa.select(sa.func.release_lock(name)))
                connection.commit()

    @contextlib.contextmanager
    def patient(self, connection: Connection, *, own: bool) -> Iterator[None]:
        if own:  # our connections have this timeout always
            with contended(MYSQL_LOCKED), patience.allowing(PATIENCE + 1):
                yield
            return
        before = connection.execute(sa.text("SELECT @@innodb_lock_wait_timeout")).scalar()
        connection.execute(sa.text(f"SET innodb_lock_wait_timeout = {PATIENCE:.0f}"))
        try:
            with contended(MYSQL_LOCKED):  # it undoes the statement only
                yield
        finally:
            with contextlib.suppress(sa.exc.DBAPIError, sa.exc.PendingRollbackError):
                connection.execute(sa.text(f"SET innodb_lock_wait_timeout = {before}"))


@contextlib.contextmanager
def contended(code: int | str) -> Iterator[None]:
    """A lock that was waited for in vain is told by name."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        if code in (mysql_error(error), getattr(error.orig, "sqlstate", None)):
            raise KeyContended(STAYED_LOCKED) from error
        raise


def array(texts: Sequence[str | None]) -> str:
    """An array as PostgreSQL reads it; the driver, which looks at each text by regular expressions, takes four times as long."""
    quoted = (
        "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for text in texts
    )
    return "{" + ",".join(quoted) + "}"


def lock_timeout(text: str) -> sa.Select[Any]:
    """Set it to the end of the transaction (or back to what it was before the savepoint)."""
    return sa.select(sa.func.set_config("lock_timeout", text, sa.true()))


def mysql_error(error: BaseException) -> int | None:
    """The number of a MySQL error."""
    args = getattr(getattr(error, "orig", None), "args", ())
    return args[0] if args and isinstance(args[0], int) else None


DIALECTS: dict[str, type[Dialect]] = {
    "postgresql": PostgreSQL,
    "sqlite": SQLite,
    "mysql": MySQL,
    "mariadb": MySQL,
}
