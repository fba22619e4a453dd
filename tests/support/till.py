"""An application whose tasks take money with `ctx.transaction()`, and may be killed around its commit."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from dumbwaiter import Dumbwaiter, Retry, TaskContext

waiter = Dumbwaiter()
TAKINGS = "CREATE TABLE takings (task VARCHAR(36), attempt INTEGER)"


def take(connection: sa.Connection, ctx: TaskContext) -> None:
    statement = sa.text("INSERT INTO takings (task, attempt) VALUES (:task, :attempt)")
    connection.execute(statement, {"task": ctx.task.id, "attempt": ctx.task.attempt})


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@waiter.task("pay", retry=Retry(max_retries=0))
def pay(ctx: TaskContext, dies: str = "") -> None:
    """The first attempt dies in the block, when everything is written but the commit, or after it."""
    first = ctx.task.attempt == 1
    (ctx.workdir / "receipt.txt").write_text(f"attempt {ctx.task.attempt}", encoding="utf-8")
    with ctx.transaction() as connection:
        take(connection, ctx)
        ctx.publish("receipt.txt")
        ctx.result = {"attempt": ctx.task.attempt}
        if first and dies == "in the block":
            die()
        if first and dies == "before the commit":
            sa.event.listen(connection.engine, "commit", die)
    if first and dies == "after the commit":
        die()


@waiter.task("pay-later")
async def pay_later(ctx: TaskContext) -> str:
    await ctx.atransaction(take, ctx)
    return "this is lost"


@waiter.task("pay-alone", isolate=True)
def pay_alone(ctx: TaskContext) -> None:
    with ctx.transaction() as connection:
        take(connection, ctx)


@waiter.task("pay-and-fail", retry=Retry(max_retries=1, base=timedelta(milliseconds=50)))
def pay_and_fail(ctx: TaskContext, where: str) -> None:
    with ctx.transaction() as connection:
        take(connection, ctx)
        ctx.result = "paid"
        if where == "inside":
            raise ConnectionError("the bank is away")
    raise ConnectionError("the printer is away")


@waiter.task("pay-something-odd")
def pay_something_odd(ctx: TaskContext) -> None:
    with ctx.transaction() as connection:
        take(connection, ctx)
        ctx.result = {"value": float("nan")}


@waiter.task("pay-twice", retry=Retry(max_retries=0))
def pay_twice(ctx: TaskContext) -> None:
    for _ in range(2):
        with ctx.transaction() as connection:
            take(connection, ctx)
