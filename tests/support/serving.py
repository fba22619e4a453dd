"""An application served by a real uvicorn on a free port, from a thread of the test."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import httpx
import uvicorn
from fastapi import FastAPI

from tests.support.waiting import until


@contextlib.contextmanager
def serving(app: FastAPI) -> Iterator[httpx.Client]:
    """A client whose paths are those of the application; its lifespan runs from here to the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive())
            assert server.started, "the application did not start"
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with httpx.Client(base_url=address, timeout=20) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()
