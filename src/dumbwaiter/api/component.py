"""Serves the custom elements and the recorder beside the task routes: under plain names, and under addresses that never change."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Header, HTTPException, Response

from dumbwaiter import component, recorder
from dumbwaiter.api.downloads import matches

# Which files each name belongs to.
SHELF = {name: files for files in (component.FILES, recorder.FILES) for name in files.media_types}


def component_routes() -> APIRouter:
    """`/dumbwaiter.js` and its neighbours. Anybody may have them: they are the same for all."""
    router = APIRouter(include_in_schema=False)

    @router.get("/dumbwaiter-{digest}/{name}")
    def kept(digest: str, name: str, accept_encoding: Annotated[str, Header()] = "") -> Response:
        """What a page of an older version asks for gets today's file, and is told to ask again."""
        return sent(name, accept_encoding, digest)

    for name in SHELF:
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
    name: str, accept_encoding: str, digest: str | None = None, *, if_none_match: str | None = None
) -> Response:
    """The file; it may be kept for good if it was asked for by the digest that it has today."""
    if (files := SHELF.get(name)) is None:
        raise HTTPException(404)
    forever = digest == files.digest()
    headers = {
        "Access-Control-Allow-Origin": "*",  # a module of another host is loaded with CORS only
        "Cache-Control": "public, max-age=31536000, immutable" if forever else "public, no-cache",
        "Cross-Origin-Resource-Policy": "cross-origin",
        "ETag": f'"{files.digest()}"',
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    if matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    body = files.text(name)
    if "gzip" in accept_encoding:
        headers["Content-Encoding"] = "gzip"
        body = files.compressed(name)
    return Response(body, headers=headers, media_type=files.media_types[name])
