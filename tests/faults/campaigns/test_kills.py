"""Workers that are killed with -9 at random moments, whole or in part, and replaced."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.databases import Database, Kind
from tests.support.trials import Trial, all_is_well, everywhere, trial
from tests.support.waiting import until

FIVE_SECONDS = {"lease": "5s", "heartbeat": "1s", "sweep": "1s", "poll": "500ms"}
# On a busy machine a worker takes seconds to start.
PATIENCE = 120


def killed_again_and_again(
    database: Database, home: Path, chance: random.Random, kills: int
) -> tuple[Trial, int]:
    """One place with two workers, each kill at a random moment after the one before has been got over."""
    with trial(database, home, chance, **FIVE_SECONDS) as here:
        here.enqueue_any(12)
        here.start_worker()
        here.start_worker()
        for _ in range(kills):
            seen = len(here.place.starts())
            here.enqueue_any(4)
            until(lambda seen=seen: len(here.place.starts()) > seen, PATIENCE, every=0.1)  # type: ignore[misc]
            time.sleep(chance.uniform(0, 1))  # any moment will do
            here.strike()
            here.look()
        here.drain(PATIENCE)
        all_is_well(here)
        return here, len(here.place.starts())


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(("database_kind", "places", "kills"), [("sqlite", 1, 2), *everywhere(10, 20)])
def test_whatever_is_killed_at_whatever_moment_every_task_succeeds_once_and_nothing_is_left(
    *,
    database_kind: Kind,
    make_database: Callable[[Kind], Database],
    tmp_path: Path,
    chance: random.Random,
    tell: Callable[[str], None],
    places: int,
    kills: int,
) -> None:
    databases = [make_database(database_kind) for _ in range(places)]
    began = time.monotonic()
    with ThreadPoolExecutor(places) as pool:
        trials = [
            pool.submit(
                killed_again_and_again, one, tmp_path / str(number), random.Random(chance.random()), kills
            )
            for number, one in enumerate(databases)
        ]
    told = [one.result() for one in trials]

    tally = sum((here.tally for here, _ in told), Counter[str]())
    accepted = sum(len(here.accepted) for here, _ in told)
    starts = sum(count for _, count in told)
    ways = ", ".join(f"{way} {count}" for way, count in sorted(tally.items()))
    tell(
        f"{tally.total()} kills ({ways}), {accepted} tasks, {starts} starts; processes of killed workers gone after "
        f"{max(here.slowest_end for here, _ in told):.2f} s at most; {time.monotonic() - began:.0f} s"
    )
    assert places * kills == tally.total()
