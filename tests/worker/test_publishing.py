"""Result files on their way to an object store: whole, visible with the success only, gone with any other end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from dumbwaiter import Dumbwaiter, Fail, Retry, TaskContext
from dumbwaiter import files as files_module
from dumbwaiter.task import Task
from tests.support.objects import ObjectServer, object_server
from tests.support.waiting import until

SOON = Retry(max_retries=1, base=timedelta(milliseconds=50), jitter=0)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anybody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(files_module, "RETRIES", 0)
    with object_server() as server:
        yield server


@pytest.fixture
def waiter(s3: ObjectServer, tmp_path: Path) -> Iterator[Dumbwaiter]:
    """An application with a worker that keeps its files in the object store."""
    waiter = Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db", files=s3.url, poll="200ms", grace="1s")

    @waiter.task("report", retry=SOON)
    def report(ctx: TaskContext, size: int, fail: bool = False, wait: bool = False) -> None:
        path = ctx.workdir / "report.bin"
        path.write_bytes(b"x" * size)
        ctx.publish(path, filename=f"报告 {ctx.task.attempt}.bin")
        if fail:
            raise Fail("after the upload")
        if wait:
            ctx.sleep(30)

    worker = waiter.worker()
    worker.start()
    yield waiter
    worker.stop(hurry=True)
    assert worker.join(15)
    waiter.close()


def ended(waiter: Dumbwaiter, task: Task) -> Task:
    until(lambda: waiter.get(task.id).status.final)
    return waiter.get(task.id)


def test_a_link_to_a_published_file_serves_it(waiter: Dumbwaiter) -> None:
    task = ended(waiter, waiter.enqueue("report", {"size": 9 * 2**20}))

    [file] = task.files
    link = waiter.files.link(file, expires=timedelta(minutes=1))
    assert link is not None
    assert (file.name, file.size) == ("报告 1.bin", 9 * 2**20)
    assert httpx.get(link).content == b"x" * file.size


def test_an_upload_that_breaks_is_made_again_by_the_next_attempt(
    waiter: Dumbwaiter, s3: ObjectServer
) -> None:
    s3.faults += [("PUT", "partNumber=2", 503)]

    task = ended(waiter, waiter.enqueue("report", {"size": 20 * 2**20}))

    assert (task.status, task.attempt, task.retry_count) == ("success", 2, 1)
    assert [file.name for file in task.files] == ["报告 2.bin"]
    assert len(s3.objects) == 1
    assert s3.uploads == {}


def test_a_failed_attempt_leaves_no_object(waiter: Dumbwaiter, s3: ObjectServer) -> None:
    task = ended(waiter, waiter.enqueue("report", {"size": 5, "fail": True}))

    assert task.status == "failed"
    until(lambda: not s3.objects)
    assert any(request.startswith("PUT") for request in s3.requests)


def test_a_cancelled_attempt_leaves_no_object(waiter: Dumbwaiter, s3: ObjectServer) -> None:
    task = waiter.enqueue("report", {"size": 5, "wait": True})
    until(lambda: bool(s3.objects))

    assert waiter.get(task.id).files == ()
    waiter.cancel(task.id)

    assert ended(waiter, task).status == "cancelled"
    until(lambda: not s3.objects)
