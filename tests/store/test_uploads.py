"""Uploads in the table: who may take one, how long it is kept, and what a transaction that fails leaves of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter.errors import LostClaim, UnknownUpload, UploadConflict, UploadTooLarge
from dumbwaiter.store.store import Store
from dumbwaiter.store.uploads import Part, UploadRow, let_go
from dumbwaiter.task import Fence
from tests.store.world import NOBODY, NOW, at, enqueued, new, new_id, started, store_of

DAY = timedelta(days=1)
LATER = NOW + DAY + timedelta(seconds=1)
HASH = "0" * 64


def announced(store: Store, owner: str | None = "ada", **told: Any) -> str:
    upload_id = new_id()
    about: dict[str, Any] = {"filename": "shop.json", "content_type": "application/json"} | told
    store.uploads.create(upload_id, owner=owner, keep=DAY, now=NOW, **about)
    return upload_id


def complete(store: Store, owner: str | None = "ada") -> str:
    upload_id = announced(store, owner)
    completed(store, upload_id)
    return upload_id


def completed(store: Store, upload_id: str, *parts: Part, key: str = "uploads/x", **told: Any) -> UploadRow:
    about: dict[str, Any] = {"size": 7, "sha256": HASH, "keep": DAY, "now": NOW} | told
    return store.uploads.complete(upload_id, parts=parts, object_key=key, **about)


def part(number: int, size: int = 7, key: str = "one") -> Part:
    return Part(number, size, HASH, key)


def put(store: Store, upload_id: str, one: Part, limit: int = 100, **told: Any) -> str | None:
    when: dict[str, Any] = {"keep": DAY, "now": NOW} | told
    return store.uploads.put_part(upload_id, one, limit=limit, **when)


def using(store: Store, *upload_ids: str, **options: Any) -> str:
    return enqueued(store, **({"owner": "ada", "uploads": upload_ids} | options)).id


def pruned(store: Store, *task_ids: str, **when: Any) -> None:
    tasks = store.tables.tasks
    with store.connections.writing() as connection:
        let_go(store.db, connection, task_ids, when.get("now", NOW))
        connection.execute(sa.delete(tasks).where(tasks.c.id.in_(task_ids)))


def test_an_upload_is_announced_filled_and_completed(store):
    upload_id = announced(store, size=14)
    assert put(store, upload_id, part(2, key="b")) is None
    assert put(store, upload_id, part(1, key="a")) is None
    assert store.uploads.parts(upload_id) == [part(1, key="a"), part(2, key="b")]

    row = completed(store, upload_id, part(1, key="a"), part(2, key="b"), key="whole", size=14)

    assert row == UploadRow(
        upload_id, "ada", "shop.json", "application/json", 14, HASH, "whole", NOW, NOW, NOW + DAY
    )
    assert (store.uploads.get(upload_id, now=NOW), store.uploads.parts(upload_id)) == (row, [])


def test_a_part_that_is_sent_again_takes_the_place_of_the_one_before(store):
    upload_id = announced(store)
    put(store, upload_id, part(1, size=90, key="a"))

    assert put(store, upload_id, part(1, size=95, key="b")) == "a"
    assert store.uploads.parts(upload_id) == [part(1, size=95, key="b")]


def test_parts_together_have_no_more_bytes_than_one_upload_may_have(store):
    upload_id = announced(store)
    put(store, upload_id, part(1, size=60))

    with pytest.raises(UploadTooLarge, match="100 bytes"):
        put(store, upload_id, part(2, size=41))
    assert store.uploads.parts(upload_id) == [part(1, size=60)]


def test_a_complete_upload_takes_no_more_parts_and_stays_what_it_is(store):
    upload_id = complete(store)

    with pytest.raises(UploadConflict, match="complete"):
        put(store, upload_id, part(1))
    assert completed(store, upload_id, part(1), key="another").object_key == "uploads/x"


def test_an_upload_whose_parts_have_changed_since_they_were_read_is_not_completed(store):
    upload_id = announced(store)
    put(store, upload_id, part(1, key="a"))
    put(store, upload_id, part(1, key="b"))

    with pytest.raises(UploadConflict, match="again"):
        completed(store, upload_id, part(1, key="a"))
    assert store.uploads.get(upload_id, now=NOW).completed_at is None


def test_an_upload_that_nobody_takes_expires_a_day_after_the_last_that_happened_to_it(store):
    idle, slow = announced(store), announced(store)
    put(store, slow, part(1), now=at(3600))

    assert store.uploads.expired(now=at(3600)) == []
    assert store.uploads.expired(now=LATER) == [idle]
    with pytest.raises(UnknownUpload):
        store.uploads.get(idle, now=LATER)
    with pytest.raises(UnknownUpload):
        put(store, idle, part(1), now=LATER)
    with pytest.raises(UnknownUpload):
        completed(store, idle, now=LATER)
    assert store.uploads.expired(now=LATER + timedelta(hours=1), limit=1) == [idle]


def test_forgotten_uploads_leave_no_row(store):
    upload_id = announced(store)
    put(store, upload_id, part(1))

    store.uploads.forget([upload_id])

    with store.connections.reading() as connection:
        left = [
            connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in (store.tables.uploads, store.tables.upload_parts, store.tables.upload_uses)
        ]
    assert left == [0, 0, 0]


@pytest.mark.parametrize("owner", ["eve", None])
def test_another_owners_upload_is_none_and_the_task_is_not_stored(store, owner):
    upload_id = complete(store)

    with pytest.raises(UnknownUpload):
        using(store, upload_id, owner=owner)
    assert store.find() == []
    assert store.uploads.get(upload_id, now=NOW).expires_at == NOW + DAY


def test_an_upload_that_is_not_complete_is_taken_by_no_task(store):
    upload_id = announced(store)

    with pytest.raises(UploadConflict, match="not complete"):
        using(store, upload_id)
    assert store.find() == []


def test_an_upload_is_kept_as_long_as_one_of_the_tasks_that_use_it_is_there(store):
    upload_id = complete(store)
    first, second = using(store, upload_id), using(store, upload_id)
    assert store.uploads.of_task(first) == [upload_id]
    assert store.uploads.expired(now=LATER) == []

    pruned(store, first)
    assert store.uploads.expired(now=LATER) == []
    third = using(store, upload_id, now=LATER)
    pruned(store, second, third, now=LATER)

    assert store.uploads.expired(now=LATER) == [upload_id]
    with pytest.raises(UnknownUpload):
        using(store, upload_id, now=LATER)


def test_pruning_tasks_without_uploads_touches_none(store):
    upload_id = complete(store)
    pruned(store, enqueued(store).id)

    assert store.uploads.get(upload_id, now=NOW).expires_at == NOW + DAY


def test_a_key_that_is_taken_leaves_the_upload_to_expire(store):
    held = complete(store)
    task = using(store, held, business_key="order-42")
    spare = complete(store)

    assert using(store, spare, business_key="order-42") == task
    assert store.uploads.of_task(task) == [held]
    assert store.uploads.expired(now=LATER) == [spare]


def test_an_enqueue_that_is_repeated_under_one_id_gives_the_task_its_uploads_once(store):
    upload_id = complete(store)
    once = new(owner="ada", uploads=[upload_id, upload_id])

    tasks = [store.enqueue(once, now=NOW)[0].id for _ in range(2)]

    assert tasks == [once.id, once.id]
    assert store.uploads.of_task(once.id) == [upload_id]


def test_a_callers_transaction_that_is_rolled_back_takes_no_upload(store):
    upload_id = complete(store)
    with store.connections.engine.connect() as connection, connection.begin() as transaction:
        store.enqueue(new(owner="ada", uploads=[upload_id]), connection=connection, now=NOW)
        transaction.rollback()

    assert (store.find(), store.uploads.expired(now=LATER)) == ([], [upload_id])


def test_a_refusal_in_a_callers_transaction_leaves_that_as_it_was(store):
    upload_id = complete(store, owner="eve")
    with store.connections.engine.connect() as connection, connection.begin():
        with pytest.raises(UnknownUpload):
            store.enqueue(new(owner="ada", uploads=[upload_id]), connection=connection, now=NOW)
        kept = store.enqueue(new(), connection=connection, now=NOW)[0]

    assert [task.id for task in store.find()] == [kept.id]


def test_many_tasks_take_their_uploads_together_or_not_at_all(store):
    mine, hers = complete(store), complete(store, owner="eve")
    bodies = [(new_id(), "{}") for _ in range(3)]
    ask = new(owner="ada")

    with pytest.raises(UnknownUpload):
        store.enqueue_many(ask, bodies, uses=[(bodies[0][0], mine), (bodies[1][0], hers)], now=NOW)
    assert store.find() == []
    assert sorted(store.uploads.expired(now=LATER)) == sorted([mine, hers])

    store.enqueue_many(ask, bodies, uses=[(id_, mine) for id_, _ in bodies[:2]], now=NOW)
    assert [store.uploads.of_task(id_) for id_, _ in bodies] == [[mine], [mine], []]


def test_a_running_task_finds_the_uploads_that_it_was_given_and_no_others(store):
    given, other = complete(store), complete(store)
    task = started(store, owner="ada", uploads=[given])

    assert store.uploads.used_by(task.fence, given).object_key == "uploads/x"
    for nobodys in (other, NOBODY):
        with pytest.raises(UnknownUpload):
            store.uploads.used_by(task.fence, nobodys)
    with pytest.raises(LostClaim):
        store.uploads.used_by(Fence(task.id, "w1", 7), given)


@pytest.mark.timeout(120)
def test_an_enqueue_and_a_prune_that_race_for_an_upload_never_leave_a_task_without_it(store):
    for _ in range(12):
        upload_id = complete(store)
        old = using(store, upload_id)
        meet = threading.Barrier(2)

        def again(upload_id: str = upload_id, meet: threading.Barrier = meet) -> str | None:
            meet.wait()
            try:
                return using(store, upload_id)
            except UnknownUpload:
                return None

        def prune(old: str = old, meet: threading.Barrier = meet) -> None:
            meet.wait()
            pruned(store, old)

        with ThreadPoolExecutor(2) as pool:
            asked, gone = pool.submit(again), pool.submit(prune)
            task, _ = asked.result(), gone.result()

        assert store.uploads.expired(now=LATER) == ([] if task else [upload_id])
        assert task is None or store.uploads.of_task(task) == [upload_id]
        if task is not None:
            pruned(store, task)
        store.uploads.forget([upload_id])


def test_the_secret_is_drawn_once_for_all_servers_on_one_database(store, another):
    secret = store.schema.secret

    assert (len(secret) >= 32, another.schema.secret) == (True, secret)


def test_a_secret_of_the_settings_is_what_counts(store):
    other = store_of(store.settings.database, secret="ours")
    try:
        assert other.schema.secret == "ours"
    finally:
        other.close()
