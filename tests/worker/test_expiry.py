"""How long a published file is kept, by whoever says so: the publish, the task type, the setting."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import ConfigurationError
from dumbwaiter.task import ResultFile
from tests.support import pantry
from tests.support.waiting import until


@pytest.fixture
def waiter(tmp_path: Path) -> Iterator[Dumbwaiter]:
    waiter = Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db", poll="200ms", grace="1s")
    for entry in pantry.waiter.registry:
        waiter.registry.add(entry)
    worker = waiter.worker()
    worker.start()
    yield waiter
    worker.stop(hurry=True)
    assert worker.join(15)
    waiter.close()


def published(waiter: Dumbwaiter, task_type: str, **arguments: Any) -> ResultFile:
    task = waiter.enqueue(task_type, arguments)
    until(lambda: waiter.get(task.id).status.final)
    [file] = waiter.get(task.id).files
    return file


@pytest.mark.parametrize(
    ("task_type", "arguments", "kept"),
    [
        ("jam", {}, timedelta(hours=24)),
        ("jam", {"seconds": 600}, timedelta(minutes=10)),
        ("jam", {"seconds": None}, None),
        ("sealed", {}, timedelta(days=3)),
        ("sealed", {"seconds": 600}, timedelta(minutes=10)),
        ("sealed", {"seconds": None}, None),
        ("label", {"word": "plum"}, None),
    ],
)
def test_the_publish_says_how_long_a_file_is_kept_and_else_its_type_and_else_the_setting(
    waiter: Dumbwaiter, task_type: str, arguments: dict[str, Any], kept: timedelta | None
) -> None:
    file = published(waiter, task_type, **arguments)

    if kept is None:
        assert file.expires_at is None
    else:
        assert file.created_at is not None
        assert file.expires_at is not None
        assert abs(file.expires_at - file.created_at - kept) < timedelta(seconds=10)


def test_an_expiry_that_cannot_be_fails_the_task_with_a_sentence(waiter: Dumbwaiter) -> None:
    task = waiter.enqueue("jam", {"seconds": 0})
    until(lambda: waiter.get(task.id).status.final)

    assert "give a timedelta of at most 36500 days, or None" in str(waiter.get(task.id).error_message)


def test_a_task_type_cannot_keep_files_for_no_time() -> None:
    with pytest.raises(ConfigurationError, match="expires=0: give more than nothing"):
        Dumbwaiter().task("t", expires=0)(print)
