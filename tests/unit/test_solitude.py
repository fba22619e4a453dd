"""When a worker claims nothing, and for whom: what a claimer does in each state, by a clock of the test's own."""

from __future__ import annotations

import itertools

import pytest

from dumbwaiter.task import Fence
from dumbwaiter.worker.solitude import PATIENCE, Solitude, Step, next_step

POISON, INNOCENT = Fence("poison", "w1", 2), Fence("innocent", "w1", 1)
LONG = PATIENCE + 1


@pytest.mark.parametrize("draining", [False, True])
@pytest.mark.parametrize("owed", [False, True])
@pytest.mark.parametrize("waited", [None, 0.0, LONG])
def test_while_a_suspect_runs_nothing_is_claimed(draining: bool, owed: bool, waited: float | None) -> None:
    assert Step.NOTHING is next_step(empty=False, alone=True, draining=draining, waited=waited, owed=owed)


@pytest.mark.parametrize(
    ("empty", "waited", "owed", "step"),
    [
        (True, None, False, Step.USUAL),
        (False, None, False, Step.USUAL),
        (True, 0.0, False, Step.SUSPECT),
        (True, 0.0, True, Step.USUAL_FIRST),
        (False, 0.0, False, Step.USUAL),
        (False, PATIENCE, False, Step.RESERVE),
        (False, PATIENCE, True, Step.USUAL),
    ],
)
def test_a_worker_that_runs_no_suspect(empty: bool, waited: float | None, owed: bool, step: Step) -> None:
    assert step is next_step(empty=empty, alone=False, draining=False, waited=waited, owed=owed)


def test_a_worker_that_drains_claims_nothing_until_it_is_empty_and_then_the_suspect_first() -> None:
    for waited, owed in itertools.product([None, 0.0, LONG], [False, True]):
        assert Step.NOTHING is next_step(empty=False, alone=False, draining=True, waited=waited, owed=owed)
        assert Step.SUSPECT is next_step(empty=True, alone=False, draining=True, waited=waited, owed=owed)


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


@pytest.fixture
def solitude(clock: list[float]) -> Solitude:
    return Solitude(lambda: clock[0])


def test_nothing_is_stopped_for_a_suspect_that_has_just_come(solitude: Solitude, clock: list[float]) -> None:
    solitude.hear(True)
    assert Step.USUAL is solitude.step([INNOCENT])
    clock[0] += PATIENCE
    solitude.hear(True)
    assert Step.RESERVE is solitude.step([INNOCENT])


def test_a_suspect_that_somebody_took_is_forgotten(solitude: Solitude, clock: list[float]) -> None:
    solitude.hear(True)
    clock[0] += LONG
    solitude.hear(False)

    assert Step.USUAL is solitude.step([INNOCENT])
    assert Step.USUAL is solitude.step([])
    assert not solitude.minds_ends


def test_after_a_vain_try_somebody_must_have_looked_before_the_next(
    solitude: Solitude, clock: list[float]
) -> None:
    solitude.hear(True)
    clock[0] += LONG
    solitude.in_vain()
    assert Step.USUAL is solitude.step([INNOCENT])
    assert Step.USUAL is solitude.step([])
    solitude.hear(True)
    assert Step.RESERVE is solitude.step([INNOCENT])


def test_a_spell_is_the_drain_and_the_suspect_and_the_others_are_owed_as_long(
    solitude: Solitude, clock: list[float]
) -> None:
    solitude.hear(True)
    solitude.drain("poison")
    clock[0] += 10
    assert Step.NOTHING is solitude.step([INNOCENT])
    assert Step.SUSPECT is solitude.step([])
    solitude.begin(POISON)
    clock[0] += 30
    assert Step.NOTHING is solitude.step([POISON])
    solitude.hear(True)  # there is another one

    assert Step.USUAL_FIRST is solitude.step([])
    clock[0] += 39
    assert Step.USUAL is solitude.step([INNOCENT])
    assert Step.USUAL_FIRST is solitude.step([])
    clock[0] += 1
    assert Step.RESERVE is solitude.step([INNOCENT])
    assert Step.SUSPECT is solitude.step([])


def test_a_drain_for_nothing_is_owed_too(solitude: Solitude, clock: list[float]) -> None:
    solitude.hear(True)
    solitude.drain("poison")
    clock[0] += 10
    solitude.give_up()

    assert Step.USUAL is solitude.step([INNOCENT])
    clock[0] += 10
    assert Step.RESERVE is solitude.step([INNOCENT])


def test_ends_are_minded_only_while_there_is_something_to_wait_for(solitude: Solitude) -> None:
    minded = [solitude.minds_ends]
    solitude.hear(True)
    minded.append(solitude.minds_ends)
    solitude.begin(POISON)
    solitude.hear(False)
    minded.append(solitude.minds_ends)
    solitude.step([])
    minded.append(solitude.minds_ends)

    assert [False, True, True, False] == minded
