"""Heartbeats, and what becomes of tasks whose worker fell silent."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

import psycopg
import pymysql
import pytest
import sqlalchemy as sa

from dumbwaiter.retry import Retry, decide
from dumbwaiter.store.rows import WorkerRow
from dumbwaiter.store.types import sortable
from dumbwaiter.task import AttemptOutcome, Status
from tests.store.world import LEASE, NOW, at, claimed_ids, end, enqueued, row, started, want


def registered(store, name="w1", now=NOW):
    worker = WorkerRow(name, "host", 7, "1.0", {"default": 10}, {"chromium": 1.0}, NOW, NOW, stopping=False)
    store.register(worker, now=now)
    return worker


def test_a_worker_silent_for_a_lease_loses_its_task_and_no_sooner(store):
    task = started(store)

    assert store.rescue(LEASE, now=at(20)) == []
    [(rescued, outcome)] = store.rescue(LEASE, now=at(20.001))

    assert (rescued.id, outcome.status) == (task.id, Status.PENDING)
    assert claimed_ids(store, now=at(21), worker="w2") == [task.id]


def test_a_worker_whose_first_word_got_no_answer_says_it_again(store):
    registered(store)
    registered(store, now=at(1))

    [worker] = store.workers()
    assert (worker.name, worker.started_at) == ("w1", at(1))


def test_a_rescue_is_charged_to_the_crash_budget_and_not_to_the_retries(store):
    task = started(store)

    store.rescue(LEASE, now=at(30))

    again = store.get(task.id)
    assert (again.crash_count, again.retry_count, again.interruption_count) == (1, 0, 0)
    assert (again.attempt, again.error_type) == (1, "WorkerDied")
    assert "w1 was last heard of at 2026-01-01 12:00:00 UTC" in again.error_message
    assert [attempt.outcome for attempt in store.attempts(task.id)] == [AttemptOutcome.CRASHED]


def test_a_poison_task_ends_when_its_crash_budget_is_spent(store):
    task = started(store, max_crash_count=3)
    for crash in range(3):
        store.rescue(LEASE, now=at(100 * crash + 50))
        claimed_ids(store, now=at(100 * crash + 60))

    failed = store.get(task.id)
    assert (failed.status, failed.crash_count + 1) == ("failed", 3)
    assert "the worker died while running this task (3 times)" in failed.error_message


def test_a_task_that_must_not_be_repeated_is_not(store):
    task = started(store, max_crash_count=0)

    store.rescue(LEASE, now=at(30))

    failed = store.get(task.id)
    assert (failed.status, failed.error_type) == ("failed", "unknown-outcome")


def test_a_task_that_was_being_cancelled_is_ended_and_never_run_again(store):
    task = started(store)
    store.cancel(task.id, now=at(1))

    [(_, outcome)] = store.rescue(LEASE, now=at(30))

    assert outcome.status is store.get(task.id).status is Status.CANCELLED


def test_a_healthy_task_is_never_rescued_however_long_it_takes(store):
    task = started(store, timeout=None)
    for beat in range(0, 720, 16):
        assert store.heartbeat("w1", now=at(beat)) == 1
        assert store.rescue(LEASE, now=at(beat + 16)) == []

    assert store.get(task.id).attempt == 1


def test_a_heartbeat_is_for_the_tasks_of_its_worker_alone(store):
    mine, other = started(store, worker="w1"), started(store, worker="w2")
    waiting = enqueued(store)

    assert store.heartbeat("w1", now=at(10)) == 1

    assert [row(store, task.id)["heartbeat_at"] for task in (mine, other, waiting)] == [at(10), NOW, None]


def test_a_heartbeat_counts_only_until_the_tasks_time_is_over(store):
    task = started(store, timeout=timedelta(seconds=60))  # and 33 s of grace, see want()

    assert [store.heartbeat("w1", now=at(seconds)) for seconds in (92.9, 93, 100)] == [1, 0, 0]
    assert [rescued.id for rescued, _ in store.rescue(LEASE, now=at(113))] == [task.id]


def test_a_task_over_its_time_is_rescued_from_a_worker_that_lives(store):
    registered(store)
    task = started(store, timeout=timedelta(seconds=60))
    for beat in (90, 100, 110, 120):
        store.heartbeat("w1", now=at(beat))

    assert [rescued.id for rescued, _ in store.rescue(LEASE, now=at(121))] == [task.id]


def test_a_task_whose_row_the_heartbeat_could_not_reach_is_not_rescued_from_a_worker_that_lives(store):
    registered(store)
    started(store)
    workers = store.tables.workers
    with store.connections.writing() as connection:
        connection.execute(workers.update().values(heartbeat_at=at(25)))

    assert store.rescue(LEASE, now=at(30)) == []
    assert len(store.rescue(LEASE, now=at(46))) == 1


@pytest.mark.service("postgresql")
def test_a_row_that_somebody_has_locked_does_not_silence_the_other_tasks_of_its_worker(empty_store):
    store = empty_store("postgresql")
    locked, free = started(store), started(store)
    tasks = store.tables.tasks
    with store.connections.writing() as connection:
        connection.execute(sa.select(tasks.c.id).where(tasks.c.id == locked.id).with_for_update())

        assert store.heartbeat("w1", now=at(10)) == 1
        assert store.rescue(LEASE, now=at(25)) == []

    assert [row(store, task.id)["heartbeat_at"] for task in (locked, free)] == [NOW, at(10)]


def test_a_rescue_takes_no_more_than_its_limit_the_longest_silent_first(store):
    tasks = [started(store, now=at(seconds)) for seconds in (2, 0, 1)]

    rescued = [task.id for task, _ in store.rescue(LEASE, now=at(60), limit=2)]

    assert rescued == [tasks[1].id, tasks[2].id]


def test_a_retry_and_a_release_end_the_lease(store):
    task = started(store)
    end(store, task, decide(task, ConnectionError(), Retry()))

    assert store.rescue(LEASE, now=at(99)) == []


def test_a_clock_that_jumps_ahead_takes_the_time_in_which_heartbeats_count_along(store):
    mine, others = started(store, worker="w1"), started(store, worker="w2")
    later = at(7_200)
    assert store.heartbeat("w1", now=later) == 0

    store.mind_jump("w1", timedelta(hours=2), now=later)

    assert store.heartbeat("w1", now=later) == 1
    assert store.heartbeat("w2", now=later) == 0
    moved = row(store, mine.id)["beat_until"] - row(store, others.id)["beat_until"]
    assert moved == timedelta(hours=2)
    assert [task.id for task, _ in store.rescue(LEASE, now=later)] == [others.id]


def test_heartbeats_ahead_of_a_clock_that_was_set_back_do_not_keep_what_the_dead_hold(store):
    registered(store, "w1", now=at(7_200))
    task = started(store, now=at(7_200))
    living = started(store, worker="w2", now=at(0))
    assert store.rescue(LEASE, now=at(0)) == []

    store.mind_jump("w3", timedelta(0), now=at(0))

    assert [row(store, one.id)["heartbeat_at"] for one in (task, living)] == [NOW, NOW]
    assert store.heartbeat("w2", now=at(21)) == 1
    assert [rescued.id for rescued, _ in store.rescue(LEASE, now=at(21))] == [task.id]


def bare(store):
    """Run the heartbeat's statements as its process does: with the driver alone."""
    driver, arguments = store.connections.bare()
    connect = {"sqlite3": sqlite3, "psycopg": psycopg, "pymysql": pymysql}[driver].connect
    own = {"sqlite3": {"isolation_level": None}}.get(driver, {"autocommit": True})
    connection = connect(**arguments, **own)
    counts = []
    for text, parameters in store.heartbeat_statements("w1"):
        cursor = connection.cursor()
        cursor.execute(text.replace("$now", sortable(store.now())), parameters)
        counts.append(cursor.rowcount)
        cursor.close()
    connection.close()
    return counts


def test_the_heartbeats_bare_statements_do_what_the_heartbeat_does(store):
    registered(store, now=NOW)
    task = store.claim_one(enqueued(store, now=None).id, "w1", want())
    started(store, worker="w2")
    before = store.now()

    # one statement for both on PostgreSQL
    assert bare(store) == ([1] if store.kind == "postgresql" else [1, 1])

    assert store.get(task.id).heartbeat_at >= before
    assert store.workers()[0].heartbeat_at >= before


def test_a_worker_registers_and_says_when_it_stops(store):
    registered(store, "w2", now=at(5))
    registered(store, "w1", now=at(5))

    store.mark_stopping("w2")
    first, second = store.workers()

    assert (first.name, first.stopping, second.name, second.stopping) == ("w1", False, "w2", True)
    assert (first.queues, first.capacity, first.started_at) == ({"default": 10}, {"chromium": 1.0}, at(5))
    store.unregister("w1")
    assert [worker.name for worker in store.workers()] == ["w2"]


def test_workers_that_were_silent_for_long_are_forgotten(store):
    registered(store, "old")
    registered(store, "young", now=at(50))

    store.forget_silent_workers(timedelta(seconds=60), now=at(61))

    assert [worker.name for worker in store.workers()] == ["young"]
