"""Processes that race for one key, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from dumbwaiter.settings import Settings
from dumbwaiter.store.store import Store
from tests.store.racing import raced
from tests.store.world import count
from tests.support.databases import Database

PROCESSES = 20


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("finishing", [False, True])
def test_a_thousand_races_of_twenty_processes_for_a_key_make_one_task_each(
    database: Database, tell: Callable[[str], None], finishing: bool
) -> None:
    races = 200 if finishing else 1_000
    store = Store(Settings(database=database.url))
    store.schema.migrate()
    began = time.monotonic()
    told = raced(database.url, races, finishing=finishing, processes=PROCESSES, threads=1)
    tell(f"{races} races of {PROCESSES} processes, {time.monotonic() - began:.0f} s")

    assert len(told) == races * PROCESSES
    created = [task_id for _, task_id, new_one in told if new_one]
    assert {task_id for _, task_id, _ in told} == set(created)
    assert count(store) == len(created)
    if not finishing:
        assert [1] * races == [
            len({task_id for number, task_id, _ in told if number == race}) for race in range(races)
        ]
        assert races == len(created)
    store.close()
