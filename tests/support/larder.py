"""Tasks in steps, for worker processes of the tests; each step that runs is a line of the outside ledger."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from dumbwaiter import Dumbwaiter, Fail, Retry, TaskContext
from dumbwaiter.errors import LostClaim
from tests.support.kitchen import note

waiter = Dumbwaiter()
SOON = Retry(max_retries=3, base=timedelta(milliseconds=50), jitter=0)


def cook(ctx: TaskContext, dish: str) -> dict[str, Any]:
    note("cook", ctx, dish=dish)
    return {"dish": dish, "attempt": ctx.task.attempt}


async def acook(ctx: TaskContext, dish: str) -> dict[str, Any]:
    return cook(ctx, dish)


def break_off(ctx: TaskContext, how: str) -> None:
    """What becomes of the first attempt, once its first steps are done."""
    note("start", ctx, how=how)
    if ctx.task.attempt > 1 or how == "success":
        return
    match how:
        case "retry":
            raise ConnectionError("the line was cut")
        case "wait":
            raise ConnectionError("the line was cut for long")
        case "fail":
            raise Fail("burnt")
        case "hang":
            ctx.sleep(600)


def menu(ctx: TaskContext, how: str) -> dict[str, Any]:
    """A soup, a place in a long list, a file; then the attempt breaks off; then a roast."""
    soup = ctx.checkpoint("soup", cook, ctx, "soup")
    found = ctx.cursor
    if ctx.task.attempt == 1:
        ctx.progress(0.4)
        ctx.cursor = ["page", 412]
        (ctx.workdir / "recipe.txt").write_text(f"of attempt {ctx.task.attempt}", encoding="utf-8")
        ctx.keep("recipe", "recipe.txt")
    break_off(ctx, how)
    restored = ctx.restore("recipe")
    return {
        "soup": soup,
        "cursor": found,
        "recipe": None if restored is None else restored.read_text(encoding="utf-8"),
        "roast": ctx.checkpoint("roast", cook, ctx, "roast"),
    }


waiter.task("menu-thread", retry=SOON)(menu)
isolated = waiter.task("menu-process", retry=SOON, isolate=True)
slow = waiter.task("menu-slow", retry=Retry(base=timedelta(minutes=5)))


@isolated
def menu_alone(ctx: TaskContext, how: str) -> dict[str, Any]:
    return menu(ctx, how)


@slow
def menu_slowly(ctx: TaskContext, how: str) -> dict[str, Any]:
    return menu(ctx, how)


@waiter.task("menu-coroutine", retry=SOON)
async def amenu(ctx: TaskContext, how: str) -> dict[str, Any]:
    soup = await ctx.acheckpoint("soup", acook, ctx, "soup")
    found = await ctx.acursor()
    if ctx.task.attempt == 1:
        ctx.progress(0.4)
        ctx.cursor = ["page", 412]
        (ctx.workdir / "recipe.txt").write_text(f"of attempt {ctx.task.attempt}", encoding="utf-8")
        await ctx.akeep("recipe", "recipe.txt")
    break_off(ctx, how)
    restored = await ctx.arestore("recipe")
    return {
        "soup": soup,
        "cursor": found,
        "recipe": None if restored is None else restored.read_text(encoding="utf-8"),
        "roast": await ctx.acheckpoint("roast", cook, ctx, "roast"),
    }


@waiter.task("resumed", retry=SOON)
def resumed(ctx: TaskContext) -> None:
    """Fails once at 40 %; then looks where it was, and waits."""
    if ctx.task.attempt == 1:
        ctx.progress(0.4)
        ctx.cursor = 4
        raise ConnectionError("the line was cut")
    note("at", ctx, cursor=ctx.cursor)
    ctx.sleep(600)


def simmer(ctx: TaskContext) -> str:
    """Not seen to be stopped meanwhile: the first attempt takes its time, and its worker is stopped and goes on."""
    note("start", ctx)
    if ctx.task.attempt == 1:
        time.sleep(4)
    return f"of attempt {ctx.task.attempt}"


@waiter.task("stew")
def stew(ctx: TaskContext) -> str:
    try:
        return ctx.checkpoint("stew", simmer, ctx)
    except LostClaim:
        note("lost", ctx)
        raise
