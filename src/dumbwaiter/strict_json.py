"""JSON as every database and every client takes it: no NaN, no lone surrogate, no key that is not text. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

# Deeper nesting makes Python's own reader raise RecursionError on the way back.
DEEPEST = 200


def dumps(value: Any) -> str:
    """Compact JSON text. Raises ValueError with the path and the fault of the first thing that is not JSON."""
    for path, fault in faults(value):
        raise ValueError(f"{path}: {fault}" if path else fault)
    return encoded(value)


def encoded(value: Any) -> str:
    """The same of a value in which `faults` has found none already."""
    return ENCODER.encode(value)


def simple(value: Any) -> bool:
    """It is a short JSON value at first sight, as most arguments are: to look for faults would take longer than to store it."""
    kind = type(value)
    return (
        (kind is str and value.isascii())
        or (kind is int and -(2**63) < value < 2**63)
        or kind is bool
        or value is None
    )


def loads(text: str | bytes, *, whole: bool = False) -> Any:
    """The value of a JSON text. Raises ValueError for what is none, and for what `dumps` would refuse to write.

    `whole`: a number such as 14.0 or 1e3 is an int, as JSON Schema has it; Python's own reader makes it a float.
    """
    if not isinstance(text, str):
        text = text.decode(json.detect_encoding(text))
    decoder = WHOLE if whole else DECODER
    try:
        value, end = read_from(decoder, text)
        # `decode` looks for white space before and after: we write none, and read thousands a second
        return value if end == len(text) else decoder.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_from(decoder: json.JSONDecoder, text: str) -> tuple[Any, int]:
    """The value at the very beginning of the text and where it ends; -1 if there is none."""
    try:
        return decoder.raw_decode(text)
    except ValueError:
        return None, -1


def no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:40]} is too large for a number")
    return number


def int_if_whole(digits: str) -> float | int:
    number = finite(digits)
    # beyond 2^53 a float is not that number alone
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


# json.dumps and json.loads with settings of one's own make a new one for each call, which takes longer than the work
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
DECODER = json.JSONDecoder(parse_constant=no_constant, parse_float=finite)
WHOLE = json.JSONDecoder(parse_constant=no_constant, parse_float=int_if_whole)


def faults(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Everything in the value that is not JSON: (path to it, what is wrong and what to pass instead)."""
    if value is None or value is True or value is False:
        return
    kind = type(value)
    if isinstance(value, str):
        if has_surrogate(value):
            yield (
                path,
                "the text has a lone surrogate, which is no character; decode the bytes with errors='replace' first",
            )
    elif isinstance(value, int):
        if value.bit_length() > 4_000:
            yield path, "the number has more than 1,200 digits; pass it as text"
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield path, f"JSON has no {value}; pass None or a text instead"
    elif depth >= DEEPEST:
        yield path, f"it is nested deeper than {DEEPEST} levels, or contains itself"
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str) or has_surrogate(key):
                yield path, f"the key {key!r} is not text; JSON objects have text keys only"
            else:
                yield from faults(inner, f"{path}.{key}" if path else key, depth + 1)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from faults(inner, f"{path}[{index}]", depth + 1)
    else:
        yield path, f"{described(value)} (of type {kind.__module__}.{kind.__qualname__})"


def has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def described(value: Any) -> str:
    """In words: what kind of thing cannot be stored as JSON, and what to pass instead."""
    if hasattr(value, "read") or hasattr(value, "fileno"):
        return "an open file or socket cannot be stored; pass a path or an id, and open it inside the task"
    if hasattr(value, "cursor") or hasattr(value, "execute"):
        return (
            "a database connection or session cannot be stored; pass the ids of the rows, "
            "and open a connection inside the task or in scope="
        )
    if isinstance(value, type) or callable(value):
        return "a function or class cannot be stored; pass its name, or make it a task type of its own"
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes cannot be stored without a bytes annotation; annotate the parameter, or publish a file and pass its name"
    return "this cannot be stored as JSON; pass numbers, text, lists and dicts, or annotate the parameter with its class"
