"""Reading a request's body: a JSON object of bounded size, from a client that says so."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request

from dumbwaiter import strict_json
from dumbwaiter.api.receiving import next_piece
from dumbwaiter.api.refusals import Refusal

# To read so many bytes takes less than to have a thread do it.
SHORT = 8 * 1024


def body_of(limit: int) -> Callable[[Request], Awaitable[dict[str, Any]]]:
    """A dependency that reads a JSON object of at most `limit` bytes."""

    async def body(request: Request) -> dict[str, Any]:
        refuse_other_media(request.headers)
        text, stream = bytearray(), request.stream()
        while (piece := await next_piece(stream)) is not None:
            text += piece
            if len(text) > limit:
                raise Refusal(413, "too-large", f"The arguments may have {limit:,} bytes at most.")
        if len(text) <= SHORT:
            return json_object(bytes(text))
        return await asyncio.to_thread(json_object, bytes(text))

    return body


def refuse_other_media(headers: Mapping[str, str]) -> None:
    """Only JSON, and from a browser only if it says so: a strange page's form cannot send that type without being asked.

    A program may leave the header out; browsers can be told by the headers that only they send.
    """
    if says_json(headers):
        return
    if headers.get("content-type", "").strip() or "origin" in headers or "sec-fetch-site" in headers:
        raise Refusal(
            415,
            "unsupported-media-type",
            "Send a JSON object with the header Content-Type: application/json.",
        )


def says_json(headers: Mapping[str, str]) -> bool:
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    return given == "application/json" or given.endswith("+json")


def refuse_strange_pages(headers: Mapping[str, str]) -> None:
    """What a browser sends for a page of another site, with this site's cookies, must not change anything.

    Browsers say where a request comes from; programs do not, and have no cookies that a page could borrow. A page of
    another site that may ask us says `Content-Type: application/json`, which the browser sends only if we allowed it (CORS).
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        strange = site not in ("same-origin", "none")
    else:
        strange = origin is not None and urlsplit(origin).netloc != headers.get("host")
    if strange and not says_json(headers):
        raise Refusal(
            403,
            "cross-site",
            "A page of another site cannot ask for this, unless it says Content-Type: application/json and CORS allows it.",
        )


def json_object(text: bytes) -> dict[str, Any]:
    try:
        value = strict_json.loads(text, whole=True)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "not-json", f"The body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refusal(400, "not-an-object", "The body must be a JSON object: the arguments by their names.")
    return value
