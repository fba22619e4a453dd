"""The steps that a task type declares, each with its weight, and how far along the whole way each of them lies. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

from dumbwaiter.errors import ConfigurationError, InvalidStep
from dumbwaiter.retry import storable
from dumbwaiter.task import Status, Task

MOST_STEPS = 50
LONGEST_NAME = 200

StepState = Literal["done", "current", "waiting"]


@dataclass(frozen=True, slots=True)
class StepView:
    """One declared step of a task, and where the task stands with it."""

    name: str
    weight: float
    state: StepState


# without slots: where each step begins is found out once
@dataclass(frozen=True)
class Course:
    """The way of a task through its declared steps: their names in order, and how much of the whole each of them is."""

    weights: Mapping[str, float]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.weights)

    @cached_property
    def _begins(self) -> tuple[float, ...]:
        total = sum(self.weights.values())
        ends = accumulate(weight / total for weight in self.weights.values())
        return (0.0, *ends)

    @property
    def first(self) -> str:
        return self.names[0]

    def whole(self, step: str, fraction: float) -> float:
        """The fraction of the whole that a fraction of one step is. Raises InvalidStep for a step that is not declared.

        Example:
            >>> Course({"loading": 1, "rendering": 8, "encoding": 1}).whole("rendering", 0.5)
            0.5
        """
        number = self.number(step)
        begin, end = self._begins[number : number + 2]
        return begin + (end - begin) * min(max(fraction, 0.0), 1.0)

    def number(self, step: str) -> int:
        try:
            return self.names.index(step)
        except ValueError:
            raise InvalidStep(
                f"there is no step {step!r}; the steps of this task type are {', '.join(map(repr, self.names))}. "
                "What changes from task to task is told by message="
            ) from None

    def states(self, task: Task) -> list[StepView]:
        """Each step, and whether it is done, current or still to come."""
        passed = -1
        if task.status is Status.SUCCESS:
            passed = len(self.names)
        elif task.current_step in self.weights and task.status is not Status.PENDING:
            passed = self.names.index(task.current_step)
        return [
            StepView(
                name, weight, "done" if number < passed else "current" if number == passed else "waiting"
            )
            for number, (name, weight) in enumerate(self.weights.items())
        ]


def course(task_type: str, steps: Any) -> Course | None:
    """The declared steps of a task type; None if it declares none. Raises ConfigurationError for what cannot be steps."""
    if steps is None:
        return None
    if not isinstance(steps, Mapping) or not 0 < len(steps) <= MOST_STEPS:
        raise ConfigurationError(
            f"task {task_type!r}: steps={steps!r}: name 1 to {MOST_STEPS} steps with their weights, such as "
            '{"loading": 1, "rendering": 8}'
        )
    for name, weight in steps.items():
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or storable(name) != name:
            raise ConfigurationError(
                f"task {task_type!r}: step {name!r}: a step's name is a text of 1 to {LONGEST_NAME} characters, without NUL "
                "and lone surrogates"
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise ConfigurationError(
                f"task {task_type!r}: step {name!r} weighs {weight!r}: give a number over 0, by how much of the time it takes"
            )
    return Course(dict(steps))
