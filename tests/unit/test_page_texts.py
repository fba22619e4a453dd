from __future__ import annotations

import re
from importlib.resources import files

import pytest

from dumbwaiter.api import linktexts
from dumbwaiter.dashboard.texts import CHINESE, ENGLISH, SCRIPT
from dumbwaiter.languages import language_of


def test_both_languages_say_the_same_things_and_all_of_them_are_used() -> None:
    room = files("dumbwaiter.dashboard")
    templates = [
        (room / "templates" / name).read_text("utf-8") for name in ("shell.html", "page.html", "bare.html")
    ]
    script = (room / "static" / "page.js").read_text("utf-8")
    phases = {
        "queued",
        "scheduled",
        "retrying",
        "running",
        "cancelling",
        "cancelled",
        "ready",
        "expired",
        "failed",
    }
    said = set(re.findall(r"\bt\.(\w+)", "".join(templates)))

    assert set(CHINESE) == set(ENGLISH) == said | set(SCRIPT) | phases
    assert set(re.findall(r"\btexts\.(\w+)", script)) == set(SCRIPT)


def test_both_languages_of_a_links_page_say_the_same_things() -> None:
    assert {name: words.count("{") for name, words in linktexts.CHINESE.items()} == {
        name: words.count("{") for name, words in linktexts.ENGLISH.items()
    }


@pytest.mark.parametrize(
    ("accept", "language"),
    [
        (None, "en"),
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-US,en;q=0.9,zh;q=0.8", "en"),
        ("de, zh;q=0.2", "zh"),
        ("zh;q=0, de", "en"),
        ("zh;q=x", "en"),
        ("ZH-hans", "zh"),
        ("*", "en"),
    ],
)
def test_the_language_is_the_one_that_the_browser_likes_best(accept: str | None, language: str) -> None:
    assert language_of(accept) == language
