"""What everybody sees of a task's way while a worker runs it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.eta import History
from tests.support import oven
from tests.support.databases import KINDS
from tests.support.waiting import until
from tests.support.workers import Place, ended


@pytest.fixture
def waiter(here: Place) -> Iterator[Dumbwaiter]:
    waiter = here.app(oven.waiter)
    yield waiter
    waiter.close()


@pytest.mark.parametrize("task_type", ["bake", "bake-alone", "bake-by-command"])
def test_a_fraction_of_a_step_is_seen_as_a_fraction_of_the_whole(waiter, start_worker, task_type):
    start_worker()
    task = waiter.enqueue(task_type)
    seen = until(lambda: found if (found := waiter.get(task.id)).progress else None)

    assert (0.5, "baking", "cake 2 of 4") == (seen.progress, seen.current_step, seen.message)
    [outlook] = waiter.outlooks([seen])
    assert ["done", "current", "waiting"] == [step.state for step in outlook.steps]
    waiter.cancel(task.id)


def test_a_task_that_says_nothing_has_an_estimate_once_others_of_its_type_have_told(waiter, start_worker):
    history = History.of(40)
    for _ in range(4):
        history = history.merged(History.of(40))
    waiter.store.add_durations({"brood": history})
    start_worker()
    task = waiter.enqueue("brood")
    seen = until(lambda: found if (found := waiter.get(task.id)).estimated_finish_at else None)
    now = waiter.store.now()

    left, between = seen.remaining(now), seen.remaining_range(now)
    assert timedelta(seconds=25) < left < timedelta(seconds=45)
    assert between[0] < left < between[1]
    assert (seen.progress, seen.current_step) == (0, None)
    waiter.cancel(task.id)


def test_the_first_task_of_a_type_that_says_nothing_has_no_estimate(waiter, start_worker):
    start_worker()
    task = waiter.enqueue("brood")
    until(lambda: waiter.get(task.id).status == "running")
    time.sleep(3)  # no luck is waited for: after two it would be there

    assert waiter.get(task.id).estimated_finish_at is None
    waiter.cancel(task.id)


def test_what_tasks_took_and_how_they_came_along_outlives_their_worker(waiter, start_worker):
    worker = start_worker()
    risen, _ = ended(waiter, [waiter.enqueue("rise"), waiter.enqueue("fall")])
    worker.stop()
    assert worker.join(20)
    # on a busy machine a stop does not wait for this
    known = until(waiter.store.durations)

    assert set(known) == {"rise"}
    assert known["rise"].mean_seconds > 1
    # how it came along, as the task itself saw it
    assert known["rise"].share(0.5)[0] == pytest.approx(risen.result, abs=0.15)


@pytest.mark.parametrize("task_type", ["chatter", "chatter-alone"])
def test_however_often_a_task_reports_it_is_written_twice_a_second(waiter, start_worker, task_type):
    start_worker()
    [task] = ended(waiter, [waiter.enqueue(task_type, {"seconds": 3})])

    # claimed, ended, and two a second; a look may come late, and never early
    assert 3 <= task.version <= 2 + 3 * 2 + 1
    assert task.result > 1_000


@pytest.mark.parametrize(
    "database_kind", KINDS[1:], indirect=True
)  # on SQLite a transaction locks everybody out
def test_progress_is_seen_while_the_tasks_own_transaction_is_open(waiter, start_worker):
    start_worker()
    task = waiter.enqueue("linger")
    seen = until(lambda: found if (found := waiter.get(task.id)).progress else None, 10)

    assert (seen.status, seen.progress, seen.message) == ("running", 0.5, "in a transaction")
    waiter.cancel(task.id)
