"""What takes its time: a task of forty minutes, and databases that are away for ten."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dumbwaiter.task import Status
from tests.store.proxies import Mode
from tests.support.databases import KINDS, Database, Kind
from tests.support.trials import all_is_well, through_proxy, trial
from tests.support.waiting import until

LONG_KINDS = ("soup", "salad", "roast")


def outlived(database: Database, home: Path, chance: random.Random, seconds: float) -> str:
    """Long tasks and short ones, three workers, and every setting as it is shipped."""
    with trial(database, home, chance) as here:
        for _ in range(3):
            here.start_worker()
        tasks = [here.enqueue(kind, seconds) for kind in LONG_KINDS]
        here.enqueue_any(5)
        here.drain(seconds + 300)
        found = [here.waiter.get(task.id) for task in tasks]
        all_is_well(here)

        assert [1] * len(tasks) == [task.attempt for task in found]
        assert {1} == set(here.place.starts_by_task().values()) - {2}  # a souffle falls in once
        return f"{database.kind}: {', '.join(LONG_KINDS)} of {seconds:.0f} s started once each"


@pytest.mark.timeout(4_000)
@pytest.mark.service("postgresql")
@pytest.mark.service("mysql")
@pytest.mark.parametrize(
    "seconds",
    [pytest.param(60, marks=pytest.mark.long), pytest.param(2_400, marks=pytest.mark.overnight)],
)
def test_a_task_of_forty_minutes_is_started_once_whatever_its_lease(
    make_database: Callable[[Kind], Database],
    tmp_path: Path,
    chance: random.Random,
    tell: Callable[[str], None],
    seconds: float,
) -> None:
    databases = [make_database(kind.values[0]) for kind in KINDS]  # type: ignore[arg-type]
    with ThreadPoolExecutor(len(databases)) as pool:
        told = [
            pool.submit(outlived, one, tmp_path / one.kind, random.Random(chance.random()), seconds)
            for one in databases
        ]
    for one in told:
        tell(one.result())


def cut_off(database: Database, home: Path, chance: random.Random, mode: Mode, seconds: float) -> str:
    """Two workers lose their database while they work, for many leases; then it is back."""
    with trial(database, home, chance) as here, through_proxy(here) as proxy:
        here.start_worker()
        here.start_worker()
        tasks = [here.enqueue(kind, seconds + 60) for kind in LONG_KINDS]
        until(lambda: len(here.place.starts()) == len(tasks), 120, every=0.1)
        proxy.mode = mode
        time.sleep(seconds)  # the outage itself
        before = here.look()
        proxy.mode = Mode.PASS
        back = time.time()
        here.enqueue_any(10)
        here.drain(300)
        found = {task.id: task for task in here.look()}
        all_is_well(here)

        assert {Status.RUNNING} == {task.status for task in before}
        assert [1] * len(tasks) == [found[task.id].attempt for task in tasks]
        first = min(one.at for one in here.place.starts() if one.at > back)
        return (
            f"{database.kind}, {mode.value} for {seconds:.0f} s: nothing that lived was started again; "
            f"the next task began {first - back:.1f} s after the database was back"
        )


@pytest.mark.timeout(1_800)
@pytest.mark.service("postgresql")
@pytest.mark.service("mysql")
@pytest.mark.parametrize(
    "seconds",
    [pytest.param(40, marks=pytest.mark.long), pytest.param(600, marks=pytest.mark.overnight)],
)
def test_a_database_that_is_away_for_ten_minutes_costs_no_task_its_attempt(
    make_database: Callable[[Kind], Database],
    tmp_path: Path,
    chance: random.Random,
    tell: Callable[[str], None],
    seconds: float,
) -> None:
    kinds: tuple[Kind, ...] = ("postgresql", "mysql")
    trials = [
        (make_database(kind), tmp_path / f"{kind}-{mode.value}", mode)
        for kind in kinds
        for mode in (Mode.REFUSE, Mode.BLACKHOLE)
    ]
    with ThreadPoolExecutor(len(trials)) as pool:
        told = [
            pool.submit(cut_off, database, home, random.Random(chance.random()), mode, seconds)
            for database, home, mode in trials
        ]
    for one in told:
        tell(one.result())
