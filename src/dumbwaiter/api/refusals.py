"""What a client is told when something cannot be: RFC 9457 problem details, for whatever web framework sends them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from dumbwaiter import errors

MEDIA_TYPE = "application/problem+json"


class Refusal(Exception):
    """A request that is refused. `name` becomes the problem's type; `also` its further members."""

    def __init__(
        self, status: int, name: str, detail: str, *, headers: Mapping[str, str] | None = None, **also: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.name = name
        self.detail = detail
        self.headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **(headers or {})}
        self.also = also

    @property
    def body(self) -> str:
        """The problem as JSON text."""
        unnamed = self.name == "about:blank"
        title = HTTPStatus(self.status).phrase if unnamed else self.name.replace("-", " ").capitalize()
        kind = self.name if unnamed else f"urn:dumbwaiter:{self.name}"
        told = {"type": kind, "title": title, "status": self.status, "detail": self.detail, **self.also}
        return json.dumps(told, ensure_ascii=False)


def refused(error: Exception) -> Refusal | None:
    """What an error of ours means to a client; None for what is a fault of the server and belongs in its log."""
    match error:
        case Refusal():
            return error
        case errors.InvalidArguments():
            faults = [{"path": path, "message": message} for path, message in error.errors]
            detail = "; ".join(f"{path}: {message}" if path else message for path, message in error.errors)
            return Refusal(422, "invalid-arguments", detail, errors=faults)
        case errors.RequestKeyReused():
            return Refusal(
                422, "idempotency-key-reused", "This Idempotency-Key was sent before, for another request."
            )
        case errors.TooManyActive():
            detail = f"You have {error.active} tasks under way, and {error.most} are allowed. Wait for one to end, or cancel one."
            return Refusal(429, "too-many-active", detail, headers={"Retry-After": "5"})
        case errors.UnknownTask():
            return Refusal(404, "no-such-task", "There is no such task.")
        case errors.UnknownTaskType():
            return Refusal(404, "no-such-task-type", "There is no such task type.")
        case errors.UnknownUpload():
            return Refusal(404, "no-such-upload", "There is no such upload, or not for you.")
        case errors.UploadConflict():
            return Refusal(409, "upload-conflict", f"This upload: {error.why}.")
        case errors.UploadTooLarge():
            # whoever goes on sending is not listened to
            detail = f"An upload may have {error.limit:,} bytes at most."
            return Refusal(413, "too-large", detail, headers={"Connection": "close"})
        case errors.InvalidOption():
            return Refusal(400, "invalid-option", str(error))
        case errors.StoreError() | errors.FileStoreError():
            return Refusal(
                503,
                "unavailable",
                "Tasks and files cannot be reached at the moment.",
                headers={"Retry-After": "5"},
            )
    return None
