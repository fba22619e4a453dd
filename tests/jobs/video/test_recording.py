"""Reading recordings: what is accepted, in which shapes, what is mended with a warning, what is refused and how."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from dumbwaiter.jobs.video import errors
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import plan
from dumbwaiter.jobs.video.recording import Recording, load
from tests.jobs.video.support import RECORDINGS, element, events_of, page, text

SHAPES = sorted(path.name for path in (RECORDINGS / "shapes").iterdir())
REFUSED = {
    "empty-array.json": errors.EmptyRecording,
    "empty-file.json": errors.EmptyRecording,
    "nan-timestamp.json": errors.NotJson,
    "no-full-snapshot.json": errors.NoFullSnapshot,
    "null.json": errors.NotARecording,
    "number.json": errors.NotARecording,
    "object.json": errors.NotARecording,
    "one-event.json": errors.TooFewEvents,
    "only-meta.json": errors.TooFewEvents,
    "truncated.json": errors.Truncated,
}
MENDED = {
    "huge-timestamp.json": "1 event left out: more than a day away from the rest",
    "zero-timestamp.json": "1 event left out: more than a day away from the rest",
    "shuffled.json": "the events were not in order of time and have been sorted",
}
WARNED = {
    "missing-timestamp.json": "12 events left out: no usable timestamp",
    "string-timestamp.json": "1 event left out: no usable timestamp",
    "no-meta.json": "the recording does not say its size at the start; taken as 1280x720",
    "unknown-types.json": "2 events left out: unknown type",
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_container_gives_the_same_events(name: str, form: Recording) -> None:
    loaded = load(RECORDINGS / "shapes" / name)
    assert json.loads(loaded.events) == json.loads(form.events)
    assert loaded.warnings == ()


@pytest.mark.parametrize(("name", "error"), REFUSED.items())
def test_what_cannot_be_shown_is_refused_by_name(name: str, error: type[errors.RecordingError]) -> None:
    with pytest.raises(error) as refusal:
        load(RECORDINGS / "broken" / name)
    assert not refusal.value.transient
    assert refusal.value.user_message.endswith((".", ")"))
    assert refusal.value.user_message != str(refusal.value)


@pytest.mark.parametrize(("name", "warning"), MENDED.items())
def test_damage_that_can_be_undone_leaves_the_same_session(name: str, warning: str, form: Recording) -> None:
    loaded = load(RECORDINGS / "broken" / name)
    assert warning in loaded.warnings
    assert times_and_sources(loaded) == times_and_sources(form)


def times_and_sources(recording: Recording) -> list[tuple[float, Any]]:
    """The order of events, those of one moment taken as equal."""
    return sorted((e["timestamp"], str(e["data"].get("source"))) for e in json.loads(recording.events))


@pytest.mark.parametrize(("name", "warning"), WARNED.items())
def test_what_is_left_out_is_said(name: str, warning: str) -> None:
    assert warning in load(RECORDINGS / "broken" / name).warnings


def test_title_address_and_size_are_known(form: Recording) -> None:
    assert (form.title, form.viewport) == ("报名表", (1280, 720))
    assert form.address == "http://site.recording.invalid/form.html"


def test_a_truncated_file_can_be_salvaged() -> None:
    loaded = load(RECORDINGS / "broken" / "truncated.json", salvage=True)
    assert loaded.event_count > 2
    assert "the file stops in the middle: what comes after is missing" in loaded.warnings


def test_a_truncated_gzip_is_truncated() -> None:
    packed = (RECORDINGS / "shapes" / "gzip.json.gz").read_bytes()
    with pytest.raises(errors.Truncated, match="compressed"):
        load(packed[:-40])


def test_a_byte_order_mark_and_other_encodings_are_read() -> None:
    plain = (RECORDINGS / "shapes" / "array.json").read_text()
    for encoding in ("utf-8-sig", "utf-16"):
        assert load(plain.encode(encoding)).title == "报名表"


def test_an_array_a_line_is_read() -> None:
    events = events_of("shapes/array.json")
    lines = "\n".join(json.dumps(events[start : start + 20]) for start in range(0, len(events), 20))
    assert load(lines.encode()).event_count == len(events)


def test_events_under_data_and_events_are_found() -> None:
    events = events_of("shapes/array.json")
    assert load(json.dumps({"data": {"events": events}}).encode()).event_count == len(events)


def test_a_compressed_part_of_an_event_is_unpacked() -> None:
    events = events_of("shapes/array.json")
    snapshot = next(event for event in events if event["type"] == 2)
    snapshot["data"] = gzip.compress(json.dumps(snapshot["data"]).encode()).decode("latin-1")
    snapshot["cv"] = "2024-10"
    assert load(json.dumps(events).encode()).title == "报名表"


def test_of_two_windows_one_is_shown_and_the_other_named() -> None:
    events = events_of("shapes/array.json")
    lines = [{"window_id": "a", "data": events}, {"window_id": "b", "data": events[:10]}]
    loaded = load("\n".join(json.dumps(line) for line in lines).encode())
    assert loaded.event_count == len(events)
    assert loaded.warnings == ("the recording has 2 windows; shown is a, not b",)
    assert load("\n".join(json.dumps(line) for line in lines).encode(), window="b").event_count == 10
    for source in ("\n".join(json.dumps(line) for line in lines).encode(), json.dumps(events).encode()):
        with pytest.raises(errors.NoSuchWindow, match="there is no window 'c'") as refused:
            load(source, window="c")
        assert refused.value.user_message == "The recording has no window of that name."


def test_duplicates_are_dropped() -> None:
    events = events_of("shapes/array.json")
    loaded = load(json.dumps([*events, *events[:5]]).encode())
    assert loaded.event_count == len(events)
    assert "5 events left out: duplicate" in loaded.warnings


def test_times_in_seconds_are_understood() -> None:
    events = events_of("shapes/array.json")
    for event in events:
        event["timestamp"] /= 1000
    assert load(json.dumps(events).encode()).duration_ms == pytest.approx(6719)


def test_times_in_seconds_since_the_session_began_are_understood() -> None:
    events = events_of("shapes/array.json")
    first = events[0]["timestamp"]
    for event in events:
        event["timestamp"] = (event["timestamp"] - first) / 1000
    assert load(json.dumps(events).encode()).duration_ms == pytest.approx(6719)


def test_milliseconds_of_a_clock_that_began_in_1970_are_not_taken_for_seconds() -> None:
    events = events_of("shapes/array.json")
    for number, event in enumerate(events):
        event["timestamp"] = 1_900_000_000 + number * 500
    loaded = load(json.dumps(events).encode())
    assert (loaded.started_ms, loaded.duration_ms) == (1_900_000_000, 39_000)


def test_whole_seconds_that_several_events_share_are_understood() -> None:
    events = events_of("shapes/array.json")
    for number, event in enumerate(events):
        event["timestamp"] = 1_900_000_000 + number // 4
    assert load(json.dumps(events).encode()).duration_ms == 19_000


def test_a_stream_that_was_packed_into_a_string_is_read_from_a_file_of_it() -> None:
    events = events_of("shapes/array.json")
    packed = zlib.compress(json.dumps(events).encode()).decode("latin-1")
    assert load(packed.encode()).event_count == len(events)
    assert load(json.dumps(packed).encode()).event_count == len(events)
    with pytest.raises(errors.RecordingError):
        load(packed[:-100].encode())


def test_changes_before_the_first_snapshot_are_left_out() -> None:
    events = events_of("shapes/array.json")
    moved = {"source": 1, "positions": [{"x": 1, "y": 1, "id": 5, "timeOffset": 0}]}
    early = {"type": 3, "data": moved, "timestamp": events[0]["timestamp"] - 500}
    assert (
        "1 event left out: before the first full snapshot"
        in load(json.dumps([early, *events]).encode()).warnings
    )


def test_a_session_in_pieces_days_apart_is_refused() -> None:
    events = events_of("shapes/array.json")[:12]
    for number, event in enumerate(events):
        event["timestamp"] += number * 200_000_000
    with pytest.raises(errors.AbsurdTimestamps):
        load(json.dumps(events).encode())


def of_times(*times: float) -> bytes:
    """A small session whose events have these times."""
    events = events_of("shapes/array.json")[: len(times)]
    return json.dumps(
        [{**event, "timestamp": time} for event, time in zip(events, times, strict=True)]
    ).encode()


@pytest.mark.parametrize("broken", [0, 10**17, "never"])
def test_what_broken_times_leave_is_refused_when_it_is_no_session(broken: Any) -> None:
    start = 1_700_000_000_000
    with pytest.raises(errors.AbsurdTimestamps, match="1 of 3 events"):
        load(of_times(start, start + 10, broken))
    assert load(of_times(start, start + 5000, broken)).duration_ms == 5000


def test_few_broken_times_and_no_time_at_all_are_warned_of() -> None:
    start = 1_700_000_000_000
    short = load(of_times(start, start, start, start, start + 20, 0))
    assert "1 of 6 events have impossible times, and the others last 0.02 s" in short.warnings
    assert load(of_times(start, start)).warnings == (
        "all events have one time: the video is a single picture",
    )


@pytest.mark.parametrize("width", [999_999, 2])
def test_a_page_larger_or_smaller_than_any_screen_is_warned_of(width: int) -> None:
    events = events_of("shapes/array.json")
    for event in events:
        if event["type"] == 4:
            event["data"]["width"] = width
    [warning] = load(json.dumps(events).encode()).warnings
    assert f"{width}x720 pixels, which no screen has" in warning


def test_events_that_lack_what_rrweb_needs_are_told_from_no_events() -> None:
    with pytest.raises(errors.NotARecording, match="2 × incomplete data, 1 × unknown type"):
        load(
            json.dumps(
                [
                    {"type": 2, "timestamp": 1, "data": {}},
                    {"type": 3, "timestamp": 2, "data": {}},
                    {"type": "click", "timestamp": 3},
                ]
            ).encode()
        )
    with pytest.raises(errors.NotARecording, match="contains no rrweb event"):
        load(b'[{"name": "Ada"}, {"name": "Eve"}]')


def test_a_recording_longer_than_allowed_is_refused() -> None:
    long = load(page(seconds=3 * 3600))
    with pytest.raises(errors.TooLong, match="3:00:00"):
        plan(long, Options())


def test_a_file_larger_than_allowed_is_not_read() -> None:
    with pytest.raises(errors.TooLarge):
        load(RECORDINGS / "shapes" / "array.json", max_bytes=1000)


def test_a_sparse_file_of_five_gigabytes_is_not_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(5 << 30)
    with pytest.raises(errors.TooLarge):
        load(huge, max_bytes=1 << 20)


def test_a_bomb_is_not_unpacked() -> None:
    with pytest.raises(errors.TooLarge, match="unpacks"):
        load(gzip.compress(b" " * (64 << 20)), max_unpacked=1 << 20)


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(errors.NotARegularFile):
        load(pipe)


def test_endless_nesting_is_refused() -> None:
    with pytest.raises(errors.TooDeep):
        load(b"[" * 200_000 + b"]" * 200_000)


def test_a_page_nested_deeper_than_any_is_refused() -> None:
    node = text("deep", 9)
    for number in range(4000):
        node = {"type": 2, "tagName": "div", "attributes": {}, "childNodes": [node], "id": 100 + number}
    import sys

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        deep = page(node)
    finally:
        sys.setrecursionlimit(before)
    with pytest.raises(errors.TooDeep):
        load(deep)


def test_targets_outside_the_recording_are_left_out_and_those_inside_kept() -> None:
    inside = element("img", id=10, src="data:image/gif;base64,AA", onload="alert(1)")
    outside = element(
        "img", id=11, src="http://canary.invalid/a.png", srcset="http://canary.invalid/b.png 2x"
    )
    head = element("link", id=12, rel="stylesheet", href="http://canary.invalid/c.css")
    frame = element("iframe", id=13, src="http://canary.invalid/d", srcdoc="<img src=x>")
    loaded = load(
        page(inside, outside, element("a", id=14, href="http://canary.invalid/e"), frame, head=(head,))
    )
    left = loaded.events.decode()
    assert "data:image/gif;base64,AA" in left
    assert [word for word in ("a.png", "b.png", "c.css", "/d", "srcdoc", "alert") if word in left] == []
    assert "canary.invalid/e" in left, "a link loads nothing until somebody follows it"


def test_nothing_but_null_and_wrong_types_does_not_upset_the_reader() -> None:
    odd: list[Any] = [
        None,
        5,
        "word",
        [],
        {},
        {"type": 3, "timestamp": 1},
        {"type": 2, "timestamp": 1, "data": {"node": None}},
    ]
    for entry in odd:
        with pytest.raises(errors.RecordingError):
            load(json.dumps([entry, entry]).encode())


@pytest.mark.parametrize("odd", [None, 5, "word", [], [5], {}, True])
def test_parts_of_a_page_that_are_not_what_they_should_be_do_not_upset_the_reader(odd: Any) -> None:
    node = element("p", text("words", 10), id=9)
    for changed in ({**node, "childNodes": odd}, {**node, "attributes": odd}, {**node, "id": odd}):
        events = json.loads(page(changed))
        data = {"source": 0, "attributes": [{"id": odd, "attributes": {"src": "http://canary.invalid/a"}}]}
        events.append({"type": 3, "data": data, "timestamp": events[-1]["timestamp"]})
        loaded = load(json.dumps(events).encode())
        assert loaded.event_count == 4
        [shown] = json.loads(loaded.events)[1]["data"]["node"]["childNodes"][1]["childNodes"][1]["childNodes"]
        assert isinstance(shown["childNodes"], list)
        assert isinstance(shown["attributes"], dict)
