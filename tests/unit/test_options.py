"""What can be said for one call, and for one worker: what cannot be is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import ConfigurationError, InvalidOption


@pytest.fixture
def waiter(tmp_path: Path) -> Dumbwaiter:
    waiter = Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db")
    waiter.task("bake")(lambda: None)
    return waiter


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"timeout": 5}, "timeout=5: give a timedelta"),
        ({"timeout": timedelta.max}, "at most 3650 days"),
        ({"delay": 5}, "delay=5: give a timedelta"),
        ({"reuse_for": 5, "key": "k"}, "reuse_for=5: give a timedelta"),
        ({"priority": "high"}, "priority='high': give a whole number"),
        ({"priority": 1.5}, "priority=1.5: give a whole number"),
        ({"priority": True}, "priority=True: give a whole number"),
        ({"run_at": "2026-01-01"}, "run_at='2026-01-01': give a datetime"),
        ({"start_before": datetime.max.replace(tzinfo=UTC)}, "no year that every database knows"),
        ({"key": ""}, "key='': give a text of 1 to 200"),
        ({"owner": 7}, "owner=7: give a text"),
        ({"request_key": "a\ud800"}, "request_key=.*surrogate cannot be stored"),
        ({"key": "a\0b"}, "key=.*NUL"),
        ({"queue": "é" * 101}, "more than 100 characters"),
        ({"meta": [1]}, "meta=.1.: give a mapping"),
        ({"meta": {"a": float("nan")}}, "a: JSON has no nan"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(
    waiter: Dumbwaiter, option: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidOption, match=said):
        waiter.enqueue("bake", **option)


@pytest.mark.parametrize(
    ("queues", "capacity", "said"),
    [
        ({}, None, "name at least one"),
        ({"a": 0}, None, "'a'=0"),
        ({"a": "2"}, None, "'a'='2'"),
        ({"": 1}, None, "''=1"),
        ({"a\0": 1}, None, "=1; give a name"),
        (None, {"oven": -1}, "'oven'=-1"),
        (None, {"oven": float("nan")}, "'oven'=nan"),
    ],
)
def test_a_worker_that_would_never_start_anything_is_refused(
    waiter: Dumbwaiter, queues: Any, capacity: Any, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        waiter.worker(queues, capacity=capacity)


def test_a_worker_without_slots_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'slots'=0"):
        Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db", slots=0).worker()
