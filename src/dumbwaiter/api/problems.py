"""Errors as FastAPI answers: problem details, made in one place for every route."""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from dumbwaiter.api.refusals import MEDIA_TYPE, Refusal, refused

__all__ = ["ProblemRoute", "Refusal", "problems", "response", "told"]

TEXT = {"type": "string"}
SCHEMA = {
    "title": "Problem",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": TEXT | {"description": "`about:blank`, or `urn:dumbwaiter:` and the name of the problem"},
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "errors": {
            "description": "each argument that cannot be, and why",
            "type": "array",
            "items": {"type": "object", "properties": {"path": TEXT, "message": TEXT}},
        },
        "task": {"description": "the task as it stands, where a move was refused", "type": "object"},
    },
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries of errors; 401 and 403 are what the application's `authorize` may answer."""
    content = {MEDIA_TYPE: {"schema": SCHEMA}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in (*statuses, 401, 403, 503)
    }


class ProblemRoute(APIRoute):
    """A route whose errors are problem details, whatever the application around it does with its own."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                refusal = told(error)
                if refusal is None:
                    raise
                return self.refuse(request, refusal)

        return handler

    def refuse(self, request: Request, refusal: Refusal) -> Response:
        """How a refusal is sent."""
        return response(refusal)


def told(error: Exception) -> Refusal | None:
    """What an error means to a client, FastAPI's own errors among them."""
    match error:
        case RequestValidationError():
            faults = [
                {"path": ".".join(str(part) for part in fault["loc"]), "message": str(fault["msg"])}
                for fault in error.errors()
            ]
            detail = "; ".join(fault["message"] for fault in faults)
            return Refusal(422, "invalid-request", detail, errors=faults)
        case HTTPException() if error.status_code >= 400:
            return Refusal(error.status_code, "about:blank", str(error.detail), headers=error.headers)
    return refused(error)


def response(refusal: Refusal) -> Response:
    return Response(refusal.body, refusal.status, refusal.headers, media_type=MEDIA_TYPE)
