"""`ctx.transaction()`: a task's own writes and its success are committed together, or neither is, on every database."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from dumbwaiter import Dumbwaiter, Retry, TaskContext
from dumbwaiter.errors import IllegalMove, LostClaim, NoTransaction, TaskCancelled
from dumbwaiter.store.rows import Finish
from dumbwaiter.task import Outcome, Status, Task
from dumbwaiter.worker.loop import Worker
from tests.support import till
from tests.support.waiting import until
from tests.support.workers import Place, ended

Start = Callable[..., Worker]


@pytest.fixture
def waiter(here: Place) -> Iterator[Dumbwaiter]:
    waiter = here.app()
    for entry in till.waiter.registry:
        waiter.registry.add(entry)
    with waiter.store.connections.writing() as connection:
        connection.execute(sa.text(till.TAKINGS))
    yield waiter
    waiter.close()


def takings(waiter: Dumbwaiter) -> list[tuple[str, int]]:
    with waiter.store.connections.reading() as connection:
        rows = connection.execute(sa.text("SELECT task, attempt FROM takings ORDER BY task, attempt"))
        return [(row[0], row[1]) for row in rows]


def test_its_writes_its_success_its_result_and_its_files_are_there_together(
    waiter: Dumbwaiter, start_worker: Start
) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue("pay")])

    assert task.error_message is None
    assert (Status.SUCCESS, {"attempt": 1}, 1.0) == (task.status, task.result, task.progress)
    assert [(task.id, 1)] == takings(waiter)
    [file] = task.files
    assert b"attempt 1" == b"".join(waiter.files.stream(file.object_key))


def test_nothing_is_seen_of_it_before_the_commit(waiter: Dumbwaiter, start_worker: Start) -> None:
    inside, go_on = threading.Event(), threading.Event()

    @waiter.task("slow")
    def slow(ctx: TaskContext) -> None:
        with ctx.transaction() as connection:
            till.take(connection, ctx)
            inside.set()
            go_on.wait(20)

    start_worker()
    task = waiter.enqueue("slow")
    assert inside.wait(20)
    assert ([], Status.RUNNING) == (takings(waiter), waiter.get(task.id).status)
    go_on.set()
    [task] = ended(waiter, [task])

    assert (Status.SUCCESS, [(task.id, 1)]) == (task.status, takings(waiter))


def test_a_coroutine_hands_the_block_over_as_a_function(waiter: Dumbwaiter, start_worker: Start) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue("pay-later")])

    assert (Status.SUCCESS, None) == (task.status, task.result)
    assert [(task.id, 1)] == takings(waiter)


def test_a_block_that_raises_leaves_nothing_and_is_tried_again(
    waiter: Dumbwaiter, start_worker: Start
) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue("pay-and-fail", {"where": "inside"})])

    assert (Status.FAILED, 2, []) == (task.status, task.attempt, takings(waiter))


def test_what_is_raised_after_the_commit_changes_nothing(
    waiter: Dumbwaiter, start_worker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    worker = start_worker()
    [task] = ended(waiter, [waiter.enqueue("pay-and-fail", {"where": "after"})])
    until(lambda: not worker.running)

    assert (Status.SUCCESS, "paid", 1) == (task.status, task.result, task.attempt)
    assert (task, [(task.id, 1)]) == (waiter.get(task.id), takings(waiter))
    assert "raised after its ctx.transaction() had committed" in caplog.text


def test_a_function_that_goes_on_after_the_commit_is_not_taken_for_one_that_lost_its_task(
    waiter: Dumbwaiter, start_worker: Start
) -> None:
    stops: list[object] = []

    @waiter.task("lingering")
    def lingering(ctx: TaskContext) -> None:
        with ctx.transaction() as connection:
            till.take(connection, ctx)
        ctx.sleep(1.5)  # three looks of the watcher
        stops.append(ctx.cancelled)
        (ctx.workdir / "late.txt").touch()
        with pytest.raises(LostClaim, match="publish before its end"):
            ctx.publish("late.txt")
        stops.append("refused")

    worker = start_worker()
    [task] = ended(waiter, [waiter.enqueue("lingering")])
    until(lambda: not worker.running)

    assert [False, "refused"] == stops
    assert (1, ()) == ((found := waiter.get(task.id)).attempt, found.files)


def test_a_cancel_that_was_faster_rolls_the_block_back(waiter: Dumbwaiter, start_worker: Start) -> None:
    raised: list[BaseException] = []

    @waiter.task("cancelled-inside")
    def cancelled_inside(ctx: TaskContext) -> None:
        try:
            with ctx.transaction() as connection:
                if waiter.store.kind != "sqlite":  # there nobody can write while the block has the lock
                    waiter.cancel(ctx.task.id)
                till.take(connection, ctx)
                if waiter.store.kind == "sqlite":
                    tasks = waiter.store.tables.tasks
                    connection.execute(
                        sa.update(tasks).values(
                            cancel_requested_at=waiter.store.now(), updated_at=waiter.store.now()
                        )
                    )
        except BaseException as error:
            raised.append(error)
            if waiter.store.kind == "sqlite":
                waiter.cancel(ctx.task.id)
            raise

    start_worker()
    [task] = ended(waiter, [waiter.enqueue("cancelled-inside")])

    assert (Status.CANCELLED, []) == (task.status, takings(waiter))
    assert isinstance(raised[0], TaskCancelled)


def test_a_cancel_after_the_commit_is_told_that_it_comes_too_late(
    waiter: Dumbwaiter, start_worker: Start
) -> None:
    done, go_on = threading.Event(), threading.Event()

    @waiter.task("committed")
    def committed(ctx: TaskContext) -> None:
        with ctx.transaction() as connection:
            till.take(connection, ctx)
        done.set()
        go_on.wait(20)

    start_worker()
    task = waiter.enqueue("committed")
    assert done.wait(20)
    with pytest.raises(IllegalMove, match="it has succeeded"):
        waiter.cancel(task.id)
    go_on.set()


def test_an_attempt_that_lost_its_task_meanwhile_rolls_its_block_back(
    waiter: Dumbwaiter, start_worker: Start
) -> None:
    raised: list[BaseException] = []
    waiter.store.schema.ensure()

    def rescued(task: Task) -> None:
        waiter.store.finish([Finish(task, Outcome.rescued("in a test"))])

    @waiter.task("superseded", retry=Retry(max_retries=0))
    def superseded(ctx: TaskContext) -> None:
        if ctx.task.attempt > 1:
            with ctx.transaction() as connection:
                till.take(connection, ctx)
            return
        try:
            if waiter.store.kind == "sqlite":
                rescued(ctx.task)
            with ctx.transaction() as connection:
                till.take(connection, ctx)
                rescued(ctx.task)
        except BaseException as error:
            raised.append(error)
            raise

    start_worker()
    [task] = ended(waiter, [waiter.enqueue("superseded")])
    until(lambda: bool(raised))

    assert isinstance(raised[0], LostClaim)
    assert (Status.SUCCESS, [(task.id, 2)]) == (task.status, takings(waiter))


def test_an_attempt_that_was_given_up_in_its_block_cannot_commit_it_any_more(
    waiter: Dumbwaiter, start_worker: Start
) -> None:
    from datetime import timedelta

    go_on, over = threading.Event(), threading.Event()

    @waiter.task("deaf", timeout=timedelta(seconds=0.5), retry=Retry(max_retries=0))
    def deaf(ctx: TaskContext) -> None:
        (ctx.workdir / "receipt.txt").touch()
        try:
            with ctx.transaction() as connection:
                # on SQLite the end of the attempt cannot be written while the block has the lock
                till.take(connection, ctx)
                ctx.publish("receipt.txt")
                go_on.wait(20)
        finally:
            over.set()

    worker = start_worker()
    task = waiter.enqueue("deaf")
    until(lambda: worker.abandoned)
    go_on.set()
    assert over.wait(20)
    [task] = ended(waiter, [task])

    assert (Status.FAILED, [], ()) == (task.status, takings(waiter), task.files)
    until(lambda: not receipts(waiter.settings.files_url))


def test_an_isolated_process_is_told_that_it_has_no_transaction_and_what_to_do(
    waiter: Dumbwaiter, start_worker: Start
) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue("pay-alone")])

    assert (Status.FAILED, 1, []) == (task.status, task.attempt, takings(waiter))
    assert "register the task without isolate=True" in str(task.error_message)


def test_a_result_that_cannot_be_stored_rolls_the_block_back(waiter: Dumbwaiter, start_worker: Start) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue("pay-something-odd")])

    assert (Status.FAILED, 1, []) == (task.status, task.attempt, takings(waiter))
    assert "not JSON" in str(task.error_message)


def test_a_second_transaction_is_refused_and_the_first_one_stands(
    waiter: Dumbwaiter, start_worker: Start
) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue("pay-twice")])

    assert (Status.SUCCESS, [(task.id, 1)]) == (task.status, takings(waiter))


def test_a_task_may_enqueue_others_in_its_transaction(waiter: Dumbwaiter, start_worker: Start) -> None:
    @waiter.task("ordering")
    def ordering(ctx: TaskContext) -> None:
        with ctx.transaction() as connection:
            ctx.result = waiter.enqueue("pay-later", connection=connection, key="k").id

    start_worker()
    [task] = ended(waiter, [waiter.enqueue("ordering")])
    [other] = ended(waiter, [waiter.get(str(task.result))])

    assert Status.SUCCESS is other.status


def test_a_follower_of_its_key_may_start_with_the_commit(waiter: Dumbwaiter, start_worker: Start) -> None:
    first = waiter.enqueue("pay", key="k")
    follower = waiter.enqueue("pay", key="k", on_duplicate="after")
    start_worker()
    tasks = ended(waiter, [first, follower])

    assert [Status.SUCCESS] * 2 == [task.status for task in tasks]
    assert sorted([(first.id, 1), (follower.id, 1)]) == takings(waiter)


def test_enqueueing_beside_the_transaction_never_waits_for_oneself(
    waiter: Dumbwaiter, start_worker: Start
) -> None:
    @waiter.task("beside", retry=Retry(max_retries=0))
    def beside(ctx: TaskContext) -> None:
        with ctx.transaction() as connection:
            till.take(connection, ctx)
            waiter.enqueue("pay-later")

    start_worker()
    [task] = ended(waiter, [waiter.enqueue("beside")])

    if waiter.store.kind == "sqlite":
        assert (Status.FAILED, []) == (task.status, takings(waiter))
        assert "pass the connection that it gave" in str(task.error_message)
    else:
        assert Status.SUCCESS is task.status


def test_a_result_is_set_in_the_block_only(waiter: Dumbwaiter, start_worker: Start) -> None:
    raised: list[BaseException] = []

    @waiter.task("hasty")
    def hasty(ctx: TaskContext) -> None:
        with pytest.raises(NoTransaction) as caught:
            ctx.result = 1
        raised.append(caught.value)

    start_worker()
    ended(waiter, [waiter.enqueue("hasty")])

    assert "elsewhere return the value" in str(raised[0])


def receipts(files):
    """The receipts in a directory, from which others disappear meanwhile: `rglob` raises then."""
    return [place for place, _, names in os.walk(files) if "receipt.txt" in names]
