"""The application that worker processes of the tests run: tasks that write what they do into an outside ledger."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

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


@contextlib.contextmanager
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


@waiter.task("brood", isolate=True)
def brood(ctx: TaskContext, seconds: float) -> str:
    """Beside it runs a process that would outlive it by far."""
    with noted(ctx):
        chick = subprocess.Popen(["sleep", "600"], start_new_session=True)
        note("hatched", ctx, chick=chick.pid)
        (ctx.workdir / "pillow.txt").write_text("soft", encoding="utf-8")
        ctx.sleep(seconds)
        ctx.publish("pillow.txt")
    return "brooded"


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


@waiter.task("poison")
def poison(ctx: TaskContext, how: str) -> None:
    """Ends the process that it runs in, a moment after others have begun beside it."""
    with noted(ctx):
        time.sleep(0.5)
        match how:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(139)
            case "memory":
                devour()


def devour() -> None:
    """Take memory up to a limit, as C code does that never asks whether it got any: Python would only raise MemoryError."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + 128 * 2**20
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    while True:
        ctypes.memset(malloc(2**24), 1, 2**24)


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


@waiter.task("persevere", retry=Retry(max_retries=1))
def persevere(ctx: TaskContext, attempts: int) -> str:
    """Ends in the attempt of that number, and in none before."""
    with noted(ctx):
        if ctx.task.attempt < attempts:
            ctx.sleep(600)
    return "at last"


@waiter.task("persevere-alone", retry=Retry(max_retries=1), isolate=True)
def persevere_alone(ctx: TaskContext, attempts: int) -> str:
    with noted(ctx):
        (ctx.workdir / "pillow.txt").write_text("soft", encoding="utf-8")
        if ctx.task.attempt < attempts:
            ctx.sleep(600)
    return "at last"


@waiter.task("deaf-coroutine", retry=Retry(max_retries=0))
async def deaf_coroutine(ctx: TaskContext) -> str:
    """Takes its stop for any error, and says that all is well."""
    note("start", ctx)
    if ctx.task.attempt == 1:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(600)
    note("end", ctx)
    return "ok"


@waiter.task("deaf-thread", retry=Retry(max_retries=0))
def deaf_thread(ctx: TaskContext) -> str:
    note("start", ctx)
    if ctx.task.attempt == 1:
        with contextlib.suppress(BaseException):
            ctx.sleep(600)
    note("end", ctx)
    return "ok"


@waiter.task("deaf-process", retry=Retry(max_retries=0), isolate=True)
def deaf_process(ctx: TaskContext) -> str:
    note("start", ctx)
    if ctx.task.attempt == 1:
        with contextlib.suppress(BaseException):
            ctx.sleep(600)
    note("end", ctx)
    return "ok"


@waiter.task("blocked-thread")
def blocked_thread(ctx: TaskContext, seconds: float) -> None:
    """In C code that hears of nothing."""
    with noted(ctx):
        time.sleep(seconds)


@waiter.task("blocked-process", isolate=True)
def blocked_process(ctx: TaskContext, seconds: float) -> None:
    """In C code that keeps the interpreter for itself."""
    with noted(ctx):
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


@waiter.task("sulk", retry=Retry(delays=[timedelta(hours=1)], jitter=0))
def sulk(ctx: TaskContext) -> None:
    with noted(ctx):
        raise ConnectionError("not today")


@waiter.task("blink", isolate=True, retry=Retry(max_retries=0))
def blink(ctx: TaskContext) -> str:
    """20 to 60 ms, and hears of no stop."""
    time.sleep(random.uniform(0.02, 0.06))
    return "blinked"


@waiter.task("charge")
def charge(ctx: TaskContext) -> None:
    """Has its effect, and then takes so long that its worker can be killed before the end is written."""
    with noted(ctx):
        note("effect", ctx, key=ctx.idempotency_key)
        if ctx.task.attempt == 1:
            time.sleep(60)


@waiter.task("charge-at-most-once", max_crashes=0)
def charge_at_most_once(ctx: TaskContext) -> None:
    charge(ctx)


@waiter.task("endless-coroutine")
async def endless_coroutine(ctx: TaskContext) -> None:
    """Goes on whenever it is cancelled; done at once in a later attempt, as the others of its kind."""
    with noted(ctx):
        while ctx.task.attempt == 1:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(600)


@waiter.task("endless-helper")
async def endless_helper(ctx: TaskContext) -> None:
    """Its thread is one that Python waits for before it ends."""
    with noted(ctx):
        if ctx.task.attempt == 1:
            await asyncio.to_thread(time.sleep, 600)


@waiter.task("endless-thread")
def endless_thread(ctx: TaskContext) -> None:
    with noted(ctx):
        if ctx.task.attempt == 1:
            time.sleep(600)


@waiter.task("endless-process", isolate=True)
def endless_process(ctx: TaskContext) -> None:
    """Ignores TERM, and so does what it starts."""
    with noted(ctx):
        if ctx.task.attempt == 1:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            subprocess.run(["sh", "-c", "trap '' TERM; sleep 600"])
