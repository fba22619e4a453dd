"""The place of a waiting task in its queue: by priority and due time, at a bounded cost, and when it is likely to start."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from dumbwaiter.eta import History
from dumbwaiter.outlook import MOST_AHEAD, Lines, Place, places
from dumbwaiter.store.rows import Report, WorkerRow
from dumbwaiter.task import Progress
from tests.store.plans import sent
from tests.store.world import LEASE, NOW, at, claimed_ids, enqueued, started
from tests.support.filling import fill


def asked(store, *tasks, now=NOW, needs=None) -> dict[str, Place]:
    return places(store.lines(tasks, now=now), needs or {}, now)


def worker(store, name="w1", *, queues=None, slots=10, capacity=None, heard=NOW, stopping=False):
    row = WorkerRow(name, "host", 7, "1", queues or {}, capacity or {}, NOW, NOW, stopping=False, slots=slots)
    store.register(row, now=heard)
    if stopping:
        store.mark_stopping(name)


def took(store, **seconds: float) -> None:
    store.add_durations({name: History.of(value) for name, value in seconds.items()}, now=NOW)


def starts(store, *tasks, now=NOW, needs=None) -> list[float | None]:
    """In how many seconds each is expected to start."""
    found = asked(store, *tasks, now=now, needs=needs)
    expected = [found[task.id].expected_start_at for task in tasks]
    return [None if start is None else (start - now).total_seconds() for start in expected]


def test_places_are_those_in_which_the_claim_takes_the_tasks(store):
    tasks = [
        enqueued(store, now=at(-10 + number), priority=priority)
        for number, priority in enumerate([0, 5, -5, 0, 5, 100])
    ]
    enqueued(store, queue="another", priority=100)

    found = asked(store, *tasks)
    order = sorted(tasks, key=lambda task: found[task.id].position)
    claimed = [claimed_ids(store, 1)[0] for _ in tasks]

    assert [found[task.id].position for task in order] == [1, 2, 3, 4, 5, 6]
    assert claimed == [task.id for task in order]
    assert not any(place.lower_bound for place in found.values())


@pytest.mark.parametrize("number", range(4))
def test_one_task_alone_is_given_the_same_place(store, number):
    tasks = [enqueued(store, now=at(-10), priority=priority) for priority in (1, 1, 0, 2)]

    assert asked(store, tasks[number])[tasks[number].id] == asked(store, *tasks)[tasks[number].id]


def test_what_is_not_due_waits_for_another_or_runs_has_no_place_and_counts_for_none(store):
    started(store)
    holder = enqueued(store, business_key="k")
    follower = enqueued(store, business_key="k", on_duplicate="after")
    later = enqueued(store, run_at=at(60))
    last = enqueued(store, now=at(1))

    found = asked(store, holder, follower, later, last, now=at(1))

    assert {task_id: place.position for task_id, place in found.items()} == {holder.id: 1, last.id: 2}


def test_more_than_a_thousand_ahead_are_not_counted(store):
    fill(store, MOST_AHEAD + 50, {"queue": "default"}, at=NOW)
    first = enqueued(store, priority=1)
    last = enqueued(store, now=at(1))
    lines = store.lines([first, last], now=at(1))
    line = lines.lines["default"]

    assert len(line.waiting) == MOST_AHEAD
    assert (line.behind(first), line.behind(last)) == (False, True)
    assert places(lines, {}, NOW)[first.id].position == 1
    assert last.id not in places(lines, {}, NOW)


def test_the_thousandth_is_counted(store):
    fill(store, MOST_AHEAD - 1, at=NOW)
    last = enqueued(store, now=at(1))

    assert asked(store, last, now=at(1))[last.id].position == MOST_AHEAD


def test_however_many_tasks_are_asked_about_the_database_is_asked_a_few_times(store):
    tasks = [enqueued(store, queue=f"queue-{number % 10}") for number in range(50)]
    found: dict[str, Place] = {}
    tables = ("tasks", "queues", "workers", "durations")

    heard = sent(store, lambda: found.update(asked(store, *tasks)), *tables)

    assert {place.position for place in found.values()} == {1, 2, 3, 4, 5}
    assert 1 <= len(heard) <= 6


def test_tasks_start_as_slots_become_free(store):
    worker(store, slots=2)
    took(store, t=60)
    tasks = [enqueued(store, now=at(number)) for number in range(5)]

    assert starts(store, *tasks, now=at(5)) == [0, 0, 60, 60, 120]


def test_what_runs_keeps_its_slot_for_as_long_as_it_says(store):
    worker(store, slots=2)
    took(store, t=60)
    first, second = started(store), started(store)
    store.report([Report(first, Progress(0.5), timedelta(seconds=10))], now=NOW)
    tasks = [enqueued(store, now=at(number)) for number in range(3)]

    waits = starts(store, *tasks, now=at(4))
    # the second has said nothing: as long as another that has run for four seconds of some sixty
    assert (waits[0], waits[2]) == (6, 66)
    assert waits[1] == pytest.approx(56, abs=15)
    assert second.id not in asked(store, *tasks, now=at(4))


def test_a_type_that_nobody_has_seen_end_takes_as_long_as_the_others(store):
    worker(store, slots=1)
    took(store, t=40, u=20)
    tasks = [enqueued(store, now=at(number), task_type=name) for number, name in enumerate("tu?t")]

    assert starts(store, *tasks, now=at(9)) == [0, 40, 60, pytest.approx(60 + 100 / 3, abs=1)]


def test_where_nobody_can_tell_there_is_no_expected_start(store):
    task, other = enqueued(store), enqueued(store, now=at(1))
    assert starts(store, task, other, now=at(1)) == [None, None]

    worker(store, slots=1, heard=at(1))
    assert starts(store, task, other, now=at(1)) == [0, None]

    took(store, t=7)
    assert starts(store, task, other, now=at(1)) == [0, 7]


@pytest.mark.parametrize(
    "how", [{"heard": NOW - LEASE - timedelta(seconds=1)}, {"stopping": True}, {"queues": {"another": 5}}]
)
def test_a_worker_that_is_silent_stops_or_serves_other_queues_starts_nothing(store, how):
    worker(store, **how)
    took(store, t=7)
    task = enqueued(store)

    assert starts(store, task) == [None]
    assert asked(store, task)[task.id].position == 1


def test_a_workers_capacity_bounds_what_runs_at_once(store):
    worker(store, queues={"default": 10}, capacity={"chromium": 2.0})
    took(store, t=60)
    tasks = [enqueued(store, now=at(number)) for number in range(3)]

    assert starts(store, *tasks, now=at(9), needs={"t": {"chromium": 1.0}}) == [0, 0, 60]
    assert starts(store, *tasks, now=at(9), needs={"t": {"gpu": 1.0}}) == [None, None, None]


def test_a_paused_queue_has_places_and_no_expected_start(store):
    worker(store)
    task = enqueued(store)
    with store.connections.writing() as connection:
        connection.execute(sa.insert(store.tables.queues).values(name="default", paused=True))

    assert asked(store, task)[task.id] == Place(1)


def test_a_place_says_whether_a_worker_that_lives_serves_the_queue(store):
    task = enqueued(store)
    worker(store, "other", queues={"elsewhere": 2})
    assert [place.served for place in asked(store, task).values()] == [False]

    worker(store, "w9", queues={"default": 1})
    assert [place.served for place in asked(store, task).values()] == [True]
    later = NOW + timedelta(minutes=5)
    assert [place.served for place in asked(store, task, now=later).values()] == [False]


def test_nothing_is_asked_of_the_database_for_no_task(store):
    assert store.lines([], now=NOW) == Lines({})
    assert sent(store, lambda: store.lines([], now=NOW)) == []
