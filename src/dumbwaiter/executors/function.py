"""Task functions that run inside the worker process: coroutines on the worker's loop, plain functions on threads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from dumbwaiter.errors import TaskCancelled
from dumbwaiter.executors.base import Ended, Running
from dumbwaiter.executors.context import TaskContext
from dumbwaiter.executors.tree import CannotStartThread, start_thread

log = logging.getLogger("dumbwaiter")


@contextlib.contextmanager
def scoped(running: Running, context: TaskContext) -> Iterator[None]:
    """The application's scope, entered for this attempt alone."""
    scope = running.entry.scope
    if scope is None:
        yield
        return
    raised: BaseException | None = None
    with scope(context) as value:
        context._scope = value
        try:
            yield
        except BaseException as error:
            raised = error
            raise
    if raised is not None:
        raise raised  # the scope swallowed it; the attempt has failed all the same


@contextlib.asynccontextmanager
async def ascoped(running: Running, context: TaskContext) -> AsyncIterator[None]:
    """The application's scope for a coroutine: an async or a plain context manager."""
    scope = running.entry.scope
    if scope is None:
        yield
        return
    manager: AbstractAsyncContextManager[Any] | AbstractContextManager[Any] = scope(context)
    raised: BaseException | None = None
    async with contextlib.AsyncExitStack() as stack:
        if isinstance(manager, AbstractAsyncContextManager):
            context._scope = await stack.enter_async_context(manager)
        else:
            context._scope = stack.enter_context(manager)
        try:
            yield
        except BaseException as error:
            raised = error
            raise
    if raised is not None:
        raise raised  # see scoped()


def call_arguments(running: Running, context: TaskContext) -> tuple[tuple[Any, ...], dict[str, Any]]:
    entry = running.entry
    return ((context,) if entry.signature.takes_context else ()), entry.arguments(running.task)


def cancelled(running: Running) -> Exception:
    """Why a coroutine was cancelled. If nobody asked for that, a library did, and the attempt has failed like another."""
    reason = running.stopped()
    if reason is None:
        return RuntimeError(
            "the coroutine was cancelled from within, and nobody had asked this task to stop; "
            "raise TaskCancelled to end a task as cancelled"
        )
    return TaskCancelled(f"the coroutine was cancelled: {reason}")


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop of uvloop's, if that is installed, for it is faster; else of asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def begun(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
    """A task on the loop that runs at this moment. Where Python can, it begins at once: many have nothing to wait for."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)


def end_unbegun(running: Running, _task: asyncio.Task[None]) -> None:
    if not running.ended:
        running.complete(Ended(error=cancelled(running)))


class ThreadExecutor:
    """Plain functions, each on a thread of its own for the time it runs.

    A thread cannot be ended from outside: a function that does not look at `ctx.cancelled` is abandoned after the grace
    time. Its task ends all the same, and whatever the thread still tries to write is fenced.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def start(self, running: Running) -> None:
        # an abandoned one must not keep a stopped worker alive
        start_thread(self._run, running, name=f"dumbwaiter-task-{next(self._numbers)}")

    def _run(self, running: Running) -> None:
        try:
            context = running.context()
            args, kwargs = call_arguments(running, context)
            with scoped(running, context):
                result = running.entry.function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task is its failure, not the worker's
            running.complete(Ended(error=error))
        else:
            running.complete(Ended(result))

    def ask(self, running: Running) -> None:
        """Nothing to do: the function sees `ctx.cancelled`."""

    def kill(self, running: Running) -> bool:
        return running.ended

    def close(self) -> None:
        """Threads are daemons: nothing to let go of."""


class LoopExecutor:
    """Coroutines, on an event loop of the worker's own that runs on one thread.

    A coroutine that blocks its loop cannot be ended, nor can anything else on that loop go on. So when a stop has not been
    heard on the loop for the whole grace time, the coroutines after it, and those that wait to begin, get another loop.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: dict[asyncio.AbstractEventLoop, threading.Thread] = {}
        # in the order in which they begin; and whether the loop has been told of them
        self._waiting: dict[Running, None] = {}
        self._told = False
        self._heard: weakref.WeakSet[Running] = weakref.WeakSet()
        self._lock = threading.Lock()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = new_loop()
            try:
                self._threads[loop] = start_thread(self._serve, loop, name="dumbwaiter-loop")
            except CannotStartThread:
                loop.close()
                raise
            self._loop, self._told = loop, False
        return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def start(self, running: Running) -> None:
        with self._lock:
            loop = self._running_loop()
            self._waiting[running] = None
            # one call for all that come before it is answered: each writes to a pipe
            told, self._told = self._told, True
        if told:
            return
        # from the loop itself it need not be woken, which is a system call
        here = asyncio._get_running_loop() is loop
        (loop.call_soon if here else loop.call_soon_threadsafe)(self._begin)

    def _begin(self) -> None:
        """On the loop: let what waits begin."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop is not self._loop:
                return  # it was blocked, and they were given to another one
            waiting, self._waiting, self._told = self._waiting, {}, False
        for running in waiting:
            running.handle = begun(self._run(running), loop)
            if running.handle.done():
                continue
            # a task that is cancelled before its first step never gets there, and says nothing of its end
            running.handle.add_done_callback(functools.partial(end_unbegun, running))
            if running.stop_reason is not None:
                running.handle.cancel()

    async def _run(self, running: Running) -> None:
        entry = running.entry
        try:
            if entry.scope is None and not entry.signature.takes_context:
                result = await entry.function(**entry.arguments(running.task))
            else:
                context = running.context()
                args, kwargs = call_arguments(running, context)
                async with ascoped(running, context):
                    result = await entry.function(*args, **kwargs)
        except asyncio.CancelledError:
            running.complete(Ended(error=cancelled(running)))
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task is its failure, not the worker's
            running.complete(Ended(error=error))
        else:
            running.complete(Ended(result))

    def ask(self, running: Running) -> None:
        with self._lock:
            unbegun = running in self._waiting
            self._waiting.pop(running, None)
        if unbegun:
            running.complete(Ended(error=cancelled(running)))
        elif running.handle is not None:
            # a loop that was closed has nothing left to cancel
            with contextlib.suppress(RuntimeError):
                running.handle.get_loop().call_soon_threadsafe(self._cancel, running)

    def _cancel(self, running: Running) -> None:
        self._heard.add(running)
        running.handle.cancel()

    def kill(self, running: Running) -> bool:
        """A coroutine that swallows its cancellation, or blocks the loop, cannot be ended: it is abandoned."""
        if not running.ended and running.handle is not None and running not in self._heard:
            self._leave(running.handle.get_loop())
        return running.ended

    def _leave(self, blocked: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._loop is not blocked:
                return
            self._loop = None
            with contextlib.suppress(CannotStartThread):
                loop = self._running_loop()
                self._told = True
                loop.call_soon_threadsafe(self._begin)
        log.warning("a coroutine blocks the event loop; what comes after it runs on another one")

    def close(self) -> None:
        with self._lock:
            self._loop, threads = None, dict(self._threads)
            self._threads.clear()
        for loop in threads:
            loop.call_soon_threadsafe(loop.stop)
        until = time.monotonic() + 1
        for thread in threads.values():
            # one that is blocked is left behind
            thread.join(max(until - time.monotonic(), 0))
