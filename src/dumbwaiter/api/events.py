"""Tasks as server-sent events (WHATWG HTML, section 9.2): how they stand, each change, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from fastapi import Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from dumbwaiter.api.feed import Feed
from dumbwaiter.api.looks import Look
from dumbwaiter.api.refusals import Refusal

MOST_IDS = 250
# Seconds between two comments that keep proxies from closing a quiet stream, and after which a client is given up that
# takes nothing.
HEARTBEAT = 15
GIVE_UP = 30.0
# Seconds that a stream has to end by itself when the server is stopped.
CLOSE = 1.0
# Milliseconds after which a browser connects again: not all at once, if a server was restarted.
RECONNECT = (1_000, 3_000)

STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`task` at the beginning and at each change, and `end`, with the task as data; `gone` with its id",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    204: {"description": "`Last-Event-ID` is of the end: there is nothing to come"},
}


@dataclass(slots=True)
class Told:
    """What a client has been told, as one number: the id of the last event. A client that comes back with it has missed nothing."""

    marks: dict[str, str] = field(default_factory=dict)
    sum: int = 0

    def tell(self, task_id: str, mark: str) -> str:
        """The id of the event that tells this."""
        if task_id in self.marks:
            self.sum ^= number(task_id, self.marks[task_id])
        self.marks[task_id] = mark
        self.sum ^= number(task_id, mark)
        return self.id

    @property
    def id(self) -> str:
        return f"{self.sum:016x}"


def number(task_id: str, mark: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{task_id} {mark}".encode(), digest_size=8).digest())


def read_ids(text: str) -> list[str]:
    """The ids of `a,b,c`, each once. Raises Refusal."""
    ids = list(dict.fromkeys(part for part in text.split(",") if part))
    if not ids or len(ids) > MOST_IDS:
        raise Refusal(422, "invalid-request", f"ids: give 1 to {MOST_IDS} ids of tasks, separated by commas.")
    return ids


def answer(feed: Feed, looks: Mapping[str, Look | None], *, base: str, last_event_id: str | None) -> Response:
    """A stream of these tasks' events, which ends when all of them have."""
    told = Told()
    for task_id, look in looks.items():
        told.tell(task_id, "gone" if look is None else look.mark)
    known = last_event_id == told.id
    if known and all(look is None or look.final for look in looks.values()):
        return Response(status_code=204)  # the one answer after which a browser does not connect again
    closing = anyio.Event()
    return EventSourceResponse(
        stream(feed, looks, base, told if known else None, closing),
        headers={"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"},
        ping=HEARTBEAT,
        ping_message_factory=lambda: ServerSentEvent(comment="heartbeat", sep="\n"),
        sep="\n",
        send_timeout=GIVE_UP,
        shutdown_event=closing,
        shutdown_grace_period=CLOSE,
    )


async def stream(
    feed: Feed, looks: Mapping[str, Look | None], base: str, known: Told | None, closing: anyio.Event
) -> AsyncIterator[ServerSentEvent]:
    """The events of these tasks, until all have ended or the server closes."""
    told = known or Told()
    going = {task_id for task_id, look in looks.items() if look is not None}
    if known is not None:
        going = {task_id for task_id, look in looks.items() if look is not None and not look.final}
    else:
        for task_id in looks.keys() - going:
            yield event(task_id, None, base, told)
    changed, loop = asyncio.Event(), asyncio.get_running_loop()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody there to be told
            loop.call_soon_threadsafe(changed.set)

    close = loop.create_task(closing.wait())
    close.add_done_callback(lambda _: changed.set())
    watch = feed.watch([look for look in looks.values() if look is not None], wake, known=known is not None)
    try:
        while going and not closing.is_set():
            while (taken := watch.take()) is not None:
                task_id, look = taken
                yield event(task_id, look, base, told)
                if look is None or look.final:
                    going.discard(task_id)
            if going:
                await changed.wait()
                changed.clear()
    finally:
        close.cancel()
        watch.close()


def event(task_id: str, look: Look | None, base: str, told: Told) -> ServerSentEvent:
    first = not told.marks
    mark = "gone" if look is None else look.mark
    name = "gone" if look is None else "end" if look.final else "task"
    data = json.dumps({"task_id": task_id}) if look is None else look.text(base)
    retry = random.randint(*RECONNECT) if first else None
    return ServerSentEvent(data, event=name, id=told.tell(task_id, mark), retry=retry, sep="\n")
