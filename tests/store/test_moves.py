"""The moves that the store makes are those of `task.MOVES`, and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dumbwaiter.errors import IllegalMove
from dumbwaiter.retry import Retry, decide, interrupted
from dumbwaiter.store.rows import Finish, Report
from dumbwaiter.store.store import Store
from dumbwaiter.task import MOVES, AttemptOutcome, Kind, Outcome, Progress, Status, Task
from tests.store.world import LEASE, NOW, at, end, enqueued, new, started, want

FAILED = Outcome(Kind.FAIL, AttemptOutcome.FAILED)


def claim(store, task):
    return store.claim_one(task.id, "w1", want(), now=at(1))


def claim_many(store, task):
    return store.claim(want(), "w1", now=at(1))


def cancel(store, task):
    try:
        return store.cancel(task.id, now=at(1))
    except IllegalMove as refused:
        return refused


def replaced(store, task):
    return store.enqueue(new(business_key="k", on_duplicate="replace"), now=at(1))


# What a worker believes it holds, whatever has become of the row since.
HELD: dict[str, Task] = {}
ACTIONS: dict[str, Callable[[Store, Task], Any]] = {
    "claim one": claim,
    "claim": claim_many,
    "cancel": cancel,
    "replace": replaced,
    "expire": lambda store, task: store.expire(now=at(9_000)),
    "stage": lambda store, task: store.stage(now=at(9_000)),
    "heartbeat": lambda store, task: store.heartbeat("w1", now=at(1)),
    "report": lambda store, task: store.report([Report(HELD[task.id], Progress(0.5))], now=at(1)),
    "succeed": lambda store, task: end(store, HELD[task.id]),
    "fail": lambda store, task: end(store, HELD[task.id], FAILED),
    "retry": lambda store, task: end(store, HELD[task.id], decide(task, ConnectionError(), Retry())),
    "snooze": lambda store, task: end(store, HELD[task.id], Outcome.snoozed(timedelta(seconds=5))),
    "release": lambda store, task: end(store, HELD[task.id], interrupted(task)),
    "give back": lambda store, task: end(store, HELD[task.id], Outcome.given_back()),
    "begin": lambda store, task: store.begin([HELD[task.id].fence]),
    "cancelled": lambda store, task: end(store, HELD[task.id], Outcome.cancelled()),
    "rescue": lambda store, task: store.rescue(LEASE, now=at(9_000)),
}


def in_status(store, status, **options):
    """A task in that status, for which a worker still holds the fence of its last attempt."""
    options = dict[str, Any](business_key="k", start_before=at(5_000)) | options
    if status == "pending":
        task = enqueued(store, **options)
        lost = started(store, task_type="other")
        HELD[task.id] = replace(lost, id=task.id)
        return task
    task = started(store, **options)
    HELD[task.id] = task
    if status == "cancelling":
        return store.cancel(task.id, now=NOW)
    outcomes = {"success": Outcome.succeeded(), "failed": FAILED, "cancelled": Outcome.cancelled()}
    if status in outcomes:
        store.finish([Finish(task, outcomes[status])], now=NOW)
    return store.get(task.id)


def allowed(before, action):
    """The statuses that an action may lead to, read off the moves and the occasions they name."""
    words = {
        "claim one": "claim",
        "claim": "claim",
        "cancel": "cancel before",
        "replace": "cancel before",
        "expire": "expired",
        "succeed": "the function returned",
        "fail": "no retry is left",
        "retry": "retry:",
        "snooze": "snooze:",
        "release": "release:",
        "give back": "give back:",
        "cancelled": "cancel was asked while",
        "rescue": "rescue:",
    }
    if action not in words:
        return set()
    return {move.after for move in MOVES if move.before == before and words[action] in move.when}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("before", ["pending", "running", "success", "failed", "cancelled"])
def test_every_action_makes_the_move_that_the_table_of_moves_names_and_no_other(store, before, action):
    task = in_status(store, before)

    ACTIONS[action](store, task)

    after = store.get(task.id)
    expected = allowed(Status(before), action)
    assert {after.status} == (expected or {Status(before)})
    if task.status.final:
        assert after == task  # a row never changes once it is final


@pytest.mark.parametrize(
    "action", ["succeed", "fail", "retry", "snooze", "release", "give back", "cancelled", "rescue"]
)
def test_whatever_ends_an_attempt_that_is_being_cancelled_ends_it_as_cancelled(store, action):
    task = in_status(store, "cancelling")

    ACTIONS[action](store, task)

    assert store.get(task.id).status is Status.CANCELLED


def test_a_spent_crash_budget_is_a_legal_move_too(store):
    task = in_status(store, "running", max_crash_count=1)

    ACTIONS["rescue"](store, task)

    assert store.get(task.id).status is Status.FAILED
