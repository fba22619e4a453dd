"""Many at once: enqueues of one key, ends against cancels, rescues against ends; each writer has its own connections."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter.errors import DumbwaiterError, IllegalMove
from dumbwaiter.store.rows import Finish
from dumbwaiter.task import Outcome, Status
from tests.store.racing import RACERS, raced
from tests.store.world import LEASE, at, count, enqueued, new, started, want

ROUNDS = 10


def at_once(works: Sequence[Any]) -> list[Any]:
    """Do all of these at the same moment; what each gave or raised."""
    results: list[Any] = [None] * len(works)
    begin = threading.Barrier(len(works))

    def run(number: int) -> None:
        begin.wait()
        try:
            results[number] = works[number]()
        except DumbwaiterError as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_twenty_racers_in_four_processes_that_enqueue_one_key_make_one_task(store):
    told = raced(store.settings.database, ROUNDS, finishing=False)

    for number in range(ROUNDS):
        of_round = [(task_id, created) for round_number, task_id, created in told if round_number == number]
        assert len({task_id for task_id, _ in of_round}) == 1
        assert sum(created for _, created in of_round) == 1
    assert count(store) == ROUNDS


def test_racing_enqueues_while_tasks_finish_make_one_active_task_a_key_and_every_asker_gets_a_task(store):
    told = raced(store.settings.database, ROUNDS, finishing=True)

    created = [task_id for _, task_id, new_one in told if new_one]
    assert len(told) == RACERS * ROUNDS
    assert {task_id for _, task_id, _ in told} == set(created)
    assert count(store) == len(created)
    tasks = store.tables.tasks
    assert count(store, tasks.c.active_key.is_not(None)) == count(
        store, tasks.c.status.in_(["pending", "running"])
    )


def test_a_follower_that_races_the_end_of_its_holder_is_never_left_behind(store, another):
    for number in range(15):
        key = f"k{number}"
        holder = started(store, now=at(0), business_key=key)

        def end_it(holder=holder):
            return store.finish([Finish(holder, Outcome.succeeded())], now=at(1))

        def follow(key=key):
            return another.enqueue(new(business_key=key, on_duplicate="after"), now=at(1))[0]

        _, follower = at_once([end_it, follow])

        [claimed] = store.claim(want(), "w2", now=at(2))
        assert claimed.id == follower.id
        store.finish([Finish(claimed, Outcome.succeeded())], now=at(3))


def test_replacements_that_race_leave_one_task_to_run(store, another):
    for number in range(10):
        key = f"k{number}"
        works = [
            lambda key=key, one=one: one.enqueue(new(business_key=key, on_duplicate="replace"), now=at(0))[0]
            for one in (store, another) * 3
        ]

        at_once(works)

        assert len(store.claim(want(), "w1", now=at(1))) == 1


def test_a_cancel_that_races_the_end_agrees_with_it_on_who_won(store, another):
    for _ in range(15):
        task = started(store)

        written, cancelled = at_once(
            [
                lambda task=task: store.finish([Finish(task, Outcome.succeeded())])[0],
                lambda task=task: another.cancel(task.id),
            ]
        )

        final = store.get(task.id).status
        assert written == final
        assert isinstance(cancelled, IllegalMove) == (final is Status.SUCCESS)


def test_a_cancel_that_races_a_claim_leaves_one_of_the_two(store, another):
    for _ in range(15):
        task = enqueued(store, now=None)

        claimed, cancelled = at_once(
            [lambda: store.claim(want(), "w1"), lambda task=task: another.cancel(task.id)]
        )

        if claimed:
            assert cancelled.phase(store.now()) == "cancelling"
            store.finish([Finish(claimed[0], Outcome.succeeded())])
        assert store.get(task.id).status is Status.CANCELLED


def test_rescuers_that_race_charge_one_crash(store, another):
    tasks = [started(store) for _ in range(20)]

    first, second = at_once([lambda one=one: one.rescue(LEASE, now=at(60)) for one in (store, another)])

    assert sorted(task.id for task, _ in first + second) == sorted(task.id for task in tasks)
    assert {store.get(task.id).crash_count for task in tasks} == {1}


def test_a_rescue_that_races_the_end_agrees_with_it_on_who_won(store, another):
    for _ in range(15):
        task = started(store, max_crash_count=0)

        written, rescued = at_once(
            [
                lambda task=task: store.finish([Finish(task, Outcome.succeeded())], now=at(60))[0],
                lambda: another.rescue(LEASE, now=at(60)),
            ]
        )

        assert (written is Status.SUCCESS) != bool(rescued)
        assert store.get(task.id).status is (Status.FAILED if rescued else Status.SUCCESS)


def test_stagers_that_race_make_each_task_ready_once(store, another):
    for _ in range(50):
        enqueued(store, delay=timedelta(seconds=1))

    staged = at_once([lambda one=one: one.stage(now=at(2)) for one in (store, another) * 2])

    assert sum(staged) == 50


def test_beats_ends_and_reports_of_one_worker_never_stop_each_other(store, another):
    """Beats lock rows in the order of the index, ends in the order in which they came."""
    tasks = [started(store, worker="w1") for _ in range(60)]
    backwards = list(reversed(tasks))
    done = threading.Event()

    def beat():
        while not done.is_set():
            another.heartbeat("w1", now=at(1))

    def finish():
        written = []
        for begin in range(0, 60, 12):
            written += store.finish(
                [Finish(task, Outcome.succeeded()) for task in backwards[begin : begin + 12]]
            )
        done.set()
        return written

    _, written = at_once([beat, finish])

    assert written == [Status.SUCCESS] * 60


@pytest.mark.service("mysql")
def test_mysql_that_is_asked_for_a_key_by_more_threads_than_it_has_connections_serves_them_all(empty_store):
    store = empty_store("mysql")
    works = [lambda: store.enqueue(new(business_key="k"))[0].id for _ in range(60)]

    ids = at_once(works)

    assert len(set(ids)) == 1
    assert isinstance(ids[0], str)


def test_a_task_is_never_ended_twice_by_two_who_hold_the_same_fence(store, another):
    task = started(store)
    ends = [
        lambda: store.finish([Finish(task, Outcome.succeeded("one"))])[0],
        lambda: another.finish([Finish(task, Outcome.succeeded("two"))])[0],
    ]

    at_once(ends)

    attempts = store.tables.attempts
    with store.connections.reading() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(attempts)).scalar() == 0
    assert store.get(task.id).version == 2
