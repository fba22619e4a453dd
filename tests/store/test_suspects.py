"""Suspects: tasks that have crashed a worker and run within one. They are claimed alone, and one worker at a time drains."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from dumbwaiter.errors import IllegalMove
from dumbwaiter.retry import Retry, decide, interrupted
from dumbwaiter.store.claiming import Concern
from dumbwaiter.store.rows import WorkerRow
from dumbwaiter.task import Status
from tests.store.world import LEASE, NOW, at, end, enqueued, row, started, store_of, want

OURS = Concern(("t",))
LATER = at(60)


def suspect(store, **options):
    """A task whose worker has died."""
    task = started(store, worker="dead", **options)
    store.rescue(LEASE, now=at(30))
    return store.get(task.id)


def registered(store, *names, now=LATER, stopping=False):
    for name in names:
        store.register(WorkerRow(name, "host", 7, "1", {}, {}, NOW, NOW, stopping=False), now=now)
        if stopping:
            store.mark_stopping(name)


def beside_others(slots=10, *types, **options):
    """What a worker asks for that runs other things too."""
    return want(slots, *types, in_process=("t",), **options)


def alone(*types, **options):
    """What an empty worker asks for."""
    return want(1, *types, alone=True, **options)


def ids(tasks):
    return [task.id for task in tasks]


def test_what_has_crashed_a_worker_is_claimed_beside_nothing(store):
    poison = suspect(store, priority=50)
    others = [enqueued(store) for _ in range(2)]

    assert ids(store.claim(beside_others(), "w1", now=LATER)) == ids(others)
    assert store.get(poison.id).status is Status.PENDING
    assert ids(store.claim(alone(), "w2", now=LATER)) == [poison.id]


def test_an_empty_worker_takes_one_suspect_and_nothing_else(store):
    first, second = (suspect(store, priority=priority) for priority in (0, 5))
    enqueued(store, priority=100)

    assert ids(store.claim(alone(), "w1", now=LATER)) == [second.id]
    assert ids(store.claim(alone(), "w2", now=LATER)) == [first.id]
    assert store.claim(alone(), "w3", now=LATER) == []


def test_an_isolated_task_whose_worker_has_died_is_claimed_as_usual(store):
    """Its crash would not take its worker along."""
    isolated = suspect(store, task_type="apart")

    assert ids(store.claim(beside_others(10, "apart", "t"), "w1", now=LATER)) == [isolated.id]


def test_suspects_are_left_where_needs_are_counted_too(store):
    poison, other = suspect(store), enqueued(store)
    needs = {"needs": {"t": {"seat": 1}}, "free": {"seat": 9}}

    assert ids(store.claim(beside_others(**needs), "w1", now=LATER)) == [other.id]
    assert store.claim(alone(**needs | {"free": {}}), "w1", now=LATER) == []
    assert ids(store.claim(alone(**needs), "w2", now=LATER)) == [poison.id]


def test_one_given_suspect_is_claimed_alone_only(store):
    poison, other = suspect(store), enqueued(store)

    assert store.claim_one(poison.id, "w1", beside_others(), now=LATER) is None
    assert store.claim_one(other.id, "w1", alone(), now=LATER) is None
    assert store.claim_one(poison.id, "w1", alone(), now=LATER).id == poison.id


@pytest.mark.parametrize("how", ["a failure", "an interruption"])
def test_a_suspect_stays_one_however_its_next_attempt_ends(store, how):
    poison = suspect(store)
    [again] = store.claim(alone(), "w1", now=LATER)
    end(
        store,
        again,
        decide(again, ConnectionError(), Retry()) if how == "a failure" else interrupted(again, 20),
        now=LATER,
    )
    store.stage(now=at(3_600))

    assert store.claim(beside_others(), "w1", now=at(3_600)) == []
    assert ids(store.claim(alone(), "w1", now=at(3_600))) == [poison.id]


def test_a_look_ahead_tells_of_suspects_that_are_this_workers_concern(store):
    def seen(*concern):
        return store.ahead(Concern(*concern), now=LATER).suspect

    enqueued(store)
    assert not seen(("t",))
    suspect(store)
    assert seen(("t",))
    assert seen(("t", "u"), ["other", "default"])
    assert not seen(("t",), ["other"])
    assert not seen(("u",))
    assert not seen(())
    store.claim(alone(), "w1", now=LATER)
    assert not seen(("t",))


def test_one_worker_reserves_and_the_others_go_on(store):
    registered(store, "w1", "w2")
    poison, _ = (suspect(store, priority=priority) for priority in (5, 0))

    assert store.reserve(OURS, "w1", LEASE, now=LATER) == poison.id
    assert store.reserve(OURS, "w2", LEASE, now=LATER) is None
    assert store.reserve(OURS, "w1", LEASE, now=LATER) == poison.id
    assert (store.reserved(poison.id, "w1"), store.reserved(poison.id, "w2")) == (True, False)


def test_workers_of_different_queues_reserve_at_the_same_time(store):
    registered(store, "w1", "w2", "w3")
    here, there = (suspect(store, queue=queue) for queue in ("here", "there"))

    assert store.reserve(Concern(("t",), ["here"]), "w1", LEASE, now=LATER) == here.id
    assert store.reserve(OURS, "w3", LEASE, now=LATER) is None
    assert store.reserve(Concern(("t",), ["there"]), "w2", LEASE, now=LATER) == there.id


def test_nothing_is_reserved_that_the_worker_cannot_run(store):
    registered(store, "w1")
    suspect(store, task_type="from-the-future")
    enqueued(store)

    assert store.reserve(OURS, "w1", LEASE, now=LATER) is None


def test_a_reservation_of_a_worker_that_is_dead_or_stopping_or_unknown_is_void(store):
    poison = suspect(store)
    registered(store, "silent", now=at(39))
    registered(store, "stopping", stopping=True)
    registered(store, "living", "w1")
    for void in ("silent", "stopping", "unknown"):
        assert store.reserve(OURS, void, LEASE, now=LATER) == poison.id

    assert store.reserve(OURS, "living", LEASE, now=LATER) == poison.id
    assert not store.reserved(poison.id, "silent")
    assert store.reserve(OURS, "w1", LEASE, now=LATER) is None


def test_a_reservation_is_no_claim_and_goes_with_it(store):
    registered(store, "w1", "w2")
    poison = suspect(store)
    store.reserve(OURS, "w1", LEASE, now=LATER)

    [taken] = store.claim(alone(), "w2", now=LATER)

    assert (taken.id, row(store, poison.id)["reserved_by"]) == (poison.id, None)
    assert not store.reserved(poison.id, "w1")


def test_a_suspect_that_is_cancelled_before_its_second_start_never_starts(store):
    registered(store, "w1")
    poison = suspect(store)
    store.reserve(OURS, "w1", LEASE, now=LATER)

    assert store.cancel(poison.id, now=LATER).status is Status.CANCELLED

    assert not store.reserved(poison.id, "w1")
    assert row(store, poison.id)["reserved_by"] is None
    assert store.claim_one(poison.id, "w1", alone(), now=LATER) is None
    assert store.claim(alone(), "w1", now=LATER) == []
    with pytest.raises(IllegalMove):
        store.cancel(poison.id, now=LATER)


def test_of_workers_that_reserve_at_once_one_does(store):
    names = [f"w{number}" for number in range(6)]
    registered(store, *names)
    for _ in range(3):
        suspect(store)
    begin = threading.Barrier(len(names))
    got = {}

    def reserve(name):
        mine = store_of(store.settings.database)
        begin.wait()
        got[name] = mine.reserve(OURS, name, LEASE, now=LATER)
        mine.close()

    threads = [threading.Thread(target=reserve, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(got) == len(names)
    assert len([found for found in got.values() if found is not None]) == 1


def test_the_heartbeat_that_counts_for_a_reservation_is_the_workers_own(store):
    registered(store, "w1", "w2", now=NOW)
    suspect(store)
    store.reserve(OURS, "w1", LEASE, now=at(1))
    store.heartbeat("w1", now=LATER)

    assert store.reserve(OURS, "w2", LEASE, now=LATER + timedelta(seconds=10)) is None
