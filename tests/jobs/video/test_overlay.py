"""What is drawn over the page and around it: the recording's time, a caption, the background, the pointer with its clicks and its trail."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy
import pytest

from dumbwaiter.jobs.video.errors import ImpossibleOption
from dumbwaiter.jobs.video.export import Video
from tests.jobs.video.support import Picture, decode, element, happening, page, replayed

MOUSE_MOVE, INTERACTION, TOUCH_MOVE = 1, 2, 6
CLICK, TOUCH_START, TOUCH_END = 2, 7, 9
BODY = 5


def differing(one: Picture, other: Picture) -> tuple[slice, slice] | None:
    """The rows and columns in which two pictures differ visibly."""
    where = numpy.argwhere(abs(one - other).max(axis=2) > 24)
    if not len(where):
        return None
    (top, left), (bottom, right) = where.min(axis=0), where.max(axis=0)
    return slice(int(top), int(bottom) + 1), slice(int(left), int(right) + 1)


def test_the_clock_shows_the_recordings_time(tmp_path: Path) -> None:
    times = {
        0.0: "0:00",
        0.96: "0:00",
        1.0: "0:01",
        59.96: "0:59",
        60.0: "1:00",
        3599.9: "59:59",
        3600.0: "1:00:00",
        36_061.0: "10:01:01",
    }
    with replayed(page(seconds=40_000.0), tmp_path, clock=True, max_duration=timedelta(days=1)) as replay:
        shown = {}
        for seconds in times:
            replay.jump(seconds)
            shown[seconds] = replay.browser.evaluate("document.querySelector('.clock').textContent")
    assert shown == times


def test_the_clock_stands_in_a_corner_and_costs_one_picture_a_second(make: Callable[..., Video]) -> None:
    still = page(element("div", id=9), seconds=2.4)
    video = make(still, clock=True)
    assert [frame for frame, _ in video.picture_hashes] == [0, 25, 50]
    frames = decode(video.path, 24, 25)
    changed = numpy.argwhere(abs(frames[0] - frames[1]) > 60)
    assert len(changed) > 5
    assert changed[:, 0].max() < 40
    assert changed[:, 1].min() > 560
    assert make(still).pictures == 1


def test_the_clock_goes_on_in_the_recordings_time_where_a_part_is_shown(make: Callable[..., Video]) -> None:
    video = make(page(seconds=5.0), clock=True, start=timedelta(seconds=2.5), end=timedelta(seconds=4.5))
    assert [frame for frame, _ in video.picture_hashes] == [0, 13, 38]


def test_a_caption_stands_at_the_lower_edge_as_it_was_written(tmp_path: Path) -> None:
    def captioned(text: str) -> Picture:
        with replayed(page(), tmp_path, text=text) as replay:
            box = "document.querySelector('.caption')"
            assert replay.browser.evaluate(f"{box}.textContent") == text
            assert replay.browser.evaluate(f"{box}.childElementCount") == 0
            return replay.at(0.1)

    with replayed(page(), tmp_path) as replay:
        without = replay.at(0.1)
    pictures = [captioned(text) for text in ("<b>a & b</b>", "会议记录", "録画記録")]
    for picture in pictures:
        found = differing(picture, without)
        assert found is not None
        rows, columns = found
        assert rows.start > 300
        assert rows.stop < 358
        assert abs(columns.start + columns.stop - 640) < 4, "in the middle"
    assert differing(pictures[1], pictures[2]) is not None, "the letters are drawn, and not boxes"


def test_a_long_caption_is_broken_into_lines_inside_the_picture(tmp_path: Path) -> None:
    with replayed(page(), tmp_path, text="一二三四五六七八九十" * 12 + "\n" + "x" * 200) as replay:
        box: dict[str, Any] = replay.browser.evaluate(
            "document.querySelector('.caption').getBoundingClientRect().toJSON()"
        )
    assert box["height"] > 60
    assert box["left"] >= 0
    assert box["right"] <= 640
    assert box["top"] > 180


def test_the_background_is_around_the_page(make: Callable[..., Video]) -> None:
    white = element("div", id=9, style="position:fixed;inset:0;background:#fff")
    video = make(page(white), size=(640, 480), background="rgb(128 128 128)")
    (frame,) = decode(video.path, 0)
    assert abs(frame[:56] - 128).max() <= 4
    assert abs(frame[-56:] - 128).max() <= 4
    assert frame[70:-70].min() > 245


@pytest.mark.parametrize(
    "background", ["blurple", "", "url(x)", "inherit", "var(--x)", "red; color: blue", "#12"]
)
def test_a_background_that_is_no_colour_is_refused(background: str, make: Callable[..., Video]) -> None:
    with pytest.raises(ImpossibleOption, match="is no CSS colour"):
        make(page(), background=background)


# --- pointer, clicks, trail ---


def moves(*positions: tuple[int, int, int], source: int = MOUSE_MOVE) -> dict[str, Any]:
    """Movements: (x, y, milliseconds before the event)."""
    return {"positions": [{"x": x, "y": y, "id": BODY, "timeOffset": -before} for x, y, before in positions]}


def act(kind: int, x: int, y: int, pointer: int = 0) -> dict[str, Any]:
    """A click or a touch."""
    return {"type": kind, "id": BODY, "x": x, "y": y, "pointerType": pointer}


def mouse_session() -> bytes:
    """A mouse goes to (100, 100), on to (300, 200) and clicks there."""
    return happening(
        page(seconds=2.0),
        (0.2, MOUSE_MOVE, moves((100, 100, 0))),
        (0.6, MOUSE_MOVE, moves((200, 150, 100), (300, 200, 0))),
        (0.8, INTERACTION, act(CLICK, 300, 200)),
    )


def touch_session() -> bytes:
    """A finger touches (100, 100), goes to (300, 200), leaves, and taps at (400, 100)."""
    return happening(
        page(seconds=3.0),
        (0.2, INTERACTION, act(TOUCH_START, 100, 100, 2)),
        (0.6, TOUCH_MOVE, moves((200, 150, 100), (300, 200, 0))),
        (0.9, INTERACTION, act(TOUCH_END, 300, 200, 2)),
        (1.6, INTERACTION, act(TOUCH_START, 400, 100, 2)),
        (1.64, INTERACTION, act(TOUCH_END, 400, 100, 2)),
        (1.64, INTERACTION, act(CLICK, 400, 100, 2)),
    )


def spots(
    recording: bytes, workdir: Path, *seconds: float, **options: object
) -> list[tuple[slice, slice] | None]:
    """What is drawn on an empty page at these moments: its rows and columns."""
    with replayed(recording, workdir, **options) as replay:
        empty = numpy.full_like(replay.at(0.0), 255)
        return [differing(replay.at(moment), empty) for moment in seconds]


def around(spot: tuple[slice, slice] | None) -> tuple[float, float, int]:
    """The middle of a spot, as x and y, and its larger side."""
    assert spot is not None
    rows, columns = spot
    sides = (columns.stop - columns.start, rows.stop - rows.start)
    return (columns.start + columns.stop - 1) / 2, (rows.start + rows.stop - 1) / 2, max(sides)


def test_the_pointer_goes_where_the_mouse_does(tmp_path: Path) -> None:
    before, there, moved = spots(mouse_session(), tmp_path, 0.1, 0.4, 0.7, clicks=False)
    assert before is None, "it is not drawn before its first movement"
    for spot, (x, y) in ((there, (100, 100)), (moved, (300, 200))):
        assert spot is not None
        rows, columns = spot
        # its tip points there
        assert abs(columns.start - x) <= 3
        assert abs(rows.start - y) <= 3
        assert 15 < rows.stop - rows.start < 40


def test_a_click_is_a_ring_that_grows_around_it_and_goes(tmp_path: Path) -> None:
    at_once, later, gone = spots(mouse_session(), tmp_path, 0.88, 1.0, 1.4, cursor=False)
    for spot, (least, most) in ((at_once, (8, 36)), (later, (28, 48))):
        x, y, side = around(spot)
        assert abs(x - 300) <= 2
        assert abs(y - 200) <= 2
        assert least < side < most
    assert gone is None


def test_without_pointer_and_clicks_nothing_is_drawn(tmp_path: Path) -> None:
    for session in (mouse_session(), touch_session()):
        drawn = spots(session, tmp_path, 0.4, 0.7, 0.88, 1.0, 1.7, cursor=False, clicks=False)
        assert drawn == [None] * 5


def test_a_trail_follows_the_pointer_and_goes(tmp_path: Path) -> None:
    on, gone = spots(mouse_session(), tmp_path, 0.64, 1.3, cursor=False, clicks=False, mouse_trail=True)
    assert on is not None
    rows, columns = on
    assert abs(columns.start - 100) <= 4
    assert abs(columns.stop - 300) <= 4
    assert abs(rows.start - 100) <= 4
    assert abs(rows.stop - 200) <= 4
    assert gone is None


def test_a_finger_is_a_ring_while_it_touches(tmp_path: Path) -> None:
    before, down, moved, up = spots(touch_session(), tmp_path, 0.1, 0.5, 0.76, 1.4, clicks=False)
    assert before is None
    for spot, (x, y) in ((down, (100, 100)), (moved, (300, 200))):
        middle_x, middle_y, side = around(spot)
        assert abs(middle_x - x) <= 2
        assert abs(middle_y - y) <= 2
        assert 40 < side < 60
    assert up is None


def test_a_tap_is_a_ring_that_grows(tmp_path: Path) -> None:
    x, y, side = around(spots(touch_session(), tmp_path, 1.8, cursor=False)[0])
    assert abs(x - 400) <= 2
    assert abs(y - 100) <= 2
    assert 20 < side < 50


def test_on_a_page_that_is_scaled_the_pointer_keeps_its_size_and_its_place(tmp_path: Path) -> None:
    recording = json.loads(mouse_session())
    recording[0]["data"] |= {"width": 1280, "height": 720}
    (spot,) = spots(json.dumps(recording).encode(), tmp_path, 0.4, clicks=False, max_side=640)
    assert spot is not None
    rows, columns = spot
    assert abs(columns.start - 50) <= 3
    assert abs(rows.start - 50) <= 3
    assert 15 < rows.stop - rows.start < 40
