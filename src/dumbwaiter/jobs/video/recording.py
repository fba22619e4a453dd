"""A recorded session, read from what a stranger's page sent: checked, ordered, cleaned, ready for the player."""

from __future__ import annotations

import json
import math
import stat
import sys
import threading
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from dumbwaiter.jobs.video.errors import (
    AbsurdTimestamps,
    EmptyRecording,
    ExportCancelled,
    NoFullSnapshot,
    NoSuchWindow,
    NotARecording,
    NotARegularFile,
    NotJson,
    TooDeep,
    TooFewEvents,
    TooLarge,
)
from dumbwaiter.jobs.video.sanitise import sanitise
from dumbwaiter.jobs.video.shapes import Contents, Event, Json, open_container

MAX_BYTES = 128 << 20
MAX_UNPACKED = 256 << 20
DEFAULT_VIEWPORT = (1280, 720)
META, FULL_SNAPSHOT, INCREMENTAL = 4, 2, 3
EVENT_TYPES = range(7)
MUTATION, CANVAS = 0, 9
# Of a mouse, of a finger, of what is dragged.
MOVES = (1, 6, 12)
DAY_MS = 86_400_000.0
NO_TIME, FAR_AWAY, NO_EVENT = "no usable timestamp", "more than a day away from the rest", "not an event"
# Where times are broken, so little is no session any more: shorter than this, without every fourth event.
SHORTEST_REST_MS, LARGEST_LOSS = 1000.0, 0.25
# Half of a session's events come sooner after one another than so many seconds.
LONGEST_USUAL_GAP = 60.0
# Screens have 16 to 10,000 pixels a side; outside of that the picture is a strip or a speck.
SCREEN_SIDES = range(16, 10_001)
# JSON of a page 2,500 elements deep nests twice that, and a little more; C frames of the parser are about 200 bytes each.
RECURSION = 12_000
STACK_BYTES = 64 << 20
# JSON's whole numbers have no end; what is larger than this is no place on a page.
HUGE = 2**63
ASK_SECONDS = 0.1

T = TypeVar("T")


@dataclass(frozen=True)
class Recording:
    """One session, ready to be replayed.

    `events` is JSON (an array of rrweb events in order of time, cleaned); `duration_ms` the time from the first to the last;
    `viewport` the size of the page at the start, in CSS pixels. `warnings` say what had to be left out or assumed. `moments` are
    the milliseconds since the start at which something happens on the page.
    """

    events: bytes = field(repr=False)  # what somebody typed does not belong into logs
    event_count: int
    started_ms: float
    duration_ms: float
    viewport: tuple[int, int]
    title: str
    address: str
    has_canvas: bool
    warnings: tuple[str, ...]
    moments: Sequence[float] = field(default=(), repr=False)


def load(
    source: bytes | Path | str,
    *,
    max_bytes: int = MAX_BYTES,
    max_unpacked: int = MAX_UNPACKED,
    viewport: tuple[int, int] = DEFAULT_VIEWPORT,
    window: str | None = None,
    salvage: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
) -> Recording:
    """Read a recording.

    Args:
        source: a file (its path), or its bytes: an rrweb event array, alone or in one of the containers that `shapes` knows.
        max_bytes: the most bytes to read; max_unpacked: the most bytes they may unpack to.
        viewport: the page's size, for a recording that does not say it.
        window: the browser window to show, of a recording that has several.
        salvage: keep what is whole of a file that stops in the middle.
        cancelled: asked several times a second; a large recording takes half a minute.

    Raises:
        ExportCancelled: `cancelled` said so.
        RecordingError: one of its kinds says what is wrong; `user_message` is for the person who asked.

    Example:
        >>> recording = load(Path("session.json"))
        >>> recording.viewport
        (1280, 720)
    """
    raw = source if isinstance(source, bytes) else read_bounded(Path(source), max_bytes)
    if len(raw) > max_bytes:
        raise TooLarge(f"{len(raw):,} bytes, more than the allowed {max_bytes:,}")

    def build() -> Recording:
        contents = open_container(raw, limit=max_unpacked, salvage=salvage)
        return assemble(contents, viewport, window)

    return with_deep_stack(build, cancelled)


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """A regular file's bytes; a pipe or a device might never end."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise NotARegularFile("this is a directory; name a recording in it")
    if not stat.S_ISREG(mode):
        raise NotARegularFile("this is not a regular file")
    with path.open("rb") as file:
        raw = file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise TooLarge(f"more than the allowed {max_bytes:,} bytes")
    return raw


def with_deep_stack(build: Callable[[], T], cancelled: Callable[[], bool]) -> T:
    """Run `build` where deeply nested JSON can be parsed; it is parsed, and written again, by recursion.

    Nothing ends the parser in its middle: cancelled, it is left alone, and what it makes goes.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(build())
        except RecursionError:
            failures.append(TooDeep("the JSON is nested deeper than any recorded page"))
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, whatever it is
            failures.append(error)

    before = sys.getrecursionlimit()
    stack = threading.stack_size(STACK_BYTES)
    sys.setrecursionlimit(max(before, RECURSION))
    try:
        thread = threading.Thread(target=run, name="dumbwaiter-recording", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(ASK_SECONDS)
            if cancelled():
                raise ExportCancelled("the recording was still being read")
    finally:
        sys.setrecursionlimit(before)
        threading.stack_size(stack)
    if failures:
        raise failures[0]
    return results[0]


def assemble(contents: Contents, viewport: tuple[int, int], window: str | None) -> Recording:
    """From what a container held to a recording: the steps, in order."""
    warnings = Warnings(contents.warnings)
    entries = choose_window(contents.entries, window, warnings)
    events = well_formed(entries, warnings)
    events = in_order(events, warnings)
    events = one_session(events, warnings)
    events = from_first_snapshot(events, warnings)
    check_times(events, len(entries), warnings)
    events = with_viewport(events, viewport, warnings)
    dropped = sanitise(events)
    if dropped.count:
        warnings.add(str(dropped))
    try:
        text = json.dumps(events, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise NotJson("a number in it is larger than any that can be kept") from None
    first, last = events[0]["timestamp"], events[-1]["timestamp"]
    meta = next(event["data"] for event in events if event["type"] == META)
    size = (int(meta["width"]), int(meta["height"]))
    if any(side not in SCREEN_SIDES for side in size):
        warnings.add(
            f"the recording gives the page {size[0]}x{size[1]} pixels, which no screen has; the video is fitted to it"
        )
    return Recording(
        events=text,
        event_count=len(events),
        started_ms=first,
        duration_ms=last - first,
        viewport=size,
        title=title_of(events),
        address=str(meta.get("href", "")),
        has_canvas=any(e["type"] == INCREMENTAL and e["data"]["source"] == CANVAS for e in events),
        warnings=warnings.lines(),
        moments=array("d", moments(events)),
    )


def moments(events: list[Event]) -> Iterator[float]:
    """When something happens on the page, in milliseconds since the first event; each position of a pointer is a moment."""
    first = events[0]["timestamp"]
    for event in events:
        at = event["timestamp"] - first
        positions = event["data"].get("positions") if event["type"] == INCREMENTAL else None
        if not isinstance(positions, list):
            yield at
            continue
        for position in positions:
            offset = position.get("timeOffset", 0) if isinstance(position, dict) else 0
            yield at + (offset if isinstance(offset, int | float) and -DAY_MS < offset < DAY_MS else 0)


class Warnings:
    """What was left out or assumed, each thing once with its count."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = list(lines)
        self._counts: Counter[str] = Counter()

    def add(self, line: str) -> None:
        """Say something once."""
        self._lines.append(line)

    def drop(self, why: str) -> None:
        """Count an event that is left out."""
        self._counts[why] += 1

    def dropped(self, *reasons: str) -> int:
        """How many events are left out, for these reasons or for any."""
        return sum(self._counts[why] for why in reasons) if reasons else self._counts.total()

    def counts(self) -> str:
        """How many events are left out for which reason, in a line."""
        return ", ".join(f"{count:,} × {why}" for why, count in self._counts.items())

    def lines(self) -> tuple[str, ...]:
        """Everything, in the order in which it was noticed."""
        counted = [
            f"{count:,} event{'s' * (count > 1)} left out: {why}" for why, count in self._counts.items()
        ]
        return tuple(storable(line) for line in (*self._lines, *counted))


def choose_window(
    entries: list[tuple[str | None, Json]], wanted: str | None, warnings: Warnings
) -> list[Json]:
    """The events of one browser window: two windows in one file are two sessions."""
    windows = Counter(window for window, _ in entries)
    if set(windows) <= {None} and wanted is not None:
        raise NoSuchWindow(f"there is no window {wanted!r}: the recording names none")
    if len(windows) < 2 and wanted in {None, *windows}:
        return [entry for _, entry in entries]
    showable = {w for w, entry in entries if isinstance(entry, dict) and entry.get("type") == FULL_SNAPSHOT}
    if wanted is not None and wanted not in windows:
        raise NoSuchWindow(f"there is no window {wanted!r}; there are: {', '.join(map(str, windows))}")
    chosen = wanted or max(windows, key=lambda window: (window in showable, windows[window]))
    others = ", ".join(str(window) for window in windows if window != chosen)
    warnings.add(f"the recording has {len(windows)} windows; shown is {chosen}, not {others}")
    return [entry for window, entry in entries if window == chosen]


def well_formed(entries: list[Json], warnings: Warnings) -> list[Event]:
    """The entries that are rrweb events, with what they may lack filled in."""
    if not entries:
        raise EmptyRecording("there are no events")
    events = []
    for entry in entries:
        event, fault = checked(entry)
        if event is None:
            warnings.drop(fault)
        else:
            events.append(event)
    if not events and warnings.dropped(NO_EVENT) == len(entries):
        raise NotARecording("the JSON contains no rrweb event")
    if not events:
        raise NotARecording(f"no event has what rrweb needs: {warnings.counts()}")
    if len(events) < 2:
        others = f", and others that cannot be shown: {warnings.counts()}" if warnings.dropped() else ""
        alone = "" if events[0]["type"] == FULL_SNAPSHOT else ", and no full snapshot (type 2)"
        raise TooFewEvents(f"a recording needs at least 2 events, this one has {len(events)}{alone}{others}")
    return in_milliseconds(events)


def checked(entry: Json) -> tuple[Event | None, str]:
    """An entry as an event, or what is wrong with it."""
    if not isinstance(entry, dict) or "type" not in entry:
        return None, NO_EVENT
    kind = entry.get("type")
    if not isinstance(kind, int) or isinstance(kind, bool) or kind not in EVENT_TYPES:
        return None, "unknown type"
    time = milliseconds(entry.get("timestamp"))
    if time is None:
        return None, NO_TIME
    data = entry.get("data")
    if data is None and kind not in (META, FULL_SNAPSHOT, INCREMENTAL):
        data = {}
    if not isinstance(data, dict):
        return None, "no data"
    event = {"type": kind, "data": data, "timestamp": time}
    return (event, "") if complete(kind, data) else (None, "incomplete data")


def milliseconds(timestamp: Json) -> float | None:
    """A timestamp as a number: it is one, or a date as ISO 8601 has it."""
    if isinstance(timestamp, bool) or timestamp is None:
        return None
    if isinstance(timestamp, int | float):
        return timestamp if abs(timestamp) < 2**63 and math.isfinite(timestamp) else None
    try:
        # to the microsecond, which a float of this size still tells apart
        return round(datetime.fromisoformat(str(timestamp)).timestamp() * 1000, 3)
    except (ValueError, OverflowError):
        return None


def complete(kind: int, data: dict[str, Any]) -> bool:
    """Whether the player can take this event; lists that a mutation lacks are filled in."""
    if kind == FULL_SNAPSHOT:
        offset = data.get("initialOffset")
        if not isinstance(offset, dict):
            data["initialOffset"] = {"top": 0, "left": 0}
        return isinstance(data.get("node"), dict) and isinstance(data["node"].get("childNodes"), list)
    if kind == INCREMENTAL:
        source = data.get("source")
        if not isinstance(source, int) or isinstance(source, bool):
            return False
        if source == MUTATION:
            complete_mutation(data)
        if source in MOVES:
            return complete_positions(data)
    return True


def complete_positions(data: dict[str, Any]) -> bool:
    """Leave out positions of a pointer that are none, and give one its time: without it all that follows would be held up. False if none is left."""
    items = data.get("positions")
    data["positions"] = [
        item
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, dict) and all(is_number(item.get(name)) for name in ("x", "y"))
    ]
    for item in data["positions"]:
        offset = item.get("timeOffset")
        if not is_number(offset) or abs(offset) > DAY_MS:
            item["timeOffset"] = 0
    return bool(data["positions"])


def is_number(value: object) -> bool:
    """Whether it is a number that a browser has too, and not True or False."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < HUGE if isinstance(value, int) else math.isfinite(value)


def complete_mutation(data: dict[str, Any]) -> None:
    """Make the four lists of a mutation lists of objects: the player walks them without looking."""
    for name in ("texts", "attributes", "removes", "adds"):
        items = data.get(name)
        data[name] = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    data["attributes"] = [item for item in data["attributes"] if isinstance(item.get("attributes"), dict)]
    data["adds"] = [item for item in data["adds"] if isinstance(item.get("node"), dict)]


def in_milliseconds(events: list[Event]) -> list[Event]:
    """Times in seconds become milliseconds."""
    if not in_seconds(sorted(event["timestamp"] for event in events)):
        return events
    return [{**event, "timestamp": event["timestamp"] * 1000} for event in events]


def in_seconds(times: Sequence[float]) -> bool:
    """Whether these times, in order, are seconds.

    Those since 1970 would lie in January 1970 as milliseconds; a page's tests may mean that, and then they are too far apart for seconds.
    Those since the session began would be more than one in each millisecond.
    """
    middle = times[len(times) // 2]
    if 1e9 <= middle < 1e10:
        gaps = sorted(after - before for before, after in pairwise(times))
        return gaps[len(gaps) // 2] < LONGEST_USUAL_GAP
    fractions = any(time != int(time) for time in times)
    return 0 <= times[0] and middle < 1e6 and fractions and len(times) > times[-1] - times[0] > 0


def in_order(events: list[Event], warnings: Warnings) -> list[Event]:
    """By time, each event once."""
    ordered = sorted(events, key=lambda event: event["timestamp"])
    if any(a is not b for a, b in zip(events, ordered, strict=True)):
        warnings.add("the events were not in order of time and have been sorted")
    unique: list[Event] = []
    for event in ordered:
        if repeats(event, unique):
            warnings.drop("duplicate")
        else:
            unique.append(event)
    return unique


def repeats(event: Event, earlier: list[Event]) -> bool:
    """Whether an equal event stands among the few before it that have the same time."""
    for other in earlier[:-9:-1]:
        if other["timestamp"] != event["timestamp"]:
            return False
        if other == event:
            return True
    return False


def one_session(events: list[Event], warnings: Warnings) -> list[Event]:
    """The events around the full snapshots; what lies more than a day from them belongs to no session."""
    groups: list[list[Event]] = [[]]
    for event in events:
        if groups[-1] and event["timestamp"] - groups[-1][-1]["timestamp"] > DAY_MS:
            groups.append([])
        groups[-1].append(event)
    if len(groups) == 1:
        return events
    session = max(groups, key=lambda group: (any(e["type"] == FULL_SNAPSHOT for e in group), len(group)))
    if len(session) * 2 < len(events):
        raise AbsurdTimestamps(f"the events fall into {len(groups)} groups that are more than a day apart")
    for _ in range(len(events) - len(session)):
        warnings.drop(FAR_AWAY)
    return session


def from_first_snapshot(events: list[Event], warnings: Warnings) -> list[Event]:
    """Without the changes that come before the first full snapshot: there is no page to apply them to."""
    first = next((i for i, event in enumerate(events) if event["type"] == FULL_SNAPSHOT), None)
    if first is None:
        raise NoFullSnapshot(f"none of the {len(events):,} events is a full snapshot (type 2)")
    kept = []
    for index, event in enumerate(events):
        if index < first and event["type"] == INCREMENTAL:
            warnings.drop("before the first full snapshot")
        else:
            kept.append(event)
    if len(kept) < 2:
        raise TooFewEvents("only a full snapshot is left: nothing happens in this recording")
    return kept


def check_times(events: list[Event], entries: int, warnings: Warnings) -> None:
    """Refuse what is no session any more without the events whose times are broken; warn of one that lasts no time.

    Raises:
        AbsurdTimestamps
    """
    left_ms = events[-1]["timestamp"] - events[0]["timestamp"]
    lost = warnings.dropped(NO_TIME, FAR_AWAY)
    if lost and left_ms < SHORTEST_REST_MS:
        what = (
            f"{lost:,} of {entries:,} events have impossible times, and the others last {left_ms / 1000:g} s"
        )
        if lost >= entries * LARGEST_LOSS:
            raise AbsurdTimestamps(what)
        warnings.add(what)
    elif left_ms == 0:
        warnings.add("all events have one time: the video is a single picture")


def with_viewport(events: list[Event], default: tuple[int, int], warnings: Warnings) -> list[Event]:
    """Every Meta event has a size, and there is one at the first full snapshot or before."""
    width, height = default
    sized = []
    for event in events:
        if event["type"] == META and not has_size(event["data"]):
            warnings.add(f"a page without a usable size was taken as {width}x{height}")
            sized.append({**event, "data": {**event["data"], "width": width, "height": height}})
        else:
            sized.append(event)
    first = next(i for i, event in enumerate(sized) if event["type"] == FULL_SNAPSHOT)
    if not any(event["type"] == META for event in sized[:first]):
        later = next((event["data"] for event in sized if event["type"] == META), None)
        size = (
            {"width": later["width"], "height": later["height"]}
            if later
            else {"width": width, "height": height}
        )
        warnings.add(
            f"the recording does not say its size at the start; taken as {size['width']}x{size['height']}"
        )
        sized.insert(
            first, {"type": META, "data": {"href": "", **size}, "timestamp": sized[first]["timestamp"]}
        )
    return sized


def storable(text: str) -> str:
    """The same without halves of characters, which no database and no JSON of ours takes."""
    return text.encode("utf-8", "replace").decode()


def has_size(data: dict[str, Any]) -> bool:
    """Whether width and height are numbers that a page can have."""
    sides = (data.get("width"), data.get("height"))
    return all(isinstance(s, int | float) and not isinstance(s, bool) and 1 <= s <= 1e7 for s in sides)


def title_of(events: list[Event]) -> str:
    """The recorded page's title, or an empty string."""
    waiting = deque([next(event["data"]["node"] for event in events if event["type"] == FULL_SNAPSHOT)])
    while waiting:
        node = waiting.popleft()
        children = node.get("childNodes", ())  # `sanitise` has looked at them
        if node.get("tagName") == "title":
            words = "".join(str(child.get("textContent", "")) for child in children).split()
            return storable(" ".join(words)[:200])
        if node.get("tagName") != "body":
            waiting.extend(children)
    return ""
