"""Connections: addresses, lost ones, deadlocks, forks, and SQLite's one write lock."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from dumbwaiter.errors import ConfigurationError, DatabaseUnavailable, OutcomeUnknown
from dumbwaiter.store.connections import Connections, FairLock, Undone, Use, normal_url
from dumbwaiter.store.rows import Finish
from dumbwaiter.store.store import Store
from dumbwaiter.task import AttemptOutcome, Kind, Outcome, Status, Task
from dumbwaiter.worker import beat
from tests.store.proxies import Mode, proxied
from tests.store.world import SERVERS, at, end, enqueued, new, started, store_of, until, want


@pytest.mark.parametrize(
    ("address", "driver"),
    [
        ("postgresql://u@h/d", "postgresql+psycopg"),
        ("postgres://u@h/d", "postgresql+psycopg"),
        ("postgresql+asyncpg://u@h/d", "postgresql+psycopg"),
        ("mysql://u@h/d", "mysql+pymysql"),
        ("mariadb://u@h/d", "mysql+pymysql"),
        ("sqlite:///a/b.db", "sqlite+pysqlite"),
    ],
)
def test_an_address_gets_the_driver_that_we_use(address, driver):
    assert normal_url(address).drivername == driver


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("tasks.db", "sqlite:///"),
        ("", "sqlite:///"),
        ("postgresql://u@h:port/d", "cannot be read"),
        ("oracle://u@h/d", "oracle is not a database"),
        ("sqlite://", "gone with its process"),
        ("sqlite:///:memory:", "gone with its process"),
    ],
)
def test_an_address_that_cannot_be_is_refused_with_what_to_write(address, said):
    with pytest.raises(ConfigurationError, match=said):
        Connections(address)


def test_a_refused_address_never_shows_its_password():
    with pytest.raises(ConfigurationError) as refused:
        Connections("oracle://u:secret@h/d")

    assert "secret" not in str(refused.value)


def test_making_the_connections_opens_none():
    Connections("postgresql://nobody@127.0.0.1:1/none")


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_database_that_does_not_answer_is_told_as_unavailable(scheme):
    with socket.create_server(("127.0.0.1", 0)) as refusing:
        port = refusing.getsockname()[1]
    store = store_of(f"{scheme}://u@127.0.0.1:{port}/d")

    with pytest.raises(DatabaseUnavailable, match="the database cannot be used"):
        store.enqueue(new())


def test_a_sqlite_file_that_is_none_is_told_as_unavailable(tmp_path):
    path = tmp_path / "tasks.db"
    path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    store = store_of(f"sqlite:///{path}")

    with pytest.raises(DatabaseUnavailable, match=r"file is not a database; .* name another one"):
        store.enqueue(new())


@pytest.mark.parametrize("kind", SERVERS)
def test_a_database_that_is_not_there_is_told_with_what_to_do(make_database, kind):
    there = make_database(kind).url
    store = store_of(there.replace("/dwt_", "/dwt_not_"))

    with pytest.raises(DatabaseUnavailable, match="creates tables but no database: create it"):
        store.enqueue(new())


# a connection that is lost when the server has done its work already


REQUESTS: dict[str, Callable[[Store, Task], object]] = {
    "enqueue": lambda store, task: store.enqueue(new()),
    "enqueue with a key": lambda store, task: store.enqueue(new(business_key="k")),
    "get": lambda store, task: store.get(task.id),
    "find": lambda store, task: store.find(),
    "cancel": lambda store, task: store.cancel(task.id),
}


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize(
    "mode",
    [
        Mode.BLACKHOLE,
        pytest.param(Mode.DRIP, marks=pytest.mark.long),
        pytest.param(Mode.SWALLOW, marks=pytest.mark.long),
    ],
)
def test_a_request_to_a_server_that_fell_silent_fails_within_five_seconds_and_the_next_one_finds_it_again(
    empty_store, kind, mode
):
    with proxied(empty_store(kind).settings.database) as (proxy, url):
        store = store_of(url, request_timeout=4)
        task = enqueued(store)
        # as many as there may be connections in the pool: a silent one must not cost the next request its time too
        proxy.mode = mode
        took: dict[str, float] = {}

        def ask(name: str) -> None:
            began = time.monotonic()
            with pytest.raises(DatabaseUnavailable, match=r"answered|timeout|timed out|lost"):
                REQUESTS[name](store, task)
            took[name] = time.monotonic() - began

        threads = [threading.Thread(target=ask, args=(name,)) for name in REQUESTS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        proxy.mode = Mode.PASS

        assert REQUESTS.keys() == took.keys()
        assert max(took.values()) < 5, took
        assert store.get(task.id) == task
        store.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_a_duty_waits_longer_for_a_slow_server_than_a_request_does(empty_store, kind):
    with proxied(empty_store(kind).settings.database) as (proxy, url):
        store = store_of(url, request_timeout=1.5)
        task = enqueued(store)
        store.held("w1")
        proxy.mode, proxy.late = Mode.DELAY, 0.9
        with pytest.raises(DatabaseUnavailable):
            store.get(task.id)

        assert store.held("w1") == []
        store.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_a_duty_gives_up_a_server_that_fell_silent_and_finds_it_again(empty_store, kind, monkeypatch):
    monkeypatch.setattr("dumbwaiter.store.patience.ANSWER", 1.0)
    monkeypatch.setattr("dumbwaiter.store.patience.CONNECT", 2.0)
    with proxied(empty_store(kind).settings.database) as (proxy, url):
        store = store_of(url)
        store.held("w1")
        proxy.mode = Mode.BLACKHOLE
        asked = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="the database cannot be used"):
            store.held("w1")
        took = time.monotonic() - asked
        proxy.mode = Mode.PASS

        assert took < 5
        assert store.held("w1") == []
        store.close()


@pytest.mark.parametrize("mode", [Mode.BLACKHOLE, Mode.DRIP])
@pytest.mark.parametrize("kind", SERVERS)
def test_what_is_claimed_and_ended_in_bulk_gives_up_a_silent_server_too_and_finds_it_again(
    empty_store, kind, mode, monkeypatch
):
    monkeypatch.setattr("dumbwaiter.store.patience.ANSWER", 1.0)
    monkeypatch.setattr("dumbwaiter.store.patience.CONNECT", 2.0)
    with proxied(empty_store(kind).settings.database) as (proxy, url):
        store = store_of(url)
        ends = [Finish(started(store), Outcome.succeeded()) for _ in range(2)]
        waiting = {enqueued(store).id for _ in range(3)}
        for ask in (lambda: store.claim(want(5), "w1"), lambda: store.finish(ends)):
            proxy.mode = mode
            asked = time.monotonic()
            with pytest.raises(DatabaseUnavailable, match="the database cannot be used"):
                ask()
            assert time.monotonic() - asked < 5
            proxy.mode = Mode.PASS

        assert store.finish(ends) == [Status.SUCCESS] * 2
        # one byte a second may have been enough to ask, and nobody heard the answer
        claimed = {task.id for task in store.claim(want(5), "w1")} | {task.id for task in store.held("w1")}
        assert claimed == waiting
        store.close()


@pytest.mark.service("postgresql")
def test_ends_in_bulk_whose_session_is_ended_are_written_on_a_new_one(empty_store):
    store = store_of(empty_store("postgresql").settings.database)
    ends = [Finish(started(store), Outcome.succeeded()) for _ in range(2)]

    def asked(statement: str) -> object:
        with store.connections.unhurried() as connection:
            return connection.exec_driver_sql(statement).scalar()

    waits = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with ThreadPoolExecutor(1) as aside, store.connections.writing() as holder:
        locked = sa.select(store.tables.tasks.c.id).where(store.tables.tasks.c.id == ends[0].task.id)
        holder.execute(locked.with_for_update())
        written = aside.submit(store.finish, ends)
        until(lambda: bool(asked(f"SELECT count(*) {waits}")), "the lock")
        asked(f"SELECT pg_terminate_backend(pid) {waits}")
        with pytest.raises(DatabaseUnavailable):
            written.result(timeout=10)

    assert store.finish(ends) == [Status.SUCCESS] * 2
    store.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_an_enqueue_whose_answer_is_lost_for_good_says_that_it_may_have_been_registered(empty_store, kind):
    store = empty_store(kind)
    with proxied(store.settings.database) as (proxy, url):
        through = store_of(url, request_timeout=3)
        through.schema.ensure()
        once = new(request_key="r", request_hash="h")
        through.get(enqueued(through).id)
        proxy.after(b"COMMIT", Mode.SWALLOW)
        with pytest.raises(OutcomeUnknown, match="was registered is not known") as unknown:
            through.enqueue(once)
        proxy.mode = Mode.PASS

        assert unknown.value.task_id == once.id == through.get(once.id).id
        again, created = through.enqueue(new(request_key="r", request_hash="h"))
        assert (once.id, False) == (again.id, created)
        through.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_an_enqueue_that_reached_nobody_does_not_say_that_it_may_have_been_registered(kind):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        scheme, port = {"postgresql": "postgresql"}.get(kind, "mysql"), silent.getsockname()[1]
        store = store_of(f"{scheme}://u@127.0.0.1:{port}/d", request_timeout=2)
        with pytest.raises(DatabaseUnavailable) as refused:
            store.enqueue(new())

    assert not isinstance(refused.value, OutcomeUnknown)


def test_as_many_requests_as_one_likes_leave_a_duty_its_connections(store):
    if store.kind == "sqlite":
        return  # a file has one pool: its one write lock is what is waited for
    store.get(enqueued(store, now=None).id)
    with contextlib.ExitStack() as held:
        for _ in range(20):
            with store.connections.for_a_request():
                held.enter_context(store.connections.reading())

        assert store.held("w1") == []


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_from_whose_sight_we_vanish_lets_go_of_our_locks(empty_store, kind):
    store = empty_store(kind)
    ask = {
        "postgresql": "SHOW idle_in_transaction_session_timeout",
        "mysql": "SELECT @@session.idle_transaction_timeout",
    }
    with store.connections.reading() as connection:
        if kind == "mysql" and "MariaDB" not in str(connection.exec_driver_sql("SELECT version()").scalar()):
            return  # MySQL has nothing of the kind
        asked = connection.exec_driver_sql(ask[kind]).scalar()

    assert str(asked).rstrip("s") == "15"


@pytest.mark.service("postgresql")
def test_a_connection_that_stays_read_only_is_dropped(empty_store, monkeypatch):
    store = store_of(empty_store("postgresql").settings.database)
    task = enqueued(store)
    with store.connections.reading() as connection:
        connection.exec_driver_sql(
            "SET default_transaction_read_only = on"
        )  # for this session: it lives on in the pool

    with pytest.raises(DatabaseUnavailable, match="read-only"):
        store.claim_one(task.id, "w1", want(1), now=at(1))

    assert store.claim_one(task.id, "w1", want(1), now=at(1)) is not None
    store.close()


@pytest.mark.service("postgresql")
def test_a_session_that_forgot_what_was_prepared_is_asked_all_the_same(empty_store):
    store = store_of(empty_store("postgresql").settings.database)
    ids = {enqueued(store, now=None).id for _ in range(5)}

    def one(worker: str) -> list[str]:
        # each worker's claim is a statement of its own
        return [task.id for task in store.claim(want(1), worker)]

    found = one("w1")
    with store.connections.reading() as connection:
        connection.exec_driver_sql("DISCARD ALL")
    found += one("w2") + one("w1") + one("w2") + one("w1")

    assert set(found) == ids
    store.close()


@pytest.mark.service("postgresql")
def test_what_the_server_refuses_in_bulk_is_told_as_it_says_it(empty_store):
    store = store_of(empty_store("postgresql").settings.database)
    waiting = enqueued(store)
    with store.connections.reading() as connection:
        connection.exec_driver_sql("SET default_transaction_read_only = on")

    with pytest.raises(DatabaseUnavailable, match="read-only"):
        store.claim(want(1), "w1", now=at(1))

    assert [task.id for task in store.claim(want(1), "w1", now=at(1))] == [waiting.id]
    store.close()


@pytest.mark.service("postgresql")
def test_an_enqueue_on_a_connection_that_stays_read_only_is_made_on_a_new_one(empty_store):
    store = store_of(empty_store("postgresql").settings.database)
    with store.connections.for_a_request(), store.connections.reading() as connection:
        connection.exec_driver_sql("SET default_transaction_read_only = on")

    assert enqueued(store).id == store.find()[0].id
    store.close()


@pytest.mark.service("postgresql")
@pytest.mark.parametrize("pgbouncer", [False, True])
def test_the_heartbeat_keeps_the_options_of_a_postgresql_address_and_adds_none(empty_store, pgbouncer):
    url = sa.make_url(empty_store("postgresql").settings.database)
    options = {} if pgbouncer else {"options": "-c statement_timeout=7s"}
    connections = Connections(
        url.update_query_dict(options).render_as_string(hide_password=False), pgbouncer=pgbouncer
    )
    with beat.connector(*connections.bare())() as connection:
        told = connection.execute("SHOW statement_timeout").fetchone()[0]
    connections.close()

    assert told == ("0" if pgbouncer else "7s")


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("on_duplicate", ["return", "reject", "after", "replace"])
@pytest.mark.parametrize("key", [None, "k"])
def test_an_enqueue_whose_commit_was_not_heard_of_makes_one_task(empty_store, kind, key, on_duplicate):
    store = empty_store(kind)
    alone = key is None  # a single statement needs no COMMIT
    with proxied(store.settings.database) as (proxy, address):
        through = store_of(address)
        through.schema.ensure()
        proxy.swallow = b"INSERT INTO" if alone else b"COMMIT"

        task, created = through.enqueue(new(business_key=key, on_duplicate=on_duplicate))

        assert proxy.swallowed.wait(5)
        through.close()
    assert created
    assert [one.id for one in store.find()] == [task.id]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("on_duplicate", ["after", "replace"])
def test_an_enqueue_behind_another_whose_commit_was_not_heard_of_makes_one_task(
    empty_store, kind, on_duplicate
):
    store = empty_store(kind)
    holder = started(store, business_key="k")
    with proxied(store.settings.database) as (proxy, address):
        through = store_of(address)
        through.schema.ensure()
        proxy.swallow = b"COMMIT"

        task, created = through.enqueue(new(business_key="k", on_duplicate=on_duplicate))

        assert proxy.swallowed.wait(5)
        through.close()
    assert (created, task.waits_for) == (True, holder.id)
    assert {one.id for one in store.find()} == {holder.id, task.id}


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize(
    "outcome",
    [Outcome.succeeded(1), Outcome(Kind.RETRY, AttemptOutcome.FAILED), Outcome.released()],
    ids=lambda outcome: outcome.kind,
)
def test_an_end_whose_commit_was_not_heard_of_can_be_written_again(empty_store, kind, outcome):
    store = empty_store(kind)
    tasks = [started(store) for _ in range(2)]
    ends = [Finish(task, outcome) for task in tasks]
    with proxied(store.settings.database) as (proxy, address):
        through = store_of(address)
        through.now()
        # successes are one statement, which is its own commit
        alone = outcome.kind is Kind.SUCCEED
        proxy.swallow = b"UPDATE" if alone else b"COMMIT"
        with pytest.raises(DatabaseUnavailable):
            through.finish(ends)

        assert through.finish(ends) == [outcome.status] * 2
        through.close()
    assert [len(store.attempts(task.id)) for task in tasks] == [outcome.kind is not Kind.SUCCEED] * 2


# transactions that the database undoes


@pytest.mark.parametrize("kind", SERVERS)
def test_a_transaction_that_the_database_undid_for_a_deadlock_is_done_again(empty_store, kind):
    store = empty_store(kind)
    first, second = (enqueued(store) for _ in range(2))
    tasks = store.tables.tasks
    meeting = threading.Barrier(2, timeout=10)
    tries: list[str] = []

    def lock_both(one, other):
        def work(connection):
            tries.append(one.id)
            connection.execute(sa.update(tasks).where(tasks.c.id == one.id).values(priority=1))
            if len(tries) <= 2:
                meeting.wait()
            connection.execute(sa.update(tasks).where(tasks.c.id == other.id).values(priority=2))

        store.connections.again(work)

    threads = [threading.Thread(target=lock_both, args=pair) for pair in ((first, second), (second, first))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # once for the loser, and on a slow machine perhaps once more
    assert len(tries) >= 3
    assert {store.get(one.id).priority for one in (first, second)} == {1, 2}


@pytest.mark.parametrize("kind", SERVERS)
def test_one_row_that_a_caller_holds_does_not_keep_the_other_ends_from_being_written(
    empty_store, kind, monkeypatch
):
    monkeypatch.setattr("dumbwaiter.store.connections.LONGEST", 0.0)
    monkeypatch.setattr("dumbwaiter.store.connections.LOCK_WAIT", 1)
    store = store_of(empty_store(kind).settings.database)
    held, *free = (started(store) for _ in range(3))
    tasks = store.tables.tasks
    ends = [Finish(task, Outcome.succeeded()) for task in (free[0], held, free[1])]
    with store.connections.writing() as caller:
        caller.execute(sa.select(tasks.c.id).where(tasks.c.id == held.id).with_for_update())

        with pytest.raises(Undone, match="locks that others held"):
            store.finish(ends)

        assert [store.get(task.id).status for task in free] == [Status.SUCCESS] * 2
        assert store.get(held.id).status is Status.RUNNING

    assert store.finish(ends) == [Status.SUCCESS] * 3
    store.close()


def test_what_the_database_refuses_is_not_taken_for_an_outage(store):
    task = started(store)
    tasks = store.tables.tasks

    def work(connection):
        connection.execute(sa.update(tasks).where(tasks.c.id == task.id).values(status="nonsense"))

    with pytest.raises(sa.exc.DBAPIError):
        store.connections.again(work)


# forks


def test_a_forked_child_shares_no_connection_with_its_parent(store):
    task = enqueued(store, now=None)
    with store.connections.reading() as held:
        held.execute(sa.text("SELECT 1")).close()
        script = f"""
import os
from tests.store.world import store_of, new
store = store_of({store.settings.database!r})
store.get({task.id!r})
with store.connections.writing():        # a lock of the parent's threads, held at the fork
    child = os.fork()
    if child == 0:
        try:
            store.get({task.id!r})
            store.connections.engine.dispose()
        finally:
            os._exit(0 if store.connections._writers.__enter__() is None else 1)
    assert os.waitpid(child, 0)[1] == 0
for _ in range(3):
    store.enqueue(new())
print(len(store.find()))
"""
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, cwd=Path.cwd()
        )

    assert (done.stdout.strip(), done.stderr) == ("4", "")


# SQLite


def queued(lock: FairLock, number: int) -> Callable[[], bool]:
    return lambda: len(lock._waiting) == number


def test_the_lock_is_handed_out_in_the_order_in_which_it_was_asked_for():
    lock, order = FairLock(), []

    def take(number):
        with lock:
            order.append(number)

    with lock:
        threads = []
        for number in range(5):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            until(queued(lock, number + 1), "the thread to queue")
    for thread in threads:
        thread.join()

    assert order == list(range(5))


class Unwell(Exception):
    """Set in a thread from outside."""


def test_a_thread_that_ends_while_it_waits_for_the_lock_keeps_it_from_nobody():
    lock, ended = FairLock(), threading.Event()

    def wait():
        try:
            with lock:
                pass
        except Unwell:
            ended.set()

    with lock:
        thread = threading.Thread(target=wait)
        thread.start()
        until(queued(lock, 1), "the thread to queue")
        # an exception reaches a thread when it next runs Python code: it still sleeps in wait()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Unwell)
        )
    thread.join(10)

    assert ended.is_set()
    with lock:
        assert not lock._waiting


def test_a_thread_that_gives_up_while_others_hold_the_lock_leaves_the_queue():
    lock = FairLock()
    with lock:
        turn = threading.Event()
        lock._waiting.append(turn)
        lock._leave(turn)

        assert not lock._waiting
    with lock:
        pass


def test_sqlite_reads_while_a_writer_holds_the_lock(empty_store):
    store = empty_store("sqlite")
    task = enqueued(store)
    with store.connections.writing():
        before = time.monotonic()

        assert store.get(task.id) == task
        assert store.queues_with_work() == ["default"]
        assert time.monotonic() - before < 5


def test_sqlite_writers_take_the_lock_before_they_read(empty_store):
    """A transaction that reads first and writes later fails at once with SQLITE_BUSY_SNAPSHOT, whatever the timeout."""
    store = empty_store("sqlite")
    path = store.connections.url.database
    with store.connections.writing() as connection:
        connection.execute(sa.select(store.tables.tasks.c.id)).all()
        other = sqlite3.connect(path, timeout=0, isolation_level=None)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.close()


def test_a_sqlite_file_that_another_program_keeps_locked_is_told_as_unavailable(empty_store, monkeypatch):
    store = empty_store("sqlite")
    store.schema.ensure()
    monkeypatch.setattr("dumbwaiter.store.connections.SQLITE_PATIENCE", 0.2)
    other = sqlite3.connect(str(store.connections.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(DatabaseUnavailable, match="another program kept the SQLite file locked"):
        store.enqueue(new())

    other.execute("ROLLBACK")
    other.close()
    task = enqueued(store)
    assert [one.id for one in store.find()] == [task.id]


def test_sqlite_uses_write_ahead_logging_and_keeps_its_log_small(empty_store):
    store = empty_store("sqlite")
    with store.connections.reading() as connection:
        asked = {
            name: connection.execute(sa.text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "busy_timeout", "journal_size_limit", "synchronous")
        }

    assert asked == {
        "journal_mode": "wal",
        "busy_timeout": 30_000,
        "journal_size_limit": 8_388_608,
        "synchronous": 1,
    }


LOAD = """
import sys, threading, time
from dumbwaiter.store.rows import Finish
from dumbwaiter.task import Outcome
from tests.store.world import store_of, new, want
url, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
store = store_of(url)
store.schema.ensure()
end, done, faults = time.monotonic() + seconds, [0] * 4, []
def write(number):
    try:
        while time.monotonic() < end:
            store.enqueue(new())
            ends = [Finish(task, Outcome.succeeded()) for task in store.claim(want(2), f"{name}-{number}")]
            store.heartbeat(f"{name}-{number}")
            store.finish(ends)
            done[number] += 1
    except Exception as error:
        faults.append(repr(error))
threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
store.close()
print(sum(done), min(done), faults)
"""


def test_sqlite_under_four_processes_of_four_writers_and_a_host_application_never_says_locked(empty_store):
    store = empty_store("sqlite")
    seconds = 4.0
    command = [sys.executable, "-c", LOAD, store.settings.database]
    processes = [
        subprocess.Popen(
            [*command, f"p{number}", str(seconds)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
        )
        for number in range(4)
    ]
    host = sqlite3.connect(str(store.connections.url.database), timeout=30, isolation_level=None)
    host.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    written = 0
    while any(process.poll() is None for process in processes):
        host.execute("BEGIN IMMEDIATE")
        host.execute("INSERT INTO orders DEFAULT VALUES")
        time.sleep(0.003)  # the application's own work, under its lock
        host.execute("COMMIT")
        written += 1
    told = [(process.communicate()[0] or "").split(maxsplit=2) for process in processes]
    host.execute("DROP TABLE orders")
    host.close()

    assert [faults.strip() for _, _, faults in told] == ["[]"] * 4
    assert all(int(least) > 0 for _, least, _ in told)
    assert written > 10
    assert sum(int(done) for done, _, _ in told) == len(store.find(limit=100_000))
    assert os.path.getsize(f"{store.connections.url.database}-wal") < 64 * 2**20  # noqa: PTH202 - the log's own name


@pytest.mark.service("mysql")
def test_an_own_mysql_connection_reads_what_is_committed_and_waits_for_locks_five_seconds(empty_store):
    store = empty_store("mysql")
    with store.connections.writing() as connection:
        asked = connection.execute(
            sa.text("SELECT @@session.innodb_lock_wait_timeout, @@session.time_zone, @@session.sql_mode")
        ).one()
        level = connection.get_isolation_level()

    assert (asked[0], asked[1], level) == (5, "+00:00", "READ COMMITTED")
    assert "STRICT_ALL_TABLES" in asked[2]


@pytest.mark.service("postgresql")
def test_a_postgresql_address_keeps_its_own_options(empty_store):
    store = empty_store("postgresql")
    url = sa.make_url(store.settings.database).update_query_dict({"options": "-c statement_timeout=7s"})
    other = store_of(url.render_as_string(hide_password=False))
    with other.connections.reading() as connection:
        names = ("statement_timeout", "lock_timeout")
        told = [connection.execute(sa.text(f"SHOW {name}")).scalar() for name in names]
    other.close()

    assert told == ["7s", "5s"]


@pytest.mark.service("postgresql")
def test_behind_a_pooler_no_statement_is_prepared_and_no_option_is_sent(empty_store):
    store = store_of(empty_store("postgresql").settings.database, pgbouncer=True)
    *_, task = [enqueued(store) for _ in range(8)]
    with store.connections.reading() as connection:
        prepared = connection.execute(sa.text("SELECT count(*) FROM pg_prepared_statements")).scalar()
        timeout = connection.execute(sa.text("SHOW lock_timeout")).scalar()

    assert (prepared, timeout) == (0, "0")
    assert store.claim_one(task.id, "w1", want(), now=at(1)) is not None
    assert end(store, store.get(task.id)) is Status.SUCCESS
    store.close()


@pytest.mark.service("mysql")
def test_connections_to_mysql_share_what_decides_how_they_are_encrypted(empty_store):
    """Each loaded the certificates anew: in an outage a worker grew by megabytes."""
    engine = empty_store("mysql").connections.engine
    with engine.connect() as one, engine.connect() as other:
        contexts = [each.connection.dbapi_connection.ctx for each in (one, other)]

    assert contexts[0] is contexts[1]


@pytest.mark.service("postgresql")
def test_a_flood_of_short_statements_is_served_by_what_the_pool_keeps(empty_store):
    engine = empty_store("postgresql").connections._engine(Use.REQUESTS)
    with contextlib.ExitStack() as all_of_them:
        for _ in range(engine.pool.size()):
            all_of_them.enter_context(engine.connect())
    opened = []
    sa.event.listen(engine, "connect", lambda *_: opened.append(1))

    def ask(_):
        with engine.connect() as connection:
            answer = connection.execute(sa.text("SELECT 1")).scalar()
        time.sleep(0.001)  # what else a request does
        return answer

    with ThreadPoolExecutor(16) as threads:
        assert set(threads.map(ask, range(1_000))) == {1}
    # on a machine that stands still for a moment one may have waited long enough for another
    assert len(opened) < 5


@pytest.mark.service("postgresql")
def test_connections_that_are_held_make_room_for_others(empty_store):
    engine = empty_store("postgresql").connections._engine(Use.REQUESTS)
    with contextlib.ExitStack() as held:
        for _ in range(engine.pool.size()):
            held.enter_context(engine.connect()).execute(sa.text("SELECT 1"))
        began = time.monotonic()
        with engine.connect() as one_more:
            assert one_more.execute(sa.text("SELECT 1")).scalar() == 1
        assert time.monotonic() - began < 2
