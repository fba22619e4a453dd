"""The application of the long fault trials: short tasks of every kind, which write what they do into the outside ledger.

Their budgets are so large that no innocent task is used up by the deaths that a trial deals out: what a trial must show
is that each of them succeeds, however often its worker dies.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

from dumbwaiter import Dumbwaiter, Retry, TaskContext
from tests.support.kitchen import note, noted

waiter = Dumbwaiter()
MANY: dict[str, Any] = {
    "retry": Retry(max_retries=1_000, base=timedelta(milliseconds=50), factor=1),
    "max_crashes": 1_000,
}
KINDS = ("soup", "salad", "roast", "menu", "souffle")
COURSES = 4
TICK = 0.1


def served(ctx: TaskContext) -> dict[str, int]:
    return {"attempt": ctx.task.attempt}


def linger(ctx: TaskContext, seconds: float) -> None:
    """Wait, and write a line every tenth of a second: the ledger shows for how long it was really there."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        ctx.sleep(min(TICK, left))
        note("tick", ctx)


@waiter.task("soup", **MANY)
async def soup(ctx: TaskContext, seconds: float) -> dict[str, int]:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return served(ctx)


@waiter.task("salad", **MANY)
def salad(ctx: TaskContext, seconds: float) -> dict[str, int]:
    with noted(ctx):
        linger(ctx, seconds)
    return served(ctx)


@waiter.task("roast", isolate=True, **MANY)
def roast(ctx: TaskContext, seconds: float) -> dict[str, int]:
    """Works on a file in a process of its own, and publishes another."""
    with noted(ctx):
        (ctx.workdir / "crumbs.txt").write_text("crumbs", encoding="utf-8")
        linger(ctx, seconds)
        (ctx.workdir / "roast.txt").write_text(contents(ctx.task.id, ctx.task.attempt), encoding="utf-8")
        ctx.publish("roast.txt")
    return served(ctx)


@waiter.task("menu", **MANY)
def menu(ctx: TaskContext, seconds: float) -> dict[str, int]:
    """Goes on where an earlier attempt broke off."""
    with noted(ctx):
        for course in range(ctx.cursor or 0, COURSES):
            ctx.checkpoint(f"course {course}", cook, ctx, course, seconds / COURSES)
            (ctx.workdir / "recipe.txt").write_text(f"{course}", encoding="utf-8")
            ctx.keep("recipe", "recipe.txt")
            ctx.cursor = course + 1
    return served(ctx)


def cook(ctx: TaskContext, course: int, seconds: float) -> int:
    linger(ctx, seconds)
    return course


@waiter.task("souffle", **MANY)
def souffle(ctx: TaskContext, seconds: float) -> dict[str, int]:
    """Falls in once, by no fault of its worker's."""
    with noted(ctx):
        linger(ctx, seconds)
        if not ctx.task.retry_count:
            raise ConnectionError("somebody opened the oven")
    return served(ctx)


# The same without what needs more than a slot: of this, a worker claims short tasks ahead.
light = Dumbwaiter()
for entry in waiter.registry:
    if not entry.isolate:
        light.registry.add(entry)
SHORT = ("soup", "salad")


def contents(task_id: str, attempt: int) -> str:
    """What stands in the file of a roast."""
    return f"{task_id} by attempt {attempt}\n" * 1_000
