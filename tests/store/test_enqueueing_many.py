"""Many tasks in one call: all of them or none, each as it would have been alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import DatabaseUnavailable, InvalidArguments, InvalidOption
from dumbwaiter.store import enqueueing
from dumbwaiter.store.store import Store
from tests.store.proxies import proxied
from tests.store.world import SERVERS, row, want

ODD: list[Any] = [
    None,
    "",
    "null",
    'quote " and back\\slash, %s %(x)s :pairs $[0] {}',
    "NUL \0, new\nline, \u2028, 会议回放 🎬, é",
    {"名": [1, 2.5, None, 12_345_678_901_234_567_890_123]},
    "x" * 100_000,
]


def app(store: Store, tmp_path: Path) -> Dumbwaiter:
    waiter = Dumbwaiter(store.settings.database, files=str(tmp_path), workdir=str(tmp_path))
    waiter.task("t")(keeps)
    return waiter


def keeps(value: Any, number: int = 0) -> None:
    """What it is given."""


@pytest.fixture
def waiter(store: Store, tmp_path: Path) -> Iterator[Dumbwaiter]:
    waiter = app(store, tmp_path)
    yield waiter
    waiter.close()


def test_each_is_as_it_would_have_been_alone(waiter: Dumbwaiter, store: Store) -> None:
    options: dict[str, Any] = {
        "queue": "pictures",
        "priority": 7,
        "owner": "名",
        "timeout": None,
        "meta": {"a": 1},
    }
    together = waiter.enqueue_many("t", [{"value": value} for value in ODD], **options)
    alone = [waiter.enqueue("t", {"value": value}, **options).id for value in ODD]

    own = {"id", "created_at", "updated_at", "run_at"}
    for one, other in zip(together, alone, strict=True):
        rows = [
            {name: value for name, value in row(store, task_id).items() if name not in own}
            for task_id in (one, other)
        ]
        assert rows[0] == rows[1]
    assert [waiter.get(task_id).payload["value"] for task_id in together] == ODD


def test_they_run_in_the_order_given(waiter: Dumbwaiter, store: Store) -> None:
    ids = waiter.enqueue_many("t", ({"value": number} for number in range(2_500)))

    claimed = [task.id for _ in range(25) for task in store.claim(want(100), "w1")]
    assert claimed == ids
    assert [store.get(task_id).payload["value"] for task_id in ids[::500]] == [0, 500, 1000, 1500, 2000]


@pytest.mark.parametrize(
    ("options", "ready"),
    [
        ({}, True),
        ({"delay": timedelta(hours=1)}, False),
        ({"run_at": datetime(2000, 1, 1, tzinfo=UTC)}, True),
        ({"run_at": datetime(2100, 1, 1, tzinfo=UTC)}, False),
    ],
)
def test_they_are_due_when_the_options_say(
    waiter: Dumbwaiter, store: Store, options: dict[str, Any], ready: bool
) -> None:
    [first, second] = waiter.enqueue_many("t", [{"value": 1}, {"value": 2}], **options)

    assert [bool(row(store, one)["ready"]) for one in (first, second)] == [ready] * 2
    assert store.get(first).run_at == store.get(second).run_at
    alone = waiter.enqueue("t", {"value": 1}, **options)
    assert abs(store.get(first).run_at - alone.run_at) < timedelta(minutes=1)


def test_one_wrong_call_stores_none_and_is_told_by_its_number(waiter: Dumbwaiter) -> None:
    calls: list[dict[str, Any]] = [{"value": 1}, {"value": 2, "number": "many"}, {"value": 3}]

    with pytest.raises(InvalidArguments) as told:
        waiter.enqueue_many("t", calls)

    assert [path for path, _ in told.value.errors] == ["[1].number"]
    assert waiter.find() == []


@pytest.mark.parametrize(
    "option",
    [
        {"key": "order-1"},
        {"request_key": "r"},
        {"on_duplicate": "replace"},
        {"key": "order-1", "reuse_for": timedelta(hours=1)},
    ],
    ids=str,
)
def test_what_settles_one_task_at_a_time_is_refused(waiter: Dumbwaiter, option: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(option))):
        waiter.enqueue_many("t", [{"value": 1}], **option)

    assert waiter.find() == []


def test_none_are_none(waiter: Dumbwaiter) -> None:
    assert waiter.enqueue_many("t", []) == []


@pytest.mark.parametrize("commits", [True, False])
def test_on_the_callers_connection_they_commit_and_roll_back_with_it(
    waiter: Dumbwaiter, store: Store, commits: bool
) -> None:
    with store.connections.engine.connect() as connection, connection.begin() as transaction:
        ids = waiter.enqueue_many("t", [{"value": 1}, {"value": 2}], connection=connection)
        (transaction.commit if commits else transaction.rollback)()

    assert {task.id for task in waiter.find()} == (set(ids) if commits else set())


def test_a_coroutine_may_store_many(waiter: Dumbwaiter) -> None:
    ids = asyncio.run(waiter.aenqueue_many("t", [{"value": 1}, {"value": 2}]))

    assert {task.id for task in waiter.find()} == set(ids)


def test_a_worker_is_woken_once_for_all_of_them(waiter: Dumbwaiter, store: Store) -> None:
    heard: list[str] = []
    forget = waiter.store.on_ready(heard.append)
    waiter.enqueue_many("t", [{"value": number} for number in range(3)], queue="pictures")
    waiter.enqueue_many("t", [{"value": 1}], delay=timedelta(hours=1))
    forget()

    assert heard == ["pictures"]


@pytest.mark.parametrize("kind", SERVERS)
def test_many_whose_commit_was_not_heard_of_are_there_once(
    empty_store: Any, kind: Any, tmp_path: Path
) -> None:
    store = empty_store(kind)
    with proxied(store.settings.database) as (proxy, address):
        waiter = Dumbwaiter(address, files=str(tmp_path), workdir=str(tmp_path))
        waiter.task("t")(keeps)
        assert waiter.find() == []
        proxy.swallow = b"COMMIT"
        ids = waiter.enqueue_many("t", [{"value": number} for number in range(5)])
        waiter.close()

    assert {task.id for task in store.find()} == set(ids)


@pytest.mark.parametrize("kind", SERVERS)
def test_many_whose_insert_was_not_heard_of_are_told_as_a_failure_and_are_not_there(
    empty_store: Any, kind: Any, tmp_path: Path
) -> None:
    store = empty_store(kind)
    with proxied(store.settings.database) as (proxy, address):
        waiter = Dumbwaiter(address, files=str(tmp_path), workdir=str(tmp_path))
        waiter.task("t")(keeps)
        assert waiter.find() == []
        proxy.swallow = b"INSERT"
        with pytest.raises(DatabaseUnavailable):
            waiter.enqueue_many("t", [{"value": number} for number in range(5)])
        waiter.close()

    assert store.find() == []


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([], []),
        ([1] * enqueueing.ROWS, [enqueueing.ROWS]),
        ([1] * (enqueueing.ROWS + 1), [enqueueing.ROWS, 1]),
        ([enqueueing.CHARACTERS, 1], [1, 1]),
        ([enqueueing.CHARACTERS // 2] * 3, [2, 1]),
    ],
    ids=["none", "one part", "one more", "a large one", "by size"],
)
def test_one_statement_carries_so_many_rows_and_so_much_text(lengths: list[int], sizes: list[int]) -> None:
    bodies = [("", "x" * length) for length in lengths]

    assert [len(chunk) for chunk in enqueueing.chunks(bodies)] == sizes
