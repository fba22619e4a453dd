"""Steps as a task sees them: names and values that can be kept, each step once, everything else said clearly."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import ConfigurationError, InvalidStep, LostClaim, TaskCancelled
from dumbwaiter.executors.base import Ended, Running, Surroundings
from dumbwaiter.executors.context import Stop, TaskContext
from dumbwaiter.retry import Retry
from dumbwaiter.task import Mark, Recalled, Status


class Shelf:
    """A memory in this process."""

    limit = 100

    def __init__(self, recalled: Recalled | None = None, results: dict[str, Any] | None = None) -> None:
        self.recalled = recalled or Recalled()
        self.results = dict(results or {})
        self.marks: list[Any] = []
        self.asked = 0

    def recall(self) -> Recalled:
        self.asked += 1
        return self.recalled

    def result(self, name: str) -> Any:
        return self.results[name]

    def remember(self, name: str, value: Any) -> None:
        self.results[name] = value

    def mark(self, value: Any) -> None:
        self.marks.append(value)

    def keep(self, name: str, path: Path) -> None:
        self.results[name] = path.read_bytes()

    def restore(self, name: str, into: Path) -> bool:
        if name in self.results:
            into.write_bytes(self.results[name])
        return name in self.results


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def running(tmp_path: Path, shelf: Shelf | None) -> Running:
    task: Any = SimpleNamespace(
        id="t", attempt=1, timeout=None, ahead=False, status=Status.RUNNING, fence="fence"
    )
    nothing: Any = None
    entry = Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db").task("t")(lambda: None).entry
    memory = None if shelf is None else lambda _running: shelf
    around = Surroundings(
        workdir=lambda _: tmp_path / "work",
        publish=nothing,
        commands=nothing,
        done=lambda *_: None,
        memory=memory,
    )
    return Running(task, entry, around)


@pytest.fixture
def attempt(tmp_path: Path, shelf: Shelf) -> Running:
    return running(tmp_path, shelf)


@pytest.fixture
def ctx(attempt: Running) -> TaskContext:
    return attempt.context()


def test_a_step_runs_once_and_its_stored_value_comes_back(ctx: TaskContext, shelf: Shelf) -> None:
    calls: list[int] = []

    def pair(number: int, *, more: int) -> Any:
        calls.append(number)
        return number, more

    first = ctx.checkpoint("pair", pair, 1, more=2)
    second = ctx.checkpoint("pair", pair, 1, more=2)

    assert (first, second, calls) == ([1, 2], [1, 2], [1])
    assert shelf.results == {"pair": [1, 2]}


def test_a_coroutine_step_runs_once(ctx: TaskContext) -> None:
    calls: list[int] = []

    async def one(number: int) -> int:
        calls.append(number)
        return number

    async def both() -> list[Any]:
        return [await ctx.acheckpoint("one", one, 1), await ctx.acheckpoint("one", one, 2)]

    assert (asyncio.run(both()), calls) == ([1, 1], [1])


def test_what_earlier_attempts_left_is_asked_for_once_and_only_if_somebody_asks(tmp_path: Path) -> None:
    shelf = Shelf(Recalled(("soup",), {"page": 3}, 0.25), {"soup": "hot"})
    attempt = running(tmp_path, shelf)
    ctx = attempt.context()
    assert (shelf.asked, attempt.fraction) == (0, None)

    assert ctx.checkpoint("soup", pytest.fail, "it ran again") == "hot"
    assert ctx.cursor == {"page": 3}
    assert (shelf.asked, attempt.fraction) == (1, 0.25)
    ctx.progress(0.1)
    assert attempt.fraction == 0.25


def test_a_step_that_raises_is_not_remembered(ctx: TaskContext, shelf: Shelf) -> None:
    def burn() -> None:
        raise ConnectionError("burnt")

    with pytest.raises(ConnectionError):
        ctx.checkpoint("soup", burn)
    assert shelf.results == {}
    assert ctx.checkpoint("soup", lambda: "hot") == "hot"


def test_a_step_does_not_begin_when_the_attempt_should_end(attempt: Running) -> None:
    ctx = attempt.context()
    attempt.ask_stop(Stop.CANCEL)

    with pytest.raises(TaskCancelled):
        ctx.checkpoint("soup", pytest.fail, "it ran")


def test_a_step_inside_a_step_of_the_same_name_is_refused(ctx: TaskContext) -> None:
    with pytest.raises(InvalidStep, match="running already"):
        ctx.checkpoint("soup", lambda: ctx.checkpoint("soup", lambda: 1))


def test_a_coroutine_function_is_not_taken_for_a_plain_one(ctx: TaskContext) -> None:
    async def soup() -> None: ...

    with pytest.raises(InvalidStep, match=r"await ctx\.acheckpoint"):
        _ = ctx.checkpoint("soup", soup)


@pytest.mark.parametrize("name", ["", "x" * 201, "😀" * 51, "a\0b", "\ud800", 7], ids=ascii)
def test_a_name_that_cannot_be_is_refused_before_anything_runs(ctx: TaskContext, name: Any) -> None:
    with pytest.raises(InvalidStep, match="1 to 200 bytes"):
        ctx.checkpoint(name, pytest.fail, "it ran")


@pytest.mark.parametrize(
    ("value", "why"),
    [({1, 2}, "cannot be kept as JSON"), (float("nan"), "no nan"), ("x" * 99, "has 101 bytes of JSON")],
    ids=["a set", "NaN", "too large"],
)
def test_a_value_that_cannot_be_kept_is_refused_with_what_to_do(
    ctx: TaskContext, shelf: Shelf, value: object, why: str
) -> None:
    with pytest.raises(InvalidStep, match=why) as caught:
        ctx.checkpoint("soup", lambda: value)
    with pytest.raises(InvalidStep, match=why):
        ctx.cursor = value
    assert (shelf.results, shelf.marks, ctx.cursor) == ({}, [], None)
    assert not Retry().worth(caught.value)


def test_a_cursor_is_where_the_task_was_then_not_what_became_of_the_list(
    ctx: TaskContext, shelf: Shelf
) -> None:
    place = ["page", 1]
    ctx.cursor = place
    place.append(2)

    assert (ctx.cursor, shelf.marks, shelf.asked) == (["page", 1], [["page", 1]], 0)


def test_a_mark_stays_fresh_until_it_is_written(attempt: Running) -> None:
    first, second = Mark(1), Mark(1)
    attempt.mark(first)
    assert attempt.fresh_mark() is first
    attempt.mark(second)
    attempt.mark_written(first)
    assert attempt.fresh_mark() is second
    attempt.mark_written(second)
    assert attempt.fresh_mark() is None


def test_an_attempt_that_has_ended_remembers_nothing_more(attempt: Running) -> None:
    attempt.complete(Ended())

    with pytest.raises(LostClaim):
        attempt.mark(Mark(1))
    assert not attempt.remembers


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 201])
def test_a_kept_file_has_a_name_that_a_directory_takes(ctx: TaskContext, name: str) -> None:
    (ctx.workdir / "file").touch()

    with pytest.raises(InvalidStep):
        ctx.keep(name, "file")
    with pytest.raises(InvalidStep):
        ctx.restore(name)


def test_a_file_that_is_not_there_cannot_be_kept(ctx: TaskContext) -> None:
    with pytest.raises(FileNotFoundError, match="no file to keep"):
        ctx.keep("soup", "soup.txt")


def test_a_kept_file_is_restored_to_where_it_is_wanted(ctx: TaskContext, tmp_path: Path) -> None:
    (ctx.workdir / "soup.txt").write_text("hot")
    ctx.keep("soup", "soup.txt")
    (tmp_path / "bowl").mkdir()

    assert ctx.restore("soup") == ctx.workdir / "soup"
    assert ctx.restore("soup", tmp_path / "bowl") == tmp_path / "bowl" / "soup"
    assert ctx.restore("soup", "again.txt") == ctx.workdir / "again.txt"
    assert ctx.restore("roast") is None


def test_outside_a_worker_steps_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not run in a worker"):
        running(tmp_path, None).context().checkpoint("soup", lambda: 1)
