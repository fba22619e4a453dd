"""Serves the custom elements beside the task routes: under their plain names, and under addresses that never change."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Header, HTTPException, Response

from dumbwaiter import component
from dumbwaiter.api.downloads import matches


def component_routes() -> APIRouter:
    """`/dumbwaiter.js` and its neighbours. Anybody may have them: they are the same for all."""
    router = APIRouter(include_in_schema=False)

    @router.get("/dumbwaiter-{digest}/{name}")
    def kept(digest: str, name: str, accept_encoding: Annotated[str, Header()] = "") -> Response:
        """What a page of an older version asks for gets today's file, and is told to ask again."""
        return sent(name, accept_encoding, forever=digest == component.digest())

    for name in component.MEDIA_TYPES:
        router.add_api_route(f"/{name}", plain(name))

    return router


def plain(name: str) -> Callable[..., Response]:
    """Serves the file of that name as it is today."""

    def serve(
        accept_encoding: Annotated[str, Header()] = "",
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        return sent(name, accept_encoding, if_none_match=if_none_match)

    return serve


def sent(
    name: str, accept_encoding: str, *, if_none_match: str | None = None, forever: bool = False
) -> Response:
    if name not in component.MEDIA_TYPES:
        raise HTTPException(404)
    headers = {
        "Access-Control-Allow-Origin": "*",  # a module of another host is loaded with CORS only
        "Cache-Control": "public, max-age=31536000, immutable" if forever else "public, no-cache",
        "Cross-Origin-Resource-Policy": "cross-origin",
        "ETag": f'"{component.digest()}"',
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    if matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    body = component.text(name)
    if "gzip" in accept_encoding:
        headers["Content-Encoding"] = "gzip"
        body = component.compressed(name)
    return Response(body, headers=headers, media_type=component.MEDIA_TYPES[name])
