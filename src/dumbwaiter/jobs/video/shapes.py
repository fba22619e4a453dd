"""The containers that recordings come in: bytes in, the events inside out. Pure, and bounded in what it unpacks."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any, NoReturn

from dumbwaiter.jobs.video.errors import EmptyRecording, NotARecording, NotJson, TooLarge, Truncated

Json = Any
Event = dict[str, Any]

GZIP = b"\x1f\x8b"
ZLIB_HEADERS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
# What @rrweb/packer gives is a string; a file of it has each of these bytes as a character.
PACKED = tuple(header.decode("latin-1") for header in ZLIB_HEADERS)
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# More would take gigabytes of memory; thirty megabytes of a page have half a million.
MAX_VALUES = 10_000_000
AUTO_HEADER = 32 + zlib.MAX_WBITS  # zlib's own number for "gzip or zlib, look yourself"
EVENT_LISTS = ("events", "snapshots", "data")
HEADER_LINE_LIMIT = 4096
PACKINGS = 3  # gzip in a segment in gzip is as deep as anything seen


@dataclass
class Contents:
    """What a container held: each thing that stands where an event should, with the window it belongs to."""

    limit: int
    entries: list[tuple[str | None, Json]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unpacked: int = 0
    values: int = 0

    def charge(self, count: int) -> None:
        """Count bytes that came out of a packing against the limit."""
        self.unpacked += count
        if self.unpacked > self.limit:
            raise TooLarge(f"unpacks to more than the allowed {self.limit:,} bytes")

    def count(self, text: str) -> None:
        """Count the values of JSON against what they may be together; a list of `{}` takes fifty times its text of memory.

        Raises:
            TooLarge: they would take gigabytes of memory.
        """
        self.values += text.count(",") + text.count("{") + text.count("[")
        if self.values > MAX_VALUES:
            raise TooLarge(f"some {self.values:,} values, more than the allowed {MAX_VALUES:,}")


def open_container(raw: bytes, *, limit: int, salvage: bool = False) -> Contents:
    """Find the events in `raw`, whatever they are wrapped in.

    Args:
        raw: a file's bytes.
        limit: the most bytes that unpacking may produce.
        salvage: keep the whole events before the place where a truncated file stops.

    Raises:
        EmptyRecording, NotJson, Truncated, TooLarge
    """
    contents = Contents(limit)
    text = as_text(unpack(raw, contents))
    if text.startswith(PACKED):
        text = as_text(inflate(text.encode("latin-1", "replace"), contents))
    if not text.strip("\ufeff \t\r\n\0"):
        raise EmptyRecording("the file is empty")
    for value in values(text, contents, salvage):
        collect(value, None, contents)
    return contents


def unpack(raw: bytes, contents: Contents) -> bytes:
    """Undo gzip and zlib, and step over the header line of a Sentry segment."""
    for _ in range(PACKINGS):
        if raw.startswith(GZIP) or raw.startswith(ZLIB_HEADERS):
            raw = inflate(raw, contents)
        elif (body := after_segment_header(raw)) is not None:
            raw = body
        else:
            break
    return raw


def inflate(packed: bytes, contents: Contents) -> bytes:
    """Decompress gzip (all members) or zlib, up to the limit."""
    parts: list[bytes] = []
    while packed:
        stream = zlib.decompressobj(AUTO_HEADER)
        try:
            part = stream.decompress(packed, contents.limit - contents.unpacked + 1)
        except zlib.error as error:
            if parts:  # padding after the last member
                break
            raise NotJson(f"looks compressed but cannot be decompressed: {error}") from None
        contents.charge(len(part))
        parts.append(part)
        if not stream.eof:
            raise Truncated("the compressed data stops in the middle")
        packed = stream.unused_data if stream.unused_data.startswith(GZIP) else b""
    return b"".join(parts)


def after_segment_header(raw: bytes) -> bytes | None:
    """The body of a Sentry segment: its first line is `{"segment_id": n}`."""
    line, newline, _ = raw[:HEADER_LINE_LIMIT].partition(b"\n")
    if not newline or b'"segment_id"' not in line:
        return None
    return raw[len(line) + 1 :]


def as_text(raw: bytes) -> str:
    """UTF-8 with or without a byte-order mark, or UTF-16 with one."""
    encoding = "utf-16" if raw.startswith(UTF16_MARKS) else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        if error.end == len(raw) and error.reason == "unexpected end of data":
            raise Truncated(f"the file stops inside a character, at byte {error.start:,}") from None
        raise NotJson(f"not text: {error.reason} at byte {error.start:,}") from None


def values(text: str, contents: Contents, salvage: bool) -> list[Json]:
    """The JSON values in `text`: one, or one a line."""
    contents.count(text)
    try:
        return [parse(text)]
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and (lines := parse_lines(text, contents, salvage)) is not None:
            return lines
        if not stops_early(text, error):
            if error.pos == 0:
                raise NotJson("this is no recording: it does not begin as JSON does") from None
            raise NotJson(f"invalid JSON at character {error.pos:,}: {error.msg}") from None
        if salvage:
            return [whole_items(text, contents)]
        raise Truncated(f"the JSON stops in the middle, at character {error.pos:,}: {error.msg}") from None


def parse_lines(text: str, contents: Contents, salvage: bool) -> list[Json] | None:
    """One JSON value a line; None when the first line is none."""
    lines = [line for line in text.split("\n") if line.strip()]
    found: list[Json] = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(parse(line))
        except json.JSONDecodeError as error:
            if number == 1:
                return None
            if number < len(lines) or not stops_early(line, error):
                raise NotJson(f"invalid JSON in line {number:,}: {error.msg}") from None
            if not salvage:
                raise Truncated(f"the JSON stops in the middle of line {number:,}") from None
            contents.warnings.append("the file stops in the middle: what comes after is missing")
    return found


def whole_items(text: str, contents: Contents) -> list[Json]:
    """The items of a truncated array, up to the cut."""
    start = text.find("[")
    decoder = json.JSONDecoder(parse_constant=no_constants)
    items: list[Json] = []
    at = start + 1
    while start >= 0:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            item, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            break
        items.append(item)
    contents.warnings.append("the file stops in the middle: what comes after is missing")
    return items


def parse(text: str) -> Json:
    """JSON as its standard has it: Python's own parser also takes NaN and Infinity."""
    try:
        return json.loads(text.lstrip("\ufeff"), parse_constant=no_constants)
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise NotJson(f"invalid JSON: {error}") from None


def no_constants(name: str) -> NoReturn:
    """Refuse NaN and Infinity."""
    raise NotJson(f"invalid JSON: it contains {name}, which JSON does not have")


def stops_early(text: str, error: json.JSONDecodeError) -> bool:
    """Whether the parser failed because the text ended, not because of what stands in it."""
    return error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip())


def collect(value: Json, window: str | None, contents: Contents) -> None:
    """Put what stands where events should into `contents`, however it is nested."""
    if isinstance(value, list):
        collect_list(value, window, contents)
    elif isinstance(value, str):
        collect_string(value, window, contents)
    elif isinstance(value, dict) and (inner := event_list(value)) is not None:
        collect(inner, window_of(value) or window, contents)
    elif isinstance(value, dict) and is_event(value):
        contents.entries.append((window_of(value) or window, unpack_parts(value, contents)))
    elif isinstance(value, dict) and not value:
        raise NotARecording("the JSON is an empty object")
    else:
        contents.entries.append((window, value))


def collect_list(items: list[Json], window: str | None, contents: Contents) -> None:
    """A list of events, of batches, or one `[window, event]` pair."""
    if len(items) == 2 and isinstance(items[0], str) and isinstance(items[1], dict) and is_event(items[1]):
        collect(items[1], items[0], contents)
        return
    for item in items:
        if item in ({}, []):
            contents.entries.append((window, item))
        else:
            collect(item, window, contents)


def collect_string(value: str, window: str | None, contents: Contents) -> None:
    """An event, or a whole stream, as a string: JSON, or zlib as latin-1 characters (@rrweb/packer)."""
    packed = value.encode("latin-1", "replace")
    try:
        text = inflate(packed, contents).decode() if packed.startswith((GZIP, *ZLIB_HEADERS)) else value
        contents.count(text)
        inner = parse(text)
    except (ValueError, NotJson, Truncated):
        contents.entries.append((window, value))
        return
    if isinstance(inner, dict | list):
        collect(inner, window, contents)
    else:
        contents.entries.append((window, value))


def event_list(value: dict[str, Json]) -> Json:
    """What holds the events in an object that is no event itself, or None."""
    if is_event(value):
        return None
    for name in EVENT_LISTS:
        if isinstance(value.get(name), list | dict | str):
            return value[name]
    return None


def is_event(value: dict[str, Json]) -> bool:
    """Whether this is meant as an rrweb event, good or bad."""
    return "type" in value and ("timestamp" in value or "data" in value)


def window_of(value: dict[str, Json]) -> str | None:
    """The browser window that an entry says it was recorded in."""
    name = value.get("window_id", value.get("windowId"))
    return str(name) if isinstance(name, str | int) else None


def unpack_parts(event: Event, contents: Contents) -> Event:
    """Undo PostHog's compression inside an event (`cv: 2024-10`): gzip as latin-1 characters."""
    if event.get("cv") != "2024-10":
        return event
    data = event.get("data")
    if isinstance(data, str):
        return {**event, "data": unpack_part(data, contents)}
    if isinstance(data, dict):
        return {**event, "data": {name: unpack_part(part, contents) for name, part in data.items()}}
    return event


def unpack_part(part: Json, contents: Contents) -> Json:
    """One compressed part, or the part itself when it is none."""
    if not isinstance(part, str) or not part.startswith("\x1f\x8b"):
        return part
    text = inflate(part.encode("latin-1", "replace"), contents).decode("utf-8", "replace")
    contents.count(text)
    return parse(text)
