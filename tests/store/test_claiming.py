"""Claims: who gets which task, in which order, and how many."""

from __future__ import annotations

import itertools
import threading
from datetime import timedelta

import pytest

from dumbwaiter.store.claiming import Concern
from dumbwaiter.task import Status
from tests.store.world import LEASE, NOW, at, claimed_ids, end, enqueued, row, started, store_of, want


def test_a_higher_priority_is_claimed_first(store):
    low, high, middle = (enqueued(store, priority=priority) for priority in (0, 10, 5))

    assert claimed_ids(store, 1) == [high.id]
    assert claimed_ids(store, 10) == [middle.id, low.id]


def test_of_one_priority_the_earlier_due_is_claimed_first(store):
    later, earlier = (enqueued(store, run_at=at(-seconds)) for seconds in (1, 9))

    assert claimed_ids(store, 1) == [earlier.id]
    assert claimed_ids(store, 1) == [later.id]


def test_of_one_instant_the_earlier_made_is_claimed_first(store):
    ids = [enqueued(store).id for _ in range(3)]

    assert claimed_ids(store) == ids


def test_a_negative_priority_waits_for_all_the_others(store):
    last, first = (enqueued(store, priority=priority) for priority in (-100, -99))

    assert claimed_ids(store) == [first.id, last.id]


def test_a_claim_charges_the_attempt_and_begins_the_lease(store):
    task = enqueued(store, timeout=timedelta(seconds=100))

    [claimed] = store.claim(want(beat_for=timedelta(seconds=33)), "w1", now=at(5))

    assert (claimed.id, claimed.status, claimed.attempt, claimed.worker_id) == (task.id, "running", 1, "w1")
    assert claimed.started_at == claimed.heartbeat_at == at(5)
    assert row(store, task.id)["beat_until"] == at(5 + 100 + 33)
    assert claimed.version == task.version + 1
    assert claimed == store.get(task.id)


def test_a_task_without_a_timeout_may_beat_for_ever(store):
    task = started(store, timeout=None)

    assert (task.timeout, row(store, task.id)["beat_until"]) == (None, None)


def test_no_more_is_claimed_than_there_are_slots(store):
    for _ in range(5):
        enqueued(store)

    assert len(claimed_ids(store, 3)) == 3
    assert len(claimed_ids(store, 3)) == 2
    assert claimed_ids(store, 3) == []


@pytest.mark.parametrize("asked", [want(0), want(-1), want(5, queue="other")])
def test_nothing_is_claimed_without_a_slot_or_from_another_queue(store, asked):
    enqueued(store)

    assert store.claim(asked, "w1") == []


def test_a_task_type_that_the_worker_does_not_know_is_left_alone(store):
    strange = enqueued(store, task_type="from-the-future", priority=100)
    known = enqueued(store)

    assert claimed_ids(store) == [known.id]
    assert store.claim_one(strange.id, "w1", want()) is None
    assert store.get(strange.id).status is Status.PENDING
    assert [task.id for task in store.claim(want(1, "from-the-future"), "w2")] == [strange.id]


def test_types_that_differ_in_case_are_different(store):
    enqueued(store, task_type="T")

    assert store.claim(want(1, "t"), "w1") == []


def test_needs_are_never_more_than_what_is_free(store):
    for _ in range(4):
        enqueued(store, task_type="render")
    asked = want(4, "render", needs={"render": {"chromium": 1}}, free={"chromium": 2})

    assert len(store.claim(asked, "w1")) == 2


def test_what_needs_nothing_is_claimed_beside_what_does(store):
    renders = [enqueued(store, task_type="render").id for _ in range(2)]
    small = enqueued(store)
    asked = want(3, "render", "t", needs={"render": {"chromium": 1}}, free={"chromium": 1})

    assert [task.id for task in store.claim(asked, "w1")] == [renders[0], small.id]


def test_a_type_whose_needs_are_not_free_does_not_hold_up_the_others(store):
    for _ in range(3):
        enqueued(store, task_type="render", priority=50)
    small = enqueued(store)
    asked = want(2, "render", "t", needs={"render": {"chromium": 1}}, free={"chromium": 0})

    assert [task.id for task in store.claim(asked, "w1")] == [small.id]


def test_fractions_of_a_capacity_add_up(store):
    for _ in range(4):
        enqueued(store, task_type="model")
    asked = want(4, "model", needs={"model": {"gpu": 0.1}}, free={"gpu": 0.3})

    assert len(store.claim(asked, "w1")) == 3


def test_one_given_task_is_claimed_once(store):
    task = enqueued(store)

    first, second = (store.claim_one(task.id, worker, want(), now=NOW) for worker in ("w1", "w2"))

    assert (first.worker_id, first.attempt, second) == ("w1", 1, None)
    assert store.claim_one("no id", "w1", want()) is None


def test_a_given_task_that_is_not_due_is_not_claimed(store):
    task = enqueued(store, delay=timedelta(seconds=30))

    assert store.claim_one(task.id, "w1", want(), now=NOW) is None


def test_a_task_that_was_not_started_in_time_is_never_started(store):
    task = enqueued(store, start_before=at(10))

    assert claimed_ids(store, now=at(10)) == []
    assert store.claim_one(task.id, "w1", want(), now=at(10)) is None
    assert (store.expire(now=at(9)), store.expire(now=at(10)), store.expire(now=at(11))) == (0, 1, 0)
    expired = store.get(task.id)
    assert (expired.status, expired.error_message) == ("cancelled", "expired: it had not started in time")


def test_a_task_that_was_started_in_time_and_is_retried_does_not_expire(store):
    task = started(store, start_before=at(10))
    store.rescue(timedelta(seconds=20), now=at(30))

    assert store.expire(now=at(30)) == 0
    assert claimed_ids(store, now=at(30)) == [task.id]


def test_the_queues_with_work_are_those_where_something_is_ready(store):
    for queue in ("b", "a", "b", "é"):
        enqueued(store, queue=queue)
    enqueued(store, queue="later", delay=timedelta(hours=1))
    end(store, started(store, queue="done"))

    assert store.queues_with_work() == ["a", "b", "é"]


def test_an_urgent_queue_does_not_wait_for_a_full_one(store):
    for _ in range(20):
        enqueued(store, queue="bulk")
    store.claim(want(10, queue="bulk"), "w1")
    urgent = enqueued(store, queue="urgent")

    assert [task.id for task in store.claim(want(1, queue="urgent"), "w1")] == [urgent.id]


def test_what_a_worker_holds_is_known(store):
    mine = started(store, worker="w1")
    started(store, worker="w2")

    assert [task.id for task in store.held("w1")] == [mine.id]
    end(store, mine)
    assert store.held("w1") == []


@pytest.mark.parametrize("needs", [{}, {"t": {"seat": 1}}], ids=["at once", "in steps"])
def test_six_threads_claiming_200_tasks_in_sevens_get_each_exactly_once(store, needs):
    ids = [enqueued(store, now=None).id for _ in range(200)]
    claimed: list[list[str]] = [[] for _ in range(6)]
    begin = threading.Barrier(6)
    asked = want(7, needs=needs, free={"seat": 7})

    def claimer(number: int) -> None:
        mine = store_of(store.settings.database)
        begin.wait()
        while got := mine.claim(asked, f"w{number}"):
            assert len(got) <= 7
            claimed[number] += [task.id for task in got]
        mine.close()

    threads = [threading.Thread(target=claimer, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(itertools.chain(*claimed)) == sorted(ids)


@pytest.mark.parametrize("alone", [False, True])
def test_arguments_of_a_newer_version_are_left_for_a_worker_that_knows_it(store, alone):
    first, second = enqueued(store), enqueued(store, payload_version=2)
    other = enqueued(store, task_type="u", payload_version=3)
    wish = {"alone": alone}
    if alone:  # all of them have crashed a worker
        for task in store.claim(want(9, "t", "u", versions={"t": 2, "u": 3}), "dead", now=at(0)):
            assert task.attempt == 1
        store.rescue(LEASE, now=at(30))

    old = {task.id for task in store.claim(want(9, "t", "u", **wish), "old", now=at(31))}
    new = {task.id for task in store.claim(want(9, "t", "u", versions={"t": 2}, **wish), "new", now=at(31))}

    assert (old, new) == ({first.id}, {second.id})
    assert store.get(other.id).status is Status.PENDING
    assert store.claim_one(other.id, "new", want(1, "u", versions={"u": 2}, **wish), now=at(31)) is None
    assert store.claim_one(other.id, "newest", want(1, "u", versions={"u": 3}, **wish), now=at(31))
    assert sorted(store.ready_types("default")) == []


def test_a_worker_stops_claiming_for_no_suspect_whose_arguments_it_cannot_read(store):
    suspect = enqueued(store, payload_version=2)
    store.claim(want(9, versions={"t": 2}), "dead", now=at(0))
    store.rescue(LEASE, now=at(30))
    old, new = Concern(("t",)), Concern(("t",), versions={"t": 2})

    assert (store.ahead(old, now=at(31)).suspect, store.ahead(new, now=at(31)).suspect) == (False, True)
    assert store.reserve(old, "old", LEASE, now=at(31)) is None
    assert store.reserve(new, "new", LEASE, now=at(31)) == suspect.id
    assert (old.includes(store.get(suspect.id)), new.includes(store.get(suspect.id))) == (False, True)
