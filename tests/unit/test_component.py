from __future__ import annotations

import re

import pytest

from dumbwaiter import component


def test_the_button_has_twelve_kibibytes_at_most_as_it_is_sent() -> None:
    assert len(component.FILES.compressed("dumbwaiter.js")) <= 12 * 1024


def test_it_stands_alone_and_puts_nothing_in_as_html() -> None:
    for name in ("dumbwaiter.js", "dumbwaiter-list.js"):
        code = component.FILES.text(name).decode()
        assert set(re.findall(r'from "([^"]+)"', code)) <= {"./dumbwaiter.js"}
        assert (
            re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", code)
            == []
        )


def test_the_texts_of_both_languages_have_the_same_names_and_gaps() -> None:
    code = component.FILES.text("dumbwaiter.js").decode()
    english, chinese = (
        dict(re.findall(r'(\w+): "([^"]*)"', part))
        for part in re.findall(r"^  (?:en|zh): \{\n(.*?)^  \},", code, re.MULTILINE | re.DOTALL)
    )
    gaps = {name: set(re.findall(r"\{\w+\}", text)) for name, text in english.items()}

    assert len(english) > 25
    assert {name: set(re.findall(r"\{\w+\}", text)) for name, text in chinese.items()} == gaps
    types = component.FILES.text("dumbwaiter.d.ts").decode()
    assert [name for name in english if f'"{name}"' not in types] == []


def test_an_address_is_of_the_content_and_of_known_files_only() -> None:
    assert re.fullmatch(r"dumbwaiter-[0-9a-f]{12}/dumbwaiter\.js", component.address())
    with pytest.raises(KeyError):
        component.address("../settings.py")
