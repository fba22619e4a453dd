"""Windows and phones have any size, and change it: each becomes a picture that plays, with the page whole in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from dumbwaiter.jobs.video.export import Video
from tests.jobs.video.support import decode, element, page

LIGHT = "background:#fff;position:fixed;inset:0"
META, VIEWPORT = 4, 4


def sized(**size: Any) -> bytes:
    """A recording of a white page with this `width` and `height`, or with what stands there instead."""
    events = json.loads(page(element("div", id=9, style=LIGHT), seconds=0.2))
    meta = events[0]["data"]
    meta.update(size)
    for name in [name for name, value in size.items() if value is None]:
        del meta[name]
    return json.dumps(events).encode()


def resized(*sizes: tuple[int, int]) -> bytes:
    """A recording of a white page whose window takes these sizes, one each 400 ms."""
    first = json.loads(page(element("div", id=9, style=LIGHT), seconds=0.4 * len(sizes)))
    width, height = sizes[0]
    first[0]["data"].update(width=width, height=height)
    started = first[0]["timestamp"]
    changes = [
        {
            "type": 3,
            "data": {"source": VIEWPORT, "width": wide, "height": high},
            "timestamp": started + 400 * n,
        }
        for n, (wide, high) in enumerate(sizes[1:], 1)
    ]
    return json.dumps([*first[:2], *changes, first[2]]).encode()


@pytest.mark.parametrize(
    ("width", "height", "made"),
    [
        (641, 481, (640, 480)),
        (375, 667, (374, 666)),
        (1920, 975, (1920, 974)),
        (1, 1, (16, 16)),
        (7680, 4320, (1920, 1080)),
        (100, 20_000, (16, 1920)),
        (833.5, 601.25, (832, 600)),
    ],
)
def test_a_window_of_any_size_becomes_a_video_that_plays(
    width: float, height: float, made: tuple[int, int], make: Callable[..., Video]
) -> None:
    video = make(sized(width=width, height=height))

    assert (video.width, video.height) == made
    (last,) = decode(video.path, video.frames - 1)
    assert last.shape == made[::-1]
    # the page is in the middle; one of a single pixel lies between four
    assert last[made[1] // 2 - 1 :, made[0] // 2 - 1 :][:2, :2].max() > (100 if width == 1 else 200)


@pytest.mark.parametrize(
    "size", [{"width": 0, "height": 0}, {"width": None, "height": None}, {"width": "wide"}]
)
def test_a_window_without_a_usable_size_is_taken_for_a_usual_one_and_said_so(
    size: dict[str, Any], make: Callable[..., Video]
) -> None:
    video = make(sized(**size))

    assert (video.width, video.height) == (1280, 720)
    assert "a page without a usable size was taken as 1280x720" in video.warnings


def test_a_window_that_changes_its_size_is_whole_in_the_picture_at_any_time(
    make: Callable[..., Video],
) -> None:
    sizes = [(640, 360), (360, 640), (1280, 720), (640, 361), (100, 900), (900, 100), (640, 360)]
    video = make(resized(*sizes))

    assert (video.width, video.height) == (640, 360)
    shown = decode(video.path, *(10 * n + 8 for n in range(len(sizes))))
    for (width, height), picture in zip(sizes, shown, strict=True):
        scale = min(640 / width, 360 / height, 1.0)
        light = picture > 128
        rows, columns = numpy.flatnonzero(light.any(1)), numpy.flatnonzero(light.any(0))
        assert columns[-1] - columns[0] + 1 == pytest.approx(width * scale, abs=3)
        assert rows[-1] - rows[0] + 1 == pytest.approx(height * scale, abs=3)
        # in the middle
        assert columns[0] + columns[-1] == pytest.approx(639, abs=3)
        assert rows[0] + rows[-1] == pytest.approx(359, abs=3)
