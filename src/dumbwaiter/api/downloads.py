"""How a file is sent: its headers, and the part of it that was asked for (RFC 9110 ranges)."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fastapi import Response
from fastapi.responses import RedirectResponse, StreamingResponse

from dumbwaiter.api.refusals import Refusal
from dumbwaiter.errors import FileGone
from dumbwaiter.files import FileStore, content_disposition
from dumbwaiter.task import ResultFile, Task

RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
# Long enough for a slow browser to follow the redirect, short enough that a leaked address is worth little.
LINK_LIFETIME = timedelta(minutes=5)

ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "the file", "content": {"application/octet-stream": {}}},
    206: {"description": "a part of the file"},
    304: {"description": "it has not changed"},
    307: {"description": "the file is there"},
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The headers of a request that bear on what is sent."""

    if_none_match: str | None = None
    if_range: str | None = None
    range: str | None = None


class Unsatisfiable(ValueError):
    """A range that lies outside the file."""


def file_of(task: Task, name: str, now: datetime) -> ResultFile:
    """The task's file of that name. Refuses with 404 what is not visible, with 410 what was removed."""
    for file in task.files:
        if file.name == name:
            if not file.available(now):
                raise Refusal(410, "file-expired", "This file was kept for a while and has been removed.")
            return file
    raise Refusal(404, "no-such-file", "This task has no such file.")


def answer(files: FileStore, file: ResultFile, asked: Asked, now: datetime) -> Response:
    """The file, a part of it, the address it is at, or that it has not changed."""
    link = files.link(file, expires=lifetime(file, now))
    if link is not None:
        return RedirectResponse(link, 307, {"Cache-Control": "private, no-store"})
    all_headers = headers(file)
    if matches(asked.if_none_match, all_headers["ETag"]):
        return Response(status_code=304, headers=all_headers)
    part = asked_part(asked, file)
    start, end = part or (0, file.size)
    all_headers["Content-Length"] = str(end - start)
    if part is not None:
        all_headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
    try:
        chunks = files.stream(file.object_key, start, end)
    except FileGone:
        raise Refusal(410, "file-missing", "The file is no longer where it was stored.") from None
    return StreamingResponse(chunks, 200 if part is None else 206, all_headers)


def lifetime(file: ResultFile, now: datetime) -> timedelta:
    """How long a link to the file is good: never longer than the file."""
    return LINK_LIFETIME if file.expires_at is None else min(LINK_LIFETIME, file.expires_at - now)


def headers(file: ResultFile) -> dict[str, str]:
    """What goes with the file whichever part is sent. A file may hold anything, so nothing in it may run as ours."""
    return {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Disposition": content_disposition(file.name),
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Type": file.content_type,
        "ETag": f'"{file.sha256}"',
        "X-Content-Type-Options": "nosniff",
    }


def asked_part(asked: Asked, file: ResultFile) -> tuple[int, int] | None:
    """The part to send; None for all, also when the client's copy is of another file."""
    if asked.if_range is not None and asked.if_range != f'"{file.sha256}"':
        return None
    try:
        return asked_range(asked.range, file.size)
    except Unsatisfiable:
        beyond = {"Content-Range": f"bytes */{file.size}"}
        raise Refusal(
            416, "range-not-satisfiable", f"The file has {file.size} bytes.", headers=beyond
        ) from None


def asked_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The bytes asked for as (start, end), the end exclusive; None for the whole file.

    A header that is no single byte range is ignored, as RFC 9110 allows. Raises Unsatisfiable.
    """
    match = RANGE.fullmatch(re.sub(r"\s", "", header or ""))
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        last = int(match[2])
        if last == 0 or size == 0:
            raise Unsatisfiable
        return max(size - last, 0), size
    start = int(match[1])
    end = int(match[2]) + 1 if match[2] else size
    if start >= size:
        raise Unsatisfiable
    return None if end <= start else (start, min(end, size))


def matches(header: str | None, tag: str) -> bool:
    """Whether an If-None-Match names the tag, weak or strong."""
    if header is None:
        return False
    bare = tag.removeprefix("W/")
    return any(part.strip() == "*" or part.strip().removeprefix("W/") == bare for part in header.split(","))
