"""The application that worker processes of the tests run: tasks that write what they do into an outside ledger."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from dumbwaiter import Dumbwaiter, Retry, TaskContext

waiter = Dumbwaiter()


def note(event: str, ctx: TaskContext, **more: object) -> None:
    """One line, written at once: appends of less than a page are whole, however the process ends."""
    words = [f"{time.time():.6f}", event, ctx.task.id, str(ctx.task.attempt), str(os.getpid())]
    line = " ".join([*words, *(f"{name}={value}" for name, value in more.items())]) + "\n"
    descriptor = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@contextmanager
def noted(ctx: TaskContext) -> Iterator[None]:
    note("start", ctx, queue=ctx.task.queue, worker=ctx.task.worker_id)
    yield
    note("end", ctx)


@waiter.task("nap")
async def nap(ctx: TaskContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return "slept"


@waiter.task("doze")
def doze(ctx: TaskContext, seconds: float) -> str:
    with noted(ctx):
        ctx.sleep(seconds)
    return "dozed"


@waiter.task("slumber", isolate=True)
def slumber(ctx: TaskContext, seconds: float) -> str:
    with noted(ctx):
        ctx.progress(0.25, step="asleep")
        (ctx.workdir / "pillow.txt").write_text("soft", encoding="utf-8")
        ctx.sleep(seconds)
        ctx.publish("pillow.txt")
    return "slumbered"


@waiter.task("flicker")
def flicker(ctx: TaskContext) -> None:
    """Anything from 0 to 20 ms."""
    with noted(ctx):
        time.sleep(random.uniform(0, 0.02))


@waiter.task("stubborn", timeout=timedelta(seconds=1), retry=Retry(max_retries=0))
def stubborn(ctx: TaskContext, seconds: float) -> str:
    """Does not listen."""
    with noted(ctx):
        time.sleep(seconds)
    return "at last"


@waiter.task("spin")
async def spin(ctx: TaskContext, seconds: float) -> str:
    """Blocks the event loop that it runs on."""
    with noted(ctx):
        time.sleep(seconds)
    return "spun"


@waiter.task("export", queue="exports", isolate=True, needs={"chromium": 1})
def export(ctx: TaskContext, seconds: float) -> None:
    with noted(ctx):
        time.sleep(seconds)


@waiter.task("flaky", retry=Retry(max_retries=3, base=timedelta(milliseconds=50), jitter=0))
def flaky(ctx: TaskContext, failures: int) -> str:
    with noted(ctx):
        if ctx.task.attempt <= failures:
            raise ConnectionError(f"the line was cut in attempt {ctx.task.attempt}")
    return "through"


@waiter.task("hopeless")
def hopeless(ctx: TaskContext) -> None:
    with noted(ctx):
        raise ValueError("there is no month 13")


@waiter.task("hopeless-alone", isolate=True)
def hopeless_alone(ctx: TaskContext) -> None:
    with noted(ctx):
        raise ValueError("there is no month 13")


@waiter.task("hopeless-coroutine")
async def hopeless_coroutine(ctx: TaskContext) -> None:
    with noted(ctx):
        raise ValueError("there is no month 13")


@waiter.task("timed-coroutine", timeout=timedelta(seconds=1), retry=Retry(max_retries=0))
async def timed_coroutine(ctx: TaskContext) -> None:
    with noted(ctx):
        await asyncio.sleep(60)


@waiter.task("timed-thread", timeout=timedelta(seconds=1), retry=Retry(max_retries=0))
def timed_thread(ctx: TaskContext) -> None:
    with noted(ctx):
        ctx.sleep(60)


@waiter.task("timed-process", timeout=timedelta(seconds=1), retry=Retry(max_retries=0), isolate=True)
def timed_process(ctx: TaskContext) -> None:
    with noted(ctx):
        time.sleep(60)


say = waiter.command("say", ["echo", "{word}"])
false = waiter.command("false", ["false"], retry=Retry(max_retries=0))
timed_command = waiter.command(
    "timed-command", ["sleep", "60"], timeout=timedelta(seconds=1), retry=Retry(max_retries=0)
)


@waiter.task("odd-result")
def odd_result(ctx: TaskContext, kind: str) -> object:
    return {"nan": float("nan"), "object": object(), "huge": "x" * 3_000_000, "fine": {"名": [1, 2.5, None]}}[
        kind
    ]


@waiter.task("leaver")
def leaver(ctx: TaskContext) -> None:
    raise SystemExit(3)


@waiter.task("murmur")
def murmur(ctx: TaskContext, seconds: float) -> None:
    """Says how far it is, twenty times a second."""
    with noted(ctx):
        for tick in range(round(seconds * 20)):
            ctx.progress(tick / (seconds * 20), step=f"tick {tick}")
            ctx.sleep(0.05)
