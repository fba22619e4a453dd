"""What a producer may hand over: refused by name, before anything is written, on every database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import InvalidArguments


def a_connection(home: Path) -> object:
    return sqlite3.connect(":memory:")


def an_open_file(home: Path) -> object:
    return (home / "notes.txt").open("w", encoding="utf-8")


def a_function(home: Path) -> object:
    return a_connection


def not_a_number(home: Path) -> object:
    return float("nan")


def half_a_character(home: Path) -> object:
    return "caf\udce9"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (a_connection, "open a connection inside the task"),
        (an_open_file, "pass a path or an id"),
        (a_function, "pass its name"),
        (not_a_number, "pass None or a text instead"),
        (half_a_character, "lone surrogate"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_argument_that_is_not_json_is_refused_by_name_and_nothing_is_stored(
    waiter: Dumbwaiter, tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    def bake(table: int, dish: object) -> None: ...

    handle = waiter.task("bake")(bake)
    value = make(tmp_path)
    with pytest.raises(InvalidArguments, match="dish: ") as refused:
        handle.enqueue(table=4, dish=value)
    if hasattr(value, "close"):
        value.close()

    [(path, sentence)] = refused.value.errors
    assert "dish" == path
    assert said in sentence
    assert [] == waiter.find()
