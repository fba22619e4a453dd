"""Tasks in steps: what was done is not done again, and nothing of it is left once the task has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import Status, Task
from dumbwaiter.worker import sweeper
from dumbwaiter.worker.loop import Worker
from tests.support import larder
from tests.support.databases import Database
from tests.support.waiting import until
from tests.support.workers import Place, ended, place
from tests.worker.conftest import FAST

Start = Callable[..., Worker]


@pytest.fixture
def here(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """As for all workers, but with a lease that a busy machine keeps: here nobody is to be rescued."""
    with place(database, tmp_path, **FAST | {"lease": "20s"}) as found:
        monkeypatch.setenv("LEDGER", str(found.ledger_path))
        yield found


@pytest.fixture(autouse=True)
def tasks_in_steps(waiter: Dumbwaiter) -> None:
    for entry in larder.waiter.registry:
        waiter.registry.add(entry)


def cooked(here: Place, task: Task) -> list[tuple[str, int]]:
    """The steps that ran, each with its attempt."""
    return [
        (one.more["dish"], one.attempt)
        for one in here.ledger()
        if one.event == "cook" and one.task_id == task.id
    ]


def steps_left(waiter: Dumbwaiter) -> int:
    steps = waiter.store.tables.steps
    with waiter.store.connections.reading() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(steps)).scalar_one())


def kept_left(here: Place) -> list[Path]:
    return [path for path in (here.home / "files").rglob("*") if path.is_file()]


def nothing_left(here: Place, waiter: Dumbwaiter) -> None:
    until(lambda: steps_left(waiter) == 0 and not kept_left(here))


@pytest.mark.parametrize("kind", ["thread", "coroutine", "process"])
def test_a_retry_starts_from_the_steps_the_cursor_and_the_files_of_the_attempt_before(
    here: Place, waiter: Dumbwaiter, start_worker: Start, kind: str
) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue(f"menu-{kind}", {"how": "retry"})])

    assert (Status.SUCCESS, 2) == (task.status, task.attempt), task.error_message
    assert task.result == {
        "soup": {"dish": "soup", "attempt": 1},
        "cursor": ["page", 412],
        "recipe": "of attempt 1",
        "roast": {"dish": "roast", "attempt": 2},
    }
    assert cooked(here, task) == [("soup", 1), ("roast", 2)]
    nothing_left(here, waiter)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("thread", "success"),
        ("coroutine", "success"),
        ("process", "success"),
        ("thread", "fail"),
        ("thread", "hang"),
        ("process", "hang"),
    ],
)
def test_nothing_that_a_first_attempt_remembers_outlives_the_task(
    here: Place, waiter: Dumbwaiter, start_worker: Start, kind: str, how: str
) -> None:
    start_worker()
    task = waiter.enqueue(f"menu-{kind}", {"how": how})
    if how == "hang":
        until(lambda: here.starts(task.id))
        assert (steps_left(waiter) >= 2, len(kept_left(here))) == (True, 1)
        waiter.cancel(task.id)
    [task] = ended(waiter, [task])

    wanted = {"success": Status.SUCCESS, "fail": Status.FAILED, "hang": Status.CANCELLED}
    assert (wanted[how], 1) == (task.status, task.attempt), task.error_message
    nothing_left(here, waiter)


def test_what_a_task_remembers_goes_when_it_is_cancelled_while_it_waits_for_a_retry(
    here: Place, waiter: Dumbwaiter, start_worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "REST", 0.2)
    start_worker()
    task = waiter.enqueue("menu-slow", {"how": "wait"})
    until(lambda: waiter.get(task.id).retry_count == 1)
    assert (steps_left(waiter), len(kept_left(here))) == (3, 1)
    waiter.cancel(task.id)

    nothing_left(here, waiter)


def test_what_a_dead_worker_left_of_a_task_that_ended_goes_when_the_next_one_starts(
    here: Place, waiter: Dumbwaiter, start_worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sweeper.Sweeper.round
    # its worker dies before it has removed them
    monkeypatch.setattr(sweeper.Sweeper, "round", lambda _sweeper: 60.0)
    first = start_worker()
    [task] = ended(waiter, [waiter.enqueue("menu-thread", {"how": "success"})])
    first.stop()
    assert first.join(15)
    assert (Status.SUCCESS, 1) == (task.status, len(kept_left(here)))
    assert steps_left(waiter) >= 3
    monkeypatch.setattr(sweeper.Sweeper, "round", whole)
    start_worker()

    nothing_left(here, waiter)


def test_a_later_attempt_shows_the_progress_that_it_starts_from(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    start_worker()
    task = waiter.enqueue("resumed")
    until(lambda: [one for one in here.ledger() if one.event == "at"])

    assert [one.more["cursor"] for one in here.ledger() if one.event == "at"] == ["4"]
    until(lambda: waiter.get(task.id).progress == pytest.approx(0.4))
    assert waiter.get(task.id).attempt == 2


def test_a_task_that_is_made_again_by_hand_starts_without_the_old_steps(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    start_worker()
    [old] = ended(waiter, [waiter.enqueue("menu-thread", {"how": "fail"})])
    new = waiter.retry(old.id)
    ended(waiter, [new])

    assert (cooked(here, old), cooked(here, new)) == ([("soup", 1)], [("soup", 1)])


def test_a_task_without_steps_asks_nothing_of_their_table(
    waiter: Dumbwaiter, start_worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if waiter.store.tables.steps.name in statement and "DISTINCT" not in statement:
            asked.append(statement)

    sa.event.listen(waiter.store.connections.engine, "before_cursor_execute", hear)
    start_worker()
    tasks = [waiter.enqueue("doze", {"seconds": 0.01}), waiter.enqueue("slumber", {"seconds": 0.01})]
    assert {Status.SUCCESS} == {task.status for task in ended(waiter, tasks)}
    [first] = ended(waiter, [waiter.enqueue("menu-thread", {"how": "success"})])

    # the first attempt of the one with steps writes them, and needs not read what was there before
    assert not [one for one in asked if first.id in one]
    assert asked
    assert "JOIN" not in asked[0]
