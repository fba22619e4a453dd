"""Many ends in one call: the plain successes go in one statement, and every row of it is under its own fence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter.store import batches
from dumbwaiter.store.rows import Finish
from dumbwaiter.store.store import Store
from dumbwaiter.task import Outcome, ResultFile, Status, Task
from tests.store.world import LEASE, at, enqueued, row, started, want

RESULTS: list[Any] = [
    None,
    True,
    0,
    1e2,
    12_345_678_901_234_567_890_123,
    "",
    "null",
    'quote " and back\\slash, %s %(x)s :pairs $[0] {}',
    "NUL \0, new\nline, \u2028, 会议回放 🎬, é (combining)",
    {"名": [1, 2.5, None, {"a": []}]},
    [[], {}],
    "x" * batches.LARGEST,
]


def succeeded(tasks: list[Task], results: list[Any] | None = None) -> list[Finish]:
    given = results or [None] * len(tasks)
    return [Finish(task, Outcome.succeeded(result)) for task, result in zip(tasks, given, strict=True)]


@pytest.fixture
def updates(store: Store) -> Any:
    """How many updates of tasks the store has sent."""
    heard: list[str] = []

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE") and store.tables.tasks.name in statement:
            heard.append(statement)

    sa.event.listen(store.connections.engine, "before_cursor_execute", hear)
    yield heard
    sa.event.remove(store.connections.engine, "before_cursor_execute", hear)


def test_a_hundred_plain_successes_are_one_update(store: Store, updates: list[str]) -> None:
    tasks = [started(store) for _ in range(100)]
    del updates[:]

    assert store.finish(succeeded(tasks), now=at(9)) == [Status.SUCCESS] * 100

    assert len(updates) == 1
    assert {store.get(task.id).status for task in tasks} == {Status.SUCCESS}


def test_results_of_a_batch_are_what_each_would_have_been_alone(store: Store) -> None:
    together, alone = ([started(store) for _ in RESULTS] for _ in range(2))

    store.finish(succeeded(together, RESULTS), now=at(9))
    for task, result in zip(alone, RESULTS, strict=True):
        store.finish(succeeded([task], [result]), now=at(9))

    own = {"id", "created_at", "updated_at", "run_at"}
    for one, other in zip(together, alone, strict=True):
        rows = [
            {name: value for name, value in row(store, task.id).items() if name not in own}
            for task in (one, other)
        ]
        assert rows[0] == rows[1]
    assert [store.get(task.id).result for task in together] == RESULTS


def lost(store: Store, task: Task) -> Task:
    store.rescue(LEASE, now=at(30), limit=1)
    return task


def cancelled(store: Store, task: Task) -> Task:
    store.cancel(task.id, now=at(1))
    return task


def later_attempt(store: Store, task: Task) -> Task:
    store.finish([Finish(task, Outcome.released())], now=at(1))
    again = store.claim_one(task.id, "w1", want(1), now=at(2))
    assert again is not None
    return again


def untouched(store: Store, task: Task) -> Task:
    return task


ODD: dict[str, tuple[Callable[[Store, Task], Task], Status | None]] = {
    "lost its task": (lost, None),
    "was cancelled before": (cancelled, Status.CANCELLED),
    "is a later attempt": (later_attempt, Status.SUCCESS),
}


@pytest.mark.parametrize("how", ODD)
def test_one_that_is_not_plain_or_not_owned_is_told_apart_from_the_others(store: Store, how: str) -> None:
    change, expected = ODD[how]
    odd = change(store, started(store))
    others = [started(store, now=at(29)) for _ in range(5)]

    written = store.finish(succeeded([*others[:3], odd, *others[3:]]), now=at(31))

    assert written == [*[Status.SUCCESS] * 3, expected, *[Status.SUCCESS] * 2]
    assert [store.get(task.id).status for task in others] == [Status.SUCCESS] * 5


def test_what_another_worker_holds_is_not_ended_by_this_one(store: Store) -> None:
    mine = [started(store) for _ in range(3)]
    lost_one = started(store)
    store.rescue(LEASE, now=at(30), limit=10)
    # attempt 2 of all, by another worker: the batch of attempt 1 matches nothing
    for task in (*mine, lost_one):
        assert store.claim_one(task.id, "w2", want(1), now=at(31)) is not None

    assert store.finish(succeeded([*mine, lost_one]), now=at(32)) == [None] * 4
    assert {store.get(task.id).status for task in mine} == {Status.RUNNING}


def test_a_batch_that_was_written_before_is_told_again(store: Store) -> None:
    """The commit came through, and its answer was lost."""
    tasks = [started(store) for _ in range(4)]
    store.finish(succeeded(tasks[:2]), now=at(5))

    assert store.finish(succeeded(tasks), now=at(9)) == [Status.SUCCESS] * 4
    assert store.get(tasks[0].id).finished_at == at(5)
    assert store.get(tasks[3].id).finished_at == at(9)


def test_ends_of_all_kinds_may_be_in_one_batch(store: Store) -> None:
    plain = [started(store) for _ in range(3)]
    with_file, keyed = started(store), started(store, business_key="order-1")
    follower = enqueued(store, business_key="order-1", on_duplicate="after")
    released = started(store)
    file = ResultFile("a.csv", "text/csv", 1, "1" * 64, "tasks/a.csv", 1)
    ends = [
        *succeeded(plain),
        Finish(with_file, Outcome.succeeded("with"), (file,)),
        *succeeded([keyed]),
        Finish(released, Outcome.released()),
    ]

    written = store.finish(ends, now=at(9))

    assert written == [Status.SUCCESS] * 5 + [Status.PENDING]
    assert [one.name for one in store.get(with_file.id).files] == ["a.csv"]
    assert store.get(follower.id).waits_for is None
