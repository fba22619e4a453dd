"""Reading a request's body: a JSON object of bounded size, from a client that says so."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import Request

from dumbwaiter import strict_json
from dumbwaiter.api.problems import Refusal

JSON_OBJECT = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
}


def body_of(limit: int) -> Callable[[Request], Awaitable[dict[str, Any]]]:
    """A dependency that reads a JSON object of at most `limit` bytes."""

    async def body(request: Request) -> dict[str, Any]:
        refuse_other_media(request.headers)
        text = bytearray()
        async for chunk in request.stream():
            text += chunk
            if len(text) > limit:
                raise Refusal(413, "too-large", f"The arguments may have {limit:,} bytes at most.")
        return await asyncio.to_thread(json_object, bytes(text))

    return body


def refuse_other_media(headers: Mapping[str, str]) -> None:
    """Only JSON, and from a browser only if it says so: a strange page's form cannot send that type without being asked.

    A program may leave the header out; browsers can be told by the headers that only they send.
    """
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    if given == "application/json" or given.endswith("+json"):
        return
    if given or "origin" in headers or "sec-fetch-site" in headers:
        raise Refusal(
            415,
            "unsupported-media-type",
            "Send a JSON object with the header Content-Type: application/json.",
        )


def json_object(text: bytes) -> dict[str, Any]:
    try:
        value = strict_json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "not-json", f"The body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refusal(400, "not-an-object", "The body must be a JSON object: the arguments by their names.")
    return value
