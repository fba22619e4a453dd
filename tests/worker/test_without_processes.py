"""A worker on a machine that starts no more processes."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.executors import tree
from dumbwaiter.executors.registry import PROCESS, TaskType
from dumbwaiter.executors.signature import Signature
from dumbwaiter.task import AttemptOutcome, Status
from dumbwaiter.worker.loop import Worker
from dumbwaiter.worker.slots import Slots
from tests.support.waiting import until
from tests.support.workers import ended

ALONE = TaskType("alone", print, Signature("alone", lambda: None), isolate=True, reference="builtins:print")
THREAD = TaskType("thread", print, Signature("thread", lambda: None))


class Machine:
    """Refuses to fork, as the system does at its limit of processes, until `full` is over; counts the refusals."""

    def __init__(self) -> None:
        self.full = True
        self.refused = 0

    def popen(self, *words: Any, **how: Any) -> subprocess.Popen[bytes]:
        if self.full:
            self.refused += 1
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        process: subprocess.Popen[bytes] = subprocess.Popen(*words, **how)
        return process


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    names = {**vars(subprocess), "Popen": machine.popen}
    monkeypatch.setattr(tree, "subprocess", SimpleNamespace(**names))
    return machine


def test_a_task_that_no_process_can_be_started_for_goes_back_without_a_charge_and_runs_later(
    waiter: Dumbwaiter,
    start_worker: Callable[..., Worker],
    machine: Machine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "dumbwaiter")
    tasks = [waiter.enqueue("slumber", {"seconds": 0.01}), waiter.enqueue("say", {"word": "menu"})]
    worker = start_worker()
    until(lambda: machine.refused >= 2)
    # what needs no process goes on meanwhile
    [other] = ended(waiter, [waiter.enqueue("doze", {"seconds": 0.01})])
    machine.full = False
    done = ended(waiter, tasks)

    assert [task.status for task in (other, *done)] == [Status.SUCCESS] * 3
    assert {(task.retry_count, task.crash_count, task.interruption_count) for task in done} == {(0, 0, 0)}
    [first, *_] = waiter.attempts(tasks[0].id)
    assert first.outcome is AttemptOutcome.INTERRUPTED
    assert "no process can be started" in str(first.error)
    until(lambda: "processes can be started again" in caplog.text)
    assert caplog.text.count("no process can be started here") == 1
    assert worker.slots.free_capacity()[PROCESS] >= 1


def test_the_rests_grow_to_a_minute_and_each_ends_with_one_try() -> None:
    clock = [0.0]
    slots = Slots(None, 10, {PROCESS: 4, "chromium": 1}, monotonic=lambda: clock[0])
    rests = []
    for _ in range(8):
        slots.cannot_start(ALONE, "no more processes")
        slots.cannot_start(ALONE, "a second one that failed together with the first")
        began = clock[0]
        assert slots.free_capacity() == {PROCESS: 0, "chromium": 1}
        while slots.free_capacity()[PROCESS] == 0:
            clock[0] += 0.5
        assert slots.free_capacity()[PROCESS] == 1
        rests.append(clock[0] - began)

    assert rests == [1, 2, 4, 8, 16, 32, 60, 60]
    slots.started(ALONE)
    assert slots.free_capacity()[PROCESS] == 4


def test_a_process_that_was_started_before_does_not_end_the_rest() -> None:
    clock = [0.0]
    slots = Slots(None, 10, {PROCESS: 4}, monotonic=lambda: clock[0])
    slots.cannot_start(ALONE, "no more processes")
    slots.started(ALONE)

    assert slots.free_capacity()[PROCESS] == 0


def test_where_not_even_a_thread_can_be_started_nothing_is_claimed_for_a_while() -> None:
    clock = [0.0]
    slots = Slots(None, 10, {PROCESS: 4}, monotonic=lambda: clock[0])
    slots.cannot_start(THREAD, "no more threads")
    assert slots.free("default") == 0
    clock[0] = 1
    assert slots.free("default") == 1
    slots.started(THREAD)

    assert slots.free("default") == 10
    assert slots.free_capacity()[PROCESS] == 4
