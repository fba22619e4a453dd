"""What an application refuses when it is built and when its tasks are registered."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from dumbwaiter import Dumbwaiter, Retry
from dumbwaiter.errors import ConfigurationError, UnknownTask
from dumbwaiter.settings import Settings


@pytest.fixture
def waiter(tmp_path: Path) -> Dumbwaiter:
    return Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db")


def bake(dish: str) -> None: ...


def test_a_number_for_a_retry_policy_is_refused_where_it_stands(waiter: Dumbwaiter) -> None:
    with pytest.raises(ConfigurationError, match=r"task 'bake': retry=3; write retry=Retry\(max_retries=3\)"):
        waiter.task("bake", retry=3)


def test_a_timeout_is_a_timedelta_seconds_or_text(waiter: Dumbwaiter) -> None:
    assert timedelta(seconds=3) == waiter.task("seconds", timeout=3)(bake).entry.timeout
    assert timedelta(minutes=5) == waiter.task("text", timeout="5m")(bake).entry.timeout
    assert waiter.task("none", timeout=None)(bake).entry.timeout is None
    with pytest.raises(ConfigurationError, match="task 'soon': timeout: 'soon' is not a duration"):
        waiter.task("soon", timeout="soon")(bake)


def test_a_decorator_without_a_name_says_what_to_write(waiter: Dumbwaiter) -> None:
    with pytest.raises(ConfigurationError, match=r'write @waiter.task\("bake"\)'):
        waiter.task(bake)  # type: ignore[arg-type]


def test_a_term_that_is_none_is_refused_with_those_that_are(waiter: Dumbwaiter) -> None:
    with pytest.raises(ConfigurationError, match="no term retries; the terms are: queue, priority, retry"):
        waiter.task("bake", retries=3)


@pytest.mark.parametrize("address", ["nonsense", "oracle://x", "tasks.db"])
def test_an_address_of_no_database_of_ours_is_refused_at_once(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sqlite:///path/to/tasks\.db"):
        Dumbwaiter(address)


def test_the_password_is_not_in_the_refusal() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Dumbwaiter("oracle://waiter:secret@host/x")

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("task_id", ["", "5", 5, None, "01A22851-6FEB-70F3-96A3-26518C1911A9", "x" * 1000])
def test_what_is_no_id_names_no_task(waiter: Dumbwaiter, task_id: object) -> None:
    with pytest.raises(UnknownTask):
        waiter.get(task_id)  # type: ignore[arg-type]


def test_a_misspelt_variable_is_pointed_out(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.WARNING, "dumbwaiter")
    environ = {
        "DUMBWAITER_DATABSE": "x",
        "DUMBWAITER_CHROMIUM": "/usr/bin/x",
        "DUMBWAITER_LEASE": "30s",
        "HOME": "/",
    }
    Settings.load({}, environ, tmp_path)

    [record] = caplog.records
    assert "DUMBWAITER_DATABSE is no setting" in record.message
    assert "did you mean DUMBWAITER_DATABASE?" in record.message


def test_a_retry_policy_is_kept_as_it_was_given(waiter: Dumbwaiter) -> None:
    policy = Retry(max_retries=9)

    assert policy == waiter.task("bake", retry=policy)(bake).entry.retry
