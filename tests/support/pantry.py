"""Tasks that publish files, for tests of how long those stay and what becomes of them."""

from __future__ import annotations

from datetime import timedelta

from dumbwaiter import Dumbwaiter, Fail, Retry, TaskContext

waiter = Dumbwaiter()
SOON = Retry(max_retries=1, base=timedelta(milliseconds=50), jitter=0)


def publish(ctx: TaskContext, name: str, seconds: float | None = -1.0) -> None:
    """Publish a small file; -1 seconds says nothing of how long it is to be kept, None says for ever."""
    path = ctx.workdir / "dish"
    path.write_text(f"{name} of attempt {ctx.task.attempt}")
    if seconds == -1.0:
        ctx.publish(path, filename=name)
    else:
        ctx.publish(path, filename=name, expires=None if seconds is None else timedelta(seconds=seconds))


@waiter.task("jam", retry=SOON)
def jam(ctx: TaskContext, seconds: float | None = -1.0, fail: bool = False) -> None:
    publish(ctx, "jam.txt", seconds)
    if fail:
        raise Fail("burnt")


@waiter.task("sealed", isolate=True, expires=timedelta(days=3))
def sealed(ctx: TaskContext, seconds: float | None = -1.0) -> None:
    publish(ctx, "sealed.txt", seconds)


waiter.command("label", ["sh", "-c", "echo {word} > label.txt"], publishes=["label.txt"], expires=None)


@waiter.task("barrel")
def barrel(ctx: TaskContext, size: int = 0) -> None:
    """The first attempt never ends: it stores a file of that size, or, without one, has stored two and waits."""
    first = ctx.task.attempt == 1
    if first and size:
        large = ctx.workdir / "large"
        with large.open("wb") as file:
            file.truncate(size)
        ctx.publish(large, filename="barrel.bin")
    for name in ("barrel.bin", "桶.txt"):
        path = ctx.workdir / "small"
        path.write_bytes(b"whole" * 1_000)
        ctx.publish(path, filename=name)
    if first:
        ctx.sleep(600)
