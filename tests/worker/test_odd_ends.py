"""Attempts that end in odd ways: whatever they raise or return, the task ends and its slot is free again."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dumbwaiter import Dumbwaiter, Retry, Snooze, TaskContext
from dumbwaiter.errors import LostClaim
from dumbwaiter.task import Status, Task
from dumbwaiter.worker.loop import Worker
from tests.support.waiting import until


class UnansweredError(Exception):
    """As the errors of HTTP clients: they have a response, or raise when they are asked for it."""

    @property
    def response(self) -> object:
        raise RuntimeError("there was no response")


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Late:
    """As the texts of web frameworks, which are translated when they are printed."""

    def __str__(self) -> str:
        return "There is no month 13."


class Rows(dict[str, int]):
    def items(self) -> Any:
        raise OSError("the rows are gone")


@contextlib.contextmanager
def forgiving(ctx: TaskContext) -> Iterator[None]:
    with contextlib.suppress(ValueError):
        yield


@contextlib.asynccontextmanager
async def forgiving_too(ctx: TaskContext) -> AsyncIterator[None]:
    with contextlib.suppress(ValueError):
        yield


@contextlib.contextmanager
def closed(ctx: TaskContext) -> Iterator[None]:
    raise ConnectionError("no session to be had")
    yield


@contextlib.contextmanager
def uncommitted(ctx: TaskContext) -> Iterator[None]:
    yield
    raise ConnectionError("the session could not be committed")


class Place:
    """Runs one function as a task; in the end the worker must have everything free again."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.waiter: Dumbwaiter | None = None
        self.worker: Worker | None = None

    def start(self, function: Callable[..., Any], scope: Any = None) -> Task:
        self.waiter = Dumbwaiter(f"sqlite:///{self.home}/tasks.db", scope=scope, poll="100ms", grace="500ms")
        handle = self.waiter.task("odd", retry=Retry(max_retries=0), needs={"oven": 1})(function)
        self.worker = self.waiter.worker({"default": 1}, capacity={"oven": 1})
        self.worker.start()
        return handle.enqueue()

    def run(self, function: Callable[..., Any], scope: Any = None) -> Task:
        return self.ended(self.start(function, scope))

    def ended(self, task: Task) -> Task:
        waiter = self.waiter
        assert waiter is not None
        return until(lambda: found if (found := waiter.get(task.id)).status.final else None, 10)

    def close(self) -> None:
        worker, waiter = self.worker, self.waiter
        assert worker is not None
        assert waiter is not None
        until(lambda: not worker.running, 5)
        assert (1, 1.0) == (worker.slots.free("default"), worker.slots.free_capacity()["oven"])
        worker.stop(hurry=True)
        assert worker.join(10)
        waiter.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


def raising(error: BaseException) -> Callable[[], None]:
    def odd() -> None:
        raise error

    return odd


def raising_in_a_coroutine(error: BaseException) -> Callable[[], Any]:
    async def odd() -> None:
        raise error

    return odd


@pytest.mark.parametrize("kind", [raising, raising_in_a_coroutine])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UnansweredError("nobody there"), "nobody there"),
        (UnprintableError(), "could not be made: SystemExit"),
        (KeyboardInterrupt("no"), "no"),
        (SystemExit(3), "3"),
    ],
    ids=["a property raises", "not printable", "KeyboardInterrupt", "SystemExit"],
)
def test_whatever_a_task_raises_it_has_failed(
    place: Place, kind: Callable[[BaseException], Any], error: BaseException, said: str
) -> None:
    task = place.run(kind(error))

    assert (Status.FAILED, True) == (task.status, said in str(task.error_message))


def test_a_result_that_breaks_when_it_is_read_fails_its_task(place: Place) -> None:
    task = place.run(lambda: Rows(month=13))

    assert (Status.FAILED, True) == (task.status, "the rows are gone" in str(task.error_message))


def test_a_text_for_the_user_may_be_translated_late(place: Place) -> None:
    error = ValueError("month 13")
    error.user_message = Late()  # type: ignore[attr-defined]

    assert place.run(raising(error)).user_message == "There is no month 13."


def test_a_task_whose_function_takes_other_arguments_by_now_fails_at_once(place: Place) -> None:
    def odd(plates: int) -> None: ...

    place.ended(place.start(lambda: None))
    waiter = place.waiter
    assert waiter is not None
    place.worker.stop()  # type: ignore[union-attr]
    place.worker.join(10)  # type: ignore[union-attr]
    task = waiter.enqueue("odd")
    waiter.registry._types.clear()
    waiter.task("odd")(odd)
    place.worker = waiter.worker({"default": 1}, capacity={"oven": 1})
    place.worker.start()
    failed = place.ended(task)

    assert (Status.FAILED, 1) == (failed.status, failed.attempt)
    assert "plates: missing" in str(failed.error_message)


def test_a_long_queue_does_not_keep_a_capacity_from_the_others(tmp_path: Path) -> None:
    waiter = Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db", poll="100ms")
    baked: list[str] = []

    @waiter.task("bake", needs={"oven": 1})
    def bake(ctx: TaskContext) -> None:
        baked.append(ctx.task.queue)

    for queue in ["a"] * 20 + ["z"]:
        bake.using(queue=queue).enqueue()
    worker = waiter.worker(capacity={"oven": 1})
    worker.start()
    until(lambda: len(baked) == 21)
    worker.stop(hurry=True)
    assert worker.join(10)
    waiter.close()

    assert baked.index("z") < 3


def test_a_snooze_without_a_unit_is_told_where_it_was_written(place: Place) -> None:
    def odd() -> None:
        raise Snooze(30)  # type: ignore[arg-type]

    assert place.run(odd).error_message == "Snooze(30): give a timedelta, such as timedelta(seconds=30)"


@pytest.mark.parametrize("scope", [forgiving, forgiving_too], ids=["plain", "async"])
def test_a_scope_cannot_swallow_the_failure_of_an_attempt(place: Place, scope: Any) -> None:
    kind = raising if scope is forgiving else raising_in_a_coroutine
    task = place.run(kind(ValueError("month 13")), scope)

    assert (Status.FAILED, "month 13") == (task.status, task.error_message)


@pytest.mark.parametrize(
    ("scope", "said"),
    [(closed, "no session to be had"), (uncommitted, "the session could not be committed")],
    ids=["on enter", "on exit"],
)
def test_a_scope_that_raises_is_the_failure_of_its_attempt(place: Place, scope: Any, said: str) -> None:
    task = place.run(lambda: "done", scope)

    assert (Status.FAILED, said, None) == (task.status, task.error_message, task.result)


def test_a_coroutine_that_was_cancelled_from_within_has_failed_and_was_not_cancelled_by_anybody(
    place: Place,
) -> None:
    task = place.run(raising_in_a_coroutine(asyncio.CancelledError()))

    assert (Status.FAILED, True) == (task.status, "cancelled from within" in str(task.error_message))


def test_a_coroutine_that_is_cancelled_before_its_first_step_is_not_taken_for_one_that_does_not_listen(
    place: Place,
) -> None:
    held, entered = threading.Event(), threading.Event()

    async def odd() -> None: ...

    task = place.start(odd)
    place.ended(task)
    assert place.worker is not None
    assert place.waiter is not None
    loop = place.worker._executors["coroutine"]._running_loop()  # type: ignore[attr-defined]
    loop.call_soon_threadsafe(entered.set)
    loop.call_soon_threadsafe(held.wait, 10)
    entered.wait(5)
    task = place.waiter.enqueue("odd")
    running = until(lambda: place.worker.running)[0]  # type: ignore[union-attr]
    place.waiter.cancel(task.id)
    until(lambda: running.stop_reason)
    held.set()

    assert place.ended(task).status is Status.CANCELLED
    assert place.worker.abandoned == 0


@pytest.mark.parametrize("content_type", ["text", "a/b\0", "a/b\r\nX-Evil: 1", "a/" + "b" * 200, "a/b; c=é"])
def test_a_content_type_that_is_none_is_refused_by_publish(place: Place, content_type: str) -> None:
    def odd(ctx: TaskContext) -> None:
        (ctx.workdir / "menu.txt").write_text("soup", encoding="utf-8")
        ctx.publish("menu.txt", content_type="text/plain; charset=utf-8")
        ctx.publish("menu.txt", content_type=content_type)

    task = place.run(odd)
    assert (Status.FAILED, "ValueError") == (task.status, task.error_type)
    assert str(task.error_message).startswith("content_type ")


def test_a_file_that_is_published_after_the_end_belongs_to_nobody_and_takes_no_other_with_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, late = threading.Event(), []

    def odd(ctx: TaskContext) -> None:
        (ctx.workdir / "menu.txt").write_text("soup", encoding="utf-8")
        (place.home / "late.txt").write_text("pudding", encoding="utf-8")
        ctx.publish("menu.txt")

        def publish() -> None:
            try:
                ctx.publish(place.home / "late.txt")
            except LostClaim as error:
                late.append(error)

        thread = threading.Thread(target=publish)
        thread.start()
        entered.wait(10)

    entered = threading.Event()
    task = place.start(odd)
    waiter = place.waiter
    assert waiter is not None
    put = waiter.files.put

    def slow(path: Any, key: str, **how: Any) -> Any:
        stored = put(path, key, **how)
        if key.endswith("late.txt"):
            entered.set()
            ended.wait(10)
        return stored

    monkeypatch.setattr(waiter.files, "put", slow)
    done = place.ended(task)
    ended.set()
    until(lambda: late)

    assert [(Status.SUCCESS, "menu.txt")] == [(done.status, file.name) for file in done.files]
    assert b"soup" == b"".join(waiter.files.stream(done.files[0].object_key))
    assert ["menu.txt"] == [path.name for path in (place.home / "files").rglob("*.txt")]
