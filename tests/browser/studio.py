"""Pages that record themselves, and a server under them that loses, refuses and holds up parts when a test says so."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, Response
from playwright.sync_api import Page

from dumbwaiter import Dumbwaiter
from dumbwaiter.integrations.fastapi import lifespan, router
from tests.browser.stoves import Counting, Stove, guest, waiter_at
from tests.support.waiting import until

# The strictest that a page can have: no inline script or style, nothing of another origin.
POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'"
LIMIT = 200_000
PART = re.compile(r".*/uploads/[^/]+/(\d+)")
STYLE = "h1 { color: rgb(10, 120, 40) } body { background: url(/plate.svg?of-the-style-sheet) no-repeat }"
PLATE = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><circle cx="20" cy="20" r="19" fill="#a84a22"/></svg>'


@dataclass
class Studio(Stove):
    """A stove without a cook: nobody works on tasks here."""

    faults: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    held: threading.Event = field(default_factory=threading.Event)
    down: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        settings = self.waiter.settings
        self.small = Dumbwaiter(
            settings.database, files=settings.files, env="test", max_upload=LIMIT, upload_origins="*"
        )

    def host(self, name: str, body: str, lang: str = "en") -> str:
        self.pages[name] = (
            f'<!doctype html><html lang="{lang}"><meta charset="utf-8"><title>{name}</title>'
            f'<link rel="stylesheet" href="/style.css"><body>{body}</body></html>'
        )
        return f"{self.url}/pages/{name}"

    def app(self) -> FastAPI:
        app = FastAPI(lifespan=lifespan(self.waiter, worker=False))

        @app.get("/pages/{name}")
        def show(name: str) -> HTMLResponse:
            return HTMLResponse(self.pages[name], headers={"Content-Security-Policy": POLICY})

        @app.get("/elsewhere/{name}")
        def elsewhere(name: str) -> HTMLResponse:
            return HTMLResponse(self.pages[name])

        @app.get("/style.css")
        def style() -> Response:
            return Response(STYLE, media_type="text/css")

        @app.get("/plate.svg")
        def plate() -> Response:
            return Response(PLATE, media_type="image/svg+xml")

        app.include_router(router(self.waiter, public=True))
        app.include_router(router(self.waiter, authorize=guest), prefix="/guests")
        app.include_router(router(self.small, public=True), prefix="/small")
        app.add_middleware(Unreliable, studio=self)
        app.add_middleware(Counting, stove=self)
        return app

    def parts(self) -> list[int]:
        """The numbers of the parts that were sent, as often as they were."""
        found = [PART.fullmatch(path) for method, path, _ in list(self.requests) if method == "PUT"]
        return [int(match[1]) for match in found if match]

    def recorded(self, upload_id: str) -> bytes:
        """The recording, completed by its server if its page has not done so."""
        uploads = self.waiter.uploads
        row = uploads.complete(uploads.get(upload_id))
        assert row.object_key is not None
        return b"".join(self.waiter.files.stream(row.object_key))


class Unreliable:
    """A server and a network between that fail as the test says, once for each fault of a part."""

    def __init__(self, app: Any, studio: Studio) -> None:
        self.app, self.studio = app, studio

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        match = PART.fullmatch(scope.get("path", "")) if scope["type"] == "http" else None
        faults = self.studio.faults[int(match[1])] if match and scope["method"] == "PUT" else []
        down = self.studio.down.is_set() and "/uploads" in scope.get("path", "")
        fault = faults.pop(0) if faults else "503" if down else ""
        if fault.isdecimal():
            await JSONResponse({"detail": f"A test says {fault}."}, int(fault))(scope, receive, send)
        elif fault == "later":
            told = {"detail": "A test says in an hour."}
            await JSONResponse(told, 503, {"Retry-After": "3600"})(scope, receive, send)
        elif fault == "held":
            await asyncio.to_thread(self.studio.held.wait)
            await self.app(scope, receive, send)
        elif fault == "lost":
            await cut_off(send)
        elif fault == "answer lost":
            await self.app(scope, receive, swallow)
            await cut_off(send)
        else:
            await self.app(scope, receive, send)


@contextlib.contextmanager
def recording(directory: Path) -> Iterator[Studio]:
    """A studio with its server."""
    studio = Studio(waiter_at(directory), directory)
    studio.waiter.migrate()
    studio.start()
    try:
        yield studio
    finally:
        studio.held.set()
        studio.stop()
        studio.small.close()
        studio.waiter.close()


async def swallow(message: Any) -> None:
    """An answer that nobody hears."""


async def cut_off(send: Any) -> None:
    """The connection ends in the midst of the answer."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
    await send({"type": "http.response.body", "body": b"{"})


def started(tab: Page, script: str = "/dumbwaiter-recorder.js", **options: Any) -> None:
    """Have the page record itself; what it tells of is gathered in `told`."""
    tab.evaluate(
        """async ([script, options]) => {
        const { DumbwaiterRecorder } = await import(script);
        window.told = [];
        window.recording = await DumbwaiterRecorder.start({ onState: (news) => told.push(news), ...options });
        }""",
        [script, options],
    )


def stopped(tab: Page) -> str:
    """Have it stop; the id of its upload."""
    upload: dict[str, str] = tab.evaluate("recording.stop()")
    assert list(upload) == ["upload"]
    return upload["upload"]


def told(tab: Page) -> list[dict[str, Any]]:
    news: list[dict[str, Any]] = tab.evaluate("told")
    return news


def arrived(tab: Page, parts: int) -> None:
    """Wait until so many parts have arrived and been answered."""
    until(lambda: tab.evaluate("recording.arrived") >= parts)


def sealed(tab: Page) -> None:
    """As if its time were over: what there is goes off as a part."""
    tab.evaluate("recording.parts.seal()")


def change(tab: Page, text: str) -> None:
    """Something happens on the page, of which the recording must tell once."""
    tab.evaluate(
        """(text) => new Promise((done) => {
        document.body.append(Object.assign(document.createElement("p"), { textContent: text }));
        setTimeout(done);
        })""",
        text,
    )


def changes_in(recording: bytes) -> list[str]:
    """The texts of `change`, in the order of the recording; those of a second snapshot are not counted again."""
    found = []
    for line in recording.decode().splitlines():
        event = json.loads(line)
        if event["type"] == 3:
            found += re.findall(r'"textContent": "(change \d+)', json.dumps(event))
    return found
