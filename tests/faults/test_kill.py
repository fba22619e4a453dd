"""Workers that are killed, stopped and blocked; what they did is told by a ledger outside the product."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.executors.guardian import process
from dumbwaiter.settings import Settings
from dumbwaiter.task import AttemptOutcome, Status
from dumbwaiter.worker.stager import REST
from tests.support.trials import still
from tests.support.waiting import until
from tests.support.workers import Place, ended

SHORT = {
    "DUMBWAITER_LEASE": "2s",
    "DUMBWAITER_HEARTBEAT": "400ms",
    "DUMBWAITER_SWEEP": "500ms",
    "DUMBWAITER_POLL": "200ms",
}


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "database_kind",
    [
        pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
        pytest.param("sqlite", marks=pytest.mark.long),
        pytest.param("mysql", marks=[pytest.mark.long, pytest.mark.service("mysql")]),
    ],
)
def test_eight_workers_drain_two_thousand_tasks_and_only_those_of_the_two_killed_start_twice(
    here: Place, waiter: Dumbwaiter
) -> None:
    # eight workers on two cores: a beat may be late by a second or two
    here.settings.update(SHORT | {"DUMBWAITER_LEASE": "6s"})
    tasks = [waiter.enqueue("flicker") for _ in range(2_000)]
    workers = [here.start_worker("-q", "default=4") for _ in range(8)]
    killed = []
    for share in (0.2, 0.5):
        until(lambda share=share: len(here.starts_by_task()) > 2_000 * share, 60)  # type: ignore[misc]
        # one that is at work at this moment, by the ledger
        last = {one.pid for one in here.starts()[-8:]}
        victim = next(process for process in workers if process.pid in last)
        os.killpg(victim.pid, signal.SIGKILL)
        killed.append(victim.pid)
        workers.remove(victim)
    # in one statement: between two, a sweep takes a task from running to pending
    until(lambda: all(task.status.final for task in waiter.find(limit=3_000)), 60, every=0.2)

    found = {task.id: task for task in waiter.find(limit=3_000)}
    assert [] == [
        found[task.id].error_message for task in tasks if found[task.id].status is not Status.SUCCESS
    ]
    starts = here.starts()
    assert {task.id for task in tasks} == {one.task_id for one in starts}
    for task_id, count in here.starts_by_task().items():
        if count > 1:
            first = [one for one in starts if one.task_id == task_id]
            assert {one.pid for one in first[:-1]} <= set(killed), first


def test_the_defaults_promise_a_start_within_thirty_seconds() -> None:
    settings = Settings()
    # silent for a lease, then a sweep, then a claim; a beat may have come just before the death
    # what ran within the worker has to run alone next time, and an empty worker looks for that once a second
    longest = settings.lease + settings.sweep + max(settings.poll, timedelta(seconds=REST))

    assert longest + timedelta(seconds=2) <= timedelta(seconds=30)


@pytest.mark.timeout(90)
def test_with_the_defaults_a_task_of_a_killed_worker_starts_again_within_35_seconds(
    here: Place, waiter: Dumbwaiter
) -> None:
    task = waiter.enqueue("slumber", {"seconds": 1_000})
    first = here.start_worker()
    until(lambda: here.starts())
    here.start_worker()
    os.killpg(first.pid, signal.SIGKILL)
    died = time.time()
    again = until(lambda: found if len(found := here.starts()) == 2 else None, 45)

    waited = again[1].at - died
    print(f"\nstarted again after {waited:.1f} s on {waiter.store.kind}")
    assert waited <= 35
    [attempt] = waiter.attempts(task.id)
    assert AttemptOutcome.CRASHED is attempt.outcome
    assert (2, 0, 1) == ((found := waiter.get(task.id)).attempt, found.retry_count, found.crash_count)


def test_the_late_result_of_a_worker_that_was_stopped_past_its_lease_is_rejected(
    here: Place, waiter: Dumbwaiter
) -> None:
    here.settings.update(SHORT)
    first = here.start_worker()
    task = waiter.enqueue("doze", {"seconds": 4})
    until(lambda: here.starts())
    here.freeze(first)
    second = here.start_worker()
    until(lambda: len(here.starts()) == 2)
    os.killpg(first.pid, signal.SIGCONT)
    [found] = ended(waiter, [task])

    assert (Status.SUCCESS, 2) == (found.status, found.attempt)
    assert str(second.pid) in str(found.worker_id or until(lambda: here.starts()[1].more["worker"]))
    # the first one notices, stops, and nothing of it is recorded as a result
    until(lambda: "asked to stop: lost" in here.log() or "had lost its task" in here.log())
    assert [1, 2] == [attempt.number for attempt in waiter.attempts(task.id)]
    assert found == waiter.get(task.id)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_worker_that_wakes_when_another_has_finished_its_task_changes_nothing_of_it(
    here: Place, waiter: Dumbwaiter
) -> None:
    here.settings.update(SHORT)
    first = here.start_worker()
    task = waiter.enqueue("brood", {"seconds": 4})
    hatched = until(lambda: [one for one in here.ledger() if one.event == "hatched"], 60)
    chick = process(int(hatched[0].more["chick"]))
    assert chick is not None
    here.freeze(first)
    second = here.start_worker()
    [found] = ended(waiter, [task], 60)
    assert (Status.SUCCESS, 2) == (found.status, found.attempt)
    os.killpg(first.pid, signal.SIGCONT)
    until(lambda: "asked to stop: lost" in here.log() or "had lost its task" in here.log())

    # what it ran is gone, and what stands is the second one's
    until(lambda: not still(chick))
    until(lambda: not list((here.home / "work").glob(f"*-{first.pid}-*/*")))
    assert found == waiter.get(task.id)
    assert [2] == [file.attempt for file in found.files]
    assert [1, 2] == [attempt.number for attempt in waiter.attempts(task.id)]
    assert [None, None] == [first.poll(), second.poll()]


def test_a_blocked_event_loop_does_not_cost_a_healthy_task_its_claim(here: Place, waiter: Dumbwaiter) -> None:
    here.settings.update(SHORT)
    here.start_worker()
    here.start_worker()
    task = waiter.enqueue("spin", {"seconds": 6})
    [found] = ended(waiter, [task])

    assert (Status.SUCCESS, 1, 1) == (found.status, found.attempt, len(here.starts()))


def test_a_healthy_task_that_outlives_many_leases_is_started_once(here: Place, waiter: Dumbwaiter) -> None:
    here.settings.update(SHORT)
    for _ in range(3):
        here.start_worker()
    tasks = [waiter.enqueue(name, {"seconds": 8}) for name in ("nap", "doze", "slumber")]
    found = ended(waiter, tasks)

    assert [1, 1, 1] == [task.attempt for task in found]
    assert {1} == set(here.starts_by_task().values())


def test_a_task_that_kills_its_workers_ends_as_failed(here: Place, waiter: Dumbwaiter) -> None:
    here.settings.update(SHORT)
    task = waiter.enqueue("doze", {"seconds": 60})
    for death in range(3):
        here.start_worker()
        start = until(lambda death=death: found[death] if len(found := here.starts()) > death else None)  # type: ignore[misc]
        os.killpg(start.pid, signal.SIGKILL)
    here.start_worker()
    [found] = ended(waiter, [task])

    assert (Status.FAILED, 3, 3) == (found.status, len(here.starts()), found.attempt)
    assert "the worker died while running this task (3 times)" in str(found.error_message)


def test_cancelling_a_task_whose_worker_is_dead_ends_it_without_running_it_again(
    here: Place, waiter: Dumbwaiter
) -> None:
    here.settings.update(SHORT)
    first = here.start_worker()
    task = waiter.enqueue("doze", {"seconds": 60})
    until(lambda: here.starts())
    os.killpg(first.pid, signal.SIGKILL)
    waiter.cancel(task.id)
    here.start_worker()
    [found] = ended(waiter, [task])

    assert (Status.CANCELLED, 1) == (found.status, len(here.starts()))


def test_nothing_of_a_killed_worker_is_left_once_the_next_one_has_started(
    here: Place, waiter: Dumbwaiter
) -> None:
    here.settings.update(SHORT)
    first = here.start_worker()
    living = here.start_worker()
    for _ in range(2):
        waiter.enqueue("slumber", {"seconds": 60})
    until(lambda: len(list((here.home / "work").glob("*/*/pillow.txt"))) == 2)
    victim_name = next(one.more["worker"] for one in here.starts())
    victim = first if f"-{first.pid}-" in victim_name else living
    os.killpg(victim.pid, signal.SIGKILL)
    before = len(waiter.store.workers())
    here.start_worker()
    until(lambda: len(waiter.store.workers()) > before)

    until(lambda: not list((here.home / "work").glob(f"{victim_name}*")))
    survivors = {one.more["worker"] for one in here.starts()} - {victim_name}
    for name in survivors:
        assert (here.home / "work" / name).is_dir()
