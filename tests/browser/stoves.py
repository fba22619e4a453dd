"""Pages of somebody else's with the custom elements in them, a server under them, and tasks that the test steers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse
from playwright.sync_api import Browser, BrowserContext, Locator, Page

from dumbwaiter import Dumbwaiter, Fail, Retry, TaskContext, Upload
from dumbwaiter.component import address
from dumbwaiter.integrations.fastapi import lifespan, router
from dumbwaiter.task import Status
from tests.support.waiting import until

BYTES = b"made by a test\n" * 100
# What a careful page has: nothing inline, nobody else's files. Scripts of a test run all the same.
POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'"


def waiter_at(directory: Path) -> Dumbwaiter:
    """An application on the tasks in this directory; a second one sees the same."""
    return Dumbwaiter(
        f"sqlite:///{directory / 'tasks.db'}",
        files=str(directory / "files"),
        workdir=str(directory / "work"),
        env="test",
        shutdown_grace_in_app=0.5,
    )


@dataclass
class Stove:
    """Tasks that wait for the test, a worker that runs them, and a server that can be stopped and started again."""

    waiter: Dumbwaiter
    directory: Path
    gates: defaultdict[str, threading.Event] = field(default_factory=lambda: defaultdict(threading.Event))
    pages: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    streams: int = 0
    port: int = 0
    _server: uvicorn.Server | None = None
    _thread: threading.Thread | None = None
    _listener: socket.socket | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(self, ctx: TaskContext, gate: str) -> None:
        while not self.gates[gate].is_set():
            ctx.sleep(0.02)

    def host(self, name: str, body: str, lang: str = "en") -> str:
        """A page with this body; its address."""
        self.pages[name] = (
            f'<!doctype html><html lang="{lang}"><meta charset="utf-8"><title>{name}</title>'
            f'<script type="module" src="/{address()}"></script>'
            f'<script type="module" src="/{address("dumbwaiter-list.js")}"></script><body>{body}</body></html>'
        )
        return f"{self.url}/pages/{name}"

    def start(self) -> None:
        """Serve, on the same port each time."""
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        # A browser keeps streams open for as long as it can.
        config = uvicorn.Config(self.app(), log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: server.started or not thread.is_alive())
        assert server.started, "the application did not start"
        self._server, self._thread, self._listener = server, thread, listener

    def stop(self) -> None:
        """As a deploy does: whoever follows is cut off."""
        assert self._server is not None
        assert self._thread is not None
        assert self._listener is not None
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def app(self) -> FastAPI:
        waiter = with_dishes(waiter_at(self.directory), self)
        app = FastAPI(lifespan=lifespan(waiter, worker=False))

        @app.get("/pages/{name}")
        def show(name: str) -> HTMLResponse:
            return HTMLResponse(self.pages[name], headers={"Content-Security-Policy": POLICY})

        app.include_router(router(waiter, public=True))
        app.include_router(router(waiter, authorize=guest), prefix="/guests")
        app.add_middleware(Counting, stove=self)
        return app


def guest(request: Request) -> str:
    if name := request.headers.get("X-Guest"):
        return name
    raise HTTPException(401, "Who are you?")


class Counting:
    """Writes down what was asked, and how many streams are open."""

    def __init__(self, app: Any, stove: Stove) -> None:
        self.app, self.stove = app, stove

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        self.stove.requests.append((request.method, request.url.path, dict(request.headers)))
        stream = request.url.path.endswith("/events")
        self.stove.streams += stream
        try:
            await self.app(scope, receive, send)
        finally:
            self.stove.streams -= stream


def with_dishes(waiter: Dumbwaiter, stove: Stove) -> Dumbwaiter:
    @waiter.task("dish", http=True, retry=Retry(max_retries=0))
    def dish(ctx: TaskContext, name: str, expires: float | None = None, spoilt: str | None = None) -> None:
        ctx.progress(0.0, step="peeling")
        stove.wait(ctx, f"{name} half")
        if spoilt is not None:
            raise Fail("oven 3 has no gas", user_message=spoilt)
        ctx.progress(0.42, step="cooking")
        stove.wait(ctx, f"{name} done")
        (ctx.workdir / "dish").write_bytes(BYTES)
        kept = None if expires is None else timedelta(seconds=expires)
        ctx.publish("dish", filename=f"{name}.txt", expires=kept)

    @waiter.task("souffle", http=True, retry=Retry(max_retries=2, delays=[timedelta(seconds=1.2)]))
    def souffle(ctx: TaskContext, name: str) -> str:
        ctx.progress(0.2, step="rising")
        if not stove.gates[f"{name} opened"].is_set():
            stove.gates[f"{name} opened"].set()
            raise ConnectionError("the oven's door was opened")
        stove.wait(ctx, f"{name} done")
        if stove.gates[f"{name} burnt"].is_set():
            raise Fail("burnt", user_message="It is burnt.")
        return "risen"

    @waiter.task("taste", http=True)
    def taste(ctx: TaskContext, spice: Upload) -> str:
        with ctx.open(spice) as file:
            return f"{spice.filename}: {file.read().decode()}"

    return waiter


@contextlib.contextmanager
def cooking(directory: Path) -> Iterator[Stove]:
    """A stove with its worker and its server."""
    stove = Stove(waiter_at(directory), directory)
    with_dishes(stove.waiter, stove)
    stove.waiter.migrate()
    worker = stove.waiter.worker(in_app=True)
    worker.start()
    stove.start()
    try:
        yield stove
    finally:
        stove.stop()
        worker.stop(hurry=True)
        worker.join()
        stove.waiter.close()


@contextlib.contextmanager
def window(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    """A browser of somebody's own; whatever a page complains of fails the test, answers that are refusals apart."""
    context = browser.new_context(reduced_motion="reduce", **options)
    context.set_default_timeout(10_000)
    complaints: list[str] = []

    def watch(tab: Page) -> None:
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on(
            "console",
            lambda said: (
                complaints.append(said.text)
                if said.type == "error" and "Failed to load resource" not in said.text
                else None
            ),
        )

    context.on("page", watch)
    yield context
    context.close()
    assert complaints == []


def element(name: str, more: str = "", arguments: str = "") -> str:
    return (
        f'<dumbwaiter-task type="dish" key="{name}" aria-label="Soup" {more} '
        f"""arguments='{{"name": "{name}"{arguments}}}'></dumbwaiter-task>"""
    )


def opened(context: BrowserContext, url: str) -> Page:
    tab = context.new_page()
    tab.goto(url)
    return tab


def button(tab: Page | Locator, name: str) -> Locator:
    return tab.get_by_role("button", name=name, exact=True)


def headline(tab: Page | Locator) -> Locator:
    return tab.locator(".headline")


def tasks_of(stove: Stove, key: str) -> list[Status]:
    return [task.status for task in stove.waiter.find(key=key)]
