"""How far a command has come, read from the lines that it prints. Pure."""

from __future__ import annotations

import re
from typing import Any

from dumbwaiter.course import Course
from dumbwaiter.errors import ConfigurationError
from dumbwaiter.task import Progress, clamped

NUMBERS = ({"percent"}, {"fraction"}, {"done", "total"})
GROUPS = frozenset({"percent", "fraction", "done", "total", "step", "message"})


def pattern_of(task_type: str, pattern: Any) -> re.Pattern[str]:
    """What to look for in a command's lines. Raises ConfigurationError for a pattern that would tell nothing."""
    try:
        found = re.compile(pattern)
    except (TypeError, re.error) as error:
        raise ConfigurationError(
            f"task {task_type!r}: progress={pattern!r} is no regular expression: {error}"
        ) from None
    groups = set(found.groupindex)
    numbers = groups & set().union(*NUMBERS)
    if not groups or not groups <= GROUPS or (numbers and numbers not in NUMBERS):
        raise ConfigurationError(
            f"task {task_type!r}: progress={found.pattern!r}: it needs named groups, such as (?P<percent>[0-9.]+): one of "
            "percent, fraction, or done with total; beside them step and message; and no others"
        )
    return found


def told(pattern: re.Pattern[str], line: str, course: Course | None = None) -> Progress | None:
    """What a line tells, or None. A step that is not declared, or a number that is none, tells nothing."""
    found = pattern.search(line)
    if found is None:
        return None
    said = {name: value for name, value in found.groupdict().items() if value is not None}
    step, fraction = said.get("step"), fraction_of(said)
    if course is not None:
        if step is not None and step not in course.weights:
            step = None
        if step is not None:
            fraction = course.whole(step, fraction or 0.0)
        elif fraction is not None:
            # a command that names no step tells of the whole
            fraction = min(max(fraction, 0.0), 1.0)
    message = said.get("message")
    if (step, fraction, message) == (None, None, None):
        return None
    return Progress(
        None if fraction is None else clamped(fraction),
        None if step is None else step[:200],
        None if message is None else message[:500],
    )


def fraction_of(said: dict[str, str]) -> float | None:
    try:
        if "percent" in said:
            return float(said["percent"]) / 100
        if "fraction" in said:
            return float(said["fraction"])
        if "done" in said and "total" in said:
            return float(said["done"]) / float(said["total"])
    except (ValueError, ZeroDivisionError):
        return None
    return None
