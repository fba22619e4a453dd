"""The page that turns recordings into videos: see one play, choose how, press the button, watch, download."""

import hashlib
import logging
import mimetypes
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined

from dumbwaiter import component
from dumbwaiter.app import Dumbwaiter
from dumbwaiter.dashboard.texts import SCRIPT, TEXTS
from dumbwaiter.errors import StoreError
from dumbwaiter.languages import language_of
from dumbwaiter.task import Status, Task

log = logging.getLogger("dumbwaiter")

# Names the owner of a request; a dependency as FastAPI has them.
Owner = Callable[[Request], Awaitable[str | None]]

# Nothing but this server's own files; the page needs no exception.
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "media-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# A recording is somebody else's page. It is put together in a frame of its own, which may run the two scripts that the page
# names and no other, and asks nobody for anything. (The player reaches into a frame inside the frame, which it cannot from an
# opaque origin: hence allow-same-origin. What no script runs in can make no use of it.)
PLAYER_POLICY = (
    "sandbox allow-scripts allow-same-origin; default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline' data:; "
    "img-src data: blob:; font-src data:; media-src data: blob:; frame-src data: blob:; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'self'"
)
ASSETS = ("page.css", "page.js", "recordings.js", "player.js", "player.css")


@dataclass(frozen=True, slots=True)
class Offer:
    """A recording that the page offers: which task makes a video of it, with which arguments, and how the page calls it.

    `recording` gives its events as JSON, for those who want to see it first.
    """

    slug: str
    name: str
    task_type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""
    recording: Callable[[], bytes] | None = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> str:
        """The business key of its tasks: one at a time, and the latest is what the page shows."""
        return f"offer:{self.slug}"


@dataclass(frozen=True, slots=True)
class Player:
    """What replays a recording in the browser: rrweb's script and style sheet."""

    script: bytes
    style: bytes


@dataclass(frozen=True, slots=True)
class Card:
    """How an offer stands at one moment, for a browser without JavaScript."""

    offer: Offer
    state: str
    headline: str
    percent: int | None
    download: str
    filename: str


def page(
    waiter: Dumbwaiter,
    offers: Iterable[Offer],
    owner: Owner,
    *,
    player: Player | None = None,
    title: str = "Dumbwaiter",
) -> APIRouter:
    """Serves the page at `/`; the task routes and the button must stand beside it.

    The page remembers nothing: what was made, or is being made, it finds by each offer's business key. Without a `player` it
    shows no recordings, and makes videos of them all the same; without offers it names the task types that may be asked for,
    and lists the tasks. It speaks the language that the browser asks for, English or Chinese.
    """
    router = APIRouter(include_in_schema=False, route_class=PageRoute)
    shelf = {offer.slug: offer for offer in offers}
    assets = Assets(player)
    who = Depends(owner)

    @router.get("/")
    def show(*, request: Request, owner: Annotated[str | None, who]) -> HTMLResponse:
        now, language = waiter.store.now(), language_of(request.headers.get("accept-language"))
        texts = TEXTS[language]
        cards = [card(offer, latest(waiter, offer, owner), now, texts) for offer in shelf.values()]
        text = (
            templates()
            .get_template("page.html" if cards else "bare.html")
            .render(
                title=title,
                language=language,
                t=texts,
                said={name: texts[name] for name in SCRIPT},
                cards=cards,
                at=assets.address,
                player=player,
                task_types=[entry.name for entry in waiter.registry if entry.http],
            )
        )
        return HTMLResponse(text, headers=page_headers(POLICY) | {"Vary": "Accept-Language"})

    @router.get("/player")
    def replay() -> HTMLResponse:
        if player is None:
            raise HTTPException(404, "This page shows no recordings.")
        nonce = secrets.token_urlsafe(16)
        text = (
            templates()
            .get_template("player.html")
            .render(nonce=nonce, at=assets.address, style=assets.styles())
        )
        return HTMLResponse(text, headers=page_headers(PLAYER_POLICY.format(nonce=nonce)))

    @router.get("/offers/{slug}/recording")
    def recording(slug: str, *, owner: Annotated[str | None, who]) -> Response:
        offer = offered(shelf, slug)
        if offer.recording is None:
            raise HTTPException(404, "This one cannot be shown.")
        headers = {"Cache-Control": "private, max-age=3600", "X-Content-Type-Options": "nosniff"}
        return Response(offer.recording(), headers=headers, media_type="application/json")

    @router.post("/offers/{slug}")
    def make(slug: str, *, request: Request, owner: Annotated[str | None, who]) -> Response:
        """What a browser without JavaScript sends."""
        refuse_strange_pages(request)
        offer = offered(shelf, slug)
        waiter.enqueue(offer.task_type, offer.arguments, key=offer.key, owner=owner)
        return RedirectResponse(f"../#{quote(slug)}", 303)

    @router.get("/static/{name}")
    def static(name: str) -> Response:
        if (content := assets.get(name)) is None:
            raise HTTPException(404)
        headers = {
            "Cache-Control": "public, max-age=31536000, immutable",
            "X-Content-Type-Options": "nosniff",
        }
        return Response(content, headers=headers, media_type=mimetypes.guess_type(name)[0])

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


class Assets:
    """The files of the page, by name; each address has the content in it, so that browsers may keep it for good."""

    def __init__(self, player: Player | None) -> None:
        self._brought = {} if player is None else {"rrweb.js": player.script, "rrweb.css": player.style}

    def get(self, name: str) -> bytes | None:
        return asset(name) if name in ASSETS else self._brought.get(name)

    def address(self, name: str) -> str:
        if name in component.FILES.media_types:
            return component.address(name)
        content = self.get(name) or b""
        return f"static/{name}?{hashlib.sha256(content).hexdigest()[:12]}"

    def styles(self) -> str:
        """The style sheets of the player, which stand in its page: its policy lets it ask nobody for them."""
        return "\n".join((self.get(name) or b"").decode() for name in ("rrweb.css", "player.css"))


def offered(shelf: Mapping[str, Offer], slug: str) -> Offer:
    if (offer := shelf.get(slug)) is None:
        raise HTTPException(404, "The page offers no such thing.")
    return offer


def latest(waiter: Dumbwaiter, offer: Offer, owner: str | None) -> Task | None:
    """The newest task of an offer, with its files."""
    tasks = waiter.find(task_type=offer.task_type, key=offer.key, owner=owner, limit=10)
    for task in tasks:
        if task.owner == owner:
            return waiter.get(task.id)
    return None


def card(offer: Offer, task: Task | None, now: datetime, texts: Mapping[str, str]) -> Card:
    """What to draw where there is no script to ask the API."""
    if task is None:
        return Card(offer, "none", "", None, "", "")
    file = next((file for file in task.files if file.available(now)), None)
    return Card(
        offer,
        task.display(now),
        headline(task, now, texts),
        int(task.progress * 100) if task.status is Status.RUNNING else None,
        f"tasks/{task.id}/files/{quote(file.name, safe='')}" if file else "",
        file.name if file else "",
    )


def headline(task: Task, now: datetime, texts: Mapping[str, str]) -> str:
    """One sentence for the person who waits."""
    phase = task.phase(now)
    if phase == "failed" and task.user_message:
        return task.user_message
    if phase == "success":
        return texts["ready" if task.display(now) == "ready" else "expired"]
    return texts[phase]


def refuse_strange_pages(request: Request) -> None:
    """A form on another site may post here; the browser says so."""
    origin = request.headers.get("origin")
    if request.headers.get("sec-fetch-site") == "cross-site" or (
        origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    ):
        raise HTTPException(403, "This can be asked for on the page itself only.")


def page_headers(policy: str) -> dict[str, str]:
    return {
        "Cache-Control": "no-store",
        "Content-Security-Policy": policy,
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
