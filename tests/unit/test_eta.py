"""The estimate of the time left: what it makes of a pace, and of what earlier tasks took."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.shapes import SHAPES, Run, error_at, history_of, run, steady, told
from dumbwaiter.eta import GRID, Estimate, History, Pace, Tally

# of the last run of so many, by seed, that differ in length by half and in speed from moment to moment
SEEDS = range(40)


def series(shape: str, seed: int, earlier: int) -> tuple[Run, History | None]:
    rng = random.Random(seed)
    runs = [run(SHAPES[shape], rng, seconds=rng.lognormvariate(4, 0.5)) for _ in range(earlier + 1)]
    return runs[-1], history_of(runs[:-1])


def minute(seconds: float = 60.0) -> History:
    """Five tasks that took so long, at an even pace."""
    history = History.of(seconds, [seconds * fraction for fraction in GRID])
    for _ in range(4):
        history = history.merged(History.of(seconds, [seconds * fraction for fraction in GRID]))
    return history


def estimated(pace: Pace, seconds: float, history: History | None = None) -> Estimate:
    estimate = pace.estimate(seconds, history)
    assert estimate is not None
    return estimate


def known(shape: str, seed: int, earlier: int) -> History:
    history = series(shape, seed, earlier)[1]
    assert history is not None
    return history


@pytest.mark.parametrize("earlier", [1, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_half_way_the_estimate_is_within_a_fifth_once_a_task_of_the_type_has_succeeded(shape, earlier):
    errors = [error_at(*series(shape, seed, earlier)) for seed in SEEDS]

    assert statistics.median(errors) <= 0.2
    assert max(errors) <= 0.5


@pytest.mark.parametrize(
    ("shape", "most"), [("steady", 0.2), ("slowing threefold", 0.25), ("slowing threefold at once", 0.2)]
)
def test_the_first_task_of_a_type_is_estimated_by_its_pace(shape, most):
    assert statistics.median(error_at(*series(shape, seed, 0)) for seed in SEEDS) <= most


def test_at_an_even_pace_the_rest_takes_its_share():
    pace = Pace()
    for second in range(31):
        pace.note(second, second / 120)

    assert estimated(pace, 30).seconds == pytest.approx(90)


@pytest.mark.parametrize(("seconds", "fraction"), [(30, 0), (30, 0.029), (1.9, 0.5)])
def test_too_little_work_tells_nothing(seconds, fraction):
    pace = Pace()
    pace.note(seconds, fraction)

    assert pace.estimate(seconds) is None
    assert pace.forecast(seconds) is None


def test_a_task_that_says_nothing_takes_as_long_as_others_did():
    early, late = (estimated(Pace(), seconds, minute()) for seconds in (10, 50))

    assert early.seconds == pytest.approx(50, rel=0.1)
    assert late.seconds < 20
    assert early.spread is not None
    assert early.spread < 2


def test_a_task_that_says_nothing_and_takes_longer_than_any_other_still_takes_a_while():
    lefts = [estimated(Pace(), seconds, minute()).seconds for seconds in (60, 120, 600, 1e6)]

    assert all(0 < left < 1e6 for left in lefts)
    assert lefts[1] > 1


def test_a_task_that_is_ten_times_larger_than_those_before_is_believed():
    pace = Pace()
    for second in range(61):
        pace.note(second, second / 600)

    assert estimated(pace, 60, minute()).seconds == pytest.approx(540, rel=0.2)


def test_a_retry_that_goes_on_where_it_was_counts_from_there():
    pace = Pace(resumes=True)
    pace.note(1, 0.6)
    for second in range(2, 12):
        pace.note(second, 0.6 + (second - 1) / 100)

    assert estimated(pace, 11).seconds == pytest.approx(30, rel=0.05)
    assert estimated(pace, 11, minute(100)).seconds == pytest.approx(30, rel=0.1)


def test_a_task_that_stands_still_is_expected_ever_later():
    pace = Pace()
    for second in range(31):
        pace.note(second, second / 60)
    lefts = [estimated(pace, seconds).seconds for seconds in (30, 60, 120)]

    assert lefts[0] < lefts[1] < lefts[2]


@pytest.mark.parametrize("fraction", [0.999, 1.0, 7.0])
def test_nearly_at_its_end_little_is_left(fraction):
    pace = Pace()
    for second in range(1, 101):
        pace.note(second, second / 100 * fraction)

    assert 0 < estimated(pace, 100).seconds < 1
    assert 0 < estimated(pace, 100, minute(100)).seconds < 3
    assert 0 < estimated(pace, 100, minute(1)).seconds < 3


@settings(max_examples=300, deadline=None)
@given(
    reports=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1)), max_size=30),
    earlier=st.lists(st.floats(1e-3, 1e6), max_size=5),
    resumes=st.booleans(),
)
def test_whatever_is_reported_the_time_left_is_a_number_and_never_negative(reports, earlier, resumes):
    history = None
    for seconds in earlier:
        found = History.of(seconds, [seconds * fraction**2 for fraction in GRID])
        history = found if history is None else history.merged(found)
    pace = Pace(resumes=resumes)
    for seconds, fraction in sorted(reports):
        pace.note(seconds, fraction)
        for estimate in (pace.estimate(seconds, history), pace.forecast(seconds + 1, history)):
            assert estimate is None or 0 <= estimate.seconds < math.inf
            assert estimate is None or estimate.spread is None or 1 < estimate.spread < 10
    pace.history(1e6)


def test_a_range_is_told_from_the_third_task_on_and_holds_what_it_says():
    spreads = []
    held = 0
    for seed in SEEDS:
        one, history = series("slowing threefold", seed, 6)
        pace = Pace()
        for at, fraction in one.reports:
            if at <= one.seconds / 2:
                pace.note(at, fraction)
        estimate = estimated(pace, one.seconds / 2, history)
        assert estimate.spread is not None
        spreads.append(estimate.spread)
        held += estimate.seconds / estimate.spread <= one.seconds / 2 <= estimate.seconds * estimate.spread

    assert held >= 0.75 * len(SEEDS)
    assert statistics.median(spreads) < 2
    few = estimated(Pace(), 10, History.of(60))
    assert few.spread is None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("earlier", [0, 4])
def test_the_end_that_is_shown_never_jumps(shape, earlier):
    """In a second it moves by at most four seconds, or a fifth of what is left."""
    for seed in range(10):
        one, history = series(shape, seed, earlier)
        shown = told(one, history)
        assert all(left >= 0 for _, left in shown)
        for (before, left), (after, then) in itertools.pairwise(shown):
            most = (after - before) * max(4.0, 0.2 * left)
            assert abs((after + then) - (before + left)) <= most + 1e-6


def test_what_is_remembered_is_of_the_last_tasks():
    history = minute(10)
    for _ in range(200):
        history = history.merged(History.of(100, [100 * fraction for fraction in GRID]))

    assert history.seconds.number <= 31
    assert history.mean_seconds == pytest.approx(100, rel=0.05)


def test_histories_of_two_workers_are_one():
    rng = random.Random(5)
    values = [rng.lognormvariate(3, 1) for _ in range(20)]
    one, other = (sum_of(part) for part in (values[:7], values[7:]))
    whole = sum_of(values)

    merged = one.merged(other).seconds
    assert (merged.number, merged.mean, merged.squares) == pytest.approx(
        (whole.seconds.number, whole.seconds.mean, whole.seconds.squares)
    )
    logs = [math.log(value) for value in values]
    assert whole.seconds.mean == pytest.approx(statistics.fmean(logs))
    assert whole.seconds.squares / 20 == pytest.approx(statistics.pvariance(logs))


def sum_of(values: list[float]) -> History:
    first, *others = values
    history = History.of(first)
    for value in others:
        history = history.merged(History.of(value))
    return history


def test_a_history_comes_back_from_its_json():
    history = known("three unequal steps", 3, 5)

    told = History.from_json(json.loads(json.dumps(history.as_json())))

    assert told.seconds.mean == pytest.approx(history.seconds.mean, abs=1e-4)
    assert [share.mean for share in told.shares] == pytest.approx(
        [share.mean for share in history.shares], abs=1e-4
    )
    assert len(json.dumps(history.as_json())) < 2_000


def test_the_shares_of_another_grid_are_passed_over():
    told = History(Tally(1, 2, 0), [Tally(1, -1, 0)] * 3).as_json()

    assert History.from_json(told) == History(Tally(1, 2, 0), ())


def test_a_task_that_reports_nothing_adds_its_duration_alone():
    history = Pace().history(30)

    assert (history.seconds.number, history.shares) == (1, ())
    known = minute().merged(history)
    assert len(known.shares) == len(GRID)


def test_an_estimate_is_cheap():
    """A worker makes two a second of each task that runs, and a task may report as often as it likes."""
    pace = Pace()
    for number in range(100_000):
        pace.note(number / 1_000, number / 200_000)

    assert len(pace._points) <= 201
    assert steady(0.5) == 0.5
