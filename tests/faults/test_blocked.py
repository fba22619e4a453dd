"""Tasks that do not listen, whatever they hang in: their time ends all the same, and others get their slots."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.executors.guardian import Process, process
from dumbwaiter.task import AttemptOutcome, Status, Task
from tests.support import scullery
from tests.support.trials import still
from tests.support.waiting import until
from tests.support.workers import Place, ended

SCULLERY = "tests.support.scullery:waiter"
# A second of time, one of grace, and what a busy machine takes.
IN_TIME = timedelta(seconds=5)
STUCK = ("stuck-thread", "stuck-process")
HOWS = ("sleep", "receive", "spin", "acquire", "run-another")

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"])


@pytest.fixture(autouse=True)
def scullery_tasks(here: Place, waiter: Dumbwaiter) -> Iterator[None]:
    here.settings.update({"DUMBWAITER_GRACE": "1s", "DUMBWAITER_POLL": "200ms"})
    for entry in scullery.waiter.registry:
        waiter.registry.add(entry)
    yield
    for worker in here.processes:
        # what a thread started by itself is in its worker's group
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)


def timed_out(waiter: Dumbwaiter, tasks: list[Task]) -> None:
    """All of them, and in time."""
    for task in ended(waiter, tasks):
        [attempt] = waiter.attempts(task.id)
        assert (Status.FAILED, AttemptOutcome.TIMED_OUT) == (task.status, attempt.outcome), task
        assert attempt.ended_at - attempt.started_at < IN_TIME, task


def ten_others_run(waiter: Dumbwaiter) -> None:
    others = [waiter.enqueue(kind, {"seconds": 0.1}) for kind in ("nap", "doze") * 5]
    assert {Status.SUCCESS} == {task.status for task in ended(waiter, others, 20)}


def test_an_isolated_task_is_ended_in_time_whatever_it_hangs_in(here: Place, waiter: Dumbwaiter) -> None:
    here.start_worker("--capacity", "process=8", app=SCULLERY)
    tasks = [waiter.enqueue("block-process", {"how": how}) for how in (*HOWS, "match")]
    tasks.append(waiter.enqueue("swallow-process"))
    shielded = waiter.enqueue("shield-process")
    timed_out(waiter, [*tasks, shielded])

    # one that was still starting when its time was over has nothing to tell; a coroutine ends when it is told to, and its
    # child, well again, waits for another task
    pids = {one.pid for one in here.starts() if one.task_id != shielded.id}
    until(lambda: not any(map(psutil.pid_exists, pids)), 5)
    assert "abandoned" not in here.log()


@pytest.mark.long
def test_what_hangs_on_a_thread_is_given_up_in_time_and_said_to_be(here: Place, waiter: Dumbwaiter) -> None:
    worker = here.start_worker("-q", "default=2", app=SCULLERY)
    tasks = [waiter.enqueue("block-thread", {"how": how}) for how in HOWS]
    tasks += [waiter.enqueue("swallow-thread")]
    timed_out(waiter, tasks)
    ten_others_run(waiter)

    for task in tasks:
        assert f"task {task.id} (" in here.log()
    assert len(tasks) == here.log().count("it was abandoned; isolate=True makes such tasks killable")
    worker.terminate()
    assert worker.wait(20) == 0


def test_a_coroutine_that_blocks_its_loop_holds_up_those_beside_it_and_nobody_after_it(
    here: Place, waiter: Dumbwaiter
) -> None:
    here.start_worker("-q", "default=3", app=SCULLERY)
    blocking = waiter.enqueue("block-coroutine", {"how": "sleep"})
    until(lambda: here.starts(blocking.id))
    # claimed while the loop is blocked
    beside = waiter.enqueue("nap", {"seconds": 0.1})
    timed_out(waiter, [blocking])
    ten_others_run(waiter)
    [beside] = ended(waiter, [beside])

    assert (Status.SUCCESS, 1) == (beside.status, beside.attempt)
    assert 1 == here.log().count("a coroutine blocks the event loop")


@pytest.mark.long
def test_a_coroutine_ends_in_time_or_is_given_up(here: Place, waiter: Dumbwaiter) -> None:
    worker = here.start_worker("-q", "default=2", app=SCULLERY)
    tasks = [waiter.enqueue("shield-coroutine"), waiter.enqueue("swallow-coroutine")]
    timed_out(waiter, tasks)
    ten_others_run(waiter)
    # no loop was blocked, so a new one makes no sense
    assert "blocks the event loop" not in here.log()
    for how in HOWS:
        timed_out(waiter, [waiter.enqueue("block-coroutine", {"how": how})])
    ten_others_run(waiter)

    assert 1 + len(HOWS) == here.log().count("it was abandoned")
    worker.terminate()
    assert worker.wait(20) == 0


@pytest.mark.parametrize("how", ["cancel", pytest.param("timeout", marks=pytest.mark.long)])
def test_a_child_that_is_stuck_is_gone_with_its_half_file_when_its_end_is_recorded(
    here: Place, waiter: Dumbwaiter, how: str
) -> None:
    here.start_worker("-q", "default=10", "--capacity", "process=5", app=SCULLERY)
    until(lambda: waiter.store.workers())
    told = {(way, kind): here.home / f"{way}-{kind}" for way in STUCK for kind in scullery.CHILDREN}
    timeout = timedelta(minutes=10) if how == "cancel" else timedelta(seconds=3)
    tasks = [
        waiter.enqueue(way, {"how": kind, "told": str(path)}, timeout=timeout)
        for (way, kind), path in told.items()
    ]
    children: dict[Path, Process] = {}

    def all_there() -> bool:
        for path in told.values():
            if path.exists() and (one := process(int(path.read_text() or "0"))):
                children.setdefault(path, one)
        return len(children) == len(told)

    if how == "cancel":
        until(all_there)
        for task in tasks:
            waiter.cancel(task.id)
    # of those that are to time out some may still be starting
    until(lambda: all_there() or all(waiter.get(task.id).status.final for task in tasks))
    found = ended(waiter, tasks)
    last = max(task.finished_at.timestamp() for task in found if task.finished_at)

    assert children
    until(lambda: not any(map(still, children.values())), 5)
    until(lambda: not list((here.home / "work").glob("*/*")), 5)
    assert {Status.CANCELLED if how == "cancel" else Status.FAILED} == {task.status for task in found}
    assert all(path.stat().st_mtime < last + 5 for path in here.home.glob("*.busy"))
    ten_others_run(waiter)
