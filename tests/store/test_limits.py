"""So many active tasks an owner may have, however many are asked for at once."""

from __future__ import annotations

import collections

import pytest

from dumbwaiter.errors import TooManyActive
from dumbwaiter.store.rows import Finish, Limit
from dumbwaiter.store.store import Store
from dumbwaiter.task import Outcome
from tests.store.racing import asking, raced_by
from tests.store.world import at, enqueued, new, new_id, started

THREE = [Limit(3)]  # as in racing.asking


def test_one_more_than_the_limit_is_refused_and_nothing_is_written(store: Store) -> None:
    for _ in range(3):
        enqueued(store, owner="ada", limits=THREE)

    with pytest.raises(TooManyActive, match="owner 'ada' has 3 active tasks, and 3 are allowed"):
        enqueued(store, owner="ada", limits=THREE)
    assert len(store.find()) == 3
    enqueued(store, owner="eve", limits=THREE)
    enqueued(store, owner="ada")  # who says nothing of a limit has none


def test_what_runs_or_waits_counts_and_what_has_ended_does_not(store: Store) -> None:
    running = started(store, owner="ada", limits=[Limit(2)])
    enqueued(store, owner="ada", limits=[Limit(2)], now=at(0))
    with pytest.raises(TooManyActive):
        enqueued(store, owner="ada", limits=[Limit(2)])
    store.finish([Finish(running, Outcome.succeeded())], now=at(1))

    enqueued(store, owner="ada", limits=[Limit(2)])


def test_a_limit_of_a_type_counts_that_type_alone(store: Store) -> None:
    enqueued(store, task_type="other", owner="ada")
    enqueued(store, owner="ada", limits=[Limit(1, "t"), Limit(5)])

    with pytest.raises(TooManyActive, match="of type 't'"):
        enqueued(store, owner="ada", limits=[Limit(1, "t"), Limit(5)])


def test_who_gets_the_task_that_is_there_needs_no_room(store: Store) -> None:
    first = enqueued(
        store, owner="ada", business_key="k", request_key="r" * 64, request_hash="h", limits=[Limit(1)]
    )
    by_key = enqueued(store, owner="ada", business_key="k", limits=[Limit(1)])
    by_request = enqueued(store, owner="ada", request_key="r" * 64, request_hash="h", limits=[Limit(1)])
    replacing = enqueued(store, owner="ada", business_key="k", on_duplicate="replace", limits=[Limit(1)])

    assert first.id == by_key.id == by_request.id != replacing.id


def test_many_at_once_are_all_let_in_or_none(store: Store) -> None:
    asked = new(owner="ada", limits=THREE)
    with pytest.raises(TooManyActive):
        store.enqueue_many(asked, [(new_id(), "{}") for _ in range(4)])
    assert store.find() == []

    store.enqueue_many(asked, [(new_id(), "{}") for _ in range(3)])
    assert len(store.find()) == 3


def test_of_many_that_race_as_many_as_are_allowed_are_let_in(store: Store) -> None:
    owners = 5
    told = raced_by(asking, [(store.settings.database, owners)] * 2)

    active = store.find(limit=1_000)
    assert collections.Counter(task.owner for task in active) == {f"owner {n}": 3 for n in range(owners)}
    assert {task_id for one in told for task_id in one} == {task.id for task in active}
