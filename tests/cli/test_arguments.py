from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from dumbwaiter import Upload
from dumbwaiter.cli.arguments import read_arguments
from dumbwaiter.errors import InvalidArguments
from dumbwaiter.executors.signature import Signature


def call(
    *,
    text: str = "",
    count: int = 0,
    either: int | str = 0,
    maybe: str | None = None,
    flag: bool = False,
    rows: list[int] | None = None,
    options: dict[str, Any] | None = None,
    anything: Any = None,
    mode: Literal["a", "b"] = "a",
    level: Literal[1, 2] = 1,
) -> None: ...


SCHEMA = Signature("call", call).schema()


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=7", "7"),
        ("text=null", "null"),
        ('text="quoted"', '"quoted"'),
        ("text=a=b", "a=b"),
        ("text=", ""),
        ("text=[1]", "[1]"),
        ("count=7", 7),
        ("count=seven", "seven"),
        ("either=7", 7),
        ("either=seven", "seven"),
        ("maybe=null", None),
        ("maybe=7", "7"),
        ("flag=true", True),
        ("rows=[1, 2]", [1, 2]),
        ("rows=null", None),
        ('options={"a": 1}', {"a": 1}),
        ("anything=7", 7),
        ("anything=seven", "seven"),
        ("mode=b", "b"),
        ("level=2", 2),
        ("unknown=7", 7),
    ],
)
def test_a_value_is_json_where_the_parameter_wants_that(word: str, value: Any) -> None:
    assert read_arguments("call", [word], None, SCHEMA) == {word.partition("=")[0]: value}


@pytest.mark.parametrize("words", [["text"], ["=7"], ["text=1", "text=2"]])
def test_words_that_are_no_arguments_are_refused(words: list[str]) -> None:
    with pytest.raises(InvalidArguments):
        read_arguments("call", words, None, SCHEMA)


def take(*, file: Upload, either: Upload | str = "", maybe: Upload | None = None, text: str = "") -> None: ...


def test_a_path_is_a_file_to_upload_where_the_parameter_takes_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a")
    schema = Signature("take", take).schema()
    words = [f"file={path}", f"either=@{path}", f"maybe=@{path}", f"text=@{path}"]

    assert read_arguments("take", words, None, schema) == {
        "file": path,
        "either": path,
        "maybe": path,
        "text": f"@{path}",
    }
    assert read_arguments("take", [f"either={path}", 'file={"upload": "x"}'], None, schema) == {
        "either": str(path),
        "file": {"upload": "x"},
    }
    for word in ("file=nowhere.txt", "either=@nowhere.txt", "file="):
        with pytest.raises(InvalidArguments, match="there is no file"):
            read_arguments("take", [word], None, schema)
