"""What everybody sees of a task's way while a worker runs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dumbwaiter import Dumbwaiter
from tests.support import oven
from tests.support.waiting import until
from tests.support.workers import Place


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
