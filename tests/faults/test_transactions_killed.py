"""A worker that is killed around the commit of `ctx.transaction()`: what the task wrote is there exactly once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import Status
from tests.support import till
from tests.support.waiting import until
from tests.support.workers import Place, ended

SHORT = {
    "DUMBWAITER_LEASE": "2s",
    "DUMBWAITER_HEARTBEAT": "400ms",
    "DUMBWAITER_SWEEP": "500ms",
    "DUMBWAITER_POLL": "200ms",
}
TILL = "tests.support.till:waiter"


@pytest.fixture
def waiter(here: Place) -> Iterator[Dumbwaiter]:
    here.settings.update(SHORT)
    waiter = here.app()
    for entry in till.waiter.registry:
        waiter.registry.add(entry)
    with waiter.store.connections.writing() as connection:
        connection.execute(sa.text(till.TAKINGS))
    yield waiter
    waiter.close()


def takings(waiter: Dumbwaiter) -> list[tuple[str, int]]:
    with waiter.store.connections.reading() as connection:
        return [(row[0], row[1]) for row in connection.execute(sa.text("SELECT task, attempt FROM takings"))]


@pytest.mark.parametrize(
    ("dies", "attempt"), [("in the block", 2), ("before the commit", 2), ("after the commit", 1)]
)
def test_a_worker_killed_around_the_commit_leaves_the_tasks_writes_exactly_once(
    here: Place, waiter: Dumbwaiter, dies: str, attempt: int
) -> None:
    task = waiter.enqueue("pay", {"dies": dies})
    first = here.start_worker(app=TILL)
    assert first.wait(30) == -signal.SIGKILL
    here.start_worker(app=TILL)
    [task] = ended(waiter, [task], 50)

    assert (Status.SUCCESS, {"attempt": attempt}, attempt) == (task.status, task.result, task.attempt)
    assert [(task.id, attempt)] == takings(waiter)
    [file] = task.files
    assert f"attempt {attempt}".encode() == b"".join(waiter.files.stream(file.object_key))


@pytest.mark.timeout(120)
def test_workers_killed_at_any_moment_leave_the_writes_of_each_task_exactly_once(
    here: Place, waiter: Dumbwaiter
) -> None:
    tasks = [waiter.enqueue("pay") for _ in range(120)]
    for share in (20, 50, 80):
        worker = here.start_worker("-q", "default=4", app=TILL)
        until(lambda share=share: len(takings(waiter)) >= share, 40)  # type: ignore[misc]
        time.sleep(random.uniform(0, 0.1))  # any moment will do
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10)
    here.start_worker("-q", "default=4", app=TILL)
    found = ended(waiter, tasks, 60)

    assert {Status.SUCCESS} == {task.status for task in found}
    assert {task.id: 1 for task in tasks} == Counter(task for task, _ in takings(waiter))
    assert {task.id: task.attempt for task in found} == dict(takings(waiter))
