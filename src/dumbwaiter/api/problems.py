"""Errors as HTTP answers: RFC 9457 problem details, made in one place for every route."""

import json
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from dumbwaiter import errors

MEDIA_TYPE = "application/problem+json"
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


class Refusal(Exception):
    """A request that a route refuses. `name` becomes the problem's type; `also` its further members."""

    def __init__(
        self, status: int, name: str, detail: str, *, headers: dict[str, str] | None = None, **also: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.name = name
        self.detail = detail
        self.headers = headers
        self.also = also

    def response(self) -> Response:
        title = (
            HTTPStatus(self.status).phrase
            if self.name == "about:blank"
            else self.name.replace("-", " ").capitalize()
        )
        body = {
            "type": "about:blank" if self.name == "about:blank" else f"urn:dumbwaiter:{self.name}",
            "title": title,
            "status": self.status,
            "detail": self.detail,
            **self.also,
        }
        text = json.dumps(body, ensure_ascii=False)
        headers = {"Cache-Control": "no-store", **(self.headers or {})}
        return Response(text, self.status, headers, media_type=MEDIA_TYPE)


class ProblemRoute(APIRoute):
    """A route whose errors are problem details, whatever the application around it does with its own."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                refusal = refused(error)
                if refusal is None:
                    raise
                return refusal.response()

        return handler


def refused(error: Exception) -> Refusal | None:
    """What an error means to a client; None for what is a fault of the server and belongs in its log."""
    match error:
        case Refusal():
            return error
        case errors.InvalidArguments():
            faults = [{"path": path, "message": message} for path, message in error.errors]
            detail = "; ".join(f"{path}: {message}" if path else message for path, message in error.errors)
            return Refusal(422, "invalid-arguments", detail, errors=faults)
        case errors.RequestKeyReused():
            return Refusal(
                422, "idempotency-key-reused", "This Idempotency-Key was sent before with another body."
            )
        case errors.UnknownTask():
            return Refusal(404, "no-such-task", "There is no such task.")
        case errors.UnknownTaskType():
            return Refusal(404, "no-such-task-type", "There is no such task type.")
        case errors.InvalidOption():
            return Refusal(400, "invalid-option", str(error))
        case errors.StoreError() | errors.FileStoreError():
            return Refusal(
                503,
                "unavailable",
                "Tasks and files cannot be reached at the moment.",
                headers={"Retry-After": "5"},
            )
        case RequestValidationError():
            faults = [
                {"path": ".".join(str(part) for part in fault["loc"]), "message": str(fault["msg"])}
                for fault in error.errors()
            ]
            return Refusal(
                422, "invalid-request", "; ".join(fault["message"] for fault in faults), errors=faults
            )
        case HTTPException() if error.status_code >= 400:
            return Refusal(
                error.status_code, "about:blank", str(error.detail), headers=dict(error.headers or {})
            )
    return None
