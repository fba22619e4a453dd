"""Business keys: one active task for each, and what an enqueue does that finds its key taken."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from dumbwaiter.errors import DuplicateTask
from dumbwaiter.retry import Retry, decide
from dumbwaiter.store.rows import Finish
from dumbwaiter.task import AttemptOutcome, Kind, Outcome, ResultFile, Status
from tests.store.world import LEASE, NOW, at, claimed_ids, end, enqueued, new, row, started, want

FAILED = Outcome(Kind.FAIL, AttemptOutcome.FAILED)


def keyed(store, on_duplicate="return", *, now=NOW, **options):
    """Enqueue under the key "k": the task, and whether it is new."""
    return store.enqueue(new(business_key="k", on_duplicate=on_duplicate, **options), now=now)


def test_a_second_enqueue_of_an_active_key_returns_the_first_task(store):
    first, created = keyed(store)
    second, created_again = keyed(store)

    assert (second, created, created_again) == (first, True, False)


@pytest.mark.parametrize("status", ["running", "retrying"])
def test_a_key_is_held_while_its_task_runs_and_while_it_waits_for_a_retry(store, status):
    task = started(store, business_key="k")
    if status == "retrying":
        end(store, task, decide(task, ConnectionError(), Retry()))

    assert keyed(store)[0].id == task.id


def ended_by_cancel(store):
    store.cancel(keyed(store)[0].id)


def ended_by_finish(store, outcome):
    end(store, started(store, business_key="k"), outcome)


def ended_by_rescue(store):
    started(store, business_key="k", max_crash_count=0)
    store.rescue(LEASE, now=at(30))


def ended_by_expiry(store):
    keyed(store, start_before=at(1))
    store.expire(now=at(2))


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param(lambda store: ended_by_finish(store, Outcome.succeeded()), id="success"),
        pytest.param(lambda store: ended_by_finish(store, FAILED), id="failure"),
        pytest.param(lambda store: ended_by_finish(store, Outcome.cancelled()), id="cancel of a running one"),
        pytest.param(ended_by_cancel, id="cancel of a pending one"),
        pytest.param(ended_by_rescue, id="crash budget"),
        pytest.param(ended_by_expiry, id="expiry"),
    ],
)
def test_every_end_frees_the_key(store, ended):
    ended(store)

    task, created = keyed(store)

    assert (task.status, created) == (Status.PENDING, True)


@pytest.mark.parametrize("other", ["A", "a ", "á", "ａ", "", "a\u200b"])
def test_keys_are_compared_bytewise(store, other):
    first = enqueued(store, business_key="a")
    second = enqueued(store, business_key=other)

    assert first.id != second.id
    assert [task.id for task in store.find(key=other)] == [second.id]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"owner": "ann"}, {"owner": "Ann"}),
        ({"owner": "ann"}, {"owner": None}),
        ({"task_type": "t"}, {"task_type": "u"}),
    ],
)
def test_a_key_belongs_to_its_owner_and_type(store, one, other):
    first, second = (enqueued(store, business_key="k", **options) for options in (one, other))

    assert first.id != second.id


def test_reject_raises_with_the_task_that_holds_the_key(store):
    task, _ = keyed(store)

    with pytest.raises(DuplicateTask) as refused:
        keyed(store, "reject")

    assert refused.value.task == task


def test_after_waits_for_the_holder_and_starts_when_that_has_ended(store):
    holder = started(store, business_key="k")
    follower, created = keyed(store, "after")

    assert (created, follower.waits_for) == (True, holder.id)
    assert (store.stage(now=at(9)), claimed_ids(store, now=at(9))) == (0, [])

    end(store, holder, now=at(10))

    assert store.get(follower.id).waits_for is None
    assert keyed(store)[0].id == follower.id
    assert claimed_ids(store, now=at(10)) == [follower.id]


def test_there_is_at_most_one_follower_and_a_second_asker_gets_it(store):
    started(store, business_key="k")

    first, second = (keyed(store, "after") for _ in range(2))

    assert (second[0].id, first[1], second[1]) == (first[0].id, True, False)


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(lambda store, task: end(store, task, FAILED), id="failure"),
        pytest.param(lambda store, task: end(store, task, Outcome.cancelled()), id="cancel"),
        pytest.param(
            lambda store, task: [store.cancel(task.id), store.rescue(LEASE, now=at(60))],
            id="rescue of a cancel",
        ),
    ],
)
def test_a_follower_is_made_ready_by_whatever_ends_the_holder(store, ending):
    holder = started(store, business_key="k")
    follower, _ = keyed(store, "after")

    ending(store, holder)

    assert claimed_ids(store) == [follower.id]


def test_a_follower_of_a_pending_task_is_made_ready_when_that_is_cancelled(store):
    holder, _ = keyed(store)
    follower, _ = keyed(store, "after")

    store.cancel(holder.id, now=NOW)

    assert claimed_ids(store) == [follower.id]


def test_a_follower_is_not_made_ready_by_a_retry(store):
    holder = started(store, business_key="k")
    follower, _ = keyed(store, "after")

    end(store, holder, Outcome.released())

    assert claimed_ids(store) == [holder.id]
    assert store.get(follower.id).waits_for == holder.id


def test_a_follower_that_is_due_later_waits_for_its_time_as_well(store):
    holder = started(store, business_key="k")
    follower, _ = keyed(store, "after", delay=timedelta(seconds=60))

    end(store, holder, now=at(10))

    assert (store.stage(now=at(59)), claimed_ids(store, now=at(59))) == (0, [])
    assert (store.stage(now=at(60)), claimed_ids(store, now=at(60))) == (1, [follower.id])


def test_a_cancelled_follower_leaves_its_place_to_another(store):
    started(store, business_key="k")
    first, _ = keyed(store, "after")
    store.cancel(first.id)

    second, created = keyed(store, "after")

    assert (second.id != first.id, created) == (True, True)


def test_replace_cancels_a_pending_task_and_takes_its_key(store):
    old, _ = keyed(store)

    young, created = keyed(store, "replace")

    replaced = store.get(old.id)
    assert (created, replaced.status, replaced.error_message) == (
        True,
        "cancelled",
        f"replaced by task {young.id}",
    )
    assert claimed_ids(store) == [young.id]


def test_replace_asks_a_running_task_to_end_and_queues_behind_it(store):
    old = started(store, business_key="k")

    young, created = keyed(store, "replace")

    assert (created, young.waits_for, store.get(old.id).phase(NOW)) == (True, old.id, "cancelling")
    end(store, old, Outcome.succeeded("too late"))
    assert store.get(old.id).status is Status.CANCELLED
    assert claimed_ids(store) == [young.id]


@pytest.mark.parametrize("running", [True, False])
def test_replace_replaces_the_follower_too(store, running):
    old = started(store, business_key="k") if running else keyed(store)[0]
    follower, _ = keyed(store, "after")

    young, created = keyed(store, "replace")

    assert (created, store.get(follower.id).status) == (True, Status.CANCELLED)
    if running:
        end(store, old)
    assert claimed_ids(store) == [young.id]
    assert claimed_ids(store) == []


@pytest.mark.parametrize("on_duplicate", ["return", "reject", "after", "replace"])
def test_an_enqueue_during_a_cancel_queues_behind_it(store, on_duplicate):
    dying = started(store, business_key="k")
    store.cancel(dying.id)

    young, created = keyed(store, on_duplicate)

    assert (young.id != dying.id, created, young.waits_for) == (True, True, dying.id)
    end(store, dying, Outcome.cancelled())
    assert claimed_ids(store) == [young.id]


def test_a_second_enqueue_during_a_cancel_gets_the_one_that_queues_already(store):
    store.cancel(started(store, business_key="k").id)

    first, second = (keyed(store)[0].id for _ in range(2))

    assert second == first


def test_reject_during_a_cancel_rejects_for_the_one_that_queues_already(store):
    store.cancel(started(store, business_key="k").id)
    queued, _ = keyed(store)

    with pytest.raises(DuplicateTask) as refused:
        keyed(store, "reject")

    assert refused.value.task.id == queued.id


def test_reuse_for_gives_out_a_young_success_again(store):
    task = started(store, business_key="k")
    end(store, task, Outcome.succeeded(1), now=at(10))

    young, created = keyed(store, reuse_for=timedelta(seconds=60), now=at(69))
    old, created_again = keyed(store, reuse_for=timedelta(seconds=60), now=at(71))

    assert (young.id, young.result, created) == (task.id, 1, False)
    assert (old.id != task.id, created_again) == (True, True)


@pytest.mark.parametrize("clock", ["a literal now", "the database's now"])
def test_reuse_for_compares_with_the_given_clock(store, clock):
    now = NOW if clock == "a literal now" else None
    task = store.claim_one(enqueued(store, business_key="k", now=now).id, "w1", want(), now=now)
    store.finish([Finish(task, Outcome.succeeded())], now=now)

    assert keyed(store, reuse_for=timedelta(seconds=60), now=now)[0].id == task.id


def test_reuse_for_gives_out_no_failure(store):
    task = started(store, business_key="k")
    end(store, task, FAILED)

    assert keyed(store, reuse_for=timedelta(seconds=60))[0].id != task.id


@pytest.mark.parametrize("owner", [None, "ann"])
def test_reuse_for_gives_out_no_success_of_another_owner(store, owner):
    mine = started(store, business_key="k", owner=owner)
    end(store, mine)
    other = "bob" if owner is None else None

    assert keyed(store, reuse_for=timedelta(seconds=60), owner=other)[0].id != mine.id
    assert keyed(store, reuse_for=timedelta(seconds=60), owner=owner)[0].id == mine.id


@pytest.mark.parametrize(("expires", "reused"), [(None, True), (100, True), (15, False)])
def test_reuse_for_gives_out_no_success_whose_files_have_expired(store, expires, reused):
    task = started(store, business_key="k")
    expires_at = None if expires is None else at(expires)
    files = [ResultFile("a.csv", "text/csv", 1, "1" * 64, "a", 1, expires_at=expires_at)]
    store.finish([Finish(task, Outcome.succeeded(), files)], now=at(10))

    assert (keyed(store, reuse_for=timedelta(minutes=5), now=at(20))[0].id == task.id) is reused


def test_reuse_for_gives_out_no_success_one_of_whose_files_was_deleted(store):
    task = started(store, business_key="k")
    files = [ResultFile(name, "text/csv", 1, "1" * 64, name, 1) for name in "ab"]
    store.finish([Finish(task, Outcome.succeeded(), files)], now=NOW)
    table = store.tables.files
    with store.connections.writing() as connection:
        connection.execute(sa.update(table).where(table.c.name == "b").values(deleted_at=NOW))

    assert keyed(store, reuse_for=timedelta(minutes=5))[0].id != task.id


def test_a_final_task_holds_no_key(store):
    task = started(store, business_key="k")
    assert row(store, task.id)["active_key"] is not None

    end(store, task)

    assert row(store, task.id)["active_key"] is None
