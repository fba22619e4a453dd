"""Tasks that are claimed before a slot is free for them: whatever happens to their worker, what never began is charged nothing."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import AttemptOutcome, Status, Task
from tests.support import snacks
from tests.support.waiting import until
from tests.support.workers import Place, ended

pytestmark = pytest.mark.parametrize(
    "database_kind",
    [
        pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
        pytest.param("sqlite", marks=pytest.mark.long),
        pytest.param("mysql", marks=[pytest.mark.long, pytest.mark.service("mysql")]),
    ],
)
SHORT = {
    "DUMBWAITER_LEASE": "4s",
    "DUMBWAITER_HEARTBEAT": "500ms",
    "DUMBWAITER_SWEEP": "500ms",
}
WARM = 40


@pytest.fixture
def waiter(here: Place) -> Iterator[Dumbwaiter]:
    here.settings.update(SHORT)
    waiter = here.app(snacks.waiter)
    yield waiter
    waiter.close()


def start_knowing(here: Place, waiter: Dumbwaiter) -> subprocess.Popen[bytes]:
    """A worker of one slot, which has learned that its tasks are short."""
    worker = here.start_worker("-q", "default=1", app=snacks.APP)
    ended(waiter, [waiter.enqueue("bite") for _ in range(WARM)])
    return worker


def claimed_ahead(waiter: Dumbwaiter, tasks: Sequence[Task]) -> list[Task]:
    return [task for task in map(waiter.get, [task.id for task in tasks]) if task.ahead]


def test_what_a_killed_worker_had_claimed_ahead_is_charged_no_crash(here: Place, waiter: Dumbwaiter) -> None:
    worker = start_knowing(here, waiter)
    with waiter.store.connections.writing() as connection:
        # in one transaction, so that the worker meets all of them at once. The meal is not too long: if the table knows by the kill that
        # it has begun, it has crashed a worker, and the others wait while it runs alone
        meal = waiter.enqueue("meal", {"seconds": 10}, connection=connection)
        bites = [waiter.enqueue("bite", connection=connection) for _ in range(5)]
        singles = [waiter.enqueue("once", {"seconds": 0}, connection=connection) for _ in range(2)]
    until(lambda: len(claimed_ahead(waiter, [*bites, *singles])) == 7 and here.starts(meal.id))
    os.killpg(worker.pid, signal.SIGKILL)
    here.start_worker("-q", "default=5", app=snacks.APP)

    for task in ended(waiter, [*bites, *singles]):
        assert (Status.SUCCESS, 2, 0) == (task.status, task.attempt, task.crash_count), task
        assert AttemptOutcome.NOT_BEGUN is waiter.attempts(task.id)[0].outcome
        assert len(here.starts(task.id)) == 1


def test_what_gets_no_slot_soon_enough_is_given_back_to_workers_that_have_one(
    here: Place, waiter: Dumbwaiter
) -> None:
    start_knowing(here, waiter)
    with waiter.store.connections.writing() as connection:
        waiter.enqueue("meal", {"seconds": 60}, connection=connection)
        bites = [waiter.enqueue("bite", connection=connection) for _ in range(5)]
    until(lambda: len(claimed_ahead(waiter, bites)) == 5)
    here.start_worker("-q", "default=5", app=snacks.APP)

    for task in ended(waiter, bites):
        assert (Status.SUCCESS, 2, 0, 0) == (
            task.status,
            task.attempt,
            task.crash_count,
            task.interruption_count,
        )
        assert len(here.starts(task.id)) == 1


@pytest.mark.long
def test_a_worker_that_is_stopped_gives_back_what_it_claimed_ahead(here: Place, waiter: Dumbwaiter) -> None:
    here.settings["DUMBWAITER_SHUTDOWN_GRACE"] = "100ms"
    worker = start_knowing(here, waiter)
    with waiter.store.connections.writing() as connection:
        waiter.enqueue("meal", {"seconds": 60}, connection=connection)
        bites = [waiter.enqueue("bite", connection=connection) for _ in range(5)]
    until(lambda: len(claimed_ahead(waiter, bites)) == 5)
    worker.terminate()
    assert worker.wait(10) == 0

    for task in [waiter.get(task.id) for task in bites]:
        assert (Status.PENDING, 1, 0, 0) == (
            task.status,
            task.attempt,
            task.crash_count,
            task.interruption_count,
        )
        assert here.starts(task.id) == []


@pytest.mark.long
def test_a_poison_among_what_is_claimed_ahead_is_found_out_and_harms_nobody_twice(
    here: Place, waiter: Dumbwaiter
) -> None:
    worker = start_knowing(here, waiter)
    with waiter.store.connections.writing() as connection:
        bites = [waiter.enqueue("bite", connection=connection) for _ in range(3)]
        poison = waiter.enqueue("poison", connection=connection)
        bites += [waiter.enqueue("bite", connection=connection) for _ in range(3)]
    deaths = 0
    while not (found := waiter.get(poison.id)).status.final:
        if worker.poll() is not None:
            deaths += 1
            worker = here.start_worker("-q", "default=1", app=snacks.APP)
        until(lambda: worker.poll() is not None or waiter.get(poison.id).status.final)  # noqa: B023 - called at once

    assert Status.FAILED is found.status
    assert found.max_crash_count <= deaths <= found.max_crash_count + 1
    if worker.poll() is not None:
        here.start_worker("-q", "default=1", app=snacks.APP)
    for task in ended(waiter, bites):
        assert Status.SUCCESS is task.status
        assert task.crash_count <= 1
