"""JSON as every database takes it."""

from __future__ import annotations

import enum
import json
import socket
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dumbwaiter.strict_json import DEEPEST, dumps, faults, loads

VALUES = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**3000), 2**3000)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_json_comes_back_the_same(value):
    assert repr(loads(dumps(value))) == repr(value)


@pytest.mark.parametrize(
    ("value", "path", "said"),
    [
        ({"a": [1, {"b": float("nan")}]}, "a[1].b", "JSON has no nan"),
        ([float("-inf")], "[0]", "JSON has no -inf"),
        ({"a": "\ud800"}, "a", "lone surrogate"),
        ({1: 2}, "", "the key 1 is not text"),
        ({"\udfff": 2}, "", "is not text"),
        ({"a": 10**2000}, "a", "more than 1,200 digits"),
        ({"a": {1, 2}}, "a", "builtins.set"),
        ({"a": b"x"}, "a", "bytes"),
        ({"a": print}, "a", "a function or class"),
        ({"a": dict}, "a", "a function or class"),
        ({"a": object()}, "a", "cannot be stored as JSON"),
    ],
)
def test_what_is_no_json_is_refused_with_its_path_and_a_way_out(value, path, said):
    with pytest.raises(ValueError, match="^" + path.replace("[", r"\[")) as refused:
        dumps(value)

    assert said in str(refused.value)


def test_an_open_file_and_a_connection_are_named_for_what_they_are(tmp_path):
    connection = sqlite3.connect(":memory:")
    with (tmp_path / "file").open("w") as file, socket.socket() as plug:
        told = [next(faults(value))[1] for value in (file, plug, connection, connection.cursor())]
    connection.close()

    assert ["file or socket" in text for text in told] == [True, True, False, False]
    assert ["connection or session" in text for text in told] == [False, False, True, True]


def test_every_fault_is_found():
    assert [path for path, _ in faults({"a": float("nan"), "b": [1, print], "c": 1})] == ["a", "b[1]"]


def test_a_value_that_contains_itself_is_refused():
    value: list[object] = []
    value.append(value)

    with pytest.raises(ValueError, match="contains itself"):
        dumps(value)


def test_the_deepest_value_that_is_written_can_be_read():
    value: list[object] = []
    for _ in range(DEEPEST - 1):
        value = [value]

    assert loads(dumps(value)) == value


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "1e400", "[-1e999]", "", "{", "[" * 100_000]
)
def test_text_that_is_no_strict_json_is_a_value_error(text):
    with pytest.raises(ValueError):
        loads(text)


def test_an_enum_of_text_is_stored_as_its_text():
    class Size(enum.StrEnum):
        SMALL = "s"

    assert dumps({"size": Size.SMALL}) == '{"size":"s"}'


def test_text_is_kept_as_it_is_and_a_nul_is_escaped():
    assert dumps("é中\0\u2028") == '"é中\\u0000\u2028"'
    assert json.loads(dumps("\0")) == "\0"
