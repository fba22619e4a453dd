"""An application whose tasks leave dirt behind or cannot be got rid of: what must not harm the worker that runs them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from dumbwaiter import Dumbwaiter, Retry, TaskContext
from tests.support import kitchen
from tests.support.kitchen import noted

waiter = Dumbwaiter()
ONCE = Retry(max_retries=0)
SHORT = timedelta(seconds=1)
LONG = 40.0

# A middle process that is killed leaves a grandchild to whoever takes orphans in; that one ends a moment later.
MIDDLE = "sleep 0.1 & exec sleep 60"


def kill_the_middle() -> None:
    with subprocess.Popen(["sh", "-c", MIDDLE]) as middle:
        time.sleep(0.05)
        middle.kill()


@waiter.task("orphan-thread")
def orphan_thread(ctx: TaskContext) -> None:
    kill_the_middle()


@waiter.task("orphan-process", isolate=True)
def orphan_process(ctx: TaskContext) -> None:
    kill_the_middle()


@waiter.task("orphan-command")
def orphan_command(ctx: TaskContext) -> None:
    ctx.run(["sh", "-c", f"sh -c '{MIDDLE}' & sleep 0.05; kill -9 $!"])


def sleep() -> None:
    time.sleep(LONG)


def receive() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(LONG)
        ours.recv(1)


def spin() -> None:
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        pass


def acquire() -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire(timeout=LONG)


def run_another() -> None:
    subprocess.run(["sleep", str(LONG)], check=True)


def match() -> None:
    """C code that never lets go of the interpreter."""
    re.match("(a+)+$", "a" * 40 + "b")


BLOCKING: dict[str, Callable[[], None]] = {
    "sleep": sleep,
    "receive": receive,
    "spin": spin,
    "acquire": acquire,
    "run-another": run_another,
    "match": match,
}


@waiter.task("block-thread", timeout=SHORT, retry=ONCE)
def block_thread(ctx: TaskContext, how: str) -> None:
    with noted(ctx):
        BLOCKING[how]()


@waiter.task("block-process", timeout=SHORT, retry=ONCE, isolate=True)
def block_process(ctx: TaskContext, how: str) -> None:
    with noted(ctx):
        BLOCKING[how]()


@waiter.task("block-coroutine", timeout=SHORT, retry=ONCE)
async def block_coroutine(ctx: TaskContext, how: str) -> None:
    with noted(ctx):
        BLOCKING[how]()


def swallow(ctx: TaskContext) -> None:
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        try:
            time.sleep(0.02)
            ctx.check()
        except Exception:  # noqa: BLE001
            continue


@waiter.task("swallow-thread", timeout=SHORT, retry=ONCE)
def swallow_thread(ctx: TaskContext) -> None:
    with noted(ctx):
        swallow(ctx)


@waiter.task("swallow-process", timeout=SHORT, retry=ONCE, isolate=True)
def swallow_process(ctx: TaskContext) -> None:
    with noted(ctx):
        swallow(ctx)


@waiter.task("swallow-coroutine", timeout=SHORT, retry=ONCE)
async def swallow_coroutine(ctx: TaskContext) -> None:
    until = time.monotonic() + LONG
    with noted(ctx):
        while time.monotonic() < until:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.02)


@waiter.task("shield-coroutine", timeout=SHORT, retry=ONCE)
async def shield_coroutine(ctx: TaskContext) -> None:
    with noted(ctx):
        await asyncio.shield(asyncio.shield(asyncio.sleep(LONG)))


@waiter.task("shield-process", timeout=SHORT, retry=ONCE, isolate=True)
async def shield_process(ctx: TaskContext) -> None:
    with noted(ctx):
        await asyncio.shield(asyncio.shield(asyncio.sleep(LONG)))


# Children as encoders can be: silent for ever, waiting for a pipe that nobody writes to, stopped, deaf, or busy writing.
CHILDREN = {
    "silent": "exec sleep 600",
    "pipe": "mkfifo pipe; exec cat pipe",
    "stopped": "kill -STOP $$; exec sleep 600",
    "deaf": "trap '' TERM; while :; do sleep 1; done",
    "busy": "while :; do echo more >> half.mp4; echo more >> $1.busy; sleep 0.1; done",
}


def stuck(how: str, told: str) -> list[str]:
    return ["sh", "-c", f"echo $$ > $1; echo half > half.mp4; {CHILDREN[how]}", "sh", told]


@waiter.task("stuck-thread", retry=ONCE)
def stuck_thread(ctx: TaskContext, how: str, told: str) -> None:
    ctx.run(stuck(how, told))


@waiter.task("stuck-process", retry=ONCE, isolate=True)
def stuck_process(ctx: TaskContext, how: str, told: str) -> None:
    subprocess.run(stuck(how, told), cwd=ctx.workdir, check=True)


QUICKLY = Retry(max_retries=20, base=timedelta(milliseconds=200), cap=timedelta(milliseconds=500))


@waiter.task("store-thread", retry=QUICKLY)
def store_thread(ctx: TaskContext, megabytes: float) -> None:
    store(ctx, megabytes)


@waiter.task("store-process", retry=QUICKLY, isolate=True)
def store_process(ctx: TaskContext, megabytes: float) -> None:
    store(ctx, megabytes)


def store(ctx: TaskContext, megabytes: float) -> None:
    with noted(ctx):
        (ctx.workdir / "plates.bin").write_bytes(b"x" * int(megabytes * 1024 * 1024))
        ctx.publish("plates.bin")


# clean ones beside them
for name in ("nap", "doze"):
    waiter.registry.add(kitchen.waiter.registry[name])
