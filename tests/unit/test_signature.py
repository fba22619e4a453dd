"""A task function's signature: what is refused at enqueue, and what the function gets back."""

from __future__ import annotations

import dataclasses
import enum
import socket
import sqlite3
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel

from dumbwaiter.errors import ConfigurationError, InvalidArguments
from dumbwaiter.executors.context import TaskContext
from dumbwaiter.executors.signature import Signature


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclasses.dataclass
class Dish:
    name: str
    price: Decimal


class Guest(BaseModel):
    name: str
    seat: int = 1


def signature(function: Any) -> Signature:
    made = Signature("t", function)
    made.prepare()
    return made


def round_trip(made: Signature, **arguments: Any) -> dict[str, Any]:
    return made.arguments(made.payload(arguments))


def test_the_context_is_no_argument():
    def with_hint(context: TaskContext, a: int) -> None: ...
    def by_name(ctx, a): ...
    def without(a: int) -> None: ...

    assert [signature(function).takes_context for function in (with_hint, by_name, without)] == [
        True,
        True,
        False,
    ]
    assert [parameter.name for parameter in signature(with_hint).parameters] == ["a"]


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (datetime, datetime(2026, 1, 1, 12, 30, 1, 5, tzinfo=UTC)),
        (date, date(2026, 1, 1)),
        (timedelta, timedelta(days=1, microseconds=3)),
        (Decimal, Decimal("1.10")),
        (UUID, UUID("01a2280e-1dde-70fd-8857-35f4e4306cbf")),
        (bytes, b"\x00\xff" * 40),
        (Path, Path("a/b")),
        (Size, Size.LARGE),
        (Dish, Dish("soup", Decimal("7.50"))),
        (Guest, Guest(name="Ann", seat=3)),
        (list[Dish], [Dish("soup", Decimal(1)), Dish("rice", Decimal(2))]),
        (dict[str, datetime], {"a": datetime(2026, 1, 1, tzinfo=UTC)}),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (int | None, None),
        (Literal["a", "b"], "b"),
        (Any, {"a": [1, None, 1.5]}),
        (str, "é\0🥘"),
        (float, 1.0),
        (bool, True),
    ],
)
def test_an_argument_comes_back_as_its_annotation_says(hint, value):
    def work(a): ...

    work.__annotations__ = {"a": hint}

    given = round_trip(signature(work), a=value)["a"]

    assert (given, type(given)) == (value, type(value))


def test_defaults_are_left_to_the_function():
    def work(a: int, b: int = 7, _c: str = "x") -> None: ...

    made = signature(work)

    assert made.payload({"a": 1}) == {"a": 1}
    assert made.arguments({"a": 1}) == {"a": 1}
    assert made.payload({"a": 1, "_c": "y"}) == {"a": 1, "_c": "y"}


def test_names_that_pydantic_keeps_for_itself_are_names_like_others():
    def work(model_dump: int, json: int, self_: int, copy: Size) -> None: ...

    given = {"model_dump": 1, "json": 2, "self_": 3, "copy": Size.SMALL}

    assert round_trip(signature(work), **given) == given


def test_what_is_stored_as_given_is_what_the_annotations_make_of_it(monkeypatch):
    def call(n: int, s: str, b: bool = False, **more: int) -> None: ...

    taken = signature(call)
    values = [
        0,
        7,
        -(2**63),
        2**63,
        10**500,
        True,
        False,
        "",
        "text",
        "\ud800",
        "1",
        "é",
        1.0,
        1.5,
        None,
        [],
        b"x",
        Size.SMALL,
    ]
    calls = [{"n": n, "s": s} for n in values for s in values]
    calls += [{"n": 1, "s": "a", "b": b} for b in values] + [{"n": 1, "s": "a", "other": v} for v in values]
    calls += [{}, {"n": 1}, {"s": "a"}, {"n": 1, "s": "a", "b": True, "c": 2}]

    quick = [payload_of(taken, one) for one in calls]
    monkeypatch.setattr(Signature, "_is_stored_as_given", lambda *_: False)

    assert quick == [payload_of(taken, one) for one in calls]
    assert [type(one) for one in quick].count(dict) > 20


def payload_of(taken: Signature, arguments: dict[str, Any]) -> dict[str, str] | str:
    """The payload with the classes of its values, or what was said against it."""
    try:
        payload = taken.payload(arguments)
    except InvalidArguments as error:
        return str(error)
    return {name: f"{type(value)} {value!r}" for name, value in payload.items()}


def test_open_keyword_arguments_are_kept():
    def work(a: int, **more: Any) -> None: ...

    assert round_trip(signature(work), a=1, b=[2], c=None) == {"a": 1, "b": [2], "c": None}


def test_every_fault_is_told_with_its_path():
    def work(count: int, dishes: list[Dish], size: Size) -> None: ...

    with pytest.raises(InvalidArguments) as refused:
        signature(work).payload({"count": "many", "dishes": [{"name": "soup"}], "colour": "red"})

    assert [path for path, _ in refused.value.errors] == ["count", "dishes[0].price", "size", "colour"]
    assert "task 't' cannot be enqueued" in str(refused.value)
    assert "colour: there is no such parameter; the parameters are: count, dishes, size" in str(refused.value)


def test_an_option_among_the_arguments_is_told_where_options_go():
    def work(a: int, priority: int = 0) -> None: ...
    def open_to_all(**more: Any) -> None: ...

    with pytest.raises(InvalidArguments, match=r"delay: there is no such parameter.*\.using\(delay=…\)"):
        signature(work).bind((), {"a": 1, "delay": 5, "priority": 2}, options={"delay", "priority"})
    assert signature(open_to_all).bind((), {"delay": 5}, options={"delay"}) == {"delay": 5}


@pytest.fixture
def unstorable(tmp_path):
    connection = sqlite3.connect(":memory:")
    with (tmp_path / "file").open("w") as file, socket.socket() as plug:
        yield {
            "connection": (connection, "connection or session"),
            "file": (file, "open file"),
            "socket": (plug, "open file or socket"),
            "function": (print, "function"),
            "class": (Dish, "function or class"),
            "nan": (float("nan"), "nan"),
            "infinity": (float("inf"), "inf"),
            "surrogate": ("\ud800", "surrogate"),
            "object": (object(), "cannot be stored"),
        }
    connection.close()


@pytest.mark.parametrize("hint", [Any, None], ids=["annotated with Any", "without an annotation"])
@pytest.mark.parametrize(
    "what", ["connection", "file", "socket", "function", "class", "nan", "infinity", "surrogate", "object"]
)
def test_what_is_no_json_is_refused_by_the_name_of_its_parameter(unstorable, what, hint):
    def work(rows): ...

    if hint is not None:
        work.__annotations__ = {"rows": hint}
    value, said = unstorable[what]

    with pytest.raises(InvalidArguments) as refused:
        signature(work).payload({"rows": {"deep": [value]}})

    [(path, fault)] = refused.value.errors
    assert path == "rows.deep[0]"
    assert said in fault


@pytest.mark.parametrize(
    ("hint", "value"), [(float, float("nan")), (str, "\ud800"), (list[float], [float("inf")])]
)
def test_a_value_of_the_right_type_that_is_no_json_is_refused_too(hint, value):
    def work(a): ...

    work.__annotations__ = {"a": hint}

    with pytest.raises(InvalidArguments, match="a"):
        signature(work).payload({"a": value})


def test_json_clients_are_not_forgiven_a_text_for_a_number():
    def work(count: int, when: datetime) -> None: ...

    made = signature(work)

    assert made.payload({"count": "7", "when": "2026-01-01T00:00:00Z"}) == {
        "count": 7,
        "when": "2026-01-01T00:00:00Z",
    }
    with pytest.raises(InvalidArguments, match="count"):
        made.payload({"count": "7", "when": "2026-01-01T00:00:00Z"}, strict=True)


def test_a_payload_that_no_longer_fits_the_function_is_refused_when_it_runs():
    def work(a: int, b: int) -> None: ...
    def typed(a: Size) -> None: ...

    with pytest.raises(
        InvalidArguments, match=r"b: missing.*c: there is no such parameter; the parameters are: a, b"
    ):
        signature(work).arguments({"a": 1, "c": 2})
    with pytest.raises(InvalidArguments, match="a"):
        signature(typed).arguments({"a": "enormous"})


def test_positional_arguments_are_stored_by_name():
    def work(ctx: TaskContext, a: int, b: int, *, c: int = 0) -> None: ...

    made = signature(work)

    assert made.bind((1,), {"b": 2}) == {"a": 1, "b": 2}
    with pytest.raises(InvalidArguments, match="a: given twice"):
        made.bind((1,), {"a": 2})
    with pytest.raises(InvalidArguments, match="takes 2 positional arguments, 3 given"):
        made.bind((1, 2, 3), {})


def test_a_function_whose_arguments_have_no_names_to_store_them_under_is_refused():
    def variadic(*rows: int) -> None: ...
    def positional(a: int, /) -> None: ...
    def late_context(a: int, ctx: TaskContext) -> None: ...
    def unknown(a: socket.socket) -> None: ...

    for function, said in (
        (variadic, "take a list instead"),
        (positional, "positional-only"),
        (late_context, "the context must be the first"),
        (unknown, "cannot be described as JSON"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            signature(function)


def test_an_annotation_that_cannot_be_read_is_refused():
    def work(a): ...

    work.__annotations__ = {"a": "NoSuchName"}

    with pytest.raises(ConfigurationError, match="cannot be read"):
        signature(work)


def test_a_plain_signature_needs_no_conversion():
    def plain(a: int, b: str = "", c: Any = None, d=1) -> None: ...
    def typed(a: int, b: Size) -> None: ...

    assert (signature(plain).plain, signature(typed).plain) == (True, False)


def test_a_commands_parameters_are_texts():
    made = Signature.of_command("t", ("source", "target"))

    assert made.payload({"source": "a", "target": "b"}) == {"source": "a", "target": "b"}
    with pytest.raises(InvalidArguments, match="target"):
        made.payload({"source": "a"})


def test_the_schema_describes_the_arguments_under_their_own_names():
    def work(count: int, size: Size = Size.SMALL) -> None: ...

    schema = signature(work).schema()

    assert (set(schema["properties"]), schema["required"]) == ({"count", "size"}, ["count"])
