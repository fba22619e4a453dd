"""Going through items and telling how far: what `ctx.track` is made of."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dumbwaiter.executors.context import TaskContext

T = TypeVar("T")


def fraction_given(fraction: Any) -> float:
    """A fraction as a number. Raises TypeError for a text, and for what is no number at all."""
    if isinstance(fraction, str | bytes):
        raise TypeError(
            f"ctx.progress({fraction!r}): give a number from 0 to 1; words go into step= or message="
        )
    try:
        return float(fraction)
    except (TypeError, ValueError):
        raise TypeError(
            f"ctx.progress({fraction!r}): a {type(fraction).__name__} is no number from 0 to 1"
        ) from None


def counted(items: object, total: Any, start: Any) -> int:
    """How many items there are in all. Raises TypeError if that is not known, ValueError if it cannot be."""
    if total is None:
        if not isinstance(items, Sized):
            raise TypeError(
                f"ctx.track: a {type(items).__name__} does not tell how many items it has; say so: total=…"
            )
        total = len(items) + start
    for name, number in (("total", total), ("start", start)):
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"ctx.track: {name}={number!r}: give a whole number")
        if number < 0:
            raise ValueError(f"ctx.track: {name}={number} is less than nothing")
    return int(total)


def tracked(ctx: TaskContext, items: Iterable[T], total: int, start: int) -> Iterator[T]:
    """Report before each item what is done by then, and at the end that all is."""
    for done, item in enumerate(items, start):
        ctx.check()
        ctx.progress(done / max(total, 1))
        yield item
    ctx.progress(1.0)


async def atracked(ctx: TaskContext, items: AsyncIterable[T], total: int, start: int) -> AsyncIterator[T]:
    """The same of what comes asynchronously."""
    done = start
    async for item in items:
        ctx.check()
        ctx.progress(done / max(total, 1))
        done += 1
        yield item
    ctx.progress(1.0)
