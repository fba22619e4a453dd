"""The worker dies between a task's effect and the record of its end."""

from __future__ import annotations

import os
import signal

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import Status
from tests.support.waiting import until
from tests.support.workers import Place, ended

SHORT = {
    "DUMBWAITER_LEASE": "2s",
    "DUMBWAITER_HEARTBEAT": "400ms",
    "DUMBWAITER_SWEEP": "500ms",
    "DUMBWAITER_POLL": "200ms",
}
MANY = pytest.mark.long


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("database_kind", "kills"),
    [
        ("sqlite", 3),
        pytest.param("sqlite", 50, marks=MANY),
        pytest.param("postgresql", 50, marks=[MANY, pytest.mark.service("postgresql")]),
        pytest.param("mysql", 50, marks=[MANY, pytest.mark.service("mysql")]),
    ],
)
def test_an_effect_is_repeated_under_the_same_key_and_not_at_all_where_it_must_not_be(
    here: Place, waiter: Dumbwaiter, kills: int
) -> None:
    here.settings.update(SHORT)
    repeated, at_most_once = [], []
    for _ in range(kills):
        worker = here.start_worker()
        repeated.append(waiter.enqueue("charge"))
        at_most_once.append(waiter.enqueue("charge-at-most-once"))
        begun = {task.id for task in (*repeated, *at_most_once)}
        until(lambda begun=begun: begun <= with_effect(here), 60)  # type: ignore[misc]
        os.killpg(worker.pid, signal.SIGKILL)
    here.start_worker()
    found = ended(waiter, repeated, 120)
    unknown = ended(waiter, at_most_once, 120)

    effects: dict[str, list[str]] = {}
    for one in here.ledger():
        if one.event == "effect":
            effects.setdefault(one.task_id, []).append(one.more["key"])
    assert {task.status for task in found} == {Status.SUCCESS}
    for task in found:
        assert len(effects[task.id]) >= 2
        assert set(effects[task.id]) == {task.idempotency_key}
    assert len({task.idempotency_key for task in found}) == kills
    assert {(task.status, task.error_type) for task in unknown} == {(Status.FAILED, "unknown-outcome")}
    assert [len(effects[task.id]) for task in unknown] == [1] * kills


def with_effect(here: Place) -> set[str]:
    return {one.task_id for one in here.ledger() if one.event == "effect"}
