"""Machines at their limits: zombies, processes, threads."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter

import psutil
import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import AttemptOutcome, Status
from tests.support import scullery
from tests.support.waiting import until
from tests.support.workers import Place, ended

CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
SCULLERY = "tests.support.scullery:waiter"
# Root has no limit of processes. Another user with the right to read what is root's; one that nobody else is.
LIMITED = (
    "setpriv",
    f"--reuid={60_000 + os.getpid() % 5_000}",
    "--inh-caps=+dac_override,+chown,+fowner",
    "--ambient-caps=+dac_override,+chown,+fowner",
)

pytestmark = [pytest.mark.service("mounts"), pytest.mark.parametrize("database_kind", ["sqlite"])]


def zombies(container: psutil.Process) -> list[psutil.Process]:
    found = []
    for one in container.children(recursive=True):
        try:
            if one.status() == psutil.STATUS_ZOMBIE:
                found.append(one)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.long
@pytest.mark.timeout(180)
def test_two_hundred_tasks_that_kill_the_middle_of_their_tree_leave_process_1_no_zombies(
    here: Place, waiter: Dumbwaiter
) -> None:
    for entry in scullery.waiter.registry:
        waiter.registry.add(entry)
    container = psutil.Process(here.start_worker(app=SCULLERY, inside=CONTAINER).pid)
    kinds = ("orphan-thread", "orphan-process", "orphan-command")
    tasks = [waiter.enqueue(kinds[number % 3]) for number in range(201)]
    found = ended(waiter, tasks, 150)

    assert Counter({Status.SUCCESS: 201}) == Counter(task.status for task in found)
    until(lambda: len(zombies(container)) <= 2, 5)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["doze", "slumber"])
def test_a_worker_at_its_limit_of_processes_leaves_the_work_to_a_healthy_one(
    here: Place, waiter: Dumbwaiter, kind: str
) -> None:
    here.home.chmod(0o777)
    sick = here.start_worker("-q", "default=2", inside=LIMITED)
    until(lambda: "started" in here.log())
    subprocess.run([*LIMITED, "prlimit", f"--pid={sick.pid}", "--nproc=1"], check=True)
    first = waiter.enqueue(kind, {"seconds": 0.1})
    until(lambda: "can be started here" in here.log())
    tasks = [first, *(waiter.enqueue(kind, {"seconds": 0.1}) for _ in range(9))]
    began = time.monotonic()
    healthy = here.start_worker("-q", "default=4")
    found = ended(waiter, tasks)
    seconds = time.monotonic() - began

    assert {(Status.SUCCESS, 0, 0)} == {(task.status, task.retry_count, task.crash_count) for task in found}
    given_back = [one for task in tasks for one in waiter.attempts(task.id) if one.outcome != "success"]
    assert {AttemptOutcome.INTERRUPTED} == {one.outcome for one in given_back}
    assert {True} == {f"-{sick.pid}-" in str(one.worker_id) for one in given_back}
    # two at once at first, then one after each rest of 1, 2, 4, … s
    assert len(given_back) <= 3 + int(seconds).bit_length()
    assert 1 == here.log().count("can be started here")
    assert healthy.poll() is None
    # it can still be told to end
    sick.terminate()
    assert sick.wait(20) == 0
