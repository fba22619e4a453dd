"""Task functions that run inside the worker process: coroutines on the worker's loop, plain functions on threads."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Iterator
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
    signature = running.entry.signature
    return ((context,) if signature.takes_context else ()), signature.arguments(running.task.payload)


def cancelled(running: Running) -> Exception:
    """Why a coroutine was cancelled. If nobody asked for that, a library did, and the attempt has failed like another."""
    reason = running.stopped()
    if reason is None:
        return RuntimeError(
            "the coroutine was cancelled from within, and nobody had asked this task to stop; "
            "raise TaskCancelled to end a task as cancelled"
        )
    return TaskCancelled(f"the coroutine was cancelled: {reason}")


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
    """Coroutines, on an event loop of the worker's own that runs on one thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                try:
                    self._thread = start_thread(self._serve, loop, name="dumbwaiter-loop")
                except CannotStartThread:
                    loop.close()
                    raise
                self._loop = loop
            return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def start(self, running: Running) -> None:
        self._running_loop().call_soon_threadsafe(self._begin, running)

    def _begin(self, running: Running) -> None:
        loop = asyncio.get_running_loop()
        running.handle = loop.create_task(self._run(running))
        # a task that is cancelled before its first step never gets there, and says nothing of its end
        running.handle.add_done_callback(lambda _: running.complete(Ended(error=cancelled(running))))
        if running.stop_reason is not None:
            running.handle.cancel()

    async def _run(self, running: Running) -> None:
        try:
            context = running.context()
            args, kwargs = call_arguments(running, context)
            async with ascoped(running, context):
                result = await running.entry.function(*args, **kwargs)
        except asyncio.CancelledError:
            running.complete(Ended(error=cancelled(running)))
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task is its failure, not the worker's
            running.complete(Ended(error=error))
        else:
            running.complete(Ended(result))

    def ask(self, running: Running) -> None:
        with self._lock:
            loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._cancel, running)

    @staticmethod
    def _cancel(running: Running) -> None:
        if running.handle is not None:
            running.handle.cancel()

    def kill(self, running: Running) -> bool:
        """A coroutine that swallows its cancellation, or blocks the loop, cannot be ended: it is abandoned."""
        return running.ended

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            if self._thread is not None:
                self._thread.join(1)
