"""Pages that do something unusual: every run shows the same, whoever draws it, and what cannot be followed is told."""

from __future__ import annotations

import base64
import gzip
import importlib
import io
import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

from dumbwaiter.jobs.video import shapes
from dumbwaiter.jobs.video.errors import ExportCancelled, NotJson, TooLarge
from dumbwaiter.jobs.video.export import Video
from dumbwaiter.jobs.video.recording import load
from dumbwaiter.jobs.video.segments import cut
from tests.jobs.video.support import (
    added,
    changes,
    decode,
    element,
    happening,
    page,
    replayed,
    text,
)

EXPORTS = importlib.import_module("dumbwaiter.jobs.video.export")
MUTATION, SCROLL, MOVE = 0, 3, 1
Happening = tuple[float, int, dict[str, Any]]
SQUARE = "width:100px;height:100px;background:"


def attributes(seconds: float, node: int, **values: str) -> Happening:
    return seconds, MUTATION, changes(attributes=[{"id": node, "attributes": values}])


def counter(seconds: float) -> tuple[dict[str, Any], list[Happening]]:
    """A number in a corner that changes ten times a second, so that there are pictures."""
    box = element("b", text("0", 91), id=90, style="position:fixed;left:0;top:330px")
    events = [
        (n / 10 + 0.05, MUTATION, changes(texts=[{"id": 91, "value": str(n)}]))
        for n in range(int(seconds * 10))
    ]
    return box, events


def styled(rules: str) -> dict[str, Any]:
    return element("style", {**text(rules, 81), "isStyle": True}, id=80)


def picture(width: int, height: int, colour: tuple[int, int, int] = (255, 0, 0)) -> str:
    """The address of a picture, whose size cannot be guessed from it."""
    file = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


@dataclass(frozen=True)
class Ways:
    """The pictures of a video made in one go, by two browsers, and from the middle of the recording on."""

    whole: Video
    two: Video
    late: Video

    @property
    def agree(self) -> bool:
        middle = self.whole.frames // 2
        shown = [sha256 for frame, sha256 in self.whole.picture_hashes if frame <= middle]
        return (
            self.whole.picture_hashes == self.two.picture_hashes
            and self.late.picture_hashes[0][1] == shown[-1]
        )


@pytest.fixture
def ways(make: Callable[..., Video], monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], Ways]:
    monkeypatch.setattr(EXPORTS, "cut", lambda likely: cut(likely, 10))

    def ways(raw: bytes) -> Ways:
        whole = make(raw)
        start = timedelta(seconds=whole.frames // 2 / 25)
        return Ways(whole, make(raw, workers=2), make(raw, start=start))

    return ways


def test_what_is_scrolled_when_the_page_grows_short_is_where_it_was_in_every_run(
    ways: Callable[[bytes], Ways],
) -> None:
    tall = "height:3000px;background:linear-gradient(red,blue)"
    box, events = counter(3.0)
    made = ways(
        happening(
            page(element("div", id=9, style=tall), box, seconds=3.0),
            (0.2, SCROLL, {"id": 1, "x": 0, "y": 1000}),
            attributes(1.0, 9, style="height:10px"),
            attributes(1.2, 9, style=tall),
            *events,
        )
    )
    assert made.agree


def test_a_picture_that_comes_before_the_page_is_scrolled_has_its_size_in_every_run(
    ways: Callable[[bytes], Ways],
) -> None:
    box, events = counter(3.0)
    pictures = [element("img", id=20 + n, src=picture(200, 900 + n), style="display:block") for n in range(2)]
    made = ways(
        happening(
            page(box, seconds=3.0),
            *((0.5, MUTATION, changes(adds=added(one, 5))) for one in pictures),
            (0.8, SCROLL, {"id": 1, "x": 0, "y": 600}),
            *events,
        )
    )
    assert made.agree


def test_what_the_browser_sizes_when_it_comes_onto_the_screen_is_there_in_every_run(
    ways: Callable[[bytes], Ways],
) -> None:
    """With `content-visibility: auto` a browser that draws nothing on its way finds other heights, and other places to scroll to."""
    rules = ".cv { content-visibility: auto; contain-intrinsic-size: auto 40px }"
    sections = [
        element(
            "div",
            *(element("p", text(f"{n} {'word ' * (n % 7 * 9 + 3)}", 300 + n), id=200 + n),),
            id=100 + n,
            **{"class": "cv"},
        )
        for n in range(25)
    ]
    box, events = counter(3.0)
    made = ways(
        happening(
            page(*sections, box, head=(styled(rules),), seconds=3.0),
            (0.4, SCROLL, {"id": 1, "x": 0, "y": 300}),
            (0.9, SCROLL, {"id": 1, "x": 0, "y": 600}),
            *events,
        )
    )
    assert made.agree


def test_what_is_fixed_between_two_pixels_looks_the_same_in_every_run_when_the_page_does_not_scroll_any_more(
    ways: Callable[[bytes], Ways],
) -> None:
    """The browser gives it a layer of its own while the page scrolls, and keeps that until something moves it."""
    note = "position:fixed;right:20px;bottom:20px;width:96.546875px;height:20px;border-radius:8px;background:green"
    box, events = counter(3.0)
    made = ways(
        happening(
            page(
                element("div", id=9, style="height:3000px"),
                element("div", text("taken", 11), id=10, style=note),
                box,
                seconds=3.0,
            ),
            attributes(0.4, 9, style="height:10px"),
            *events,
        )
    )

    assert made.agree


@pytest.mark.parametrize("tag", ["progress", "marquee"])
def test_what_moves_by_a_clock_of_the_browsers_stands_still(tag: str, ways: Callable[[bytes], Ways]) -> None:
    box, events = counter(2.0)
    moving = element(tag, text("words", 10), id=9, style="width:400px;height:40px")
    made = ways(happening(page(moving, box, seconds=2.0), *events))

    assert made.agree
    assert made.whole.warnings == (("a <marquee> stands still",) if tag == "marquee" else ())


def test_style_sheets_from_elsewhere_hold_nothing_up(tmp_path: Path) -> None:
    """The recorder took a new snapshot now and then; the colour tells which one is shown, and what happened after it."""
    head = element("link", id=77, rel="stylesheet", href="https://assets.recording.invalid/page.css")
    base = json.loads(page(seconds=9.0))
    first = base[0]["timestamp"]
    events = [base[0]]
    for number in range(4):
        colour = element("div", id=9, style=f"{SQUARE}rgb({number * 60}, 0, 0)")
        snapshot = json.loads(page(colour, head=(head,)))[1]
        later = attributes(1.0, 9, style=f"{SQUARE}rgb({number * 60}, 200, 0)")[2]
        at = first + number * 2000
        events += [
            {**snapshot, "timestamp": at},
            {"type": 3, "data": {"source": MUTATION, **later}, "timestamp": at + 1000},
        ]
    events.append(base[-1])

    with replayed(json.dumps(events).encode(), tmp_path, cursor=False) as shown:
        seen = [tuple(shown.at(2 * number + half)[50, 50]) for number in range(4) for half in (0.5, 1.5)]
    for number in range(4):
        before, after = seen[2 * number], seen[2 * number + 1]
        assert abs(before[0] - number * 60) < 12
        assert before[1] < 40
        assert abs(after[0] - number * 60) < 12
        assert after[1] > 160


def test_an_animation_that_follows_the_scrolling_follows_it(tmp_path: Path) -> None:
    rules = (
        "@keyframes fade { from { opacity: 1 } to { opacity: 0 } } "
        "div { height: 2000px; background: #f00; animation: fade linear both; animation-timeline: scroll() }"
    )
    recording = happening(
        page(element("div", id=9), head=(styled(rules),), seconds=2.0),
        (0.5, SCROLL, {"id": 1, "x": 0, "y": 800}),
    )
    with replayed(recording, tmp_path, cursor=False) as shown:
        before, after = shown.at(0.2)[100, 100], shown.at(1.0)[100, 100]
    assert before[1] < 30
    assert after[1] > 80  # the background shines through


def test_what_is_scrolled_inside_of_a_page_is_there_in_the_frame_of_its_moment(
    make: Callable[..., Video],
) -> None:
    """Of a box without a background of its own the browser drew it two frames later, so in a video whenever something else changed."""
    band = element("div", text("M" * 60, 11), id=9, style="height:200px;overflow:hidden;word-break:break-all")
    other = element("div", text("one", 12), id=10, style="height:2000px")
    box = element("div", band, other, id=8, style="width:200px;height:200px;overflow:scroll;font-size:40px")
    scrolled = {0.5: 200, 0.9: 0, 1.0: 300, 1.5: 10}
    video = make(
        happening(
            page(box, seconds=3.0), *((at, SCROLL, {"id": 8, "x": 0, "y": y}) for at, y in scrolled.items())
        ),
        cursor=False,
    )
    frames = decode(video.path)

    light = [bool(frames[math.ceil(at * 25)][60:180, 10:180].mean() > 250) for at in scrolled]
    assert light == [True, False, True, False]
    assert [frame for frame, _ in video.picture_hashes] == [0, *(math.ceil(at * 25) for at in scrolled)]


def test_a_transition_that_an_animation_begins_is_ours_from_its_first_frame_on(
    make: Callable[..., Video],
) -> None:
    """What is as wide as an animation says changes by a rule, with a transition, which begins when the page is laid out."""
    rules = (
        ".c { container-type: inline-size; overflow: auto; animation: narrow 3s infinite } "
        "@keyframes narrow { 50% { width: 100px } } "
        "@container (max-width: 200px) { p { color: red; font-size: 30px; transition: all 1s } }"
    )
    box = element("div", element("p", text("width", 11), id=10), id=9, **{"class": "c"})
    recording = happening(page(box, head=(styled(rules),), seconds=4.0))
    one, two, again = make(recording), make(recording, workers=2), make(recording)
    assert one.picture_hashes == two.picture_hashes == again.picture_hashes


def test_an_animation_that_the_page_stops_stands_and_goes_on_from_there(tmp_path: Path) -> None:
    look = "width:40px;height:40px;background:#f00;animation:go 4s linear infinite"
    rules = (
        "body { margin: 0 } @keyframes go { from { transform: none } to { transform: translateX(400px) } }"
    )
    recording = happening(
        page(element("div", id=9, style=look), head=(styled(rules),), seconds=4.0),
        attributes(1.0, 9, style=f"{look} paused"),
        attributes(2.5, 9, style=look),
    )

    def left(picture: Any) -> int:
        red = (picture[:, :, 0] > 200) & (picture[:, :, 1] < 80)
        return int(numpy.flatnonzero(red.any(0))[0])

    with replayed(recording, tmp_path, cursor=False) as shown:
        at = [left(shown.at(seconds)) for seconds in (0.48, 1.2, 2.4, 3.48)]
    assert at[0] == pytest.approx(48, abs=5)
    assert at[1] == at[2] == pytest.approx(100, abs=5)
    assert at[3] == pytest.approx(200, abs=10)


def test_a_frame_with_a_shadow_root_that_comes_and_goes_between_two_pictures_ends_nothing(
    make: Callable[..., Video],
) -> None:
    def inside(node: dict[str, Any]) -> dict[str, Any]:
        return {**node, "rootId": 30, "childNodes": [inside(child) for child in node.get("childNodes", [])]}

    host = element("div", {**element("p", text("in the shadow", 37), id=36), "isShadow": True}, id=35)
    html = element(
        "html", element("head", id=33), element("body", {**host, "isShadowHost": True}, id=34), id=32
    )
    document = {"type": 0, "id": 30, "childNodes": [inside(html)]}
    frame = element("iframe", id=29)
    recording = happening(
        page(element("p", text("a page", 10), id=9), seconds=1.0),
        (0.401, MUTATION, changes(adds=added(frame, 5))),
        (
            0.403,
            MUTATION,
            {**changes(adds=[{"parentId": 29, "nextId": None, "node": document}]), "isAttachIframe": True},
        ),
        (0.405, MUTATION, changes(removes=[{"parentId": 5, "id": 29}])),
        (0.7, MUTATION, changes(texts=[{"id": 10, "value": "goes on"}])),
    )
    assert make(recording).pictures >= 2


def test_the_poster_of_a_video_is_shown(make: Callable[..., Video]) -> None:
    poster = element("video", id=9, poster=picture(64, 36), width="640", height="360")
    video = make(page(poster, seconds=0.4), cursor=False)
    assert decode(video.path, 0)[0][100, 100] < 100  # red, and not the page


def bitmap(width: int, height: int) -> dict[str, Any]:
    """What rrweb records of a canvas of which it takes pictures: an ImageBitmap, drawn."""
    address = picture(width, height, (0, 160, 0))
    blob = {
        "rr_type": "Blob",
        "data": [{"rr_type": "ArrayBuffer", "base64": address.partition(",")[2]}],
        "type": "image/png",
    }
    drawn = {"rr_type": "ImageBitmap", "args": [blob]}
    return {"type": 0, "commands": [{"property": "drawImage", "args": [drawn, 0, 0]}]}


def test_a_canvas_shows_the_picture_that_it_was_given_in_the_frame_in_which_it_was(
    make: Callable[..., Video],
) -> None:
    canvas = element("canvas", id=9, width="640", height="360", style="position:fixed;inset:0")
    recording = happening(page(canvas, seconds=1.0), (0.2, 9, {"id": 9, **bitmap(3000, 2000)}))
    for _ in range(3):
        video = make(recording, canvas=True)
        before, at_once, last = decode(video.path, 4, 5, video.frames - 1)
        assert before[180, 320] > 200
        assert at_once[180, 320] == pytest.approx(last[180, 320], abs=3)
        assert last[180, 320] < 140


@pytest.mark.parametrize(
    "positions",
    [
        [{"x": 1, "y": 1, "id": 5}],
        [{"x": 1, "y": 1, "id": 5, "timeOffset": "late"}],
        [{"x": 1, "y": 1, "id": 5, "timeOffset": 1e300}],
        [None, {"x": 1, "y": 1, "id": 5, "timeOffset": 0}],
        [None],
        [],
        None,
    ],
)
def test_odd_places_of_a_pointer_hold_up_nothing_that_follows(
    positions: Any, make: Callable[..., Video]
) -> None:
    colour = element("div", id=9, style="position:fixed;inset:0;background:#f00")
    recording = happening(
        page(colour, seconds=1.0),
        (0.3, MOVE, {"positions": positions}),
        attributes(0.6, 9, style="position:fixed;inset:0;background:#fff"),
    )
    video = make(recording, cursor=False)
    assert decode(video.path, video.frames - 1)[0][100, 100] > 240


def test_nothing_after_the_end_is_shown_while_the_last_frame_is_held(make: Callable[..., Video]) -> None:
    words = element("p", text("one", 10), id=9, style="font-size:60px")
    recording = happening(
        page(words, seconds=3.0),
        *((at, MUTATION, changes(texts=[{"id": 10, "value": str(at)}])) for at in (0.5, 1.5, 2.5)),
    )
    video = make(recording, end=timedelta(seconds=1), hold=timedelta(seconds=2))

    assert video.frames == 26 + 50
    assert max(frame for frame, _ in video.picture_hashes) < 25
    assert video.time_map[-1][1] == pytest.approx(1.0, abs=0.001)


@pytest.mark.parametrize(("fps", "milliseconds"), [(24, 8_125), (12, 16_250)])
def test_the_last_event_is_in_the_last_frame(fps: int, milliseconds: int, make: Callable[..., Video]) -> None:
    events = json.loads(page(element("div", id=9, style="position:fixed;inset:0;background:#f00")))[:-1]
    last = attributes(0, 9, style="position:fixed;inset:0;background:#fff")[2]
    at = events[0]["timestamp"] + milliseconds
    events.append({"type": 3, "data": {"source": MUTATION, **last}, "timestamp": at})
    video = make(json.dumps(events).encode(), fps=fps)

    assert decode(video.path)[-1][100, 100] > 240


def test_a_whole_number_larger_than_any_page_costs_its_event_and_not_the_recording(
    make: Callable[..., Video],
) -> None:
    far = [
        {"x": 10**400, "y": 10, "id": 1, "timeOffset": 0},
        {"x": 10, "y": 10, "id": 1, "timeOffset": 10**400},
    ]
    recording = happening(
        page(element("div", id=9, style="position:fixed;inset:0;background:#f00"), seconds=1.0),
        (0.3, MOVE, {"positions": far}),
        (0.4, SCROLL, {"id": 1, "x": 0, "y": 10**400}),
        attributes(0.6, 9, style="position:fixed;inset:0;background:#fff"),
    )
    video = make(recording, cursor=False)
    assert decode(video.path, video.frames - 1)[0][100, 100] > 240


def test_a_large_recording_that_is_being_read_can_be_cancelled() -> None:
    move = b'{"type":3,"timestamp":1700000000000,"data":{"source":1,"positions":[]}},'
    with pytest.raises(ExportCancelled, match="still being read"):
        load(b"[" + move * 200_000 + b"{}]", cancelled=lambda: True)


@pytest.mark.parametrize("number", ["1e400", "9" * 5000])
def test_a_number_that_cannot_be_kept_is_refused_by_name(number: str) -> None:
    raw = page(element("p", id=9)).replace(
        b'"initialOffset"', b'"odd": ' + number.encode() + b', "initialOffset"'
    )
    with pytest.raises(NotJson):
        load(raw)


def test_half_a_character_in_a_title_is_no_harm() -> None:
    title = element("title", text("half \ud83c of it", 71), id=70)
    recording = load(page(element("p", id=9), head=(title,)))
    assert recording.title.encode() == b"half ? of it"


def test_a_small_file_of_millions_of_nothings_is_refused_before_it_takes_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    with pytest.raises(TooLarge, match="values"):
        load(gzip.compress(b"[" + b"{}," * 12_000_000 + b"{}]", 1))
    monkeypatch.setattr(shapes, "MAX_VALUES", 100_000)
    packed = zlib.compress(b"[" + b"{}," * 20_000 + b"{}]", 1).decode("latin-1")
    with pytest.raises(TooLarge, match="values"):
        load(json.dumps([packed] * 17).encode())
