"""The page that offers work: a button for each thing, its progress, the download."""

import hashlib
import logging
import mimetypes
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined

from dumbwaiter.app import Dumbwaiter
from dumbwaiter.errors import StoreError
from dumbwaiter.task import Status, Task

log = logging.getLogger("dumbwaiter")

# Names the owner of a request; a dependency as FastAPI has them.
Owner = Callable[[Request], Awaitable[str | None]]

# Nothing but this server's own files; the page needs no exception.
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "media-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
ASSETS = ("page.css", "page.js")


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that the page offers to make: which task, with which arguments, and how the page calls it."""

    slug: str
    name: str
    task_type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""
    verb: str = "Export video"

    @property
    def key(self) -> str:
        """The business key of its tasks: one at a time, and the latest is what the page shows."""
        return f"offer:{self.slug}"


@dataclass(frozen=True, slots=True)
class Card:
    """How an offer looks at one moment, for the first drawing; afterwards the script asks the API."""

    offer: Offer
    state: str
    task_id: str
    headline: str
    percent: int | None
    step: str
    download: str
    filename: str
    video: bool


def page(
    waiter: Dumbwaiter,
    offers: Iterable[Offer],
    owner: Owner,
    *,
    title: str = "Dumbwaiter",
) -> APIRouter:
    """Serves the page at `/`; the task routes must stand beside it, at `/tasks`.

    The page remembers nothing: what was made, or is being made, it finds by each offer's business key.
    """
    router = APIRouter(include_in_schema=False, route_class=PageRoute)
    shelf = {offer.slug: offer for offer in offers}
    who = Depends(owner)

    @router.get("/")
    def show(*, owner: Annotated[str | None, who]) -> HTMLResponse:
        now = waiter.store.now()
        cards = [card(offer, latest(waiter, offer, owner), now) for offer in shelf.values()]
        text = templates().get_template("page.html").render(title=title, cards=cards, assets=asset_urls())
        return HTMLResponse(text, headers=page_headers())

    @router.post("/offers/{slug}")
    def make(slug: str, *, request: Request, owner: Annotated[str | None, who]) -> Response:
        refuse_strange_pages(request)
        offer = shelf.get(slug)
        if offer is None:
            raise HTTPException(404, "The page offers no such thing.")
        task = waiter.enqueue(offer.task_type, offer.arguments, key=offer.key, owner=owner)
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse({"task": task.id}, 202)
        return RedirectResponse(f"../#{quote(slug)}", 303)

    @router.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in ASSETS:
            raise HTTPException(404)
        headers = {
            "Cache-Control": "public, max-age=31536000, immutable",
            "X-Content-Type-Options": "nosniff",
        }
        return Response(asset(name), headers=headers, media_type=mimetypes.guess_type(name)[0])

    return router


class PageRoute(APIRoute):
    """A route that says in a sentence when the database cannot be used: not migrated yet, or away."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except StoreError as error:
                log.warning("the page cannot be shown: %s", error)
                raise HTTPException(
                    503, "Tasks cannot be reached at the moment.", {"Retry-After": "5"}
                ) from None

        return handler


def latest(waiter: Dumbwaiter, offer: Offer, owner: str | None) -> Task | None:
    """The newest task of an offer, with its files."""
    tasks = waiter.find(task_type=offer.task_type, key=offer.key, owner=owner, limit=10)
    for task in tasks:
        if task.owner == owner:
            return waiter.get(task.id)
    return None


def card(offer: Offer, task: Task | None, now: datetime) -> Card:
    """What to draw first, in the words that the script uses too."""
    if task is None:
        return Card(offer, "none", "", "", None, "", "", "", video=False)
    state = task.display(now)
    file = next((file for file in task.files if file.available(now)), None)
    running = task.status is Status.RUNNING
    return Card(
        offer,
        state,
        task.id,
        headline(task, now),
        int(task.progress * 100) if running else None,
        sentence(task.current_step) if running else "",
        f"tasks/{task.id}/files/{quote(file.name, safe='')}" if file else "",
        file.name if file else "",
        video=file is not None and file.content_type.startswith("video/"),
    )


def sentence(step: str | None) -> str:
    return step[:1].upper() + step[1:] if step else ""


def headline(task: Task, now: datetime) -> str:
    """One sentence for the person who waits."""
    phase = task.phase(now)
    if phase == "failed":
        return task.user_message or "Something went wrong while it was being made."
    return {
        "queued": "Waiting for its turn",
        "scheduled": "Waiting for its time",
        "retrying": "Something went wrong; it will be tried again",
        "running": "Being made",
        "cancelling": "Stopping",
        "cancelled": "Cancelled",
        "success": "Ready"
        if task.display(now) == "ready"
        else "It was kept for a while and has been removed",
    }[phase]


def refuse_strange_pages(request: Request) -> None:
    """A form on another site may post here; the browser says so."""
    origin = request.headers.get("origin")
    if request.headers.get("sec-fetch-site") == "cross-site" or (
        origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    ):
        raise HTTPException(403, "This can be asked for on the page itself only.")


def page_headers() -> dict[str, str]:
    return {
        "Cache-Control": "no-store",
        "Content-Security-Policy": POLICY,
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }


@cache
def templates() -> Environment:
    return Environment(
        loader=PackageLoader("dumbwaiter.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )


@cache
def asset(name: str) -> bytes:
    return (files("dumbwaiter.dashboard") / "static" / name).read_bytes()


@cache
def asset_urls() -> dict[str, str]:
    """Each asset's address with its content in it, so that browsers may keep it for good."""
    return {name: f"static/{name}?{hashlib.sha256(asset(name)).hexdigest()[:12]}" for name in ASSETS}
