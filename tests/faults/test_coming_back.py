"""Workers that are killed, restarted and replaced: what they held comes back, and is charged to the right budget."""

from __future__ import annotations

import os
import signal
import time

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import Status
from tests.faults.test_kill import SHORT
from tests.support.databases import SQLITE_AT_ONCE
from tests.support.waiting import until
from tests.support.workers import Place, ended

# A worker under a namespace of its own is process 1 there, each time.
PID_1 = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def back_after_all_were_dead(here: Place, waiter: Dumbwaiter, gap: float) -> None:
    here.settings.update(SHORT)
    tasks = [waiter.enqueue(name, {"attempts": 2}) for name in ("persevere", "persevere-alone") * 2]
    workers = [here.start_worker("-q", "default=2") for _ in range(2)]
    until(lambda: len(here.starts()) == 4)
    for worker in workers:
        os.killpg(worker.pid, signal.SIGKILL)
    seen = set()
    alone = time.monotonic() + gap
    while time.monotonic() < alone:
        seen |= {waiter.get(task.id).status for task in tasks}
        time.sleep(0.1)
    here.start_worker("-q", "default=4")
    found = ended(waiter, tasks)

    assert {Status.RUNNING} == seen
    assert [(Status.SUCCESS, 2, 1, 0)] * 4 == [
        (task.status, task.attempt, task.crash_count, task.retry_count) for task in found
    ]
    ready = here.log().rindex(" started")
    assert "taken back from a dead worker" in here.log()[ready:]
    until(lambda: len(list((here.home / "work").iterdir())) == 2)  # the living worker's directory and lock


@pytest.mark.parametrize("database_kind", SQLITE_AT_ONCE, indirect=True)
def test_what_no_worker_is_left_to_take_back_waits_for_the_next_one(here: Place, waiter: Dumbwaiter) -> None:
    back_after_all_were_dead(here, waiter, gap=3)


@pytest.mark.long
@pytest.mark.timeout(150)
def test_what_no_worker_is_left_to_take_back_for_a_minute_waits_for_the_next_one(
    here: Place, waiter: Dumbwaiter
) -> None:
    back_after_all_were_dead(here, waiter, gap=60)


@pytest.mark.service("mounts")
@pytest.mark.parametrize("database_kind", SQLITE_AT_ONCE, indirect=True)
def test_workers_of_one_host_and_one_pid_are_not_taken_for_each_other(
    here: Place, waiter: Dumbwaiter
) -> None:
    here.settings.update(SHORT)
    living = here.start_worker("-q", "stays=1", inside=PID_1)
    stays = waiter.enqueue("persevere-alone", {"attempts": 2}, queue="stays")
    until(lambda: list((here.home / "work").glob("*/*/pillow.txt")))
    dying = here.start_worker("-q", "falls=1", inside=PID_1)
    falls = waiter.enqueue("persevere-alone", {"attempts": 2}, queue="falls")
    until(lambda: len(list((here.home / "work").glob("*/*/pillow.txt"))) == 2)
    assert 1 == len({worker.pid for worker in waiter.store.workers()})
    os.killpg(dying.pid, signal.SIGKILL)

    here.start_worker("-q", "falls=1", inside=PID_1)
    [found] = ended(waiter, [falls])
    assert (Status.SUCCESS, 2, 1) == (found.status, found.attempt, found.crash_count)
    # the other one went on all the while, with its directory, though its pid had died and been born again beside it
    assert (Status.RUNNING, 1, 1) == (
        (running := waiter.get(stays.id)).status,
        running.attempt,
        len(here.starts(stays.id)),
    )
    assert (here.home / "work" / str(running.worker_id) / f"{stays.id}-1" / "pillow.txt").exists()
    assert living.poll() is None


@pytest.mark.parametrize("database_kind", SQLITE_AT_ONCE, indirect=True)
def test_four_interruptions_and_a_crash_are_charged_to_budgets_of_their_own(
    here: Place, waiter: Dumbwaiter
) -> None:
    here.settings.update(SHORT | {"DUMBWAITER_SHUTDOWN_GRACE": "100ms"})
    task = waiter.enqueue("persevere", {"attempts": 6})
    for number in range(1, 7):
        worker = here.start_worker()
        until(lambda number=number: len(here.starts()) == number)  # type: ignore[misc]
        if number < 5:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(10) == 0
        elif number == 5:
            os.killpg(worker.pid, signal.SIGKILL)
    [found] = ended(waiter, [task])

    assert (Status.SUCCESS, 6, 4, 1, 0) == (
        found.status,
        found.attempt,
        found.interruption_count,
        found.crash_count,
        found.retry_count,
    )
    outcomes = [attempt.outcome for attempt in waiter.attempts(task.id)]
    assert ["interrupted"] * 4 + ["crashed", "success"] == outcomes


@pytest.mark.parametrize("database_kind", SQLITE_AT_ONCE, indirect=True)
def test_a_task_that_never_started_has_used_no_attempt_when_a_full_worker_is_killed(
    here: Place, waiter: Dumbwaiter
) -> None:
    here.settings.update(SHORT)
    long = [waiter.enqueue("persevere", {"attempts": 2}) for _ in range(8)]
    workers = [here.start_worker("-q", "default=4") for _ in range(2)]
    until(lambda: len(here.starts()) == 8)
    short = [waiter.enqueue("nap", {"seconds": 0.05}) for _ in range(40)]
    os.killpg(workers[0].pid, signal.SIGKILL)
    assert [(Status.PENDING, 0)] * 40 == [
        ((one := waiter.get(task.id)).status, one.attempt) for task in short
    ]

    here.start_worker("-q", "default=4")
    found = ended(waiter, short)
    assert [(Status.SUCCESS, 1, 0)] * 40 == [(task.status, task.attempt, task.crash_count) for task in found]
    back = until(
        lambda: [one for one in waiter.find(limit=100) if one.attempt == 2 and one.status.final] or None
    )
    until(lambda: len([task for task in long if waiter.get(task.id).status.final]) == 4)
    assert {Status.SUCCESS} == {task.status for task in back}


@pytest.mark.parametrize("database_kind", SQLITE_AT_ONCE, indirect=True)
def test_a_task_whose_worker_is_stopped_is_cancelled_all_the_same(here: Place, waiter: Dumbwaiter) -> None:
    here.settings.update(SHORT)
    tasks = [waiter.enqueue(name, {"attempts": 9}) for name in ("persevere", "persevere-alone")]
    first = here.start_worker()
    until(lambda: len(here.starts()) == 2)
    here.freeze(first)
    try:
        here.start_worker()
        asked = [waiter.cancel(task.id) for task in tasks]
        found = ended(waiter, tasks)
    finally:
        os.killpg(first.pid, signal.SIGCONT)

    assert {"cancelling"} == {task.phase(waiter.store.now()) for task in asked}
    assert [(Status.CANCELLED, 1)] * 2 == [(task.status, task.attempt) for task in found]
    # it wakes, sees that both are not its own any more, and ends them
    until(lambda: here.log().count("asked to stop: lost") == 2)
    until(lambda: not list((here.home / "work").glob("*/*")))
    assert found == [waiter.get(task.id) for task in tasks]
    assert (2, 0) == (len(here.starts()), len([one for one in here.ledger() if one.event == "end"]))
