"""Coroutines on the worker's event loop, on each loop that there may be."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import uvloop

from dumbwaiter.errors import TaskCancelled
from dumbwaiter.executors import function
from dumbwaiter.executors.context import Stop
from dumbwaiter.executors.function import LoopExecutor
from tests.executors.conftest import Attempt, until

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
begun: list[str] = []
hold = threading.Event()


async def give(name: str) -> str:
    begun.append(name)
    return name


async def give_after_a_while(name: str) -> str:
    await asyncio.sleep(0.01)
    return name


async def raise_at_once() -> None:
    raise LookupError("at once")


async def say_through_a_process(word: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import sys; print(sys.argv[1])", word, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return f"{output.decode().strip()} {process.returncode}"


async def add_on_a_thread(number: int) -> int:
    return await asyncio.to_thread(lambda: number + 1)


async def give_up_after(seconds: float) -> str:
    try:
        async with asyncio.timeout(seconds):
            await asyncio.sleep(60)
    except TimeoutError:
        return "gave up"
    return "never"


async def name_of_the_task() -> str:
    task = asyncio.current_task()
    assert task is not None
    return type(task).__name__


async def wait_for_ever(name: str) -> None:
    begun.append(name)
    await asyncio.sleep(3600)


async def block_the_loop() -> None:
    begun.append("blocker")
    hold.wait(20)


COLOUR = contextvars.ContextVar("COLOUR", default="none")


async def colour(name: str) -> str:
    before = COLOUR.get()
    COLOUR.set(name)
    await asyncio.sleep(0)
    return before


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopExecutor]:
    monkeypatch.setattr(function, "new_loop", LOOPS[request.param])
    begun.clear()
    hold.clear()
    executor = LoopExecutor()
    yield executor
    hold.set()
    executor.close()


@pytest.fixture
def go(loop: LoopExecutor, attempt: Callable[..., Attempt]) -> Callable[..., Attempt]:
    def start(work: object, **arguments: object) -> Attempt:
        made = attempt(work, arguments)
        loop.start(made.running)
        return made

    return start


def test_many_start_at_once_and_each_gives_its_own_result(go: Callable[..., Attempt]) -> None:
    at_once = [go(give, name=str(number)) for number in range(200)]
    later = [go(give_after_a_while, name=str(number)) for number in range(200)]

    assert [one.result for one in at_once] == [str(number) for number in range(200)]
    assert [one.result for one in later] == [str(number) for number in range(200)]
    assert {one.times for one in (*at_once, *later)} == {1}
    assert begun == [str(number) for number in range(200)], "they begin in their order"


def test_what_it_raises_is_its_end(go: Callable[..., Attempt]) -> None:
    assert isinstance(go(raise_at_once).error, LookupError)


def test_the_tools_of_asyncio_work_in_it(go: Callable[..., Attempt]) -> None:
    assert go(say_through_a_process, word="soup").result == "soup 0"
    assert go(add_on_a_thread, number=1).result == 2
    assert go(give_up_after, seconds=0.01).result == "gave up"
    assert go(name_of_the_task).result == "Task"


def test_what_one_sets_for_itself_no_other_sees(go: Callable[..., Attempt]) -> None:
    assert [go(colour, name=name).result for name in ("red", "green", "blue")] == ["none"] * 3


def test_one_that_waits_is_cancelled_when_it_is_asked_to_end(
    loop: LoopExecutor, go: Callable[..., Attempt]
) -> None:
    one = go(wait_for_ever, name="one")
    until(lambda: begun == ["one"])
    one.running.ask_stop(Stop.CANCEL)
    loop.ask(one.running)

    assert isinstance(one.error, TaskCancelled)
    assert one.times == 1


def test_one_that_is_asked_to_end_before_it_began_never_begins(
    loop: LoopExecutor, go: Callable[..., Attempt]
) -> None:
    blocker = go(block_the_loop)
    until(lambda: begun == ["blocker"])
    waiting = go(give, name="waiting")
    waiting.running.ask_stop(Stop.CANCEL)
    loop.ask(waiting.running)

    assert isinstance(waiting.error, TaskCancelled)
    hold.set()
    assert blocker.result is None
    assert go(give, name="next").result == "next"
    assert begun == ["blocker", "next"]


def test_those_behind_one_that_blocks_the_loop_get_another_loop_once_it_is_given_up(
    loop: LoopExecutor, go: Callable[..., Attempt]
) -> None:
    blocker = go(block_the_loop)
    until(lambda: begun == ["blocker"])
    behind = [go(give, name=str(number)) for number in range(3)]
    blocker.running.ask_stop(Stop.TIMEOUT)
    loop.ask(blocker.running)
    assert loop.kill(blocker.running) is False

    assert [one.result for one in behind] == ["0", "1", "2"]
    assert go(give, name="next").result == "next"
    hold.set()
    assert blocker.wait() is not None
    assert {one.times for one in (blocker, *behind)} == {1}


def test_a_thousand_that_end_at_once_leave_nothing_on_the_loop(
    loop: LoopExecutor, go: Callable[..., Attempt]
) -> None:
    for one in [go(give, name="x") for _ in range(1_000)]:
        one.wait()
    asyncio_loop = loop._loop
    assert asyncio_loop is not None

    def all_tasks() -> int:
        with contextlib.suppress(RuntimeError):  # the set changed while it was looked at
            return len(asyncio.all_tasks(asyncio_loop))
        return -1

    until(lambda: all_tasks() == 0)
