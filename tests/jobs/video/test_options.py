"""Options of a kind that they cannot be: refused when they are made, by name, with what to give."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dumbwaiter.jobs.video.errors import ImpossibleOption
from dumbwaiter.jobs.video.options import Options


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"masks": ".card"}, r"masks='\.card': give a tuple of texts, such as \('\.card',\)"),
        ({"masks": None}, "masks=None: give a tuple of texts"),
        ({"masks": (1,)}, r"masks=\(1,\): give a tuple of texts"),
        ({"size": "640x360"}, r"size='640x360': give width and height, such as \(1280, 720\) or None"),
        ({"size": (640,)}, "give width and height"),
        ({"size": (640.5, 360)}, "give width and height"),
        ({"text": 5}, "text=5: give a text"),
        ({"hold": 2}, r"hold=2: give a timedelta, such as timedelta\(seconds=1\.5\)"),
        ({"max_gap": 2.0}, "max_gap=2.0: give a timedelta, .* or None"),
        ({"fps": 12.5}, "fps=12.5: give a whole number"),
        ({"fps": True}, "fps=True: give a whole number"),
        ({"fps": "25"}, "fps='25': give a whole number"),
        ({"speed": "2"}, "speed='2': give a number"),
        ({"crf": "20"}, "crf='20': give a whole number or None"),
        ({"workers": 1.5}, "workers=1.5: give a whole number"),
        ({"max_memory": "1G"}, "max_memory='1G': give a whole number"),
        ({"cursor": "no"}, "cursor='no': give True or False"),
        ({"codec": "av1"}, "codec='av1': give one of h264, h265, vp9, vp8 or None"),
        ({"chromium": 3}, "chromium=3: give a path or a text or None"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ImpossibleOption, match=message):
        Options(**option)


def test_whole_numbers_are_numbers_and_texts_are_paths() -> None:
    options = Options(
        speed=2,
        size=(640, 360),
        masks=(".card",),
        max_gap=timedelta(seconds=1),
        ffmpeg="/usr/bin/ffmpeg",
    )
    assert options.speed == 2
