"""Enqueue on the caller's own connection: the task lives and dies with the caller's transaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from dumbwaiter.errors import DuplicateTask, KeyContended, UnknownTask
from dumbwaiter.store import dialects, enqueueing
from dumbwaiter.store.store import Store
from dumbwaiter.task import Status
from tests.store.world import SERVERS, claimed_ids, end, enqueued, new, started, until


@pytest.fixture
def caller(store: Store) -> Iterator[Engine]:
    """The application's own engine, with its driver's defaults and a table of its own."""
    yield from callers_engine(store)


def callers_engine(store: Store) -> Iterator[Engine]:
    engine = sa.create_engine(store.connections.url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))
    yield engine
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE orders"))
    engine.dispose()


def order(connection: sa.Connection, number: int) -> None:
    connection.execute(sa.text("INSERT INTO orders (id) VALUES (:id)"), {"id": number})


def orders(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(sa.text("SELECT id FROM orders ORDER BY id")).scalars())


def test_a_task_is_there_once_the_callers_transaction_commits_and_not_before(store, caller):
    with caller.begin() as connection:
        order(connection, 1)
        task, created = store.enqueue(new(), connection=connection)
        with pytest.raises(UnknownTask):
            store.get(task.id)

    assert created
    assert store.get(task.id) == task
    assert (orders(caller), claimed_ids(store, now=None)) == ([1], [task.id])


@pytest.mark.parametrize("key", [None, "k"])
def test_a_task_is_gone_when_the_callers_transaction_rolls_back(store, caller, key):
    connection = caller.connect()
    order(connection, 1)
    task, _ = store.enqueue(new(business_key=key), connection=connection)
    connection.rollback()
    connection.close()

    with pytest.raises(UnknownTask):
        store.get(task.id)
    assert orders(caller) == []
    assert store.enqueue(new(business_key=key))[1]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("key", [None, "k"])
def test_a_task_of_a_savepoint_goes_with_the_savepoint(empty_store, kind, key):
    store = empty_store(kind)
    for caller in callers_engine(store):
        with caller.begin() as connection:
            kept, _ = store.enqueue(new(business_key="other"), connection=connection)
            savepoint = connection.begin_nested()
            undone, _ = store.enqueue(new(business_key=key), connection=connection)
            savepoint.rollback()
            order(connection, 1)

        assert [task.id for task in store.find()] == [kept.id]
        assert undone.id != kept.id
        assert orders(caller) == [1]


def test_a_key_that_is_taken_leaves_the_callers_transaction_as_it_was(store, caller):
    holder = enqueued(store, business_key="k", now=None)

    with caller.begin() as connection:
        order(connection, 1)
        task, created = store.enqueue(new(business_key="k"), connection=connection)
        with pytest.raises(DuplicateTask):
            store.enqueue(new(business_key="k", on_duplicate="reject"), connection=connection)
        order(connection, 2)

    assert (task.id, created) == (holder.id, False)
    assert orders(caller) == [1, 2]


def test_a_key_taken_twice_in_one_transaction_is_one_task(store, caller):
    with caller.begin() as connection:
        first, second = (store.enqueue(new(business_key="k"), connection=connection) for _ in range(2))

    assert (second[0].id, first[1], second[1]) == (first[0].id, True, False)


def test_a_replacement_is_undone_with_the_callers_transaction(store, caller):
    old = enqueued(store, business_key="k", now=None)
    connection = caller.connect()
    store.enqueue(new(business_key="k", on_duplicate="replace"), connection=connection)
    connection.rollback()
    connection.close()

    assert store.get(old.id).status is Status.PENDING
    assert [task.id for task in store.find()] == [old.id]


def test_a_listener_in_the_process_is_not_woken_before_the_caller_commits(store, caller):
    heard: list[str] = []
    stop = store.on_ready(heard.append)
    with caller.begin() as connection:
        store.enqueue(new(), connection=connection)
    stop()

    assert heard == []


def waiting_for(store: Store, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(dialects, "PATIENCE", seconds)
    monkeypatch.setattr(enqueueing, "PATIENCE", seconds)


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_the_loser_of_a_race_waits_for_the_winners_transaction(empty_store, kind, ends):
    store = empty_store(kind)
    for caller in callers_engine(store):
        with caller.connect() as connection:
            winner, _ = store.enqueue(new(business_key="k"), connection=connection)
            got: list[tuple[str, bool]] = []

            def lose(got=got):
                task, created = store.enqueue(new(business_key="k"))
                got.append((task.id, created))

            loser = threading.Thread(target=lose)
            loser.start()
            until(lambda: blocked(store), "the loser to wait")
            assert got == []
            getattr(connection, ends)()
            loser.join()

        if ends == "commit":
            assert got == [(winner.id, False)]
        else:
            assert [created for _, created in got] == [True]


def blocked(store: Store) -> bool:
    """Somebody waits for a lock in this database; another test may do so in another."""
    question = {
        "postgresql": "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'",
        # Not innodb_trx: it is a copy that is not made anew while it is read more often than every 100 ms.
        "mysql": "SELECT count(*) FROM information_schema.processlist "
        "WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command = 'Query' AND time >= 1",
    }[store.kind]
    with store.connections.reading() as connection:
        return bool(connection.execute(sa.text(question)).scalar())


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("own", [True, False], ids=["on a connection of its own", "on a caller's"])
def test_a_key_that_stays_locked_is_told_by_name_and_the_transaction_lives_on(
    empty_store, kind, own, monkeypatch
):
    store = empty_store(kind)
    waiting_for(store, monkeypatch, 1)
    for caller in callers_engine(store):
        with caller.connect() as winner, caller.connect() as loser:
            kept, _ = store.enqueue(new(business_key="k"), connection=winner)
            order(loser, 1)
            before = time.monotonic()
            settings = lock_settings(store, loser)

            with pytest.raises(KeyContended, match="another transaction"):
                store.enqueue(new(business_key="k"), connection=None if own else loser)

            assert time.monotonic() - before < 8
            assert lock_settings(store, loser) == settings
            order(loser, 2)
            loser.commit()
            winner.commit()

        assert orders(caller) == [1, 2]
        assert [task.id for task in store.find()] == [kept.id]


def lock_settings(store: Store, connection: sa.Connection) -> object:
    name = {"postgresql": "SHOW lock_timeout", "mysql": "SELECT @@innodb_lock_wait_timeout"}[store.kind]
    return connection.execute(sa.text(name)).scalar()


@pytest.mark.service("mysql")
@pytest.mark.parametrize("on_duplicate", ["return", "after", "replace"])
def test_a_snapshot_that_is_older_than_the_holder_of_the_key_sees_it_all_the_same(empty_store, on_duplicate):
    """MySQL's default is REPEATABLE READ: after an insert that met a duplicate, a plain read does not see that row."""
    store = empty_store("mysql")
    for caller in callers_engine(store):
        with caller.connect() as connection:
            look = sa.select(store.tables.tasks.c.id)
            assert connection.execute(look).all() == []
            holder = enqueued(store, business_key="k", now=None)
            follower = enqueued(store, business_key="k", on_duplicate="after", now=None)
            assert connection.execute(look).all() == []

            task, created = store.enqueue(
                new(business_key="k", on_duplicate=on_duplicate), connection=connection
            )
            connection.commit()

        expected = {"return": (holder.id, False), "after": (follower.id, False)}
        if on_duplicate == "replace":
            assert created
            assert {store.get(old.id).status for old in (holder, follower)} == {Status.CANCELLED}
        else:
            assert (task.id, created) == expected[on_duplicate]


@pytest.mark.service("mysql")
def test_a_snapshot_in_which_the_key_is_free_again_makes_a_task(empty_store):
    store = empty_store("mysql")
    holder = started(store, business_key="k")
    for caller in callers_engine(store):
        with caller.connect() as connection:
            connection.execute(sa.select(store.tables.tasks.c.id)).all()
            end(store, holder)

            task, _ = store.enqueue(new(business_key="k", on_duplicate="after"), connection=connection)
            connection.commit()

        assert (task.id != holder.id, task.waits_for) == (True, None)


@pytest.mark.service("postgresql")
def test_postgresql_wakes_its_listeners_with_the_commit(empty_store):
    store = empty_store("postgresql")
    heard, stopped, listening = threading.Event(), threading.Event(), threading.Event()

    def hear():
        (heard if listening.is_set() else listening).set()

    listener = threading.Thread(target=store.listen, args=(hear, stopped))
    listener.start()
    assert listening.wait(10)
    for caller in callers_engine(store):
        with caller.begin() as connection:
            store.enqueue(new(), connection=connection)
            assert not heard.wait(0.3)
        assert heard.wait(10)
    stopped.set()
    listener.join()


@pytest.mark.service("postgresql")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("tasks", [200, pytest.param(5_000, marks=pytest.mark.long)])
def test_many_tasks_in_one_transaction_are_one_hint_of_a_few_bytes(empty_store, tasks):
    """NOTIFY takes less than 8,000 bytes, and a payload for each task would fill its queue."""
    store = empty_store("postgresql")
    queue = "🥘" * 100
    address = store.connections.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as listener:
        listener.execute(f"LISTEN {store.tables.channel}".encode())
        for caller in callers_engine(store):
            with caller.begin() as connection:
                for _ in range(tasks):
                    store.enqueue(new(queue=queue), connection=connection)
        heard = [said.payload for said in listener.notifies(timeout=2)]

    assert heard == [queue]
    assert len(heard[0].encode()) < 500
    assert len(store.find(queue=queue, limit=10_000)) == tasks


@pytest.mark.service("postgresql")
@pytest.mark.long
@pytest.mark.timeout(600)
def test_sixty_four_writers_that_wake_workers_with_each_commit_are_all_served(empty_store):
    store = empty_store("postgresql")
    for caller in callers_engine(store):
        engine = sa.create_engine(caller.url, pool_size=64)

        def write(writer: int, engine=engine) -> None:
            for number in range(50):
                with engine.begin() as connection:
                    order(connection, writer * 1_000 + number)
                    store.enqueue(new(), connection=connection)

        with ThreadPoolExecutor(64) as writers:
            list(writers.map(write, range(64)))
        engine.dispose()
        assert len(orders(caller)) == len(store.find(limit=10_000)) == 64 * 50
