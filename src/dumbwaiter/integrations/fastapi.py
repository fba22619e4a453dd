"""Dumbwaiter inside a FastAPI (or Starlette) application: a worker for its lifespan, and the task routes.

app = FastAPI(lifespan=lifespan(waiter))
app.include_router(router(waiter, authorize=current_user_id))
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import FrameType
from typing import TYPE_CHECKING, Any

from dumbwaiter.app import Dumbwaiter
from dumbwaiter.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from fastapi import APIRouter, Request

    from dumbwaiter.worker.loop import Worker

    Authorize = Callable[[Request], str | Awaitable[str | None] | None]


def lifespan(
    waiter: Dumbwaiter,
    *,
    queues: Mapping[str, int] | None = None,
    capacity: Mapping[str, float] | None = None,
    worker: bool = True,
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """A lifespan that runs a worker inside the web application, from its start-up to its shutdown.

    `queues` says how many tasks of each queue run at once, `capacity` what named things there are (`{"chromium": 1}`).
    With `worker=False` nothing is started: the application only enqueues, and `dumbwaiter worker` runs elsewhere.

    The first TERM or INT stops new claims at once and the second ends what runs. The server itself waits for open
    requests before it lets the lifespan end, so give it a limit: `uvicorn --timeout-graceful-shutdown 10`.

        app = FastAPI(lifespan=lifespan(waiter))

    An application that has a lifespan of its own enters this one inside: `async with lifespan(waiter)(app): yield`.
    """

    @contextlib.asynccontextmanager
    async def span(app: Any) -> AsyncIterator[None]:
        try:
            if worker:
                async with working(waiter.worker(queues, capacity=capacity, in_app=True)):
                    yield
            else:
                yield
        finally:
            await asyncio.to_thread(waiter.close)

    return span


@contextlib.asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    """A worker that runs meanwhile. Every call that may block is made off the event loop, which the tasks share."""
    await asyncio.to_thread(worker.start)
    with signals_heard(worker):  # until the end: a second signal may come while we wait for what runs
        try:
            yield
        finally:
            await asyncio.to_thread(worker.stop)
            await asyncio.to_thread(worker.join)


@contextlib.contextmanager
def signals_heard(worker: Worker) -> Iterator[None]:
    """TERM and INT reach the worker first, then whoever handled them before.

    The server's own handlers only start its shutdown, and that waits for open requests before a lifespan hears of
    it: with a request of 30 s open a worker went on claiming for as long.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers; the server's shutdown still stops the worker
        return
    heard = 0
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard += 1
        streams_end(True)
        # On a thread of its own: this may have interrupted a holder of a lock that `stop` takes.
        threading.Thread(target=worker.stop, kwargs={"hurry": heard > 1}, name="dumbwaiter-stop").start()
        passed_on(before[signal.Signals(number)], number, frame)

    taken = [number for number, old in before.items() if old not in (signal.SIG_IGN, None)]
    for number in taken:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is hear:
                signal.signal(number, before[number])
        if heard:
            streams_end(False)  # a server that starts in this process hereafter has streams again


def streams_end(now: bool) -> None:
    """Let event streams end, those of the application's own routes too, for the server waits for them.

    sse_starlette looks for the server's handler among those of the signals, and finds ours there.
    """
    sse = sys.modules.get("sse_starlette.sse")  # whoever has not imported it has no stream
    if sse is not None and sse.AppStatus.enable_automatic_graceful_drain:
        sse.AppStatus.should_exit = now


def passed_on(old: Any, number: int, frame: FrameType | None) -> None:
    """The signal, given to whoever would have had it."""
    if callable(old):
        old(number, frame)
    elif old is signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def router(waiter: Dumbwaiter, *, authorize: Authorize | None = None, public: bool = False) -> APIRouter:
    """The task routes: enqueue (types with `http=True`), look, download, cancel, retry; uploads; signed links; and the button's script.

    `authorize(request)`, plain or async, gives the owner of the request and may raise HTTPException; tasks are made in
    that owner's name, and nobody else's exist for them. Without it there must be `public=True`, and then everybody
    reaches every task that has no owner.

    Raises ConfigurationError if neither is given, MissingExtra without the packages of `dumbwaiter[api]`.

        app.include_router(router(waiter, authorize=lambda request: request.state.user.id), prefix="/jobs")
    """
    if authorize is None and not public:
        raise ConfigurationError(
            "router(waiter) needs authorize=, a function that gives the owner of a request; "
            "or public=True, if everybody may see and cancel every task"
        )
    if authorize is not None and public:
        raise ConfigurationError("router(waiter) takes authorize= or public=True, not both")
    try:
        from fastapi import APIRouter

        from dumbwaiter.api.component import component_routes
        from dumbwaiter.api.routes import task_routes
        from dumbwaiter.api.shared import shared_routes
        from dumbwaiter.api.uploads import upload_routes
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name), "api") from None
    whole, owner = APIRouter(), owner_of(authorize)
    whole.include_router(task_routes(waiter, owner))
    whole.include_router(upload_routes(waiter, owner))
    whole.include_router(shared_routes(waiter))
    whole.include_router(component_routes())
    return whole


def owner_of(authorize: Authorize | None) -> Callable[[Request], Awaitable[str | None]]:
    """A dependency that names the owner of a request, whether `authorize` is a coroutine or a plain function."""
    from fastapi import Request

    async def owner(request: Request) -> str | None:
        if authorize is None:
            return None
        call: Callable[[Request], Any] = authorize
        named = call(request) if inspect.iscoroutinefunction(call) else await asyncio.to_thread(call, request)
        return checked_owner(await named if inspect.isawaitable(named) else named)

    # FastAPI reads annotations as they are, and finds no names that are local to a function.
    owner.__annotations__["request"] = Request
    return owner


def checked_owner(named: object) -> str | None:
    """The owner, if it is text. Raises ConfigurationError: a number would never equal what the table gives back."""
    if named is None or isinstance(named, str):
        return named
    raise ConfigurationError(
        f"authorize= gave {named!r}, a {type(named).__name__}; it must give text, for example str(user.id)"
    )
