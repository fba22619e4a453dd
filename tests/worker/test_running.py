"""What becomes of a task that a worker runs, for every kind of executor and on every database."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import AttemptOutcome, Status
from dumbwaiter.worker.loop import Worker
from tests.support.waiting import until
from tests.support.workers import Place, ended

Start = Callable[..., Worker]


@pytest.mark.parametrize(
    ("task_type", "arguments", "result"),
    [
        ("nap", {"seconds": 0.01}, "slept"),
        ("doze", {"seconds": 0.01}, "dozed"),
        ("slumber", {"seconds": 0.01}, "slumbered"),
        ("say", {"word": "menu"}, {"status": 0, "output": "menu\n"}),
    ],
    ids=["coroutine", "thread", "isolated process", "command"],
)
def test_each_kind_of_executor_returns_a_result(
    waiter: Dumbwaiter, start_worker: Start, task_type: str, arguments: dict[str, object], result: object
) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue(task_type, arguments)])

    assert (Status.SUCCESS, result, 1, 1.0) == (task.status, task.result, task.attempt, task.progress)


@pytest.mark.parametrize(
    ("task_type", "error"),
    [
        ("hopeless-coroutine", "there is no month 13"),
        ("hopeless", "there is no month 13"),
        ("hopeless-alone", "there is no month 13"),
        ("false", "false ended with status 1"),
    ],
    ids=["coroutine", "thread", "isolated process", "command"],
)
def test_each_kind_of_executor_tells_what_was_raised(
    waiter: Dumbwaiter, start_worker: Start, task_type: str, error: str
) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue(task_type)])
    [attempt] = waiter.attempts(task.id)

    assert (Status.FAILED, error) == (task.status, task.error_message)
    assert (AttemptOutcome.FAILED, error) == (attempt.outcome, attempt.error)
    assert attempt.traceback


@pytest.mark.parametrize("kind", ["coroutine", "thread", "process", "command"])
def test_each_kind_of_executor_is_ended_when_its_time_is_over(
    waiter: Dumbwaiter, start_worker: Start, kind: str
) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue(f"timed-{kind}")])
    [attempt] = waiter.attempts(task.id)

    assert (Status.FAILED, AttemptOutcome.TIMED_OUT) == (task.status, attempt.outcome)
    assert "longer than its timeout of 0:00:01" in str(task.error_message)
    # one second of time, one of grace, and a second to look
    assert attempt.ended_at - attempt.started_at < timedelta(seconds=4)


def test_a_thread_that_does_not_listen_is_abandoned_and_its_late_result_changes_nothing(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    worker = start_worker()
    [task] = ended(waiter, [waiter.enqueue("stubborn", {"seconds": 4})])
    assert (Status.FAILED, 1) == (task.status, worker.abandoned)

    until(lambda: [one for one in here.ledger() if one.event == "end"])
    assert task == waiter.get(task.id)


def test_a_transient_error_is_retried_until_it_passes(waiter: Dumbwaiter, start_worker: Start) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue("flaky", {"failures": 2})])

    assert (Status.SUCCESS, "through", 3, 2) == (task.status, task.result, task.attempt, task.retry_count)
    assert ["failed", "failed", "success"] == [attempt.outcome for attempt in waiter.attempts(task.id)]


def test_retries_end_after_max_retries(waiter: Dumbwaiter, start_worker: Start) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue("flaky", {"failures": 9})])

    assert (Status.FAILED, 4, 3) == (task.status, task.attempt, task.retry_count)
    assert task.error_message == "the line was cut in attempt 4"


def test_a_task_due_later_is_not_started_early(here: Place, waiter: Dumbwaiter, start_worker: Start) -> None:
    start_worker()
    task = waiter.enqueue("nap", {"seconds": 0}, delay=timedelta(seconds=1.5))
    [task] = ended(waiter, [task])
    assert task.started_at is not None

    late = task.started_at - task.run_at
    assert timedelta(0) <= late < timedelta(seconds=2)


def test_a_full_queue_does_not_hold_up_another(here: Place, waiter: Dumbwaiter, start_worker: Start) -> None:
    start_worker({"bulk": 2, "urgent": 1})
    for _ in range(5):
        waiter.enqueue("doze", {"seconds": 3600}, queue="bulk")
    until(lambda: len(here.starts()) == 2)
    asked = time.time()
    task = waiter.enqueue("nap", {"seconds": 0}, queue="urgent")
    ended(waiter, [task])

    [start] = here.starts(task.id)
    assert start.at - asked < 1


def test_five_exports_at_once_never_run_two_chromiums(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    start_worker()
    ended(waiter, [waiter.enqueue("export", {"seconds": 0.15}) for _ in range(5)])

    at_work = most = 0
    for one in here.ledger():
        at_work += 1 if one.event == "start" else -1
        most = max(most, at_work)
    assert (5, 1) == (len(here.starts()), most)


def test_cancelling_a_running_task_ends_it_within_a_second_and_the_grace(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    start_worker()
    tasks = [waiter.enqueue(name, {"seconds": 60}) for name in ("nap", "doze", "slumber")]
    until(lambda: len(here.starts()) == 3)
    asked = time.monotonic()
    for task in tasks:
        waiter.cancel(task.id)
    found = ended(waiter, tasks, 5)

    assert [Status.CANCELLED] * 3 == [task.status for task in found]
    assert time.monotonic() - asked < 3


def test_a_cancelled_attempt_leaves_no_file_and_no_work_directory(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    start_worker()
    task = waiter.enqueue("slumber", {"seconds": 60})
    until(lambda: list((here.home / "work").glob("*/*/pillow.txt")))
    waiter.cancel(task.id)
    ended(waiter, [task])

    until(lambda: not list((here.home / "work").glob("*/*")))
    assert [] == list((here.home / "files").rglob("*.txt"))


def test_files_stand_beside_the_result(waiter: Dumbwaiter, start_worker: Start) -> None:
    start_worker()
    [task] = ended(waiter, [waiter.enqueue("slumber", {"seconds": 0})])
    [file] = task.files

    assert ("pillow.txt", 4, "text/plain") == (file.name, file.size, file.content_type)
    assert b"soft" == b"".join(waiter.files.stream(file.object_key))


def test_progress_and_step_are_seen_while_it_runs(waiter: Dumbwaiter, start_worker: Start) -> None:
    start_worker()
    task = waiter.enqueue("slumber", {"seconds": 60})
    seen = until(lambda: found if (found := waiter.get(task.id)).progress else None)

    assert (0.25, "asleep") == (seen.progress, seen.current_step)
    waiter.cancel(task.id)


@pytest.mark.parametrize(
    ("kind", "said"),
    [("nan", "JSON has no nan"), ("object", "cannot be stored as JSON"), ("huge", "publish a file instead")],
)
def test_a_result_that_cannot_be_stored_fails_the_task_with_a_sentence(
    waiter: Dumbwaiter, start_worker: Start, kind: str, said: str
) -> None:
    start_worker()
    [odd, fine] = ended(
        waiter, [waiter.enqueue("odd-result", {"kind": kind}), waiter.enqueue("odd-result", {"kind": "fine"})]
    )

    assert (Status.FAILED, 0) == (odd.status, odd.retry_count)
    assert said in str(odd.error_message)
    assert {"名": [1, 2.5, None]} == fine.result


def test_a_task_that_calls_exit_does_not_take_the_worker_with_it(
    waiter: Dumbwaiter, start_worker: Start
) -> None:
    start_worker()
    [left] = ended(waiter, [waiter.enqueue("leaver", {}, timeout=timedelta(seconds=60))], 60)
    [after] = ended(waiter, [waiter.enqueue("nap", {"seconds": 0})])

    assert (Status.FAILED, "SystemExit") == (left.status, left.error_type)
    assert Status.SUCCESS is after.status


def test_a_task_type_that_this_worker_does_not_know_is_left_for_one_that_does(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    producer = here.app()
    producer.task("from-the-next-release")(lambda: None)
    start_worker()
    unknown = producer.enqueue("from-the-next-release")
    ended(waiter, [waiter.enqueue("nap", {"seconds": 0})])

    assert Status.PENDING is waiter.get(unknown.id).status
    producer.close()


def test_the_log_tells_how_each_attempt_ended(
    waiter: Dumbwaiter, start_worker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dumbwaiter")
    start_worker()
    fine, flaky, hopeless = ended(
        waiter,
        [
            waiter.enqueue("nap", {"seconds": 0}),
            waiter.enqueue("flaky", {"failures": 1}),
            waiter.enqueue("hopeless"),
        ],
    )

    assert f"nap {fine.id}, attempt 1: success" in caplog.text
    assert (
        f"flaky {flaky.id}, attempt 1: failed, again in 0.1 s: the line was cut in attempt 1" in caplog.text
    )
    assert f"hopeless {hopeless.id}, attempt 1: failed for good: there is no month 13" in caplog.text
    assert "Traceback" in caplog.text


def test_a_worker_says_why_it_leaves_due_tasks(
    here: Place, waiter: Dumbwaiter, start_worker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    producer = here.app()
    producer.task("from-the-next-release")(lambda: None)
    producer.enqueue("from-the-next-release")
    waiter.task("paint", needs={"gpu_memory": 24})(lambda: None)
    waiter.enqueue("paint")
    start_worker({"default": 2}, capacity={"gpu_memory": 8})
    until(lambda: "they need gpu_memory=24 (it has 8); see --capacity" in caplog.text)

    assert (
        "due tasks of type from-the-next-release, and this worker leaves them: that type is not registered"
        in caplog.text
    )
    producer.close()
