"""What attempts remember for later ones, on each database: fenced, whole, and gone once the task has ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter.errors import LostClaim
from dumbwaiter.store.rows import Finish
from dumbwaiter.store.store import Store
from dumbwaiter.task import AttemptOutcome, KeptFile, Kind, Mark, Outcome, Recalled, Task
from tests.store.world import LEASE, at, claimed_ids, end, started, want

AGAIN = Outcome(Kind.RETRY, AttemptOutcome.FAILED, error_message="the line was cut")
FAILED = Outcome(Kind.FAIL, AttemptOutcome.FAILED, error_message="burnt")


def next_attempt(store: Store, task: Task, worker: str = "w2", seconds: float = 1) -> Task:
    """The task as another attempt holds it; it is pending."""
    claimed = store.claim_one(task.id, worker, want(1), now=at(seconds))
    assert claimed is not None
    return claimed


def rows(store: Store, task: Task) -> list[dict[str, Any]]:
    steps = store.tables.steps
    with store.connections.reading() as connection:
        found = connection.execute(sa.select(steps).where(steps.c.task_id == task.id)).mappings()
        return [dict(row) for row in found]


@pytest.mark.parametrize("value", [None, 0, "", [1, 2.5, None], {"名": {"\x00": "😀"}}], ids=repr)
def test_a_later_attempt_gets_the_result_of_a_step_as_it_was(store: Store, value: object) -> None:
    task = started(store)
    store.remember(task.fence, "soup", value)
    end(store, task, AGAIN)
    again = next_attempt(store, task)

    assert store.recall(again.fence).results == ("soup",)
    assert store.step_result(again.fence, "soup") == value


def test_a_step_a_cursor_and_a_file_of_one_name_do_not_meet(store: Store) -> None:
    task = started(store)
    store.remember(task.fence, "x", 1)
    store.keep_file(task.fence, "x", KeptFile("k", 3, "0" * 64))
    store.mark([(task.fence, Mark(2))])

    assert store.step_result(task.fence, "x") == 1
    assert store.kept_file(task.fence, "x") == KeptFile("k", 3, "0" * 64)
    assert store.recall(task.fence) == Recalled(("x",), 2, None)


def test_names_are_told_apart_byte_by_byte(store: Store) -> None:
    task = started(store)
    names = ["b", "b ", "B", "é", "e\u0301", "😀" * 50, "x" * 200]
    for number, name in enumerate(names):
        store.remember(task.fence, name, number)

    assert [store.step_result(task.fence, name) for name in names] == list(range(len(names)))


def test_a_superseded_attempt_can_neither_write_nor_read(store: Store) -> None:
    late = started(store)
    store.remember(late.fence, "soup", "early")
    store.rescue(LEASE, now=at(60))
    now = next_attempt(store, late, seconds=61)
    store.remember(now.fence, "roast", "fresh")
    before = rows(store, late)

    for write in (
        lambda: store.remember(late.fence, "roast", "late"),
        lambda: store.remember(late.fence, "pudding", "late"),
        lambda: store.promise_file(late.fence, "recipe"),
        lambda: store.keep_file(late.fence, "recipe", KeptFile("k", 1, "0" * 64)),
        lambda: store.recall(late.fence),
        lambda: store.step_result(late.fence, "soup"),
        lambda: store.kept_file(late.fence, "recipe"),
    ):
        with pytest.raises(LostClaim, match="attempt 1 no longer owns"):
            write()
    assert store.mark([(late.fence, Mark(1)), (now.fence, Mark(2))]) == [now.fence]
    assert store.recall(now.fence).cursor == 2
    assert [row for row in rows(store, late) if row["kind"] != "cursor"] == before


def test_a_task_that_ended_takes_no_steps(store: Store) -> None:
    task = started(store)
    end(store, task)

    with pytest.raises(LostClaim):
        store.remember(task.fence, "soup", 1)
    assert store.mark([(task.fence, Mark(1))]) == []
    assert rows(store, task) == []


def test_the_cursor_is_written_with_the_end_of_an_attempt_that_is_not_the_last(store: Store) -> None:
    task = started(store)
    store.mark([(task.fence, Mark(["page", 411], 0.4))])
    store.finish([Finish(task, AGAIN, mark=Mark(["page", 412], 0.5))], now=at(0))
    again = next_attempt(store, task)

    assert store.recall(again.fence) == Recalled((), ["page", 412], 0.5)


def test_the_cursor_of_an_attempt_that_lost_its_task_is_not_written_with_its_end(store: Store) -> None:
    late = started(store)
    store.rescue(LEASE, now=at(60))
    again = next_attempt(store, late, seconds=61)

    assert store.finish([Finish(late, AGAIN, mark=Mark("late"))], now=at(62)) == [None]
    assert store.recall(again.fence).cursor is None


def test_the_furthest_progress_is_what_a_later_attempt_starts_from(store: Store) -> None:
    task = started(store)
    store.remember(task.fence, "soup", 1, fraction=0.3)
    store.remember(task.fence, "bread", 1)
    store.mark([(task.fence, Mark(7, 0.45))])

    assert store.recall(task.fence).fraction == 0.45


def test_a_promised_file_is_not_there_until_it_is_kept(store: Store) -> None:
    task = started(store)
    store.promise_file(task.fence, "recipe")

    assert store.kept_file(task.fence, "recipe") is None
    assert store.with_kept_files([task.id]) == {task.id}
    assert store.keep_file(task.fence, "recipe", KeptFile("first", 1, "0" * 64)) is None
    store.promise_file(task.fence, "recipe")
    assert store.kept_file(task.fence, "recipe") == KeptFile("first", 1, "0" * 64)
    assert store.keep_file(task.fence, "recipe", KeptFile("second", 2, "1" * 64)) == "first"
    assert store.kept_file(task.fence, "recipe") == KeptFile("second", 2, "1" * 64)


@pytest.mark.parametrize("outcome", [Outcome.succeeded(), FAILED, Outcome.cancelled()], ids=lambda o: o.kind)
def test_the_steps_of_a_task_that_ended_are_found_and_forgotten(store: Store, outcome: Outcome) -> None:
    task, other = started(store), started(store)
    for one in (task, other):
        store.remember(one.fence, "soup", 1)
    assert store.ended_with_steps() == []
    end(store, task, outcome)

    assert store.ended_with_steps() == [task.id]
    store.forget_steps([task.id])
    assert (rows(store, task), len(rows(store, other))) == ([], 1)
    assert store.ended_with_steps() == []


def test_the_steps_of_a_task_that_is_cancelled_while_it_waits_are_found(store: Store) -> None:
    task = started(store)
    store.remember(task.fence, "soup", 1)
    end(store, task, Outcome(Kind.RETRY, AttemptOutcome.FAILED, delay=timedelta(minutes=5)))
    assert claimed_ids(store, now=at(1)) == []
    store.cancel(task.id)

    assert store.ended_with_steps() == [task.id]


def test_the_steps_of_a_task_that_is_no_more_are_found(store: Store) -> None:
    task = started(store)
    store.remember(task.fence, "soup", 1)
    with store.connections.writing() as connection:
        connection.execute(sa.delete(store.tables.tasks).where(store.tables.tasks.c.id == task.id))

    assert store.ended_with_steps() == [task.id]
