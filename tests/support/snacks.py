"""An application whose tasks are short and need nothing but a slot: what a worker claims ahead. It writes the outside ledger."""

from __future__ import annotations

import asyncio
import os
import signal

from dumbwaiter import Dumbwaiter, TaskContext
from tests.support.kitchen import noted

waiter = Dumbwaiter()
APP = "tests.support.snacks:waiter"


@waiter.task("bite")
async def bite(ctx: TaskContext) -> None:
    with noted(ctx):
        pass


@waiter.task("meal")
async def meal(ctx: TaskContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return "full"


@waiter.task("poison")
async def poison(ctx: TaskContext) -> None:
    """Takes its worker along."""
    with noted(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@waiter.task("once", max_crashes=0)
async def once(ctx: TaskContext, seconds: float) -> None:
    with noted(ctx):
        await asyncio.sleep(seconds)
