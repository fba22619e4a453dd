"""Servers that go away and come back under workers: restarted, crashed, turned read-only; and sessions that end each second."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import KINDS, Database, Kind, end_sessions
from tests.support.own_servers import Server, served
from tests.support.trials import Trial, all_is_well, trial

SETTINGS = {"lease": "5s", "heartbeat": "1s", "sweep": "1s", "poll": "500ms"}
FAULTS = 8
# How long a server is away, in seconds: shorter than a lease, so that nothing that lives may be started again, and longer.
SHORT, LONG = 2.0, 8.0


def struck(here: Trial, server: Server, seconds: float) -> None:
    """Restart it, crash it, or have it refuse writes for a while as what was a primary does."""
    ways = ["restart", "crash"] + ["read-only"] * (server.kind == "postgresql")
    way = here.chance.choice(ways)
    here.tally[way] += 1
    if way != "read-only":
        server.away(seconds, crash=way == "crash")
        return
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'trial'"
    server.told("ALTER DATABASE trial SET default_transaction_read_only = on", ended)
    time.sleep(seconds)  # the failover itself
    server.told("ALTER DATABASE trial RESET default_transaction_read_only", ended)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_server_that_is_restarted_crashes_or_turns_read_only_costs_nothing_that_was_accepted(
    kind: Kind, tmp_path: Path, chance: random.Random, tell: Callable[[str], None]
) -> None:
    with served(kind) as server, trial(server.database, tmp_path / "place", chance, **SETTINGS) as here:
        for _ in range(3):
            here.start_worker()
        for number in range(FAULTS):
            here.enqueue_any(10)
            time.sleep(chance.uniform(0, 2))  # any moment will do
            struck(here, server, LONG if number % 4 == 3 else SHORT)
            here.look()
        here.drain(120)
        all_is_well(here)

        ends = Counter(attempt.outcome.value for one in here.history.values() for attempt in one)
        faults = ", ".join(f"{name} {count}" for name, count in sorted(here.tally.items()))
        tell(
            f"{kind}: {faults}; {len(here.accepted)} tasks, no attempt taken from a worker that lived; {dict(ends)}"
        )


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS[1:])
def test_sessions_that_are_ended_each_second_cost_no_task_an_attempt(
    kind: Kind,
    make_database: Callable[[Kind], Database],
    tmp_path: Path,
    chance: random.Random,
    tell: Callable[[str], None],
) -> None:
    database = make_database(kind)
    with trial(database, tmp_path, chance, **SETTINGS) as here:
        for _ in range(3):
            here.start_worker()
        ended = 0
        for _ in range(20):
            here.enqueue_any(5)
            ended += end_sessions(database)
            time.sleep(1)  # the pace of the fault
        here.drain(120)
        all_is_well(here)

        assert [] == [one for attempts in here.history.values() for one in attempts if taken_back(one)]
        tell(f"{kind}: {ended} sessions ended, {len(here.accepted)} tasks")


def taken_back(attempt: Any) -> bool:
    return attempt.outcome in {"crashed", "lost"}
