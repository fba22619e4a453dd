"""Ways in which tasks come along, as pure simulations: after which share of its time a task has come how far.

Each has a seed, so that a figure can be had again. `./dev bench eta` and tests/unit/test_eta.py measure with these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dumbwaiter.eta import History, Pace

# How often a task tells how far it is, in seconds: as often as a worker looks.
TICK = 0.5

Curve = Callable[[float], float]


def steady(share: float) -> float:
    """The same speed throughout."""
    return share


def slowing(share: float) -> float:
    """The speed falls evenly to a third of what it was."""
    return (3 * share - share**2) / 2


def slowing_at_once(share: float) -> float:
    """From half of the work on it goes at a third of the speed."""
    return 2 * share if share < 0.25 else 0.5 + (share - 0.25) / 1.5


def three_steps(share: float) -> float:
    """Three steps that are a third of the work each and take a tenth, seven tenths and two tenths of the time."""
    third, begin = 1 / 3, 0.0
    for number, length in enumerate((0.1, 0.7, 0.2)):
        if share < begin + length:
            return number * third + (share - begin) / length * third
        begin += length
    return 1.0


def weighted_steps(share: float) -> float:
    """The same three steps, declared with weights that are nearly right: 1, 6 and 3."""
    weights, begin, done = (0.1, 0.6, 0.3), 0.0, 0.0
    for weight, length in zip(weights, (0.1, 0.7, 0.2), strict=True):
        if share < begin + length:
            return done + (share - begin) / length * weight
        begin, done = begin + length, done + weight
    return 1.0


SHAPES: dict[str, Curve] = {
    "steady": steady,
    "slowing threefold": slowing,
    "slowing threefold at once": slowing_at_once,
    "three unequal steps": three_steps,
    "three weighted steps": weighted_steps,
}


@dataclass(frozen=True, slots=True)
class Run:
    """One task: how long it took, and what it reported when, in seconds."""

    seconds: float
    reports: Sequence[tuple[float, float]]


def run(curve: Curve, rng: random.Random, *, seconds: float, noise: float = 0.3) -> Run:
    """A task of that shape; `noise` is how much the speed of each moment varies."""
    ticks = max(int(seconds / TICK), 2)
    steps = [max(rng.gauss(1.0, noise), 0.05) for _ in range(ticks)]
    whole, gone, reports = sum(steps), 0.0, []
    for number, step in enumerate(steps):
        gone += step
        # what the noise makes quick or slow is the work, not the clock
        reports.append(((number + 1) * seconds / ticks, min(curve(gone / whole), 0.999)))
    return Run(seconds, reports)


def history_of(runs: Sequence[Run]) -> History | None:
    """What a worker would remember of these."""
    history: History | None = None
    for one in runs:
        found = paced(one, one.seconds).history(one.seconds)
        history = found if history is None else history.merged(found)
    return history


def paced(one: Run, until: float) -> Pace:
    pace = Pace()
    for at, fraction in one.reports:
        if at <= until:
            pace.note(at, fraction)
    return pace


def told(one: Run, history: History | None) -> list[tuple[float, float]]:
    """What would be shown at each moment: (seconds, seconds left)."""
    pace, shown = Pace(), []
    for at, fraction in one.reports:
        pace.note(at, fraction)
        estimate = pace.forecast(at, history)
        if estimate is not None:
            shown.append((at, estimate.seconds))
    return shown


def error_at(one: Run, history: History | None, share: float = 0.5) -> float:
    """By how much of the time that was really left the estimate is off, when so much of the time has gone."""
    at = one.seconds * share
    shown = [left for moment, left in told(one, history) if moment <= at]
    left = one.seconds - at
    return 1.0 if not shown else abs(shown[-1] - left) / left
