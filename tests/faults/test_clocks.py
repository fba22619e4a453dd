"""Hosts whose clocks are wrong, and clocks that jump: only the database's counts, and a jump of it makes nobody dead.

On SQLite the clock of the one host that there is is the database's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dumbwaiter.task import Status
from tests.support.clocks import Clock, shifted, swept_shared_memory
from tests.support.databases import Database
from tests.support.waiting import until
from tests.support.workers import KITCHEN, ROOT, Place, ended, place

pytestmark = pytest.mark.service("faketime")

SHORT = {"lease": "2s", "heartbeat": "400ms", "sweep": "500ms", "poll": "200ms"}
LEASE = timedelta(seconds=2)
SHIFTS = ("+1h", "+0", "-1h")
SERVERS = [
    pytest.param("postgresql", marks=[pytest.mark.service("postgresql"), pytest.mark.long]),
    pytest.param("mysql", marks=[pytest.mark.service("mysql"), pytest.mark.long]),
]


@pytest.fixture(autouse=True)
def nothing_left_in_shared_memory() -> Iterator[None]:
    with swept_shared_memory():
        yield


def enqueued_under(here: Place, shift: str, *words: str) -> str:
    """Enqueue by a producer whose clock is shifted; the id."""
    command = [sys.executable, "-m", "dumbwaiter", "--app", KITCHEN, "enqueue", *words]
    environment = {**here.environment, **shifted(shift)}
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return said.stdout.split()[0]


@pytest.mark.parametrize("database_kind", SERVERS)
def test_workers_and_producers_with_wrong_clocks_neither_take_from_the_living_nor_start_early(
    database: Database, tmp_path: Path
) -> None:
    with place(database, tmp_path, **SHORT) as here:
        waiter = here.app()
        workers = {
            shift: here.start_worker("-q", "default=3", environment=shifted(shift)) for shift in SHIFTS
        }
        until(lambda: len(waiter.store.workers()) == 3)
        long = [waiter.enqueue("doze", {"seconds": 4.5}) for _ in range(9)]
        until(lambda: len(here.starts()) == 9)
        assert {one.pid for one in here.starts()} == {worker.pid for worker in workers.values()}
        victim = workers["+1h"]
        os.killpg(victim.pid, signal.SIGKILL)
        delayed = [enqueued_under(here, shift, "nap", "seconds=0", "--delay", "3s") for shift in SHIFTS]
        found = ended(waiter, [*long, *map(waiter.get, delayed)])
        log = here.log()

        assert {Status.SUCCESS} == {task.status for task in found}
        attempts = defaultdict(list)
        for one in here.starts():
            attempts[one.task_id].append(one.pid)
        for task in found:
            assert [victim.pid] * (task.attempt - 1) == attempts[task.id][:-1]
        assert 3 == sum(task.attempt == 2 for task in found)
        for task in found:
            if task.attempt == 2:
                [died, *_] = waiter.attempts(task.id)
                assert died.ended_at - died.started_at < LEASE + timedelta(seconds=4)
        for task in map(waiter.get, delayed):
            assert task.started_at is not None
            assert task.run_at - task.created_at == timedelta(seconds=3)
            # due by the database's clock, and then when those that have to run alone leave it a slot; not an hour off
            assert timedelta(0) <= task.started_at - task.run_at < timedelta(seconds=30)
        assert 1 == log.count("the clock of this host is 3600 s ahead of the database's")
        assert 1 == log.count("the clock of this host is 3600 s behind the database's")
        waiter.close()


@pytest.mark.long
@pytest.mark.parametrize("database_kind", [SERVERS[0]])
def test_the_doctor_tells_of_a_wrong_clock(database: Database, tmp_path: Path) -> None:
    with place(database, tmp_path) as here:
        said = subprocess.run(
            [sys.executable, "-m", "dumbwaiter", "--app", KITCHEN, "doctor"],
            cwd=ROOT,
            env={**here.environment, **shifted("-1h")},
            capture_output=True,
            text=True,
        ).stdout

    [line] = [line for line in said.splitlines() if "from the database's" in line]
    assert "3600." in line or "3599." in line


@pytest.mark.long
@pytest.mark.parametrize("database_kind", ["sqlite"])
@pytest.mark.parametrize("jump", ["+5h", "-5h"])
def test_a_clock_that_jumps_costs_a_healthy_task_neither_its_heartbeats_nor_its_attempt(
    database: Database, tmp_path: Path, jump: str
) -> None:
    """Further than its timeout and all that is added to it: as after a night in which the machine slept."""
    clock = Clock(tmp_path / "clock")
    with place(database, tmp_path, **SHORT) as here:
        waiter = here.app()
        here.start_worker(environment=clock.environment)
        task = waiter.enqueue("doze", {"seconds": 4.5})
        until(lambda: here.starts())
        clock.set(jump)
        until(lambda: "the clock jumped" in here.log())
        [found] = ended(waiter, [task])

        assert (Status.SUCCESS, 1, 0) == (found.status, found.attempt, found.crash_count)
        assert 1 == here.log().count("the clock jumped")
        waiter.close()


@pytest.mark.long
@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_what_died_before_the_clock_was_set_back_is_found_dead_all_the_same(
    database: Database, tmp_path: Path
) -> None:
    clock = Clock(tmp_path / "clock")
    clock.set("+5h")
    with place(database, tmp_path, **SHORT) as here:
        waiter = here.app()
        first = here.start_worker(environment=clock.environment)
        task = waiter.enqueue("doze", {"seconds": 0.5})
        until(lambda: here.starts())
        os.killpg(first.pid, signal.SIGKILL)
        # by its heartbeat it would be alive for another five hours
        here.start_worker()
        [found] = ended(waiter, [task], 15)

        assert (Status.SUCCESS, 2, 1) == (found.status, found.attempt, found.crash_count)
        waiter.close()
