"""How long an answer of the database is waited for: a person behind a request waits for seconds, a duty for longer."""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator

# Without a limit a server that fell silent (a cable, a firewall, a frozen machine) is waited for until TCP gives up: 15
# minutes, or for ever behind a proxy. For a duty more than a lock wait, and well within a lease: a slow database is not
# given up for being slow.
ANSWER = 10.0
# How long a duty waits for a new connection; and the least that is worth beginning one (psycopg takes no less than 2 s).
CONNECT = 5.0
LEAST = 1.0
# Where we vanish from a server's sight in mid-transaction, it lets go of our locks after so many seconds; it would keep them
# for hours, and whoever repeats that enqueue, or rescues those tasks, would wait for them.
ORPHANED = 15
# A connection that was silent for so long at its first statement is not asked again: there is time left for a new one.
PING = 1.5

# When a request's time is over a ROLLBACK is still sent: without it the connection would be lost, and an error with a name.
LAST_WORD = 0.2

# By when a request wants its answer, by time.monotonic(). None: a duty asks.
DEADLINE: contextvars.ContextVar[float | None] = contextvars.ContextVar("DEADLINE", default=None)


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Whatever is asked in the block must be answered by then, all together."""
    before = DEADLINE.get()
    until = time.monotonic() + seconds
    token = DEADLINE.set(until if before is None else min(before, until))
    try:
        yield
    finally:
        DEADLINE.reset(token)


@contextlib.contextmanager
def allowing(seconds: float) -> Iterator[None]:
    """In the block a server, which answered just now, may take so long: it waits for a lock, or has much to do."""
    before = DEADLINE.get()
    if before is None:
        yield
        return
    token = DEADLINE.set(max(before, time.monotonic() + seconds))
    try:
        yield
    finally:
        DEADLINE.reset(token)


def hurried() -> bool:
    """Somebody behind a request asks."""
    return DEADLINE.get() is not None


def until(limit: float) -> float:
    """By when something that begins now and may take `limit` seconds has to be over."""
    now, deadline = time.monotonic(), DEADLINE.get()
    return now + limit if deadline is None else max(min(now + limit, deadline), now + LAST_WORD)


def left(limit: float) -> float:
    """How many seconds that is from now."""
    return until(limit) - time.monotonic()
