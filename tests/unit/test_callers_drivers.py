"""A task enqueued on a bare driver's connection, or by a statement that the caller executes, goes with the caller's data."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row
from sqlalchemy.orm import Session

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import DatabaseUnavailable, DuplicateTask, InvalidOption
from tests.support.databases import Database, Kind

Make = Callable[[str], Database]


def invoice(order: int) -> None: ...


def application(database: Database) -> Dumbwaiter:
    waiter = Dumbwaiter(database.url, env="test")
    waiter.migrate()
    waiter.task("invoice")(invoice)
    return waiter


@pytest.fixture
def waiter(database: Database) -> Iterator[Dumbwaiter]:
    waiter = application(database)
    yield waiter
    waiter.close()


def bare(waiter: Dumbwaiter, **how: Any) -> Any:
    """A connection of the bare driver, with the driver's defaults, and a table of the caller's own."""
    url = waiter.store.connections.url
    connection: Any
    match waiter.store.kind:
        case "sqlite":
            connection = sqlite3.connect(str(url.database), **how)
        case "postgresql":
            connection = psycopg.connect(dsn(waiter), **how)
        case _:
            connection = pymysql.connect(
                host=url.host, port=url.port or 3306, user=url.username, database=url.database, **how
            )
    run(connection, "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
    connection.commit()
    return connection


def dsn(waiter: Dumbwaiter) -> str:
    return waiter.store.connections.url.set(drivername="postgresql").render_as_string(hide_password=False)


def run(connection: Any, statement: str, parameters: Any = None) -> Any:
    cursor = connection.cursor()
    cursor.execute(*((statement,) if parameters is None else (statement, parameters)))
    return cursor


def order(connection: Any, number: int) -> None:
    run(connection, f"INSERT INTO orders (id) VALUES ({number})")


def orders(waiter: Dumbwaiter) -> list[int]:
    with waiter.store.connections.reading() as connection:
        return list(connection.execute(sa.text("SELECT id FROM orders ORDER BY id")).scalars())


def invoiced(waiter: Dumbwaiter) -> list[int]:
    return sorted(task.payload["order"] for task in waiter.find())


# connection=


@pytest.mark.parametrize("key", [None, "k"])
def test_a_task_on_a_bare_connection_commits_and_rolls_back_with_it(
    waiter: Dumbwaiter, key: str | None
) -> None:
    with contextlib.closing(bare(waiter)) as connection:
        order(connection, 1)
        waiter.enqueue("invoice", {"order": 1}, connection=connection, key=key)
        connection.rollback()
        assert (orders(waiter), invoiced(waiter)) == ([], [])

        order(connection, 2)
        task = waiter.enqueue("invoice", {"order": 2}, connection=connection, key=key)
        assert invoiced(waiter) == []
        connection.commit()

    assert (orders(waiter), waiter.get(task.id)) == ([2], task)


@pytest.mark.parametrize("key", [None, "k"])
def test_a_task_of_a_savepoint_on_a_bare_connection_goes_with_the_savepoint(
    waiter: Dumbwaiter, key: str | None
) -> None:
    with contextlib.closing(bare(waiter)) as connection:
        order(connection, 1)
        waiter.enqueue("invoice", {"order": 1}, connection=connection)
        run(connection, "SAVEPOINT inner_one")
        order(connection, 2)
        waiter.enqueue("invoice", {"order": 2}, connection=connection, key=key)
        run(connection, "ROLLBACK TO SAVEPOINT inner_one")
        connection.commit()

    assert (orders(waiter), invoiced(waiter)) == ([1], [1])


def test_a_key_that_is_taken_leaves_the_bare_connections_transaction_as_it_was(waiter: Dumbwaiter) -> None:
    holder = waiter.enqueue("invoice", {"order": 0}, key="k")
    with contextlib.closing(bare(waiter)) as connection:
        order(connection, 1)
        found = waiter.enqueue("invoice", {"order": 1}, connection=connection, key="k")
        with pytest.raises(DuplicateTask):
            waiter.enqueue("invoice", {"order": 1}, connection=connection, key="k", on_duplicate="reject")
        order(connection, 2)
        connection.commit()

    assert (found.id, orders(waiter), invoiced(waiter)) == (holder.id, [1, 2], [0])


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("sqlite", {"factory": type("Mine", (sqlite3.Connection,), {})}),
        pytest.param("postgresql", {"row_factory": dict_row}, marks=pytest.mark.service("postgresql")),
        pytest.param(
            "postgresql",
            {"cursor_factory": psycopg.RawCursor},
            marks=pytest.mark.service("postgresql"),
        ),
        pytest.param(
            "mysql", {"cursorclass": pymysql.cursors.DictCursor}, marks=pytest.mark.service("mysql")
        ),
    ],
    ids=["sqlite3.Row", "dict_row", "RawCursor", "DictCursor"],
)
def test_how_the_caller_likes_rows_does_not_matter(make_database: Make, kind: Kind, how: Any) -> None:
    waiter = application(make_database(kind))
    with contextlib.closing(bare(waiter, **how)) as connection:
        if kind == "sqlite":
            connection.row_factory = sqlite3.Row
        tasks = [
            waiter.enqueue("invoice", {"order": 1}, connection=connection, key="k", owner="o")
            for _ in range(2)
        ]
        connection.commit()

    assert {task.id for task in tasks} == {waiter.find()[0].id}
    waiter.close()


def test_a_sqlite_connection_that_commits_each_statement_enqueues_at_once(tmp_path: Path) -> None:
    waiter = application(Database("sqlite", f"sqlite:///{tmp_path}/tasks.db"))
    with contextlib.closing(bare(waiter, isolation_level=None)) as connection:
        waiter.enqueue("invoice", {"order": 1}, connection=connection)
        assert invoiced(waiter) == [1]
    waiter.close()


def test_a_sqlite_transaction_that_cannot_write_any_more_is_told_the_cure(tmp_path: Path) -> None:
    waiter = application(Database("sqlite", f"sqlite:///{tmp_path}/tasks.db"))
    with contextlib.closing(bare(waiter, isolation_level=None)) as connection:
        run(connection, "BEGIN")
        run(connection, "SELECT * FROM orders").fetchall()
        waiter.enqueue("invoice", {"order": 1})
        with pytest.raises(DatabaseUnavailable, match="BEGIN IMMEDIATE"):
            waiter.enqueue("invoice", {"order": 2}, connection=connection)
        connection.rollback()
    waiter.close()


def test_a_coroutine_may_give_a_connection_that_blocks(waiter: Dumbwaiter) -> None:
    with contextlib.closing(bare(waiter)) as connection:
        asyncio.run(waiter.aenqueue("invoice", {"order": 1}, connection=connection, key="k"))
        assert invoiced(waiter) == []
        connection.commit()

    assert invoiced(waiter) == [1]


# asynchronous psycopg


@pytest.mark.service("postgresql")
@pytest.mark.parametrize("key", [None, "k"])
def test_a_task_commits_and_rolls_back_with_an_asynchronous_psycopg_connection(
    make_database: Make, key: str | None
) -> None:
    waiter = application(make_database("postgresql"))

    async def story() -> list[int]:
        counts = []
        async with await psycopg.AsyncConnection.connect(dsn(waiter), row_factory=dict_row) as connection:
            await waiter.aenqueue("invoice", {"order": 1}, connection=connection, key=key)
            await connection.rollback()
            counts.append(len(waiter.find()))
            async with connection.transaction():
                await waiter.aenqueue("invoice", {"order": 2}, connection=connection, key=key)
                with contextlib.suppress(ZeroDivisionError):
                    async with connection.transaction():
                        await waiter.aenqueue("invoice", {"order": 3}, connection=connection)
                        raise ZeroDivisionError
                counts.append(len(waiter.find()))
            await connection.commit()
        return counts

    assert asyncio.run(story()) == [0, 0]
    assert invoiced(waiter) == [2]
    waiter.close()


@pytest.mark.service("postgresql")
def test_after_a_cancelled_enqueue_nothing_more_happens_on_the_callers_connection(
    make_database: Make,
) -> None:
    waiter = application(make_database("postgresql"))

    async def story() -> None:
        connect = psycopg.AsyncConnection.connect
        async with await connect(dsn(waiter)) as holder, await connect(dsn(waiter)) as connection:
            await waiter.aenqueue("invoice", {"order": 1}, connection=holder, key="k")
            waits = asyncio.create_task(
                waiter.aenqueue("invoice", {"order": 2}, connection=connection, key="k")
            )
            await connection_waits(holder)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            await connection.rollback()
            assert connection.info.transaction_status.name == "IDLE"
            await connection.execute("SELECT 1")
            await connection.commit()

    asyncio.run(story())
    assert invoiced(waiter) == [1]
    waiter.close()


async def connection_waits(observer: Any) -> None:
    for _ in range(500):
        asked = await observer.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        if (await asked.fetchone())[0]:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody waits")


@pytest.mark.service("postgresql")
def test_an_asynchronous_connection_given_to_a_synchronous_enqueue_is_refused(make_database: Make) -> None:
    waiter = application(make_database("postgresql"))

    async def story() -> None:
        async with await psycopg.AsyncConnection.connect(dsn(waiter)) as connection:
            with pytest.raises(InvalidOption, match="aenqueue"):
                waiter.enqueue("invoice", {"order": 1}, connection=connection)

    asyncio.run(story())
    waiter.close()


# another database


def test_a_connection_to_another_database_is_refused_by_name(
    database_kind: Kind, make_database: Make
) -> None:
    waiter = application(make_database(database_kind))
    other = application(make_database(database_kind))
    empty = make_database(database_kind)
    for database in (other.store.connections.url, sa.make_url(empty.url)):
        engine = sa.create_engine(database.set(drivername=waiter.store.connections.url.drivername))
        with Session(engine) as session, pytest.raises(InvalidOption) as caught:
            waiter.enqueue("invoice", {"order": 1}, connection=session)
        engine.dispose()
        assert "leads to another database than the tasks'" in str(caught.value)
        assert Path(str(database.database)).name in str(caught.value)
    with (
        contextlib.closing(bare(other)) as connection,
        pytest.raises(InvalidOption, match="another database"),
    ):
        waiter.enqueue("invoice", {"order": 1}, connection=connection)

    assert waiter.find() == []
    waiter.close()
    other.close()


@pytest.mark.service("postgresql")
def test_a_connection_to_another_kind_of_database_is_refused_by_name(make_database: Make) -> None:
    waiter = application(make_database("postgresql"))
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(InvalidOption, match="sqlite, not postgresql"),
    ):
        waiter.enqueue("invoice", {"order": 1}, connection=connection)
    waiter.close()


# waking up


@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))]
)
@pytest.mark.parametrize("by", ["connection", "statement"])
def test_a_listener_is_woken_by_the_commit_and_not_before(make_database: Make, kind: Kind, by: str) -> None:
    """On SQLite by a look at data_version, which sees other connections of this process too."""
    waiter = application(make_database(kind))
    heard, stopped = threading.Event(), threading.Event()
    listener = threading.Thread(target=waiter.store.listen, args=(heard.set, stopped))
    with contextlib.closing(bare(waiter)) as connection:
        listener.start()
        if kind == "postgresql":
            assert heard.wait(10)
        else:
            # it listens once it has heard of somebody's commit
            for number in range(500):
                order(connection, number)
                connection.commit()
                if heard.wait(0.05):
                    break
        assert heard.is_set()
        heard.clear()
        assert not heard.wait(0.2)
        if by == "connection":
            waiter.enqueue("invoice", {"order": 1}, connection=connection)
        else:
            execute(connection, waiter, {"order": 1})
        assert not heard.wait(0.3)
        connection.commit()
        assert heard.wait(10)
    stopped.set()
    listener.join()
    waiter.close()


# statement


DRIVER = {"sqlite": "sqlite3", "postgresql": "psycopg", "mysql": "pymysql"}


def execute(connection: Any, waiter: Dumbwaiter, arguments: dict[str, Any], **options: Any) -> Any:
    statement = waiter.statement("invoice", arguments, driver=DRIVER[waiter.store.kind], **options)
    return run(connection, statement.sql, statement.parameters)


def test_the_statement_makes_the_row_that_enqueue_makes(waiter: Dumbwaiter) -> None:
    options: dict[str, Any] = {
        "key": "k 名 %s",
        "owner": "o'%(x)s",
        "request_key": "r",
        "priority": 7,
        "queue": "bulk:1",
        "start_before": datetime.now(UTC) + timedelta(hours=1),
        "timeout": timedelta(seconds=5.5),
        "meta": {"percent": "100 %", "list": [1, None, 2.5]},
    }
    statement = waiter.statement("invoice", {"order": 7}, driver=DRIVER[waiter.store.kind], **options)
    with contextlib.closing(bare(waiter)) as connection:
        run(connection, statement.sql, statement.parameters)
        connection.commit()
    [by_statement] = waiter.find()
    waiter.cancel(by_statement.id)
    by_enqueue = waiter.enqueue("invoice", {"order": 7}, **options | {"request_key": "another"})

    assert by_statement.id == statement.task_id
    for name in ("payload", "queue", "priority", "business_key", "owner", "timeout", "start_before", "meta"):
        assert getattr(by_statement, name) == getattr(by_enqueue, name), name
    assert abs(by_enqueue.created_at - by_statement.created_at) < timedelta(seconds=30)


@pytest.mark.parametrize("delay", [None, timedelta(hours=1)])
def test_a_task_of_a_statement_is_claimed_when_it_is_due(waiter: Dumbwaiter, delay: timedelta | None) -> None:
    from dumbwaiter.store.claiming import Want

    with contextlib.closing(bare(waiter)) as connection:
        execute(connection, waiter, {"order": 1}, delay=delay)
        execute(connection, waiter, {"order": 2}, run_at=datetime.now(UTC) - timedelta(hours=1))
        connection.commit()
    claimed = waiter.store.claim(Want("default", 10, ("invoice",)), "w1")

    assert sorted(task.payload["order"] for task in claimed) == ([1, 2] if delay is None else [2])


def test_a_statement_whose_key_is_taken_inserts_nothing_and_the_transaction_lives_on(
    waiter: Dumbwaiter,
) -> None:
    waiter.enqueue("invoice", {"order": 0}, key="k")
    with contextlib.closing(bare(waiter)) as connection:
        order(connection, 1)
        if waiter.store.kind == "mysql":
            with pytest.raises(pymysql.err.IntegrityError, match="1062"):
                execute(connection, waiter, {"order": 1}, key="k")
        else:
            assert execute(connection, waiter, {"order": 1}, key="k").rowcount == 0
        assert execute(connection, waiter, {"order": 2}, key="another").rowcount == 1
        connection.commit()

    assert (orders(waiter), invoiced(waiter)) == ([1], [0, 2])


def test_a_statement_that_would_take_several_is_refused(tmp_path: Path) -> None:
    waiter = application(Database("sqlite", f"sqlite:///{tmp_path}/tasks.db"))
    for options, said in [
        ({"driver": "aiosqlite", "key": "k", "on_duplicate": "after"}, "several statements"),
        ({"driver": "aiosqlite", "key": "k", "reuse_for": timedelta(hours=1)}, "several statements"),
        ({"driver": "asyncpg"}, "which is sqlite"),
        ({"driver": "pigeon"}, "there are psycopg, asyncpg"),
        ({"driver": "sqlite3", "connection": object()}, "exclude each other"),
    ]:
        with pytest.raises(InvalidOption, match=said):
            waiter.statement("invoice", {"order": 1}, **options)  # type: ignore[arg-type]
    waiter.close()
