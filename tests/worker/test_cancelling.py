"""A stop, whatever the task is at, and whatever its code makes of it: what was asked for is what is recorded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter import Dumbwaiter, TaskContext
from dumbwaiter.errors import IllegalMove
from dumbwaiter.task import AttemptOutcome, Status, Task
from dumbwaiter.worker import watcher
from dumbwaiter.worker.loop import Worker
from tests.support import kitchen
from tests.support.databases import SQLITE_AT_ONCE, Database
from tests.support.waiting import until
from tests.support.workers import Place, ended, place
from tests.worker.conftest import FAST

Start = Callable[..., Worker]
KINDS = ("coroutine", "thread", "process")


@pytest.fixture
def here(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Nothing here is about leases, so a busy machine shall not let any run out."""
    with place(database, tmp_path, **FAST | {"lease": "60s"}) as found:
        monkeypatch.setenv("LEDGER", str(found.ledger_path))
        yield found


def test_what_waits_is_cancelled_at_once_and_never_runs_whatever_it_waits_for(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    start_worker({"default": 4})
    tired = waiter.enqueue("sulk")
    holder = waiter.enqueue("doze", {"seconds": 600}, key="bed")
    until(lambda: waiter.attempts(tired.id) and len(here.starts()) == 2)
    waiting = [
        waiter.enqueue("nap", {"seconds": 0}, queue="later"),
        waiter.enqueue("nap", {"seconds": 0}, queue="later", delay=timedelta(hours=1)),
        waiter.enqueue("doze", {"seconds": 0}, key="bed", on_duplicate="after"),
        tired,
    ]
    cancelled = [waiter.cancel(task.id) for task in waiting]
    assert {Status.CANCELLED} == {task.status for task in cancelled}
    waiter.cancel(holder.id)

    start_worker({"default": 4, "later": 4})
    ended(waiter, [holder, waiter.enqueue("nap", {"seconds": 0}, queue="later")])
    assert [0, 0, 0, 1] == [len(here.starts(task.id)) for task in waiting]
    for task in cancelled:
        with pytest.raises(IllegalMove):
            waiter.cancel(task.id)
    assert cancelled == [waiter.get(task.id) for task in waiting]


def cancelled_again(waiter: Dumbwaiter, task: Task) -> Task:
    """Cancel what is being cancelled. It may have ended by now: then the refusal has it."""
    try:
        return waiter.cancel(task.id)
    except IllegalMove as error:
        return error.task


@pytest.mark.parametrize("database_kind", SQLITE_AT_ONCE, indirect=True)
def test_what_runs_is_cancelled_whatever_runs_it_and_a_second_cancel_changes_nothing(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    worker = start_worker({"default": 10}, capacity={"process": 4})
    asked = {
        "slumber": {"seconds": 600},
        "doze": {"seconds": 600},
        "nap": {"seconds": 600},
        "blocked-process": {"seconds": 600},
        # these two cannot be ended, and are given up
        "blocked-thread": {"seconds": 5},
        "spin": {"seconds": 5},
    }
    tasks = {name: waiter.enqueue(name, arguments) for name, arguments in asked.items() if name != "spin"}
    until(lambda: len(here.starts()) == len(tasks))
    # last: nothing else starts on the loop that it blocks
    tasks["spin"] = waiter.enqueue("spin", asked["spin"])
    until(lambda: here.starts(tasks["spin"].id))
    began = time.monotonic()
    first = [waiter.cancel(task.id) for task in tasks.values()]
    second = [cancelled_again(waiter, task) for task in tasks.values()]
    found = ended(waiter, list(tasks.values()), 5)

    assert {"cancelling"} == {task.phase(waiter.store.now()) for task in first}
    assert [task.cancel_requested_at for task in first] == [task.cancel_requested_at for task in second]
    assert [(Status.CANCELLED, 1)] * 6 == [(task.status, task.attempt) for task in found]
    assert time.monotonic() - began < 5
    assert worker.abandoned in (2, 3)  # the nap beside the spin on its loop cannot hear anything
    assert [] == list((here.home / "files").rglob("*.txt"))

    # what could not be ended comes to its end at last, and that changes nothing
    until(lambda: len([one for one in here.ledger() if one.event == "end"]) == 2)
    assert found == [waiter.get(task.id) for task in tasks.values()]


@pytest.mark.parametrize("database_kind", SQLITE_AT_ONCE, indirect=True)
def test_a_task_that_is_cancelled_in_the_moment_of_its_claim_is_stopped_like_any_other(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    start_worker()
    for name in ("nap", "doze", "slumber"):
        task = waiter.enqueue(name, {"seconds": 600})
        until(lambda task=task: waiter.get(task.id).status is Status.RUNNING, every=0.001)  # type: ignore[misc]
        waiter.cancel(task.id)

        [found] = ended(waiter, [task], 5)
        assert (Status.CANCELLED, 1) == (found.status, found.attempt)
    assert not [one for one in here.ledger() if one.event == "end"]


@pytest.mark.parametrize("database_kind", SQLITE_AT_ONCE, indirect=True)
def test_a_task_that_is_cancelled_while_it_publishes_leaves_no_file(
    here: Place, waiter: Dumbwaiter, start_worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploading, go_on = threading.Event(), threading.Event()
    put = waiter.files.put

    def slow(path: Path, key: str, **how: Any) -> Any:
        uploading.set()
        assert go_on.wait(30)
        return put(path, key, **how)

    monkeypatch.setattr(waiter.files, "put", slow)
    tried = []

    @waiter.task("deliver")
    def deliver(ctx: TaskContext) -> str:
        (ctx.workdir / "soup.txt").write_text("hot", encoding="utf-8")
        try:
            ctx.publish("soup.txt")
        finally:
            tried.append("published")
        return "delivered"

    start_worker()
    for task_type, arguments in (("deliver", {}), ("slumber", {"seconds": 0})):
        uploading.clear()
        go_on.clear()
        task = waiter.enqueue(task_type, arguments)
        assert uploading.wait(20)
        waiter.cancel(task.id)
        [found] = ended(waiter, [task], 5)
        go_on.set()

        assert (Status.CANCELLED, ()) == (found.status, tuple(found.files))
    until(lambda: tried)
    until(lambda: not list((here.home / "files").rglob("*.txt")))


@pytest.mark.parametrize("database_kind", SQLITE_AT_ONCE, indirect=True)
def test_what_swallows_its_stop_and_returns_is_recorded_as_what_it_was_stopped_for(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    worker = start_worker({"default": 12}, capacity={"process": 4})

    def deaf(**options: Any) -> list[Task]:
        return [waiter.enqueue(f"deaf-{kind}", **options) for kind in KINDS]

    cancelled, timed_out, interrupted, lost = deaf(), deaf(), deaf(), deaf()
    until(lambda: len(here.starts()) == 12)
    for task in cancelled:
        waiter.cancel(task.id)
    for running in worker.running:
        if running.task.id in {task.id for task in timed_out}:
            # as if its hour were over
            running.started -= 3_600
    taken = [given_to_another(waiter, task) for task in lost]
    ended(waiter, [*cancelled, *timed_out])
    until(lambda: len([one for one in here.ledger() if one.event == "end"]) == 9)
    until(lambda: len(worker.running) == 3)
    worker.stop(hurry=True)
    assert worker.join(15)

    def told(tasks: list[Task]) -> list[tuple[Status, object, list[AttemptOutcome]]]:
        found = [waiter.get(task.id) for task in tasks]
        return [(one.status, one.result, [each.outcome for each in waiter.attempts(one.id)]) for one in found]

    assert [(Status.CANCELLED, None, [AttemptOutcome.CANCELLED])] * 3 == told(cancelled)
    assert [(Status.FAILED, None, [AttemptOutcome.TIMED_OUT])] * 3 == told(timed_out)
    assert [(Status.PENDING, None, [AttemptOutcome.INTERRUPTED])] * 3 == told(interrupted)
    assert taken == [waiter.get(task.id) for task in lost], "nothing was written by who had lost them"

    start_worker({"default": 12})
    again = ended(waiter, interrupted)
    assert [(Status.SUCCESS, "ok", 2, 0)] * 3 == [
        (task.status, task.result, task.attempt, task.retry_count) for task in again
    ]


def given_to_another(waiter: Dumbwaiter, task: Task) -> Task:
    """As if the task had been taken back from its worker and claimed by another, which lives."""
    tasks = waiter.store.tables.tasks
    with waiter.store.connections.writing() as connection:
        connection.execute(
            sa.update(tasks)
            .where(tasks.c.id == task.id)
            .values(
                worker_id="another",
                attempt=tasks.c.attempt + 1,
                heartbeat_at=waiter.store.now() + timedelta(hours=1),
            )
        )
    return waiter.get(task.id)


def cancels_of_a_hit_nothing_of_b(
    database: Database, home: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Two tenants' short tasks back to back in the same children; every one of A's is cancelled while it may still run."""
    # a stop reaches a child within milliseconds, and a kill follows as soon: as many near misses as can be
    monkeypatch.setattr(watcher, "LOOK", 0.005)
    monkeypatch.setattr("dumbwaiter.executors.process.LOOK_MILLISECONDS", 5)
    waiter = Dumbwaiter(
        database.url, files=str(home / "files"), workdir=str(home / "work"), poll="50ms", grace="10ms"
    )
    waiter.migrate()
    for entry in kitchen.waiter.registry:
        waiter.registry.add(entry)
    worker = waiter.worker({"default": 2}, capacity={"process": 2})
    worker.start()
    mine: list[Task] = []
    theirs: list[Task] = []
    until_then = time.monotonic() + seconds
    try:
        while time.monotonic() < until_then:
            theirs += [waiter.enqueue("blink", owner="a") for _ in range(2)]
            mine += [waiter.enqueue("blink", owner="b") for _ in range(2)]
            for number, task in enumerate(theirs[-2:]):
                until(
                    lambda task=task: waiter.get(task.id).status is not Status.PENDING,  # type: ignore[misc]
                    every=0.002,
                )
                time.sleep(((len(theirs) + number) % 11) / 100)  # 0 to 100 ms, as the trial says
                try:
                    waiter.cancel(task.id)
                except IllegalMove:
                    continue  # it was faster
        found = ended(waiter, mine)
    finally:
        worker.stop(hurry=True)
        assert worker.join(15)
    hit = [waiter.get(task.id).status for task in theirs].count(Status.CANCELLED)
    waiter.close()

    assert {(Status.SUCCESS, 1)} == {(task.status, task.attempt) for task in found}
    assert hit > len(theirs) / 10, f"only {hit} of {len(theirs)} were cancelled in time: nothing was tried"
    print(f"\n{hit} of {len(theirs)} of A's were cancelled, none of the {len(mine)} of B's")


@pytest.mark.parametrize("database_kind", SQLITE_AT_ONCE[:1], indirect=True)
def test_a_cancel_hits_no_other_task_that_its_process_has_moved_on_to(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancels_of_a_hit_nothing_of_b(database, tmp_path, monkeypatch, seconds=4)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("database_kind", SQLITE_AT_ONCE[:1], indirect=True)
def test_a_cancel_hits_no_other_task_that_its_process_has_moved_on_to_for_minutes(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancels_of_a_hit_nothing_of_b(database, tmp_path, monkeypatch, seconds=300)


@pytest.mark.parametrize("database_kind", SQLITE_AT_ONCE, indirect=True)
def test_no_short_task_waits_while_a_slot_is_idle(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    for _ in range(2):
        start_worker({"default": 1})
    long = waiter.enqueue("nap", {"seconds": 600})
    until(lambda: here.starts())
    short = [waiter.enqueue("nap", {"seconds": 0.1}) for _ in range(10)]
    ended(waiter, short, 6)
    [held, *others] = here.starts()

    assert held.task_id == long.id
    assert held.more["worker"] not in {one.more["worker"] for one in others}
    lines = [one for one in here.ledger() if one.task_id != long.id]
    # the other worker's only slot is never idle for longer than a poll and the load of the machine
    idle = [after.at - before.at for before, after in zip(lines[1::2], lines[2::2], strict=False)]
    assert max(idle) < 1.2, idle
