"""Declared steps, and what a task reports of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.course import Course
from dumbwaiter.errors import ConfigurationError, InvalidStep, TaskCancelled
from dumbwaiter.executors.base import Running, Surroundings
from dumbwaiter.executors.command import PlainCommands
from dumbwaiter.executors.context import Stop, TaskContext
from dumbwaiter.executors.printed import pattern_of, told
from dumbwaiter.task import Progress, Status
from tests.unit.test_task import PENDING, RUNNING

STEPS = {"loading": 1, "rendering": 8, "encoding": 1}
COURSE = Course(STEPS)


@pytest.fixture
def attempt(tmp_path: Path):
    """An attempt of a task with steps, or without, and its context."""

    def make(steps=STEPS) -> tuple[TaskContext, Running]:
        handle = Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db").task("t", steps=steps)(lambda: None)
        around = Surroundings(
            workdir=lambda _: tmp_path,
            publish=lambda *_: None,
            commands=lambda running: PlainCommands(running, timedelta(seconds=1)),
            done=lambda *_: None,
        )
        running = Running(RUNNING, handle.entry, around)
        return running.context(), running

    return make


def test_a_fraction_of_a_step_is_so_much_of_the_whole():
    assert [COURSE.whole(step, 0.5) for step in STEPS] == pytest.approx([0.05, 0.5, 0.95])
    assert [COURSE.whole("rendering", fraction) for fraction in (-1, 2)] == pytest.approx([0.1, 0.9])


def test_a_task_goes_through_its_steps_and_the_whole_never_goes_back(attempt):
    ctx, running = attempt()
    seen = []
    for fraction, step in [
        (None, "loading"),
        (0.5, None),
        (None, "rendering"),
        (0.5, None),
        (0.1, "loading"),
    ]:
        ctx.progress(fraction, step=step)
        seen.append(running.fresh_progress())

    assert [(round(one.fraction, 3), one.step) for one in seen] == [
        (0.0, "loading"),
        (0.05, "loading"),
        (0.1, "rendering"),
        (0.5, "rendering"),
        (0.5, "loading"),
    ]


def test_without_a_step_a_fraction_is_of_the_first_one(attempt):
    ctx, running = attempt()

    ctx.progress(1.0)

    assert running.fresh_progress() == Progress(0.1, "loading")


def test_the_end_of_the_last_step_is_not_the_end_of_the_task(attempt):
    ctx, running = attempt()

    ctx.progress(1.0, step="encoding")

    assert running.fresh_progress().fraction == 0.999


def test_a_step_that_is_not_declared_is_refused_by_name(attempt):
    ctx, _ = attempt()

    with pytest.raises(
        InvalidStep, match="no step 'baking'; the steps of this task type are 'loading', 'rend"
    ):
        ctx.progress(0.5, step="baking")
    with pytest.raises(InvalidStep):
        ctx.step("baking")


def test_without_declared_steps_every_step_is_a_few_words_and_a_fraction_is_of_the_whole(attempt):
    ctx, running = attempt(steps=None)

    ctx.progress(0.25, step="page 1 of 4")

    assert running.fresh_progress() == Progress(0.25, "page 1 of 4")


@pytest.mark.parametrize(
    ("fraction", "said"), [("0.5", "words go into step= or"), (object(), "no number"), ([], "list")]
)
def test_a_fraction_that_is_no_number_is_refused(attempt, fraction, said):
    ctx, _ = attempt()

    with pytest.raises(TypeError, match=said):
        ctx.progress(fraction)


def test_a_fraction_that_is_not_a_number_is_passed_over(attempt):
    ctx, running = attempt(steps=None)

    ctx.progress(float("nan"))

    assert running.fresh_progress() is None


def test_a_message_stands_until_another_one_or_the_next_step():
    first = Progress(0.1, "loading", "file 1")

    assert first.after(Progress(0.2)).message == "file 1"
    assert first.after(Progress(message="file 2")).message == "file 2"
    assert first.after(Progress(step="loading")).message == "file 1"
    assert first.after(Progress(step="rendering")).message == ""
    assert first.after(Progress(step="rendering", message="picture 1")).message == "picture 1"
    assert Progress().after(Progress(step="loading")).message is None


def test_tracked_items_tell_how_far_they_are(attempt):
    ctx, running = attempt(steps=None)
    seen = [(item, running.fresh_progress().fraction) for item in ctx.track("abcd")]

    assert seen == [("a", 0.0), ("b", 0.25), ("c", 0.5), ("d", 0.75)]
    assert running.fresh_progress().fraction == 0.999


def test_tracked_items_may_be_one_step_and_may_begin_where_another_attempt_was(attempt):
    ctx, running = attempt()
    seen = [running.fresh_progress().fraction for _ in ctx.track(iter("cd"), 4, start=2, step="rendering")]

    assert seen == pytest.approx([0.5, 0.7])
    assert running.fresh_progress() == Progress(COURSE.whole("encoding", 0), "rendering")


def test_more_items_than_were_said_are_no_error(attempt):
    ctx, running = attempt(steps=None)

    assert list(ctx.track(iter("abc"), total=1)) == ["a", "b", "c"]
    assert running.fresh_progress().fraction == 0.999


def test_nothing_to_track_is_done_at_once(attempt):
    ctx, running = attempt(steps=None)

    assert list(ctx.track([])) == []
    assert running.fresh_progress().fraction == 0.999


async def gone_through(ctx: TaskContext) -> list[int]:
    async def numbers():
        for number in range(2):
            yield number

    return [number async for number in ctx.atrack(numbers(), total=2)]


def test_what_comes_asynchronously_is_tracked_too(attempt):
    import asyncio

    ctx, running = attempt(steps=None)

    assert asyncio.run(gone_through(ctx)) == [0, 1]
    assert running.fresh_progress().fraction == 0.999


def test_between_two_items_a_stop_is_heeded(attempt):
    ctx, running = attempt(steps=None)
    seen = []

    def go_through() -> None:
        for item in ctx.track("abc"):
            seen.append(item)
            running.ask_stop(Stop.CANCEL)

    with pytest.raises(TaskCancelled):
        go_through()
    assert seen == ["a"]


@pytest.mark.parametrize(
    ("items", "how", "error", "said"),
    [
        (iter("ab"), {}, TypeError, "say so: total="),
        ("ab", {"total": 2.5}, TypeError, "total=2.5: give a whole number"),
        ("ab", {"total": -1}, ValueError, "less than nothing"),
        ("ab", {"start": -1}, ValueError, "less than nothing"),
    ],
)
def test_what_cannot_be_tracked_is_refused_before_the_first_item(attempt, items, how, error, said):
    ctx, _ = attempt(steps=None)

    with pytest.raises(error, match=said):
        ctx.track(items, **how)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({}, "name 1 to 50 steps"),
        (["loading"], "name 1 to 50 steps"),
        ({str(number): 1 for number in range(51)}, "name 1 to 50 steps"),
        ({"": 1}, "a text of 1 to 200 characters"),
        ({"x" * 201: 1}, "a text of 1 to 200 characters"),
        ({"a\0": 1}, "without NUL"),
        ({1: 1}, "a text of 1 to 200 characters"),
        ({"loading": 0}, "'loading' weighs 0: give a number over 0"),
        ({"loading": float("inf")}, "weighs inf"),
        ({"loading": float("nan")}, "weighs nan"),
        ({"loading": True}, "weighs True"),
        ({"loading": "1"}, "weighs '1'"),
    ],
)
def test_steps_that_cannot_be_are_refused_when_the_task_type_is_registered(attempt, steps, said):
    with pytest.raises(ConfigurationError, match=said):
        attempt(steps)


@pytest.mark.parametrize(
    ("task", "states"),
    [
        (PENDING, ["waiting", "waiting", "waiting"]),
        (replace(PENDING, current_step="rendering"), ["waiting", "waiting", "waiting"]),
        (RUNNING, ["waiting", "waiting", "waiting"]),
        (replace(RUNNING, current_step="loading"), ["current", "waiting", "waiting"]),
        (replace(RUNNING, current_step="encoding"), ["done", "done", "current"]),
        (replace(RUNNING, current_step="of an older version"), ["waiting", "waiting", "waiting"]),
        (replace(PENDING, status=Status.SUCCESS, current_step="loading"), ["done", "done", "done"]),
        (replace(PENDING, status=Status.FAILED, current_step="rendering"), ["done", "current", "waiting"]),
    ],
)
def test_each_step_is_done_current_or_waiting(task, states):
    assert [step.state for step in COURSE.states(task)] == states
    assert [(step.name, step.weight) for step in COURSE.states(task)] == list(STEPS.items())


@pytest.mark.parametrize(
    ("pattern", "line", "progress"),
    [
        (r"(?P<percent>[\d.]+)%", "done 42.5% of it", Progress(0.425)),
        (r"(?P<done>\d+)/(?P<total>\d+)", "3/4", Progress(0.75)),
        (r"(?P<done>\d+)/(?P<total>\d+)", "3/0", None),
        (r"(?P<fraction>\S+)", "0.5", Progress(0.5)),
        (r"(?P<fraction>\S+)", "half", None),
        (r"(?P<step>\w+): (?P<message>.*)", "copying: a.txt", Progress(None, "copying", "a.txt")),
        (r"at (?P<percent>\d+)", "nothing of that", None),
    ],
)
def test_what_a_command_prints_tells_how_far_it_is(pattern, line, progress):
    assert told(pattern_of("t", pattern), line) == progress


def test_a_commands_steps_are_those_that_are_declared():
    pattern = pattern_of("t", r"(?P<step>\w+) (?P<percent>\d+)")

    assert told(pattern, "rendering 50", COURSE) == Progress(0.5, "rendering")
    assert told(pattern, "baking 50", COURSE) == Progress(0.5)


@pytest.mark.parametrize(
    "pattern", ["(", "nothing", "(?P<percent>.)(?P<done>.)", "(?P<done>.)", "(?P<eta>.)", 7]
)
def test_a_pattern_that_tells_nothing_is_refused(pattern):
    with pytest.raises(ConfigurationError, match="progress="):
        pattern_of("t", pattern)
