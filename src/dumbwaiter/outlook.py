"""What can be told of a task beyond its row: its steps, its place in the queue, when it is likely to start. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from dumbwaiter.course import StepView


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a waiting task in its queue: 1 is the next. `lower_bound`: at least so far back, for counting has its end."""

    position: int
    lower_bound: bool = False
    expected_start_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known: nothing, unless somebody looked."""

    steps: Sequence[StepView] = ()
    place: Place | None = None


UNKNOWN = Outlook()
