"""The end of an attempt: success, failure, retry, release, snooze, cancel, each under its fence."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dumbwaiter.errors import Fail, IllegalMove, RetryLater, Snooze, UnknownTask
from dumbwaiter.retry import Retry, decide, interrupted, timed_out
from dumbwaiter.store.rows import Finish, Report
from dumbwaiter.task import AttemptOutcome, Kind, Outcome, Progress, ResultFile, Status
from tests.store.world import LEASE, NOBODY, NOW, at, claimed_ids, end, enqueued, row, started, want

TRANSIENT = ConnectionError("the other side hung up")


def file(name: str = "report.csv", content: str = "1", attempt: int = 1) -> ResultFile:
    return ResultFile(name, "text/csv", len(content), content * 64, f"tasks/{attempt}/{name}", attempt)


def retried(store, task, *, now=NOW, retry=None):
    """Let the attempt fail for a transient reason; the task as it stands then."""
    policy = retry or Retry(delays=[timedelta(seconds=5)], jitter=0)
    assert end(store, task, decide(task, TRANSIENT, policy), now=now) is Status.PENDING
    return store.get(task.id)


def test_a_success_is_final_and_keeps_its_result(store):
    task = started(store)

    assert end(store, task, Outcome.succeeded({"rows": 7}), now=at(9)) is Status.SUCCESS

    done = store.get(task.id)
    assert (done.status, done.result, done.progress, done.finished_at) == ("success", {"rows": 7}, 1.0, at(9))
    assert (done.worker_id, done.heartbeat_at, done.attempt) == (None, None, 1)


def test_ends_are_written_several_at_once_and_told_in_the_order_given(store):
    first, second, third = (started(store) for _ in range(3))
    store.rescue(LEASE, now=at(30))
    fourth = started(store)
    ends = [Finish(task, Outcome.succeeded()) for task in (fourth, second)]
    failed = decide(first, ValueError("no"), Retry())

    written = store.finish([*ends, Finish(started(store), failed), Finish(third, failed)], now=at(31))

    assert written == [Status.SUCCESS, None, Status.FAILED, None]


def test_a_transient_error_is_retried_at_the_time_the_policy_says(store):
    task = started(store, max_retry_count=3)
    policy = Retry(base=timedelta(seconds=1), factor=2, jitter=0)

    for retry, delay in enumerate((1, 2, 4)):
        failed_at = at(100 * retry)
        outcome = decide(task, TRANSIENT, policy)
        assert end(store, task, outcome, now=failed_at) is Status.PENDING
        due = failed_at + timedelta(seconds=delay)
        waiting = store.get(task.id)
        assert (waiting.run_at, waiting.retry_count, waiting.phase(failed_at)) == (due, retry + 1, "retrying")
        assert (store.stage(now=due - timedelta(microseconds=1)), store.stage(now=due)) == (0, 1)
        [task] = store.claim(want(), "w1", now=due)

    assert end(store, task, decide(task, TRANSIENT, policy), now=at(400)) is Status.FAILED


def test_a_retry_keeps_the_error_for_whoever_looks_while_it_waits(store):
    waiting = retried(store, started(store))

    assert (waiting.error_type, waiting.error_message) == ("ConnectionError", "the other side hung up")


def test_a_retry_asked_for_by_the_task_runs_when_it_said(store):
    task = started(store)

    end(store, task, decide(task, RetryLater(timedelta(minutes=2)), Retry()), now=at(1))

    assert store.get(task.id).run_at == at(121)


def test_a_retry_in_ten_thousand_years_is_stored_as_far_off_as_can_be(store):
    task = started(store)

    end(store, task, decide(task, RetryLater(timedelta.max), Retry()), now=NOW)

    assert store.get(task.id).run_at.year == 2035


def test_a_permanent_error_is_not_retried(store):
    task = started(store)

    assert end(store, task, decide(task, ValueError("month 13"), Retry()), now=at(1)) is Status.FAILED

    failed = store.get(task.id)
    assert (failed.retry_count, failed.error_type, failed.error_message) == (0, "ValueError", "month 13")
    assert (store.stage(now=at(99_999)), claimed_ids(store, now=at(99_999))) == (0, [])


def test_a_failure_keeps_two_texts(store):
    task = started(store)
    end(store, task, decide(task, Fail("ledger 7 is empty", user_message="Nothing to export."), Retry()))

    failed = store.get(task.id)

    assert (failed.error_message, failed.user_message) == ("ledger 7 is empty", "Nothing to export.")


def test_an_error_whose_text_no_database_takes_is_still_recorded(store):
    task = started(store)
    outcome = decide(task, Fail("a\0b\ud800", user_message="\0\ud800" + "x" * 5_000), Retry())

    assert end(store, task, outcome) is Status.FAILED

    failed = store.get(task.id)
    assert failed.error_message == "a\\0b\\ud800"
    assert len(failed.user_message) == 2_000


def test_a_timeout_counts_as_a_failure_and_is_retried(store):
    task = started(store)

    end(store, task, timed_out(task, Retry(delays=[timedelta(0)])), now=at(1))

    assert store.get(task.id).retry_count == 1
    assert [attempt.outcome for attempt in store.attempts(task.id)] == [AttemptOutcome.TIMED_OUT]


def test_a_snooze_costs_no_retry(store):
    task = started(store)

    assert end(store, task, decide(task, Snooze(timedelta(seconds=30)), Retry()), now=NOW) is Status.PENDING

    waiting = store.get(task.id)
    assert (waiting.run_at, waiting.retry_count, waiting.interruption_count) == (at(30), 0, 0)
    assert [attempt.outcome for attempt in store.attempts(task.id)] == [AttemptOutcome.SNOOZED]
    assert store.stage(now=at(30)) == 1


def test_a_release_costs_no_retry_and_may_start_at_once(store):
    task = started(store)

    assert end(store, task, interrupted(task), now=at(1)) is Status.PENDING

    released = store.get(task.id)
    assert (released.retry_count, released.interruption_count, released.run_at) == (0, 1, NOW)
    assert claimed_ids(store, now=at(1)) == [task.id]


def test_interruptions_are_capped(store):
    task = started(store)
    for _ in range(3):
        assert end(store, task, interrupted(task, limit=3)) is Status.PENDING
        [task] = store.claim(want(), "w1", now=NOW)

    assert end(store, task, interrupted(task, limit=3)) is Status.FAILED
    assert store.get(task.id).error_type == "interrupted"


# the fence


def taken_over(store):
    """An attempt that its worker still believes in, and the next one, which another worker runs."""
    late = started(store, worker="w1")
    store.rescue(LEASE, now=at(30))
    [next_one] = store.claim(want(), "w2", now=at(30))
    return late, next_one


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.succeeded("late"),
        Outcome(Kind.FAIL, AttemptOutcome.FAILED, error_message="late"),
        Outcome(Kind.RETRY, AttemptOutcome.FAILED),
        Outcome.cancelled(),
        Outcome.released(),
        Outcome.snoozed(timedelta(0)),
    ],
    ids=lambda outcome: outcome.kind,
)
def test_a_late_worker_cannot_overwrite_the_next_attempt(store, outcome):
    late, next_one = taken_over(store)

    assert store.finish([Finish(late, outcome, [file()])], now=at(31)) == [None]
    assert store.get(late.id) == next_one

    assert end(store, next_one, Outcome.succeeded("right"), now=at(32)) is Status.SUCCESS
    assert end(store, late, outcome, now=at(33)) is None
    assert (store.get(late.id).result, store.get(late.id).files) == ("right", ())


def test_the_same_worker_cannot_end_a_later_attempt_of_its_own_by_an_earlier_one(store):
    late = started(store, worker="w1")
    store.rescue(LEASE, now=at(30))
    store.claim(want(), "w1", now=at(30))

    assert end(store, late, now=at(31)) is None


def test_a_late_worker_cannot_report_progress(store):
    late, next_one = taken_over(store)

    store.report([Report(late, Progress(0.9, "late"))], now=at(31))

    assert store.get(late.id) == next_one


def test_a_late_worker_is_told_where_it_stands(store):
    late, next_one = taken_over(store)
    gone = started(store)
    end(store, gone)

    standing = store.standing([late.fence, next_one.fence, gone.fence])

    assert [standing[task.fence].owned for task in (late, next_one, gone)] == [False, True, False]


def test_an_end_that_was_written_before_is_told_again(store):
    endings = [
        Outcome.succeeded(1),
        Outcome(Kind.FAIL, AttemptOutcome.FAILED),
        Outcome(Kind.RETRY, AttemptOutcome.FAILED),
        Outcome.released(),
        Outcome.cancelled(),
    ]
    for outcome in endings:
        task = started(store)
        once = end(store, task, outcome)

        assert end(store, task, outcome) is once is outcome.status
        assert len(store.attempts(task.id)) == (outcome.kind is not Kind.SUCCEED)


# progress


def test_progress_is_written_with_its_step_and_the_time_left(store):
    task = started(store)

    store.report([Report(task, Progress(0.25, "rendering"), timedelta(seconds=30))], now=at(10))

    seen = store.get(task.id)
    assert (seen.progress, seen.current_step, seen.progress_at) == (0.25, "rendering", at(10))
    assert (seen.estimated_finish_at, seen.remaining(at(15))) == (at(40), timedelta(seconds=25))
    assert seen.version == task.version + 1


def test_progress_never_goes_back_within_an_attempt_nor_reaches_the_end(store):
    task = started(store)

    for fraction, shown in ((0.5, 0.5), (0.2, 0.5), (float("nan"), 0.5), (7.0, 0.999), (-1.0, 0.999)):
        store.report([Report(task, Progress(fraction))], now=NOW)
        assert store.get(task.id).progress == shown


def test_a_new_attempt_begins_at_no_progress(store):
    task = started(store)
    store.report([Report(task, Progress(0.5, "rendering"))], now=NOW)

    again = retried(store, task)

    assert (again.progress, again.current_step, again.progress_at) == (0.0, None, None)


def test_a_step_whose_name_no_database_takes_is_shortened_and_made_storable(store):
    task = started(store)

    store.report([Report(task, Progress(step="a\0" + "é" * 300))], now=NOW)

    assert store.get(task.id).current_step == "a\\0" + "é" * 197


# history and files


def test_a_success_at_the_first_attempt_leaves_no_history(store):
    task = started(store)
    end(store, task)

    assert store.attempts(task.id) == []


def test_the_history_tells_every_attempt_that_did_not_succeed_and_the_success_after_it(store):
    task = started(store)
    retried(store, task, now=at(1))
    store.stage(now=at(6))
    [task] = store.claim(want(), "w2", now=at(6))
    store.rescue(LEASE, now=at(40))
    [task] = store.claim(want(), "w3", now=at(41))
    end(store, task, now=at(42))

    told = [
        (one.number, one.worker_id, one.outcome, one.started_at, one.ended_at)
        for one in store.attempts(task.id)
    ]
    assert told == [
        (1, "w1", AttemptOutcome.FAILED, NOW, at(1)),
        (2, "w2", AttemptOutcome.CRASHED, at(6), at(40)),
        (3, "w3", AttemptOutcome.SUCCESS, at(41), at(42)),
    ]


def test_the_history_keeps_the_error_and_the_head_and_tail_of_its_traceback(store):
    task = started(store)
    long = "head\0" + "x" * 100_000 + "tail"
    outcome = Outcome(Kind.FAIL, AttemptOutcome.FAILED, error_type="E", error_message="m", traceback=long)
    end(store, task, outcome)

    [attempt] = store.attempts(task.id)

    assert (attempt.error_type, attempt.error) == ("E", "m")
    assert attempt.traceback.startswith("head\\0")
    assert attempt.traceback.endswith("tail")
    assert len(attempt.traceback) <= 32 * 1024


def test_files_become_visible_with_the_success(store):
    task = started(store)
    assert store.get(task.id).files == ()

    store.finish([Finish(task, Outcome.succeeded(), [file("b.csv"), file("a.csv")])], now=at(5))

    assert [(one.name, one.created_at) for one in store.get(task.id).files] == [
        ("a.csv", at(5)),
        ("b.csv", at(5)),
    ]


@pytest.mark.parametrize(
    "outcome", [Outcome(Kind.FAIL, AttemptOutcome.FAILED), Outcome.cancelled(), Outcome.released()]
)
def test_files_of_an_attempt_without_success_are_never_visible(store, outcome):
    task = started(store)

    store.finish([Finish(task, outcome, [file()])], now=NOW)

    assert store.get(task.id).files == ()
    if outcome.kind is Kind.RELEASE:
        [again] = store.claim(want(), "w2", now=NOW)
        end(store, again)
        assert store.get(task.id).files == ()


def test_of_two_files_of_one_name_the_last_wins(store):
    task = started(store)
    old, new = file(content="1"), file(content="2")

    store.finish([Finish(task, Outcome.succeeded(), [old, new])], now=NOW)

    assert [one.sha256 for one in store.get(task.id).files] == [new.sha256]


def test_names_of_files_that_differ_in_case_or_trailing_space_are_different(store):
    task = started(store)
    names = ["a", "A", "a ", "á"]

    store.finish([Finish(task, Outcome.succeeded(), [file(name) for name in names])], now=NOW)

    assert {one.name for one in store.get(task.id).files} == set(names)


# cancel


def test_cancel_of_a_pending_task_ends_it_at_once(store):
    task = enqueued(store, delay=timedelta(hours=1))

    cancelled = store.cancel(task.id, why="changed my mind", now=at(1))

    assert (cancelled.status, cancelled.finished_at, cancelled.error_message) == (
        "cancelled",
        at(1),
        "changed my mind",
    )
    assert (store.stage(now=at(9_999)), claimed_ids(store, now=at(9_999))) == (0, [])


def test_cancel_of_a_running_task_asks_its_worker(store):
    task = started(store)

    asked = store.cancel(task.id, now=at(1))

    assert (asked.status, asked.cancel_requested_at, asked.phase(at(1))) == ("running", at(1), "cancelling")
    assert store.standing([task.fence])[task.fence].cancel_requested


def test_a_second_cancel_of_a_running_task_changes_nothing(store):
    task = started(store)

    first, second = (store.cancel(task.id, now=at(seconds)) for seconds in (1, 2))

    assert first == second


@pytest.mark.parametrize("how", ["success", "failed", "cancelled"])
def test_cancel_of_a_task_that_has_ended_is_refused_with_the_task(store, how):
    task = started(store)
    outcomes = {
        "success": Outcome.succeeded(),
        "failed": Outcome(Kind.FAIL, AttemptOutcome.FAILED),
        "cancelled": Outcome.cancelled(),
    }
    end(store, task, outcomes[how])
    before = store.get(task.id)

    with pytest.raises(IllegalMove) as refused:
        store.cancel(task.id)

    assert refused.value.task.status == how
    assert store.get(task.id) == before


def test_cancel_of_nobody_is_an_unknown_task(store):
    with pytest.raises(UnknownTask):
        store.cancel(NOBODY)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.succeeded(1),
        Outcome(Kind.FAIL, AttemptOutcome.FAILED),
        Outcome(Kind.RETRY, AttemptOutcome.FAILED),
        Outcome.released(),
        Outcome.snoozed(timedelta(0)),
    ],
    ids=lambda outcome: outcome.kind,
)
def test_a_cancel_before_the_end_wins_whatever_the_end_was(store, outcome):
    task = started(store)
    store.cancel(task.id, now=at(1))

    assert store.finish([Finish(task, outcome, [file()])], now=at(2)) == [Status.CANCELLED]

    ended = store.get(task.id)
    assert (ended.status, ended.files, ended.result) == ("cancelled", (), None)
    assert [attempt.outcome for attempt in store.attempts(task.id)] == [AttemptOutcome.CANCELLED]


def test_a_success_before_the_cancel_stays(store):
    task = started(store)
    end(store, task, Outcome.succeeded(1))

    with pytest.raises(IllegalMove):
        store.cancel(task.id)

    assert store.get(task.id).result == 1


def test_each_visible_change_raises_the_version_and_a_heartbeat_does_not(store):
    task = started(store)
    versions = [row(store, task.id)["version"]]
    changes = (
        lambda: store.report([Report(task, Progress(0.1))], now=at(1)),
        lambda: store.heartbeat("w1", now=at(2)),
        lambda: store.cancel(task.id, now=at(3)),
        lambda: store.cancel(task.id, now=at(4)),
        lambda: end(store, task, now=at(5)),
    )
    for change in changes:
        change()
        versions.append(row(store, task.id)["version"])

    assert versions == [1, 2, 2, 3, 3, 4]
