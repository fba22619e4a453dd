"""Letters that this machine cannot draw are warned of, if the recording has them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dumbwaiter.jobs.video import fonts
from dumbwaiter.jobs.video.export import Video
from dumbwaiter.jobs.video.recording import load
from tests.jobs.video.support import element, page, text

CJK = "no font for Chinese, Japanese and Korean: `apt-get install fonts-noto-cjk`"
EMOJI = "no font for emoji: `apt-get install fonts-noto-color-emoji`"


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        ("plain", []),
        ("über déjà … – €", []),
        ("Ελληνικά, кириллица, עברית", []),
        ("报名", [CJK]),
        ("ひらがな", [CJK]),
        ("한국어", [CJK]),
        ("done 🎉", [EMOJI]),
        ("做好 🍵", [CJK, EMOJI]),
        ("❤️", [EMOJI]),
        ("✅ ⭐", [EMOJI]),
        ("𠮷", [CJK]),
        ("ＡＢＣ", [CJK]),
        ("→ ✓ ☆", []),
    ],
)
def test_only_letters_that_the_recording_has_are_warned_of(
    words: str, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fonts, "has_font", lambda pattern: False)
    recording = load(page(element("p", text(words, 10), id=9)))

    assert fonts.missing_for(recording.events) == warned


def test_a_machine_with_the_fonts_is_not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "has_font", lambda pattern: True)

    assert fonts.missing_for(b"\\u62a5") == []


def test_the_export_says_so(make: Callable[..., Video], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "has_font", lambda pattern: False)

    assert CJK in make(page(element("p", text("报名", 10), id=9), seconds=0.1)).warnings
