"""Receiving a body of any size: the event loop reads it, a thread of its own stores it, and neither runs ahead of the other."""

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from dumbwaiter.api.refusals import Refusal

T = TypeVar("T")

# To cross from loop to thread costs some 50 µs, and a server gives 64 KiB at a time.
AT_ONCE = 256 * 1024
# A client that says nothing for so long has gone; a slow one says something.
SILENCE = 60.0


async def received(request: Request, work: Callable[[Iterator[bytes]], T]) -> T:
    """What `work` makes of the pieces of the body.

    It runs on a thread of its own: on those of the event loop's pool a few slow clients would hold up everybody. Whatever
    ends the request ends the pieces with an error, so that `work` leaves nothing half done; that is waited for.
    """
    inflow = Inflow(request)
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    threading.Thread(target=inflow.serve, args=(work, done), name="dumbwaiter-upload", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        inflow.close()
        await asyncio.gather(done, return_exceptions=True)
        raise


async def next_piece(stream: AsyncIterator[bytes]) -> bytes | None:
    """What comes next of a body; None after its end. Refuses with 408 a client that falls silent in the midst of it."""
    try:
        async with asyncio.timeout(SILENCE):
            return await anext(stream, None)
    except TimeoutError:
        raise Refusal(
            408, "silence", f"Nothing came for {SILENCE:g} s. Send it again.", headers={"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise broken_off() from None


class Inflow:
    """The body of one request, as a thread beside the event loop reads it."""

    def __init__(self, request: Request) -> None:
        self._loop = asyncio.get_running_loop()
        self._stream = request.stream()
        self._asked: asyncio.Task[None] | None = None
        self._closed = False

    # on the thread

    def serve(self, work: Callable[[Iterator[bytes]], T], done: "asyncio.Future[T]") -> None:
        try:
            result = work(self._pieces())
        except BaseException as error:  # noqa: BLE001 - the request has to hear of it, whatever it is
            self._loop.call_soon_threadsafe(done.set_exception, error)
        else:
            self._loop.call_soon_threadsafe(done.set_result, result)

    def _pieces(self) -> Iterator[bytes]:
        while piece := self._next():
            yield piece

    def _next(self) -> bytes:
        try:
            return asyncio.run_coroutine_threadsafe(self._gather(), self._loop).result()
        except concurrent.futures.CancelledError:
            raise broken_off() from None

    # on the loop

    async def _gather(self) -> bytes:
        if self._closed:
            raise broken_off()
        self._asked = asyncio.current_task()
        gathered = bytearray()
        try:
            while len(gathered) < AT_ONCE:
                piece = await next_piece(self._stream)
                if piece is None:
                    break
                gathered += piece
        finally:
            self._asked = None
        return bytes(gathered)

    def close(self) -> None:
        """Nobody waits for the result any more."""
        self._closed = True
        if self._asked is not None:
            self._asked.cancel()


def broken_off() -> Refusal:
    """What hardly anybody hears: the client has gone, or the server stops."""
    return Refusal(400, "broken-off", "The body did not come to its end.", headers={"Connection": "close"})
