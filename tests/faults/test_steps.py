"""Tasks in steps whose worker is killed or stopped: finished steps do not run again, and late ones change nothing."""

from __future__ import annotations

import os
import signal

import pytest
import sqlalchemy as sa

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import Status
from tests.faults.test_kill import SHORT
from tests.support import larder
from tests.support.waiting import until
from tests.support.workers import Place, ended

LARDER = "tests.support.larder:waiter"


@pytest.fixture(autouse=True)
def tasks_in_steps(here: Place, waiter: Dumbwaiter) -> None:
    here.settings.update(SHORT)
    for entry in larder.waiter.registry:
        waiter.registry.add(entry)


def remembered(waiter: Dumbwaiter) -> set[str]:
    """The kinds of steps that are in the table."""
    steps = waiter.store.tables.steps
    with waiter.store.connections.reading() as connection:
        return {row[0] for row in connection.execute(sa.select(steps.c.kind))}


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_the_task_of_a_killed_worker_goes_on_at_its_checkpoint_in_another_place(
    here: Place, waiter: Dumbwaiter, kind: str
) -> None:
    first = here.start_worker(app=LARDER)
    task = waiter.enqueue(f"menu-{kind}", {"how": "hang"})
    until(lambda: here.starts(task.id) and remembered(waiter) == {"result", "cursor", "file"})
    os.killpg(first.pid, signal.SIGKILL)
    here.settings["DUMBWAITER_WORKDIR"] = str(here.home / "another-place")
    here.start_worker(app=LARDER)
    [found] = ended(waiter, [task])

    assert (Status.SUCCESS, 2) == (found.status, found.attempt), found.error_message
    assert found.result["recipe"] == "of attempt 1"
    assert found.result["cursor"] == ["page", 412]
    ran = [(one.more["dish"], one.attempt) for one in here.ledger() if one.event == "cook"]
    assert ran == [("soup", 1), ("roast", 2)]
    until(lambda: not remembered(waiter) and not [p for p in (here.home / "files").rglob("*") if p.is_file()])


def test_a_step_that_ends_after_its_attempt_was_superseded_changes_nothing(
    here: Place, waiter: Dumbwaiter
) -> None:
    first = here.start_worker(app=LARDER)
    task = waiter.enqueue("stew")
    until(lambda: here.starts(task.id))
    here.freeze(first)
    here.start_worker(app=LARDER)
    until(lambda: len(here.starts(task.id)) == 2)
    os.killpg(first.pid, signal.SIGCONT)
    [found] = ended(waiter, [task])

    assert (Status.SUCCESS, "of attempt 2") == (found.status, found.result)
    until(lambda: [one.attempt for one in here.ledger() if one.event == "lost"] == [1])
    until(lambda: not remembered(waiter))
