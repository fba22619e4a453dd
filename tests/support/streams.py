"""Reading server-sent events as a browser does (WHATWG HTML, section 9.2.6)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    name: str
    id: str
    data: dict[str, Any]
    retry: int | None = None


def events(lines: Iterable[str]) -> Iterator[Event]:
    """The events among the lines of a stream; comments are left out."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            retry = int(fields["retry"]) if "retry" in fields else None
            yield Event(
                fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"]), retry
            )
        fields = {}
