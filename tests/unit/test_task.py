"""A task, where it stands, and the moves that are legal."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta

import pytest

from dumbwaiter.cli.show import attempt_words
from dumbwaiter.task import (
    ACTIVE,
    FINAL,
    LEGAL,
    Fence,
    Kind,
    Outcome,
    Progress,
    ResultFile,
    Status,
    Task,
    clamped,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PENDING = Task("id", "t", "default", Status.PENDING, {}, NOW, NOW, NOW)
RUNNING = replace(PENDING, status=Status.RUNNING, worker_id="w1", attempt=2)
FILE = ResultFile("a", "text/csv", 1, "1" * 64, "key", 1)


def test_every_status_is_either_active_or_final():
    assert ACTIVE | FINAL == set(Status)
    assert not ACTIVE & FINAL


def test_no_move_leaves_a_final_status():
    assert {before for before, _ in LEGAL if before in FINAL} == set()


def test_every_status_can_be_reached_and_every_active_one_can_end():
    assert {after for _, after in LEGAL} == set(Status)
    assert {(status, end) for status, end in LEGAL if end is Status.CANCELLED} == {
        (Status.PENDING, Status.CANCELLED),
        (Status.RUNNING, Status.CANCELLED),
    }


def test_a_task_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        PENDING.status = Status.RUNNING  # type: ignore[misc]


@pytest.mark.parametrize(
    ("task", "phase"),
    [
        (PENDING, "queued"),
        (replace(PENDING, run_at=NOW + SECOND), "scheduled"),
        (replace(PENDING, run_at=NOW + SECOND, retry_count=1), "retrying"),
        (replace(PENDING, retry_count=1), "queued"),
        (RUNNING, "running"),
        (replace(RUNNING, cancel_requested_at=NOW), "cancelling"),
        (replace(PENDING, status=Status.SUCCESS), "success"),
        (replace(PENDING, status=Status.FAILED), "failed"),
        (replace(PENDING, status=Status.CANCELLED, cancel_requested_at=NOW), "cancelled"),
    ],
)
def test_the_phase_is_the_status_in_a_persons_words(task, phase):
    assert task.phase(NOW) == phase


@pytest.mark.parametrize(
    ("task", "display"),
    [
        (PENDING, "working"),
        (RUNNING, "working"),
        (replace(PENDING, status=Status.FAILED), "retry"),
        (replace(PENDING, status=Status.CANCELLED), "retry"),
        (replace(PENDING, status=Status.SUCCESS), "ready"),
        (replace(PENDING, status=Status.SUCCESS, files=(FILE,)), "ready"),
        (replace(PENDING, status=Status.SUCCESS, files=(FILE, replace(FILE, expires_at=NOW))), "retry"),
        (replace(PENDING, status=Status.SUCCESS, files=(replace(FILE, expires_at=NOW + SECOND),)), "ready"),
        (replace(PENDING, status=Status.SUCCESS, files=(replace(FILE, deleted_at=NOW),)), "retry"),
    ],
)
def test_a_page_shows_a_download_only_while_every_file_is_there(task, display):
    assert task.display(NOW) == display


def test_only_a_running_task_has_a_fence():
    assert RUNNING.fence == Fence("id", "w1", 2)
    with pytest.raises(ValueError, match="only a running task"):
        _ = PENDING.fence


def test_the_idempotency_key_is_the_same_on_every_attempt():
    assert RUNNING.idempotency_key == replace(RUNNING, attempt=3).idempotency_key


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (Kind.SUCCEED, Status.SUCCESS),
        (Kind.FAIL, Status.FAILED),
        (Kind.CANCEL, Status.CANCELLED),
        (Kind.RETRY, Status.PENDING),
        (Kind.RELEASE, Status.PENDING),
        (Kind.RESCUE, Status.PENDING),
        (Kind.SNOOZE, Status.PENDING),
    ],
)
def test_an_outcome_says_which_status_the_row_will_have(kind, status):
    assert Outcome(kind, Outcome.succeeded().attempt_outcome).status is status


@pytest.mark.parametrize(
    ("given", "stored"), [(0.5, 0.5), (-1, 0.0), (1.0, 0.999), (float("inf"), 0.999), (0, 0.0)]
)
def test_progress_stays_within_its_bounds_and_below_the_end(given, stored):
    assert clamped(given) == stored


def test_progress_that_is_no_number_is_ignored():
    assert clamped(float("nan")) is None


def test_of_two_reports_the_further_fraction_and_the_later_step_count():
    first, second = Progress(0.5, "reading"), Progress(0.2, "rendering")

    assert first.after(second) == Progress(0.5, "rendering")
    assert first.after(Progress()) == first
    assert Progress().after(Progress(0.1)) == Progress(0.1)


def test_the_time_remaining_is_never_negative():
    soon = replace(RUNNING, estimated_finish_at=NOW + SECOND)

    assert soon.remaining(NOW) == SECOND
    assert soon.remaining(NOW + 5 * SECOND) == timedelta(0)
    assert RUNNING.remaining(NOW) is None


def test_the_range_of_the_time_remaining_shrinks_with_it():
    soon = replace(RUNNING, estimated_finish_at=NOW + 4 * SECOND, estimate_spread=2.0)

    assert soon.remaining_range(NOW) == (2 * SECOND, 8 * SECOND)
    assert soon.remaining_range(NOW + 3 * SECOND) == (SECOND / 2, 2 * SECOND)
    assert soon.remaining_range(NOW + 5 * SECOND) == (timedelta(0), timedelta(0))
    assert replace(soon, estimate_spread=None).remaining_range(NOW) is None
    assert replace(soon, estimated_finish_at=None).remaining_range(NOW) is None


def test_a_task_that_is_being_cancelled_has_no_time_left():
    assert replace(RUNNING, estimated_finish_at=NOW + SECOND, cancel_requested_at=NOW).remaining(NOW) is None


@pytest.mark.parametrize(
    ("task", "run_time"),
    [
        (PENDING, None),
        (replace(PENDING, started_at=NOW), None),
        (replace(RUNNING, started_at=NOW), 5 * SECOND),
        (replace(PENDING, status=Status.FAILED, started_at=NOW, finished_at=NOW + SECOND), SECOND),
        (replace(PENDING, status=Status.CANCELLED, finished_at=NOW, cancel_requested_at=NOW), None),
        (
            replace(
                PENDING,
                status=Status.CANCELLED,
                started_at=NOW,
                cancel_requested_at=NOW + 3 * SECOND,
                finished_at=NOW + 3 * SECOND,
            ),
            None,
        ),
        (
            replace(
                PENDING,
                status=Status.CANCELLED,
                started_at=NOW,
                cancel_requested_at=NOW + SECOND,
                finished_at=NOW + 2 * SECOND,
            ),
            2 * SECOND,
        ),
    ],
)
def test_the_run_time_is_that_of_an_attempt_and_never_of_waiting(task, run_time):
    assert task.run_time(NOW + 5 * SECOND) == run_time


def test_every_status_goes_on_from_it():
    assert {replace(PENDING, status=status).in_words for status in Status} == {
        "is waiting",
        "is running",
        "has succeeded",
        "has failed",
        "was cancelled",
    }
    assert replace(RUNNING, cancel_requested_at=NOW).in_words == "is being cancelled"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (replace(PENDING, max_retry_count=1), "1 of 2"),
        (replace(RUNNING, attempt=1, max_retry_count=1), "1 of 2"),
        # its worker was stopped twice, and another one killed
        (
            replace(RUNNING, attempt=4, max_retry_count=1, interruption_count=2, crash_count=1),
            "1 of 2 (run 4)",
        ),
        (replace(PENDING, attempt=1, retry_count=1, max_retry_count=1), "2 of 2"),
        (
            replace(RUNNING, status=Status.FAILED, attempt=5, retry_count=1, max_retry_count=1),
            "2 of 2 (run 5)",
        ),
    ],
)
def test_only_failures_count_in_which_attempt_of_how_many_it_is(task, words):
    assert attempt_words(task) == words
