"""The hand that a measurement has inside the environment of a queue: `python -m bench.hand QUEUE WORD`.

The words: `prepare` makes the schema; `one`, `many` and `pickup` enqueue, and print what they measured as a line of JSON;
`work` runs a worker until it is told to stop. Standard library only, but for the queue's own module.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

from bench.records import VARIABLE, Records

CHUNK = 1_000
PATIENCE = 30.0
# Numbers for tasks that only warm things up: no measurement asks for these.
WARM_UP = 10**12
LOOK = 0.005
PR_SET_PDEATHSIG = 1


class Producer(Protocol):
    """Enqueues on a connection that stays open, by the queue's own documented way."""

    async def one(self, task: str, number: int) -> None: ...

    async def many(self, task: str, numbers: Sequence[int]) -> None: ...


class Queue(Protocol):
    """What a module in `bench/queues` offers as `Queue(address)`. The tasks are `noop` and `nap` of bench/records.py."""

    def prepare(self) -> None: ...

    def producing(self) -> contextlib.AbstractAsyncContextManager[Producer]: ...

    def work(self, task: str) -> None: ...

    def working(self) -> contextlib.AbstractContextManager[None]:
        """A worker in the producer's own process, where the queue can have that."""
        ...


async def one(producer: Producer, task: str, number: int, seconds: float) -> dict[str, Any]:
    """Enqueue one after the other, so many or so long; the first, which opens the connection, is not timed."""
    await producer.one(task, 0)
    done = 1
    began = time.perf_counter()
    while done < number and (done % 64 or time.perf_counter() - began < seconds):
        await producer.one(task, done)
        done += 1
    return {"number": done, "per_s": (done - 1) / (time.perf_counter() - began)}


async def many(producer: Producer, task: str, first: int, number: int) -> dict[str, Any]:
    """Enqueue by a thousand a call. What opens the connection, a call with one task, is not timed."""
    await producer.many(task, [first])
    began = time.perf_counter()
    for start in range(first + 1, first + number, CHUNK):
        await producer.many(task, range(start, min(start + CHUNK, first + number)))
    return {"number": number, "per_s": (number - 1) / max(time.perf_counter() - began, 1e-9)}


async def pickup(producer: Producer, number: int, gap: float) -> dict[str, Any]:
    """Give an idle worker one task at a time, and say when each call began, in ns of this machine's clock."""
    records = Records(Path(os.environ[VARIABLE]))
    for warm_up in range(5):
        before = records.count()
        await producer.one("noop", WARM_UP + warm_up)
        await seen(records, before)
        await asyncio.sleep(gap)
    asked = []
    for i in range(number):
        asked.append(time.time_ns())
        await producer.one("noop", i)
        await asyncio.sleep(max(0.0, gap - (time.time_ns() - asked[-1]) / 1e9))
    with contextlib.suppress(TimeoutError):
        await seen(records, number + 4)
    return {"asked": asked}


async def seen(records: Records, more_than: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while records.count() <= more_than:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the worker has not started a task for {PATIENCE:.0f} s")
        await asyncio.sleep(LOOK)


async def told(queue: Queue, word: str, given: dict[str, Any]) -> dict[str, Any]:
    words: dict[str, Callable[..., Coroutine[Any, Any, dict[str, Any]]]] = {
        "one": one,
        "many": many,
        "pickup": pickup,
    }
    inside = queue.working() if given.pop("inside", False) else contextlib.nullcontext()
    with inside:
        async with queue.producing() as producer:
            return await words[word](producer, **given)


def main(name: str, word: str, given: str = "{}") -> None:
    queue: Queue = importlib.import_module(f"bench.queues.{name}").Queue(os.environ["BENCH_ADDRESS"])
    arguments = json.loads(given)
    if word == "work":
        die_with_parent()
        queue.work(**arguments)
    elif word == "prepare":
        queue.prepare()
        print("{}")
    else:
        print(json.dumps(run(told(queue, word, arguments))), flush=True)


def die_with_parent() -> None:
    """A worker must not outlive a run that was killed; what it becomes by exec does not either. Linux knows how."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """On uvloop where the queue's environment has it, as its users would."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
