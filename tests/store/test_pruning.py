"""Old records, expired files and what dead attempts left: found by their indexes, removed in bounded batches, never too early."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter.store import ending
from dumbwaiter.store.dialects import SQLite
from dumbwaiter.store.pruning import LOOK_AGAIN, Prunable, StoredFile
from dumbwaiter.store.rows import Database, Finish
from dumbwaiter.store.store import Store
from dumbwaiter.store.tables import Tables
from dumbwaiter.task import AttemptOutcome, Kind, Mark, Outcome, ResultFile, Retention, Status, Task
from tests.store.world import LEASE, NOW, SERVERS, at, count, end, enqueued, new, row, started, want

DAY = timedelta(days=1)
FAILED = Outcome(Kind.FAIL, AttemptOutcome.FAILED, error_type="E", error_message="m")
RETRIED = Outcome(Kind.RETRY, AttemptOutcome.FAILED, error_type="E", error_message="m")


def file(task: Task, name: str = "a.txt", *, expires: timedelta | None = DAY) -> ResultFile:
    expires_at = None if expires is None else NOW + expires
    return ResultFile(name, "text/plain", 1, "0" * 64, f"{task.id}/1/{name}", 1, expires_at=expires_at)


def succeeded(store: Store, *files: Any, **options: Any) -> Task:
    """A task that succeeded at NOW with files of these expiries, named a, b, c…"""
    task = started(store, **options)
    published = [file(task, "abc"[place], expires=expires) for place, expires in enumerate(files)]
    assert store.finish([Finish(task, Outcome.succeeded(), published)], now=NOW) == [Status.SUCCESS]
    return task


def pruned_at(store: Store, task: Task) -> Any:
    return row(store, task.id)["prune_at"]


def rows_of(store: Store, *task_ids: str) -> dict[str, int]:
    """How many rows each table has of these tasks."""
    tables = store.tables
    found = {}
    with store.connections.reading() as connection:
        for table, column in (
            (tables.tasks, tables.tasks.c.id),
            *((table, table.c.task_id) for table in (tables.attempts, tables.files, tables.steps)),
        ):
            statement = sa.select(sa.func.count()).select_from(table).where(column.in_(task_ids))
            found[table.name.removeprefix(tables.prefix)] = connection.execute(statement).scalar_one()
    return found


def test_a_record_is_kept_by_how_its_task_ended(store: Store) -> None:
    success, failed, cancelled = (started(store) for _ in range(3))
    end(store, success)
    end(store, failed, FAILED)
    end(store, cancelled, Outcome.cancelled())
    waiting = enqueued(store)
    store.cancel(waiting.id, now=NOW)

    assert [pruned_at(store, task) for task in (success, failed, cancelled, waiting)] == [
        NOW + 30 * DAY,
        NOW + 7 * DAY,
        NOW + DAY,
        NOW + DAY,
    ]


def test_what_has_not_ended_is_never_pruned(store: Store) -> None:
    waiting, running, retried = enqueued(store), started(store), started(store)
    end(store, retried, RETRIED)

    assert [pruned_at(store, task) for task in (waiting, running, retried)] == [None, None, None]


def test_a_record_stays_as_long_as_its_files_do(store: Store) -> None:
    short, long, for_ever = (
        succeeded(store, DAY),
        succeeded(store, DAY, 90 * DAY),
        succeeded(store, DAY, None),
    )

    assert [pruned_at(store, task) for task in (short, long, for_ever)] == [
        NOW + 30 * DAY,
        NOW + 90 * DAY,
        None,
    ]


def test_by_the_databases_own_clock_too(store: Store) -> None:
    task = store.claim_one(enqueued(store, now=None).id, "w1", want(1))
    assert task is not None
    later = store.now() + 90 * DAY
    published = ResultFile("a", "text/plain", 1, "0" * 64, "k", 1, expires_at=later)
    store.finish([Finish(task, Outcome.succeeded(), [published])])
    plain = store.claim_one(enqueued(store, now=None).id, "w1", want(1))
    assert plain is not None
    store.finish([Finish(plain, Outcome.succeeded())])

    assert pruned_at(store, task) == later
    assert abs(pruned_at(store, plain) - store.now() - 30 * DAY) < timedelta(minutes=1)


@pytest.mark.parametrize("clock", [NOW, None])
def test_of_many_ends_in_one_statement_each_is_kept_as_its_type_says(
    store: Store, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    kept = {"t": Retention(success=2 * DAY), "u": Retention(success=None), "v": Retention(success=5 * DAY)}
    monkeypatch.setattr(type(store.db), "retention", property(lambda _: kept.__getitem__))
    tasks = [started(store, task_type=kind) for kind in "ttuuvvtv"]

    assert store.finish([Finish(task, Outcome.succeeded()) for task in tasks], now=clock) == ["success"] * 8

    begin = clock or store.now()
    for task in tasks:
        wanted = kept[task.task_type].success
        found = pruned_at(store, task)
        assert found is None if wanted is None else abs(found - begin - wanted) < timedelta(minutes=1)


def test_expired_files_are_found_the_earliest_first_and_only_once(store: Store) -> None:
    task = succeeded(store, 2 * DAY, DAY, None)
    assert store.prunable(now=NOW) == Prunable(files=False, leftovers=False, records=False, uploads=False)
    assert store.expired_files(now=NOW) == []
    found = store.expired_files(now=NOW + 3 * DAY)

    assert [one.name for one in found] == ["b", "a"]
    assert found[0] == StoredFile(task.id, "b", f"{task.id}/1/b")
    assert store.expired_files(now=NOW + 3 * DAY, skip=1) == found[1:]
    assert store.expired_files(now=NOW + 3 * DAY, limit=1) == found[:1]
    assert store.prunable(now=NOW + 3 * DAY).files
    store.mark_deleted(found, now=NOW + 3 * DAY)
    assert not store.prunable(now=NOW + 3 * DAY).files
    assert {one.name: one.deleted_at for one in store.get(task.id).files} == {
        "a": NOW + 3 * DAY,
        "b": NOW + 3 * DAY,
        "c": None,
    }


def test_an_attempt_that_published_and_did_not_succeed_is_swept(store: Store) -> None:
    failed, retried, cancelled, success, quiet = (started(store) for _ in range(5))
    for task, outcome in ((failed, FAILED), (retried, RETRIED), (cancelled, Outcome.succeeded())):
        if task is cancelled:
            store.cancel(task.id, now=NOW)
        store.finish([Finish(task, outcome, [file(task)], published=True)], now=at(5))
    store.finish([Finish(success, Outcome.succeeded(), [file(success)], published=True)], now=at(5))
    end(store, quiet, FAILED)
    found = store.leftovers(now=at(5))

    assert sorted(found) == sorted((task.id, 1) for task in (failed, retried, cancelled))
    store.swept(found[:2], now=at(6))
    assert store.leftovers(now=at(99_999)) == found[2:]
    store.swept(found[2:], now=at(6))
    assert not store.prunable(now=at(99_999)).leftovers


def test_what_a_dead_worker_left_is_swept_twice_since_it_may_not_be_dead(store: Store) -> None:
    task = started(store)
    claimed_ahead = started(store)
    with store.connections.writing() as connection:
        tasks = store.tables.tasks
        connection.execute(sa.update(tasks).where(tasks.c.id == claimed_ahead.id).values(ahead=True))
    assert len(store.rescue(LEASE, now=at(60))) == 2

    assert store.leftovers(now=at(60)) == [(task.id, 1)]
    store.swept([(task.id, 1)], now=at(61))
    assert store.leftovers(now=at(61)) == []
    later = at(61) + LOOK_AGAIN
    assert store.leftovers(now=later) == [(task.id, 1)]
    store.swept([(task.id, 1)], now=later)
    assert not store.prunable(now=later + DAY).leftovers


def test_a_record_goes_with_its_attempts_steps_and_files_and_nobody_elses(store: Store) -> None:
    task, other = started(store), started(store)
    for one in (task, other):
        store.mark([(one.fence, Mark(1))], now=NOW)
        store.finish([Finish(one, RETRIED)], now=NOW)
        again = store.claim_one(one.id, "w1", want(1), now=at(1))
        assert again is not None
        store.finish([Finish(again, Outcome.succeeded(), [file(one, expires=DAY)])], now=at(1))
    whole = {"tasks": 1, "attempts": 2, "files": 1, "steps": 1}
    assert (rows_of(store, task.id), rows_of(store, other.id)) == (whole, whole)
    day = at(2) + 30 * DAY
    assert sorted(store.old_records(now=day)) == sorted([task.id, other.id])
    assert store.belongings([task.id])[task.id].keys == [f"{task.id}/1/a.txt"]

    assert store.prune([task.id], now=day) == 1

    assert rows_of(store, task.id) == dict.fromkeys(whole, 0)
    assert rows_of(store, other.id) == whole
    assert store.prune([task.id], now=day) == 0


def test_a_record_is_not_pruned_before_its_time_whoever_asks(store: Store) -> None:
    task, waiting = succeeded(store), enqueued(store)

    assert store.prune([task.id, waiting.id], now=NOW + 30 * DAY - DAY) == 0
    assert count(store) == 2


@pytest.mark.parametrize("database_kind", SERVERS)  # SQLite has one writer at a time
def test_two_pruners_do_not_meet_on_one_record(store: Store, another: Store) -> None:
    tasks = [succeeded(store) for _ in range(4)]
    day = NOW + 31 * DAY
    held = sorted(task.id for task in tasks)[:2]
    with another.connections.writing() as connection:
        table = another.tables.tasks
        for one in held:  # of so small a table MariaDB would read, and lock, all rows for an IN
            connection.execute(sa.select(table.c.id).where(table.c.id == one).with_for_update())

        assert store.prune([task.id for task in tasks], now=day) == 2

    assert count(store) == 2
    assert store.prune(held, now=day) == 2


def test_a_task_made_again_from_one_that_was_pruned_lives_on(store: Store) -> None:
    old = started(store, business_key="k")
    store.enqueue(new(business_key="k", on_duplicate="after"), now=NOW)
    end(store, old, FAILED)
    follower = next(one for one in store.find() if one.id != old.id)
    again, _ = store.enqueue(new(retry_of=old.id), now=NOW)
    store.note_retry(store.get(old.id), again)
    assert store.prune([old.id], now=NOW + 8 * DAY) == 1

    assert (store.get(again.id).retry_of, store.get(again.id).status) == (old.id, Status.PENDING)
    claimed = store.claim_one(follower.id, "w1", want(1), now=at(5))
    assert claimed is not None
    assert end(store, claimed, now=at(6)) is Status.SUCCESS


def test_what_lies_in_the_file_store_is_known_for_many_records_at_once(store: Store) -> None:
    with_files, swept, keeping, plain = (
        succeeded(store, DAY, None),
        started(store),
        started(store),
        succeeded(store),
    )
    store.finish([Finish(swept, FAILED, published=True)], now=NOW)
    store.promise_file(keeping.fence, "model", now=NOW)
    found = store.belongings([one.id for one in (with_files, swept, keeping, plain)])

    assert set(found) == {with_files.id, swept.id, keeping.id}
    assert sorted(found[with_files.id].keys) == [f"{with_files.id}/1/{name}" for name in "ab"]
    assert (found[swept.id].attempts, found[keeping.id].kept) == ([1], True)


def test_the_record_of_a_task_that_is_to_last_for_ever_is_left_alone() -> None:
    db = Database(Tables(), SQLite(), lambda _: Retention(failed=None))

    assert ending.pruned_at(db, "t", Status.FAILED, NOW) is None
    assert ending.pruned_at(db, "t", Status.SUCCESS, NOW) == NOW + 30 * DAY
