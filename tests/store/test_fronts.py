"""A claimer that begins where it was: it takes the same tasks, and does not step over what others keep from being removed."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from dumbwaiter.store import fronts
from dumbwaiter.store.fronts import Front, Fronts, Place
from dumbwaiter.store.store import Store
from dumbwaiter.task import Task
from tests.store.plans import sent
from tests.store.test_effort import blocks_of_postgresql
from tests.store.world import NOW, at, claimed_ids, enqueued, row, store_of, want
from tests.support.databases import Database
from tests.support.filling import analyse, fill

pytestmark = pytest.mark.service("postgresql")


class Clock:
    """It goes on by a millisecond each time somebody looks, so that a look from the start takes one."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 0.001
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(empty_store: Callable[..., Store], clock: Clock) -> Iterator[Store]:
    store = empty_store("postgresql")
    before, store.fronts = store.fronts, Fronts(clock)
    yield store
    store.fronts = before


def claimed(store: Store, slots: int) -> list[str]:
    """By the database's own clock, as a worker claims."""
    return claimed_ids(store, slots, now=None)


def from_the_start(store: Store, slots: int) -> bool:
    """Whether the next claim looks there first."""
    statements = sent(store, lambda: claimed(store, slots))
    return "part_0" not in statements[0][0]


def queued(store: Store, number: int, **options: Any) -> list[str]:
    return [enqueued(store, now=at(second), **options).id for second in range(number)]


def test_a_claim_begins_where_the_last_one_ended(store):
    first, second, third, *_ = queued(store, 5)

    assert claimed(store, 1) == [first]
    assert not from_the_start(store, 1)
    assert row(store, second)["status"] == "running"
    assert claimed(store, 1) == [third]


def test_a_higher_priority_goes_first_and_a_lower_one_is_not_forgotten(store):
    second = queued(store, 2)[1]
    claimed(store, 1)
    low, high = enqueued(store, now=NOW, priority=-5), enqueued(store, now=NOW, priority=5)

    assert claimed(store, 9) == [high.id, second, low.id]


def test_priorities_in_any_number_and_order_are_claimed_in_their_order(store):
    chance = random.Random(7)
    expected = []
    for second in range(60):
        priority = chance.choice([-2, -1, 0, 1, 2, 3])
        expected.append((-priority, second, enqueued(store, now=at(second), priority=priority).id))
    expected.sort()

    found = list(itertools.chain.from_iterable(claimed(store, 4) for _ in range(16)))

    assert found == [one[2] for one in expected]


def test_at_the_end_of_a_backlog_what_was_overtaken_is_taken_at_once(store):
    queued(store, 3)
    assert len(claimed(store, 3)) == 3
    late = enqueued(store, now=at(1))

    assert claimed(store, 3) == [late.id]


def test_what_was_overtaken_in_a_backlog_waits_for_the_next_look_from_the_start(store, clock, monkeypatch):
    monkeypatch.setattr(store, "_woken", lambda _queues: None)  # as if another process had done all this
    queued(store, 9)
    claimed(store, 5)
    late = enqueued(store, now=at(-60))

    assert late.id not in claimed(store, 1)
    clock.seconds += 0.1
    assert from_the_start(store, 1)
    assert row(store, late.id)["status"] == "running"


def test_a_hint_brings_the_look_from_the_start_forward(store, clock):
    queued(store, 9)
    claimed(store, 5)
    enqueued(store, now=at(-60))
    clock.seconds += 0.01

    assert from_the_start(store, 1)


def test_so_does_what_another_process_says(store, clock):
    queued(store, 9)
    store.hints.close()  # nothing of these is told later on
    heard, stopped = threading.Event(), threading.Event()
    listener = threading.Thread(target=store.listen, args=(heard.set, stopped))
    listener.start()
    other = store_of(store.settings.database)
    try:
        assert heard.wait(20)  # it listens
        heard.clear()
        claimed(store, 5)
        claimed(store, 1)
        clock.seconds += 0.02
        assert not from_the_start(store, 1)

        late = enqueued(other, now=at(-60))
        assert heard.wait(20)

        assert from_the_start(store, 1)
        assert row(store, late.id)["status"] == "running"
    finally:
        stopped.set()
        listener.join()
        other.close()


def test_a_look_from_the_start_comes_within_five_seconds_however_long_it_takes():
    times = iter([0.0, 60.0, 64.9, 65.1, 65.2, 65.3])
    front = Front(lambda: next(times))
    looks = []

    def look(places, slots):
        looks.append(bool(places))
        return [task_at(5)]

    for _ in range(3):
        front.claim(1, look)

    assert looks == [False, True, False]
    assert fronts.LONGEST == 5.0


def test_after_the_clock_was_set_back_the_front_is_set_back_too():
    clock = Clock()
    front, seen, given = Front(clock), [], iter([task_at(3600), task_at(0), task_at(1)])

    def look(places, slots):
        seen.append(tuple(places))
        return [next(given)]

    front.claim(1, look)
    clock.seconds += 1
    front.claim(1, look)
    front.claim(1, look)

    assert seen[2] == (Place(0, NOW, task_at(0).id),)


def test_other_types_have_a_front_of_their_own(store):
    other = enqueued(store, now=NOW, task_type="other")
    queued(store, 3)
    claimed(store, 2)

    assert [task.id for task in store.claim(want(1, "t", "other"), "w1")] == [other.id]


def task_at(seconds: float) -> Task:
    class Likeness:
        priority, run_at, id = 0, at(seconds), f"id {seconds}"

    task: Any = Likeness()
    return task


@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)
def test_an_old_transaction_does_not_make_claims_read_more_and_more(database: Database, clock: Clock) -> None:
    store = store_of(database.url)
    store.schema.migrate()
    store.fronts = Fronts(clock)
    fill(store, 12_000, at=NOW)
    analyse(store)
    fresh = blocks(store, "nobody yet")
    with psycopg.connect(database.url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM pg_class")
        for _ in range(20):
            assert len(claimed(store, 500)) == 500
        onward, again = blocks(store, "w1"), blocks(store, "somebody new")
    store.close()

    # the rest is what it costs to mark ten rows
    assert onward <= fresh + 50
    assert again > fresh + 200  # so that the line above can fail


def blocks(store: Store, worker: str) -> int:
    """How many the statement of the worker's next claim reads, when it is sent once more."""
    statement, parameters = sent(store, lambda: store.claim(want(10), worker))[0]
    with store.connections.engine.connect() as connection, connection.begin() as transaction:
        found = blocks_of_postgresql(connection, statement, parameters)
        transaction.rollback()
    return found
