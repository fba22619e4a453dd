"""The routes of uploads in FastAPI: announce, send in parts or in one go, complete. What they do is in `dumbwaiter.uploads`."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from itsdangerous import BadSignature, URLSafeSerializer
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from dumbwaiter.api.bodies import body_of, refuse_strange_pages
from dumbwaiter.api.models import View
from dumbwaiter.api.problems import ProblemRoute, problems
from dumbwaiter.api.receiving import received
from dumbwaiter.api.refusals import Refusal
from dumbwaiter.app import Dumbwaiter
from dumbwaiter.errors import ConfigurationError, UnknownUpload, UploadTooLarge
from dumbwaiter.store.uploads import Part, UploadRow
from dumbwaiter.uploads import MOST_PARTS, UNNAMED

Owner = Callable[[Request], Awaitable[str | None]]
Uploader = Callable[..., Awaitable[UploadRow]]

ORIGIN = re.compile(r"\*|https?://[A-Za-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-fA-F:]+\](:\d{1,5})?")
# Nobody has more to say of an upload than its name, its type and its size.
LARGEST_ANNOUNCEMENT = 8 * 1024
BEARER = "what POST /uploads gave: whoever has it need not be anybody"
BYTES: dict[str, Any] = {
    "requestBody": {
        "required": False,  # a file may be empty
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class Announcement(BaseModel):
    """What is known of a file before it comes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    filename: str = Field(UNNAMED, description="1 to 200 bytes, without slashes and control characters")
    content_type: str = Field("", description="by default what the name stands for")
    size: int | None = Field(None, ge=0, description="in bytes; if it is given, only so many complete it")


class Checksum(BaseModel):
    """What the whole should be."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$")


class PartView(View):
    """A part that has come."""

    part: int
    size: int = Field(description="in bytes")
    sha256: str


class UploadLinks(View):
    """Where to ask, and to complete it; parts go to `self` and a slash and their number, from 1."""

    self: str
    complete: str


class UploadView(View):
    """An upload as its owner sees it."""

    id: str
    filename: str
    content_type: str
    complete: bool
    size: int | None = Field(description="in bytes; until it is complete, as announced")
    sha256: str | None
    parts: list[PartView] = Field(description="what has come; empty once it is complete")
    max_size: int = Field(description="how many bytes it may have")
    expires_at: datetime | None = Field(
        description="when it goes if nothing happens to it before; null while a task has it"
    )
    links: UploadLinks


class NewUploadView(UploadView):
    """An upload that was just announced."""

    token: str = Field(
        description="the header Upload-Token: it lets its bearer send this upload, and nothing else"
    )


def upload_routes(waiter: Dumbwaiter, owner: Owner) -> APIRouter:
    """Send files that tasks work on. An upload is reachable by its owner, and by whoever has its token."""
    router = APIRouter(
        prefix="/uploads", route_class=route_class(origins(waiter.settings.upload_origins)), tags=["uploads"]
    )
    uploader = Depends(uploader_of(waiter, owner))
    add_new(router, waiter, owner)
    add_parts(router, waiter, uploader)
    return router


def add_new(router: APIRouter, waiter: Dumbwaiter, owner_of_request: Owner) -> None:
    """Announce an upload, or send it in one go."""
    who, given = Depends(owner_of_request), Depends(body_of(LARGEST_ANNOUNCEMENT))

    @router.post(
        "",
        status_code=201,
        response_model=NewUploadView,
        responses=problems(400, 408, 413, 415, 422),
        openapi_extra=json_body(Announcement),
    )
    def announce(
        request: Request, owner: Annotated[str | None, who], body: Annotated[dict[str, Any], given]
    ) -> Response:
        """Announce a file that will come in parts. Its token lets a page send it without being anybody."""
        told = checked(Announcement, body)
        row = waiter.uploads.announce(
            owner, filename=told.filename, content_type=told.content_type, size=told.size
        )
        view = shown(waiter, row, request)
        new = NewUploadView(**dict(view), token=signer(waiter).dumps(row.id))
        return sent(new, 201)

    @router.put(
        "",
        status_code=201,
        response_model=UploadView,
        responses=problems(400, 408, 413, 415, 422),
        openapi_extra=BYTES,
    )
    async def put(
        request: Request,
        owner: Annotated[str | None, who],
        filename: Annotated[str, Query(min_length=1, max_length=200)] = UNNAMED,
    ) -> Response:
        """Send a file in one go: the body is its bytes, `Content-Type` its type."""
        uploads = waiter.uploads
        kind = content_type_said(request)
        refuse_length(request, uploads.limit, uploads.limit)
        row = await received(
            request,
            lambda pieces: uploads.receive(owner, pieces, filename=filename, content_type=kind),
        )
        return sent(await asyncio.to_thread(shown, waiter, row, request), 201)


def add_parts(router: APIRouter, waiter: Dumbwaiter, uploader: Any) -> None:
    """Send parts, and complete what they make up."""
    given = Depends(optional_body)

    @router.get("/{upload_id}", response_model=UploadView, responses=problems(404, 422))
    def look(request: Request, upload: Annotated[UploadRow, uploader]) -> Response:
        """How an upload stands: which parts have come, for whoever goes on after an interruption."""
        return sent(shown(waiter, upload, request))

    @router.post(
        "/{upload_id}/complete",
        response_model=UploadView,
        responses=problems(400, 404, 408, 409, 413, 415, 422),
        openapi_extra=json_body(Checksum, required=False),
    )
    def complete(
        request: Request, upload: Annotated[UploadRow, uploader], body: Annotated[dict[str, Any], given]
    ) -> Response:
        """Make one file of the parts, in the order of their numbers. Asked again, it changes nothing."""
        told = checked(Checksum, body)
        return sent(shown(waiter, waiter.uploads.complete(upload, sha256=told.sha256), request))

    @router.put(
        "/{upload_id}/{part}",
        response_model=PartView,
        responses=problems(400, 404, 408, 409, 413, 415, 422),
        openapi_extra=BYTES,
    )
    async def put_part(
        request: Request,
        upload: Annotated[UploadRow, uploader],
        part: Annotated[int, Path(ge=1, le=MOST_PARTS)],
    ) -> Response:
        """Send a part. In any order, several at once, and again if need be: the last of one number counts."""
        uploads = waiter.uploads
        content_type_said(request)
        refuse_length(request, await asyncio.to_thread(uploads.room, upload, part), uploads.limit)
        stored = await received(request, lambda pieces: uploads.receive_part(upload, part, pieces))
        return sent(part_view(stored))


def uploader_of(waiter: Dumbwaiter, owner_of_request: Owner) -> Uploader:
    """A dependency that finds the upload of a request, by its token if it has one, else by its owner."""

    async def uploader(
        request: Request,
        upload_id: str,
        upload_token: Annotated[str | None, Header(max_length=500, description=BEARER)] = None,
    ) -> UploadRow:
        if upload_token is not None:
            return await asyncio.to_thread(by_token, waiter, upload_id, upload_token)
        refuse_strange_pages_unless_they_put(request)
        owner = await owner_of_request(request)
        return await asyncio.to_thread(waiter.uploads.of, upload_id, owner)

    return uploader


def refuse_strange_pages_unless_they_put(request: Request) -> None:
    """A browser asks us before a page of another site may PUT, or send a header of its own; a POST may be a form's."""
    if request.method == "POST":
        refuse_strange_pages(request.headers)


def by_token(waiter: Dumbwaiter, upload_id: str, token: str) -> UploadRow:
    """The upload that the token is good for. Raises UnknownUpload for another one."""
    try:
        named = signer(waiter).loads(token)
    except BadSignature:
        raise UnknownUpload(upload_id[:100]) from None
    if named != upload_id:
        raise UnknownUpload(upload_id[:100])
    return waiter.uploads.get(upload_id)


def signer(waiter: Dumbwaiter) -> URLSafeSerializer:
    """Makes and reads tokens. They need no time of their own: an upload that is complete, or has expired, takes nothing more."""
    return URLSafeSerializer(waiter.store.schema.secret, salt="dumbwaiter.upload")


async def optional_body(request: Request) -> dict[str, Any]:
    """A JSON object, or nothing at all."""
    if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
        return {}
    return await body_of(LARGEST_ANNOUNCEMENT)(request)


def content_type_said(request: Request) -> str:
    """What the client says that the bytes are. Refuses a form with 415: the file within it would be stored with its wrapping."""
    said = request.headers.get("content-type", "").strip()
    if said.lower().startswith("multipart/form-data"):
        raise Refusal(
            415,
            "unsupported-media-type",
            "Send the file's own bytes as the body, not a form with the file in it.",
        )
    # what curl says of everything
    return "" if said.lower().startswith("application/x-www-form-urlencoded") else said


def refuse_length(request: Request, room: int, limit: int) -> None:
    """What says that it is too long need not be read to be refused; what says less than it is, or nothing, is cut later."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > room:
        raise UploadTooLarge(limit)


def checked(model: Any, body: dict[str, Any]) -> Any:
    """The body as it was meant. Refuses with 422, naming every fault."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        faults = [
            {"path": ".".join(str(part) for part in fault["loc"]), "message": fault["msg"]}
            for fault in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        detail = "; ".join(f"{fault['path']}: {fault['message']}" for fault in faults)
        raise Refusal(422, "invalid-request", detail, errors=faults) from None


def json_body(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": required, "content": content}}


def shown(waiter: Dumbwaiter, row: UploadRow, request: Request) -> UploadView:
    parts = [] if row.completed_at is not None else waiter.uploads.parts(row)
    path = f"{base_of(request)}/uploads/{row.id}"
    return UploadView(
        id=row.id,
        filename=row.filename,
        content_type=row.content_type,
        complete=row.completed_at is not None,
        size=row.size,
        sha256=row.sha256,
        parts=[part_view(part) for part in parts],
        max_size=waiter.uploads.limit,
        expires_at=row.expires_at,
        links=UploadLinks(self=path, complete=f"{path}/complete"),
    )


def part_view(part: Part) -> PartView:
    return PartView(part=part.number, size=part.size, sha256=part.sha256)


def sent(view: View, status: int = 200) -> Response:
    headers = {"Cache-Control": "private, no-store"}
    if status == 201:
        headers["Location"] = view.links.self  # type: ignore[attr-defined] # what is new has links
    return Response(view.model_dump_json(), status, headers, media_type="application/json")


def base_of(request: Request) -> str:
    """The path before `/uploads…`: taken from the request, so that it is right under any prefix, mount or proxy path."""
    _, _, below = str(request.scope["route"].path).rpartition("/uploads")
    return request.url.path.rsplit("/", below.count("/") + 1)[0]


def origins(setting: str) -> list[str]:
    """The sites whose pages may send uploads from another origin. Raises ConfigurationError for what is none."""
    found = [word for word in re.split(r"[\s,]+", setting) if word]
    for word in found:
        if not ORIGIN.fullmatch(word):
            raise ConfigurationError(
                f"upload_origins: {word!r} is no origin; write https://shop.example, without a path, or *"
            )
    return found


def route_class(allowed: list[str]) -> type[ProblemRoute]:
    """A route that answers what browsers ask for pages of these origins. Cookies are not let through: pages have the token."""
    if not allowed:
        return ProblemRoute

    def shared(app: ASGIApp) -> ASGIApp:
        return CORSMiddleware(
            app,
            allow_origins=allowed,
            allow_methods=["GET", "POST", "PUT"],
            allow_headers=["Authorization", "Content-Type", "Upload-Token"],
            expose_headers=["Location"],
        )

    class SharedRoute(ProblemRoute):
        async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
            # before the route looks at the method: a preflight's is OPTIONS
            await shared(super().handle)(scope, receive, send)

    return SharedRoute
