"""Solitude: when a worker claims nothing, so that a task that has crashed a worker takes no other along again.

Such a task is a *suspect* if it runs within the worker's process. It may well be innocent: all that a dead worker held are
suspects afterwards. Nobody can tell which of them it was, so each runs alone, and only the guilty one is charged again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from enum import Enum

from dumbwaiter.task import Fence

# So long a worker that is busy leaves a suspect to one that is empty, before it stops claiming for it.
PATIENCE = 2.0


class Step(Enum):
    """What a claimer does in one round."""

    USUAL = "claim as usual"
    NOTHING = "claim nothing: what runs must end first"
    SUSPECT = "take a suspect; if there is none, claim as usual"
    USUAL_FIRST = "claim as usual; if there was nothing, take a suspect"
    RESERVE = "claim nothing from now on, unless another worker does so already"


def next_step(*, empty: bool, alone: bool, draining: bool, waited: float | None, owed: bool) -> Step:
    """What to do now. Pure.

    `empty`: nothing runs here, and no end is still to be written. `alone`: what runs is a suspect. `draining`: this worker
    claims nothing until it is empty. `waited`: how long a suspect has been waiting, if one is known that was not tried for
    in vain since. `owed`: the others are to have their turn first.
    """
    if not empty and (alone or draining):
        return Step.NOTHING
    if draining:
        return Step.SUSPECT
    if waited is None:
        return Step.USUAL
    if empty:
        return Step.USUAL_FIRST if owed else Step.SUSPECT
    return Step.RESERVE if waited >= PATIENCE and not owed else Step.USUAL


class Solitude:
    """Remembers what `next_step` must know.

    A *spell* begins when this worker stops claiming, and ends with the end of what it ran alone. After a spell the others
    are owed as long a time as it took. So suspects never get more than half of a worker that has other work to do, and a
    worker without other work runs them one after another.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since: float | None = None
        self._worth_a_try = False
        self._alone: Fence | None = None
        self._began: float | None = None
        self._owed_until = -1.0
        self.reserved: str | None = None

    def hear(self, waits: bool) -> None:
        """Somebody has looked whether there is a suspect that could run here."""
        if not waits:
            self._since = None
        elif self._since is None:
            self._since = self._monotonic()
        self._worth_a_try = waits

    def in_vain(self) -> None:
        """There was none to be had, or another worker is about to take it: no more tries until somebody has looked again."""
        self._worth_a_try = False

    @property
    def minds_ends(self) -> bool:
        """The end of what runs here may be what its claimer waits for."""
        return self._since is not None or self._began is not None

    def drain(self, task_id: str) -> None:
        """This worker claims nothing until it can run that task alone."""
        self.reserved = task_id
        self._begin()

    def begin(self, fence: Fence) -> None:
        """It runs a suspect now."""
        self.reserved = None
        self._alone = fence
        self._begin()

    def give_up(self) -> None:
        """What it stopped claiming for does not wait any more."""
        self.reserved = None
        self._end()

    def step(self, running: Collection[Fence]) -> Step:
        """What to do now, given what runs here."""
        if self._alone is not None and self._alone not in running:
            self._alone = None
            self._end()
        now = self._monotonic()
        known = self._since if self._worth_a_try else None
        return next_step(
            empty=not running,
            alone=self._alone is not None,
            draining=self.reserved is not None,
            waited=None if known is None else now - known,
            owed=now < self._owed_until,
        )

    def _begin(self) -> None:
        if self._began is None:
            self._began = self._monotonic()

    def _end(self) -> None:
        if self._began is not None:
            now = self._monotonic()
            self._owed_until = now + (now - self._began)
            self._began = None
