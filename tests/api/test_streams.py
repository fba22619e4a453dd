"""Open streams and the server process that holds them: its end, its memory, clients that do not read."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.api.test_uvicorn import address, uvicorn
from tests.support.programs import Program, program
from tests.support.streams import events

SITE = """
from pathlib import Path
from fastapi import FastAPI
from dumbwaiter import Dumbwaiter, TaskContext
from dumbwaiter.integrations.fastapi import lifespan, router

waiter = Dumbwaiter(f"sqlite:///{Path(__file__).parent / 'tasks.db'}", env="test")

@waiter.task("climb", http=True, timeout=None)
def climb(ctx: TaskContext, seconds: float) -> str:
    for number in range(int(seconds * 10)):
        ctx.progress(number / (seconds * 10), step=f"step {number} " + "x" * 100)
        ctx.sleep(0.1)
    return "y" * 20_000

app = FastAPI(lifespan=lifespan(waiter, queues={"default": 60}))
app.include_router(router(waiter, public=True))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Program]:
    (tmp_path / "shop.py").write_text(SITE)
    with program(*uvicorn(), cwd=tmp_path, DUMBWAITER_SHUTDOWN_GRACE_IN_APP="0.5") as server:
        yield server


def climbing(url: str, seconds: float) -> str:
    """A task that reports all the time; its id."""
    answer = httpx.post(f"{url}/tasks/climb", json={"seconds": seconds}).raise_for_status()
    return str(answer.json()["task_id"])


def test_a_server_that_is_stopped_closes_its_streams_at_once_and_without_an_error(server: Program) -> None:
    """uvicorn waits for open connections, here without a limit."""
    url = address(server)
    task_id = climbing(url, 600)
    with httpx.stream("GET", f"{url}/tasks/{task_id}/events", timeout=20) as answer:
        told = events(answer.iter_lines())
        next(told)
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        names = {event.name for event in told}
        closed = time.monotonic() - began
    server.wait()

    assert "end" not in names
    assert closed < 3
    assert "Traceback" not in server.said
    assert "ERROR" not in server.said


def test_50_streams_of_busy_tasks_for_20_seconds_cost_no_memory_and_all_hear_the_end(server: Program) -> None:
    """Ten more are opened that nobody reads."""
    url = address(server)
    host, port = url.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        streams = []
        for number in range(60):
            task_id = climbing(url, 20)
            stream = stack.enter_context(socket.create_connection((host, int(port))))
            stream.sendall(f"GET /tasks/{task_id}/events HTTP/1.1\r\nHost: shop\r\n\r\n".encode())
            if number < 50:
                streams.append(stream)
        heard = dict.fromkeys(streams, b"")
        read(heard, until_all=b"event: task")
        read(heard, seconds=3)
        process = psutil.Process(server.process.pid)
        before = process.memory_info().rss
        read(heard, seconds=14)
        grown = process.memory_info().rss - before
        lengths = [len(text) for text in heard.values()]
        read(heard, until_all=b"event: end")

    assert min(lengths) > 5_000  # there was something to tell all the time
    assert grown < 8 * 1024 * 1024
    assert all(text.count(b"event: end") == 1 for text in heard.values())


def read(heard: dict[socket.socket, bytes], *, seconds: float = 40, until_all: bytes | None = None) -> None:
    """Read all streams for so long, or until each has said that."""
    with selectors.DefaultSelector() as selector:
        for one in heard:
            selector.register(one, selectors.EVENT_READ)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                stream: Any = key.fileobj
                said = stream.recv(65_536)
                heard[stream] += said
                if not said:
                    selector.unregister(stream)
            if until_all is not None and all(until_all in text for text in heard.values()):
                return
    assert until_all is None, f"not all streams said {until_all!r} within {seconds} s"
