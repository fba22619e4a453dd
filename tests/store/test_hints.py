"""How workers elsewhere are told that something is due: at once, or a moment later when there is much to tell."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import psycopg
import pytest

from dumbwaiter.store import connections, impatient
from dumbwaiter.store.hints import BURST, PER_SECOND, Hints
from dumbwaiter.store.store import Store
from tests.store.proxies import proxied
from tests.store.world import SERVERS, at, enqueued, new, store_of, until

FLOOD = 100
ENQUEUE = """
import sys
from dumbwaiter import Dumbwaiter
waiter = Dumbwaiter(sys.argv[1])
task = waiter.task("t")(lambda: None)
for number in range(int(sys.argv[2])):
    task.enqueue()
"""


class Listening:
    """A worker elsewhere, as far as it listens."""

    def __init__(self, store: Store) -> None:
        url = store.connections.url.set(drivername="postgresql")
        self._connection = psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)
        self._connection.execute(f'LISTEN "{store.tables.channel}"')
        self._tasks = store.tables.tasks.name
        self.heard = 0

    def sees(self) -> int:
        """How many tasks there are at the next notification; what came together with it is one of them."""
        self.heard += len(list(self._connection.notifies(timeout=5, stop_after=1)))
        [row] = self._connection.execute(f"SELECT count(*) FROM {self._tasks}").fetchall()
        return int(row[0])

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def postgresql(empty_store) -> Store:
    store: Store = empty_store("postgresql")
    return store


@pytest.fixture
def listening(postgresql: Store) -> Iterator[Listening]:
    one = Listening(postgresql)
    yield one
    one.close()


@pytest.mark.service("postgresql")
def test_the_last_task_of_a_flood_is_told_of_after_its_commit(postgresql, listening):
    for _ in range(FLOOD):
        postgresql.enqueue(new())

    until(lambda: listening.sees() == FLOOD, "the hint that comes last")
    assert listening.heard < FLOOD


@pytest.mark.service("postgresql")
def test_a_process_that_ends_has_told_of_its_last_task(postgresql, listening):
    subprocess.run(
        [sys.executable, "-c", ENQUEUE, postgresql.settings.database, str(FLOOD)], check=True, timeout=60
    )

    until(lambda: listening.sees() == FLOOD, "the hint that comes last")


@pytest.mark.service("postgresql")
def test_a_task_that_comes_alone_is_told_of_with_its_commit(postgresql, listening):
    task, _ = postgresql.enqueue(new())

    assert listening.sees() == 1
    assert postgresql.get(task.id) == task


@pytest.mark.service("postgresql")
def test_a_plain_enqueue_is_one_round_trip(postgresql, monkeypatch):
    # however slow the machine is, the connection counts as fresh
    monkeypatch.setattr(connections, "FRESH_FOR_REQUESTS", 3600)
    enqueued(postgresql)
    asked = 0
    driver = impatient.postgresql()
    wait = driver.wait
    here = threading.current_thread()

    def counted(*given, **how):
        nonlocal asked
        # what an earlier test left to a thread is no round trip of this one
        asked += threading.current_thread() is here
        return wait(*given, **how)

    monkeypatch.setattr(driver, "wait", counted)
    # held back, so that no other thread asks meanwhile
    monkeypatch.setattr(postgresql.hints, "take", lambda: True)

    postgresql.enqueue(new())

    assert asked == 1


def test_what_a_plain_enqueue_tells_of_its_task_is_what_the_table_has(store):
    terms = {"owner": "ada", "meta": {"tags": ["a", ("b", 1)]}, "timeout": None, "priority": 7}
    for options in ({}, terms, {"start_before": at(10**6), "payload": {"a": {"b": [1.0, None, "é"]}}}):
        for now in (None, at(3)):
            task, created = store.enqueue(new(**options), now=now)

            assert created
            assert store.get(task.id) == task


def test_a_plain_enqueue_that_is_made_again_makes_no_second_task(store):
    one = new()
    first, _ = store.enqueue(one)

    again, created = store.enqueue(one)

    assert (again, created) == (first, True)
    assert store.find() == [first]


@pytest.mark.parametrize("kind", SERVERS)
def test_a_connection_that_was_ended_a_moment_ago_is_not_the_callers_problem(empty_store, kind):
    with proxied(empty_store(kind).settings.database) as (proxy, url):
        store = store_of(url)
        task = enqueued(store)
        proxy.reset()
        assert store.get(task.id) == task
        proxy.reset()
        other = enqueued(store)
        proxy.reset()

        assert {one.id for one in store.find()} == {task.id, other.id}
        store.close()


def test_a_few_hints_go_at_once_and_the_others_at_a_pace():
    instant = [0.0]
    hints = Hints(lambda _: None, monotonic=lambda: instant[0])

    assert [hints.take() for _ in range(BURST + 2)] == [True] * BURST + [False] * 2
    instant[0] += 1.01 / PER_SECOND
    assert [hints.take() for _ in range(2)] == [True, False]
    instant[0] += 3600
    assert [hints.take() for _ in range(BURST + 1)] == [True] * BURST + [False]
