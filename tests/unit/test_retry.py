"""When a failed attempt runs again, and which errors are worth it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dumbwaiter.errors import ConfigurationError, Fail, FileStoreError, RetryLater, Snooze, TaskCancelled
from dumbwaiter.retry import (
    RemoteError,
    Retry,
    crashed,
    decide,
    described,
    formatted,
    interrupted,
    message,
    shortened,
    storable,
    timed_out,
)
from dumbwaiter.task import AttemptOutcome, Kind, Outcome, Status, Task

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TASK = Task("id", "t", "default", Status.RUNNING, {}, NOW, NOW, NOW, worker_id="w1", attempt=1)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def test_delays_double_up_to_the_cap():
    policy = Retry(jitter=0)

    assert [policy.delay(retry) for retry in (1, 2, 3, 10, 11)] == [seconds(n) for n in (1, 2, 4, 512, 600)]


@given(
    retry=some.integers(1, 10_000),
    factor=some.floats(1, 1e9),
    base=some.timedeltas(timedelta(0), timedelta(days=1)),
    cap=some.timedeltas(timedelta(0), timedelta(days=365)),
    chance=some.floats(0, 1),
)
def test_no_retry_however_late_overflows_or_waits_longer_than_its_cap(retry, factor, base, cap, chance):
    delay = Retry(10_000, base=base, factor=factor, cap=cap, jitter=0.2).delay(retry, chance)

    assert timedelta(0) <= delay <= cap * 1.2 + timedelta(microseconds=2)


def test_jitter_spreads_a_delay_by_a_fifth_both_ways():
    policy = Retry(base=seconds(10))

    assert (policy.delay(1, 0.0), policy.delay(1, 0.5), policy.delay(1, 1.0)) == (
        seconds(8),
        seconds(10),
        seconds(12),
    )


def test_delays_given_by_hand_are_used_and_the_last_one_repeats():
    policy = Retry(delays=[seconds(3), seconds(7)], jitter=0)

    assert [policy.delay(retry) for retry in (1, 2, 3)] == [seconds(3), seconds(7), seconds(7)]


@pytest.mark.parametrize(
    "options",
    [
        {"max_retries": -1},
        {"max_retries": 10_001},
        {"jitter": 1},
        {"factor": 0.5},
        {"base": seconds(-1)},
        {"delays": [seconds(-1)]},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(options):
    with pytest.raises(ConfigurationError, match="Retry"):
        Retry(**options)


def with_status(code: int) -> Exception:
    error = RuntimeError("http")
    error.response = SimpleNamespace(status_code=code)  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "worth"),
    [
        (ConnectionError(), True),
        (TimeoutError(), True),
        (OSError("disk"), True),
        (RuntimeError(), True),
        (with_status(429), True),
        (with_status(503), True),
        (with_status(404), False),
        (with_status(400), False),
        (ValueError(), False),
        (KeyError(), False),
        (TypeError(), False),
        (ZeroDivisionError(), False),
        (FileNotFoundError(), False),
        (PermissionError(), False),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "no"), False),
        (Fail("no"), False),
        (RetryLater(seconds(1)), True),
        (FileStoreError("busy"), True),
        (FileStoreError("no bucket", transient=False), False),
    ],
)
def test_an_error_is_worth_a_retry_if_another_try_could_end_differently(error, worth):
    assert Retry().worth(error) is worth


def test_a_policy_may_name_errors_that_are_worth_it_and_others_that_never_are():
    policy = Retry(on=(ValueError,), never=(UnicodeError, ConnectionError))

    assert policy.worth(ValueError())
    assert not policy.worth(UnicodeDecodeError("utf-8", b"", 0, 1, "no"))
    assert not policy.worth(ConnectionError())


def test_a_failure_is_retried_while_a_retry_is_left():
    last = replace(TASK, retry_count=3, max_retry_count=3)

    assert decide(TASK, ConnectionError("x"), Retry()).kind is Kind.RETRY
    assert decide(last, ConnectionError("x"), Retry()).kind is Kind.FAIL
    assert decide(last, ConnectionError("x"), Retry()).delay == timedelta(0)


@pytest.mark.parametrize(("given", "delay"), [("7", 7), ("0", 0), ("1e9", 86_400), ("inf", 86_400)])
def test_a_retry_after_header_is_honoured_within_a_day(given, delay):
    error = with_status(429)
    error.response.headers = {"retry-after": given}  # type: ignore[attr-defined]

    assert decide(TASK, error, Retry()).delay == seconds(delay)


@pytest.mark.parametrize("given", ["soon", "-1", "nan", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_retry_after_header_that_is_no_number_of_seconds_is_ignored(given):
    error = with_status(429)
    error.response.headers = {"retry-after": given}  # type: ignore[attr-defined]

    assert decide(TASK, error, Retry(jitter=0)).delay == seconds(1)


def test_signals_of_a_task_mean_what_they_say():
    assert decide(TASK, Snooze(seconds(5)), Retry()) == Outcome.snoozed(seconds(5))
    assert decide(TASK, TaskCancelled(), Retry()).kind is Kind.CANCEL
    assert decide(TASK, Fail("a", user_message="b"), Retry()).user_message == "b"


def test_a_timeout_is_a_failure_that_is_retried_unless_the_policy_says_no():
    assert timed_out(TASK, Retry()).kind is Kind.RETRY
    assert timed_out(TASK, Retry(on_timeout=False)).kind is Kind.FAIL
    assert timed_out(TASK, Retry()).attempt_outcome is AttemptOutcome.TIMED_OUT


def test_the_crash_budget_ends_a_task_that_kills_its_workers():
    assert crashed(TASK, "gone").kind is Kind.RESCUE
    assert crashed(replace(TASK, crash_count=2), "gone").kind is Kind.FAIL
    assert "3 times" in str(crashed(replace(TASK, crash_count=2), "gone").error_message)
    assert crashed(replace(TASK, max_crash_count=0), "gone").error_type == "unknown-outcome"
    assert crashed(replace(TASK, cancel_requested_at=NOW), "gone").kind is Kind.CANCEL


def test_interruptions_cost_nothing_until_there_were_twenty():
    assert interrupted(replace(TASK, interruption_count=19)).kind is Kind.RELEASE
    assert interrupted(replace(TASK, interruption_count=20)).kind is Kind.FAIL


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_that_cannot_be_printed_is_told_all_the_same():
    outcome = decide(TASK, Unprintable(), Retry())

    assert "could not be made: RuntimeError" in str(outcome.error_message)
    assert outcome.traceback


def test_a_message_is_short_and_storable():
    assert message(ValueError("x" * 5_000)) == "x" * 2_000
    assert message(ValueError("a\0\ud800")) == "a\\0\\ud800"
    assert message(ValueError()) == "ValueError"


def test_a_long_traceback_keeps_its_head_and_its_tail():
    text = formatted(ValueError("é" * 60_000 + "end"))

    assert len(text.encode()) <= 32 * 1024
    assert text.rstrip().endswith("end")


@given(some.text(max_size=300), some.integers(60, 200))
def test_a_shortened_text_is_never_longer_than_its_limit(text, limit):
    assert len(shortened(text, limit).encode()) <= max(
        limit, len(text.encode()) if len(text.encode()) <= limit else 0
    )


@given(some.text(some.characters(), max_size=50))
def test_every_text_can_be_made_storable(text):
    made = storable(text)

    assert "\0" not in made
    made.encode()


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        RetryLater(seconds(9)),
        Snooze(seconds(3)),
        TaskCancelled(),
        Fail("a", user_message="b"),
    ],
)
def test_an_error_told_in_json_by_another_process_means_the_same(error):
    told = RemoteError(described(error, Retry()))

    here, there = decide(TASK, error, Retry(jitter=0)), decide(TASK, told, Retry(jitter=0))

    assert replace(there, traceback=None) == replace(here, traceback=None)
