"""Texts and numbers that some database or some reader of JSON refuses, in every place where a task can put one."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from fastapi import FastAPI

from dumbwaiter import Dumbwaiter, Fail, Retry, TaskContext
from dumbwaiter.integrations.fastapi import lifespan, router
from dumbwaiter.task import Status, Task
from tests.support.serving import serving
from tests.support.workers import ended

NUL, SURROGATE = "a\0b", "a\ud800b"
TEXTS = {
    "NUL": NUL,
    "a lone surrogate": SURROGATE,
    "line ends": "a\r\nX-Evil: 1\n\u2028",
    "much else": "🥘👩‍🍳\u202eabc\u202c\x01\x1b[31m\x7f",
}
NUMBERS: dict[str, Any] = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "Decimal nan": Decimal("NaN"),
}


class CarefulError(Exception):
    """Tells the person something, too."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.user_message = text


def step(ctx: TaskContext, text: str) -> None:
    ctx.progress(0.5, step=text)


def error(ctx: TaskContext, text: str) -> None:
    raise CarefulError(text)


def fail(ctx: TaskContext, text: str) -> None:
    raise Fail(text, user_message=text)


def result(ctx: TaskContext, text: str) -> list[str]:
    return ["nested", text]


def result_key(ctx: TaskContext, text: str) -> dict[str, int]:
    return {text: 1}


def file_name(ctx: TaskContext, text: str) -> None:
    (ctx.workdir / "made").write_text("soup", encoding="utf-8")
    ctx.publish("made", filename=text)


def kept_file(ctx: TaskContext, text: str) -> None:
    (ctx.workdir / "made").write_text("soup", encoding="utf-8")
    ctx.keep(text, "made")


def step_name(ctx: TaskContext, text: str) -> Any:
    return ctx.checkpoint(text, lambda: 1)


def step_value(ctx: TaskContext, text: str) -> Any:
    return ctx.checkpoint("step", lambda: {"text": text})["text"]


def cursor(ctx: TaskContext, text: str) -> None:
    ctx.cursor = text


def number_result(ctx: TaskContext, text: str) -> Any:
    return {"rows": [1, {"rate": NUMBERS[text]}]}


def number_progress(ctx: TaskContext, text: str) -> None:
    ctx.progress(0.25)
    ctx.progress(NUMBERS[text])


def number_step(ctx: TaskContext, text: str) -> Any:
    return ctx.checkpoint("rate", lambda: NUMBERS[text])


# What becomes of a task that puts such a text there: texts of the engine's own are cleaned, what would come back changed is refused.
ALWAYS_FAILS = {"error", "fail", "number_result", "number_step"}
REFUSES = {
    "NUL": {"file_name", "kept_file", "step_name"},
    "a lone surrogate": {
        "result",
        "result_key",
        "file_name",
        "kept_file",
        "step_name",
        "step_value",
        "cursor",
    },
}
PLACES = (step, error, fail, result, result_key, file_name, kept_file, step_name, step_value, cursor)
NUMBER_PLACES = (number_result, number_progress, number_step)


def spelled(name: str) -> str:
    """A text as its task is given it: a lone surrogate cannot even be an argument. A number goes by its name."""
    return TEXTS.get(name, name).encode("unicode_escape").decode()


@pytest.fixture
def odd(waiter: Dumbwaiter) -> Dumbwaiter:
    for place in (*PLACES, *NUMBER_PLACES):
        waiter.task(f"odd.{place.__name__}", retry=Retry(max_retries=0))(bound(place))
    return waiter


def bound(place: Callable[..., Any]) -> Callable[..., Any]:
    def work(ctx: TaskContext, text: str) -> Any:
        return place(ctx, text.encode().decode("unicode_escape"))

    return work


def strict(body: bytes) -> Any:
    """As the strictest reader reads it: UTF-8, no NaN, no half of a character."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    value = json.loads(body.decode("utf-8"), parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def test_an_odd_text_or_number_ends_a_task_as_the_table_says_wherever_it_puts_it(odd: Dumbwaiter) -> None:
    app = FastAPI(lifespan=lifespan(odd))
    app.include_router(router(odd, public=True))
    with serving(app) as client:
        asked = {
            (place.__name__, name): odd.enqueue(f"odd.{place.__name__}", {"text": spelled(name)})
            for places, names in ((PLACES, TEXTS), (NUMBER_PLACES, NUMBERS))
            for place in places
            for name in names
        }
        found = dict(zip(asked, ended(odd, list(asked.values())), strict=True))
        bodies = {cell: strict(client.get(f"/tasks/{task.id}").content) for cell, task in found.items()}

    verdicts = {cell: task.status for cell, task in found.items()}
    assert verdicts == {(place, name): expected(place, name) for place, name in asked}
    for (place, name), task in found.items():
        assert bodies[place, name]["status"] == task.status
        if task.status is Status.FAILED:
            assert task.error_message, (place, name)
        else:
            assert_whole(place, TEXTS.get(name, name), task)


def expected(place: str, name: str) -> Status:
    failed = place in ALWAYS_FAILS or place in REFUSES.get(name, ())
    return Status.FAILED if failed else Status.SUCCESS


def assert_whole(place: str, text: str, task: Task) -> None:
    """What was accepted comes back as it was."""
    match place:
        case "result":
            assert task.result == ["nested", text]
        case "result_key":
            assert task.result == {text: 1}
        case "step_value":
            assert task.result == text
        case "file_name":
            assert [file.name for file in task.files] == [text]
