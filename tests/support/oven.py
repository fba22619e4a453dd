"""Tasks that tell how far they are, step by step, each in its own kind of executor."""

from __future__ import annotations

import sys
import time

from dumbwaiter import Dumbwaiter, Fail, TaskContext

STEPS = {"mixing": 1, "baking": 8, "icing": 1}
waiter = Dumbwaiter()


@waiter.task("bake", steps=STEPS)
def bake(ctx: TaskContext) -> None:
    ctx.progress(0.5, step="baking", message="cake 2 of 4")
    ctx.sleep(600)


@waiter.task("bake-alone", isolate=True, steps=STEPS)
def bake_alone(ctx: TaskContext) -> None:
    bake(ctx)


bake_by_command = waiter.command(
    "bake-by-command",
    [
        sys.executable,
        "-uc",
        "import time; print('preheated'); print('baking: 50 % cake 2 of 4'); print('burning: what'); time.sleep(600)",
    ],
    steps=STEPS,
    progress=r"(?P<step>\w+): (?P<percent>\d+) % (?P<message>.*)",
)


@waiter.task("brood")
def brood(ctx: TaskContext) -> None:
    """Says nothing."""
    ctx.sleep(600)


@waiter.task("rise")
def rise(ctx: TaskContext) -> float:
    """The second half of the work takes three quarters of the time, or more or less on a busy machine: the share of the first."""
    began = half = time.monotonic()
    for place in ctx.track(range(10)):
        if place == 5:
            half = time.monotonic()
        time.sleep(0.05 if place < 5 else 0.2)
    return (half - began) / (time.monotonic() - began)


@waiter.task("fall")
def fall(ctx: TaskContext) -> None:
    ctx.progress(0.5)
    raise Fail("it sank")


@waiter.task("chatter")
def chatter(ctx: TaskContext, seconds: float) -> int:
    """Says how far it is as often as it can; how often that was."""
    begin, said = time.monotonic(), 0
    while (gone := time.monotonic() - begin) < seconds:
        ctx.progress(gone / seconds, step="chattering", message=f"word {said}")
        said += 1
    return said


@waiter.task("chatter-alone", isolate=True)
def chatter_alone(ctx: TaskContext, seconds: float) -> int:
    return chatter(ctx, seconds)


@waiter.task("linger")
def linger(ctx: TaskContext) -> None:
    """Tells of its progress in the middle of its own transaction."""
    with ctx.transaction():
        ctx.progress(0.5, message="in a transaction")
        ctx.sleep(20)
