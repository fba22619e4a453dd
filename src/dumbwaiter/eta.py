"""How much longer a running task will take: its pace so far, blended with what earlier tasks of its type took. Pure.

Three guesses at the time left, each with how far it may be off, in logarithms:

- the *rate*: the rest at the speed of the second half of the time so far, with half of the trend from the first half to it;
- the *profile*: earlier tasks had reached this fraction after such a share of their time, so this one will take that much in all;
- the *duration*: earlier tasks took so long, and this one has run for so much of it (the conditional median of a log-normal).

They are weighted by the inverse of their variances, as independent measurements are (the textbooks' inverse-variance weighting). A
duration that contradicts the other two loses its weight by the square of the contradiction: this task is larger than those before.
Without a history only the rate is left.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import Any

# At these fractions the history knows how much of the time had gone.
GRID = tuple(number / 20 for number in range(1, 20))
# So many of the last tasks count; each older one less.
MEMORY = 30.0
# Before that a task's own rate is a guess that jumps about.
LEAST_SECONDS, LEAST_FRACTION = 2.0, 0.03
# How far each guess is off where little is known, as the standard deviation of the logarithm.
RATE_OFF = 0.35
DURATION_OFF, PROFILE_OFF = 0.7, 0.22
# From one half of the time to the other the speed changes by less than this, or the change was a step and is over.
MOST_TREND = 1.25
# With so many earlier tasks the estimate is told with a range, in which four of five ends lie (if errors are log-normal).
RANGE_FROM, RANGE = 3, 1.28
NARROWEST, WIDEST = 1.1, 5.0
# In a second the end that is shown moves by at most so many seconds, or by such a part of what is left.
MOST_MOVE_SECONDS, MOST_MOVE = 4.0, 0.2
# A report that is nearer to the last one is not kept.
APART = 1 / 200
NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Tally:
    """The number, the mean and the squared deviations of some values (Welford's, merged as Chan and others do)."""

    number: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    def merged(self, other: Tally) -> Tally:
        number = self.number + other.number
        if not number:
            return self
        apart = other.mean - self.mean
        return Tally(
            number,
            self.mean + apart * other.number / number,
            self.squares + other.squares + apart**2 * self.number * other.number / number,
        )

    def faded(self, most: float) -> Tally:
        """The same as if there were at most so many values."""
        if self.number <= most:
            return self
        return Tally(most, self.mean, self.squares * most / self.number)

    def variance(self, expected: float, weight: float) -> float:
        """The variance, as if there had been so many values more with the variance that was expected."""
        return (self.squares + expected**2 * weight) / (self.number + weight)


# without slots: what is asked at every estimate is found out once
@dataclass(frozen=True)
class History:
    """What the last successes of one task type took, and when on their way they reported which fraction.

    `seconds` is of the logarithms of their durations in seconds; `shares`, for each fraction of GRID, of the logarithms of the
    share of its duration after which a task had come so far. Tasks that report no fraction have no shares.
    """

    seconds: Tally = field(default_factory=Tally)
    shares: Sequence[Tally] = ()

    @classmethod
    def of(cls, seconds: float, reached: Sequence[float] = ()) -> History:
        """Of one task: how long it took, and after how many seconds it had reached each fraction of GRID."""
        seconds = max(seconds, 1e-6)
        shares = [Tally(1.0, math.log(min(max(at / seconds, 1e-3), 0.999))) for at in reached]
        return cls(Tally(1.0, math.log(seconds)), tuple(shares))

    def merged(self, later: History) -> History:
        """With later tasks; of all of them the last MEMORY count."""
        shares = self.shares or later.shares
        if self.shares and later.shares:
            shares = tuple(
                one.faded(MEMORY).merged(other) for one, other in zip(self.shares, later.shares, strict=True)
            )
        return History(self.seconds.faded(MEMORY).merged(later.seconds), shares)

    @property
    def mean_seconds(self) -> float:
        """How long such a task takes on average."""
        variance = self.seconds.variance(0.0, 1e-9)
        return math.exp(self.seconds.mean + min(variance, 2.0) / 2)

    def share(self, fraction: float) -> tuple[float, float]:
        """The share of its time after which a task has come so far, and the variance of its logarithm."""
        place = fraction * (len(GRID) + 1)
        below = min(int(place + 1e-9), len(GRID))
        part = min(max(place - below, 0.0), 1.0)
        (low, low_off), (high, high_off) = self._curve[below : below + 2]
        return low + (high - low) * part, low_off + (high_off - low_off) * part

    def way(self, fraction: float) -> list[tuple[float, float]]:
        """The way to that fraction, as (share of the time, fraction)."""
        number = bisect_left(GRID, fraction)
        passed = [(share, at) for (share, _), at in zip(self._curve[1:], GRID[:number], strict=False)]
        return [(0.0, 0.0), *passed, (self.share(fraction)[0], fraction)]

    @cached_property
    def _curve(self) -> Sequence[tuple[float, float]]:
        """The share of the time and the variance of its logarithm at 0, at each fraction of GRID, and at 1."""
        known = [(math.exp(tally.mean), tally.variance(PROFILE_OFF, 2.0)) for tally in self.shares]
        return [(0.0, known[0][1]), *known, (1.0, 0.0)]

    def as_json(self) -> dict[str, Any]:
        return {
            "seconds": packed(self.seconds),
            "shares": [packed(share) for share in self.shares],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> History:
        """What `as_json` told. Shares of another grid (another version's) are passed over."""
        shares = tuple(Tally(*share) for share in told["shares"])
        return cls(Tally(*told["seconds"]), shares if len(shares) == len(GRID) else ())


def packed(tally: Tally) -> list[float]:
    return [round(value, 5) for value in (tally.number, tally.mean, tally.squares)]


@dataclass(frozen=True, slots=True)
class Estimate:
    """So many seconds are left; with `spread`, between `seconds / spread` and `seconds * spread`."""

    seconds: float
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Guess:
    """The logarithm of the seconds left, and its variance."""

    log: float
    variance: float


class Pace:
    """How one attempt has come along: after how many seconds it reported which fraction. Its caller keeps the time.

    A later attempt may begin where an earlier one was (`resumes`): then its pace counts from its first report.

        pace = Pace()
        pace.note(30, 0.25)
        pace.forecast(30).seconds  # 90
    """

    def __init__(self, *, resumes: bool = False) -> None:
        self._resumes = resumes
        self._points: list[tuple[float, float]] = [] if resumes else [(0.0, 0.0)]
        self._last = (0.0, 0.0)
        self._told: tuple[float, float] | None = None

    @property
    def fraction(self) -> float:
        return self._last[1]

    def note(self, seconds: float, fraction: float) -> None:
        """So far it is after so many seconds. What goes back is passed over, and only the end itself is the end."""
        fraction = min(fraction, 0.999)
        if fraction > self._last[1] or not self._points:
            self._last = (seconds, fraction)
            if not self._points or fraction >= self._points[-1][1] + APART:
                self._points.append(self._last)

    def history(self, seconds: float) -> History:
        """What this attempt adds to the history, if it succeeded after so many seconds."""
        if self._resumes or len(self._points) < 2:
            return History.of(seconds)
        return History.of(seconds, [self._reached(fraction, seconds) for fraction in GRID])

    def _reached(self, fraction: float, end: float) -> float:
        """When it had come so far: the first report that said so, or the end."""
        place = bisect_right(self._points, fraction - 1e-9, key=lambda point: point[1])
        return self._points[place][0] if place < len(self._points) else end

    def estimate(self, seconds: float, history: History | None = None) -> Estimate | None:
        """The time left after so many seconds; None while nothing is known. It may jump; `forecast` does not."""
        own = [g for g in (self._by_rate(seconds, history), self._by_profile(seconds, history)) if g]
        duration = None if self._resumes else by_duration(seconds, history)
        if own and duration is not None:
            mean = blended(own).log
            own.append(Guess(duration.log, duration.variance + (duration.log - mean) ** 2))
        elif duration is not None:
            own = [duration]
        if not own:
            return None
        guess = blended(own)
        known = history is not None and history.seconds.number >= RANGE_FROM
        spread = math.exp(RANGE * math.sqrt(guess.variance)) if known else None
        return Estimate(math.exp(guess.log), None if spread is None else min(max(spread, NARROWEST), WIDEST))

    def forecast(self, seconds: float, history: History | None = None) -> Estimate | None:
        """The estimate, smoothed over a twelfth of the time so far: its end moves, but does not jump."""
        estimate = self.estimate(seconds, history)
        if estimate is None:
            return None
        left = estimate.seconds
        if self._told is not None:
            at, end = self._told
            before = max(end - seconds, 0.0)
            passed = max(seconds - at, 0.0)
            move = (left - before) * (1 - math.exp(-passed / min(max(seconds / 12, 0.5), 10.0)))
            most = passed * max(MOST_MOVE_SECONDS, before * MOST_MOVE)
            left = before + min(max(move, -most), most)
        self._told = (seconds, seconds + left)
        return Estimate(left, estimate.spread)

    def _by_rate(self, seconds: float, history: History | None) -> Guess | None:
        """The rest at the speed of late; it counts for less where that misled in earlier tasks."""
        if not self._points:
            return None
        begin, first = self._points[0]
        fraction = self._last[1]
        if seconds - begin < LEAST_SECONDS or fraction - first < LEAST_FRACTION:
            return None
        points = [*self._points, self._last] if self._last != self._points[-1] else self._points
        left = left_by_rate(points, seconds)
        misled = 0.0
        if history is not None and history.shares:
            share = history.share(fraction)[0]
            misled = math.log(left_by_rate(history.way(fraction), share) / max(1 - share, 1e-3))
        return Guess(math.log(left), RATE_OFF**2 + misled**2)

    def _by_profile(self, seconds: float, history: History | None) -> Guess | None:
        """The rest as it went in earlier tasks from here on, at this one's scale."""
        if history is None or not history.shares or not self._points:
            return None
        (begin, first), (at, fraction) = self._points[0], self._last
        share, variance = history.share(fraction)
        gone = share - (history.share(first)[0] if first else 0.0)
        if gone < 0.01 or at - begin < LEAST_SECONDS / 4:
            return None
        scale = (at - begin) / gone
        # it has not come to the next fraction of the grid, however long ago it spoke
        further = history.share(min((int(fraction * 20 + 1e-9) + 1) / 20, 1.0))[0]
        left = max(
            scale * (1 - share) - (seconds - at), scale * (1 - further), scale * (1 - share) / 50, 1e-3
        )
        return Guess(math.log(left), min(max(variance / max(1 - share, 0.05) ** 2, 0.0025), 1.0))


def left_by_rate(points: Sequence[tuple[float, float]], now: float) -> float:
    """How long the rest takes at the speed of the second half of the time so far, and with some of its trend.

    `points` are (moment, fraction), the last of them not after `now`, some of the way apart.
    """
    (begin, first), (_, fraction) = points[0], points[-1]
    half = between(points, (begin + now) / 2)
    early, late = half - first, fraction - half
    if late <= 0:
        # nothing for half of the time: all of it counts
        rate = (fraction - first) / (now - begin)
    else:
        trend = min(max(late / early, 1 / MOST_TREND), MOST_TREND) if early > 0 else 1.0
        rate = late / (now - begin) * 2 * trend
    return (1 - fraction) / rate


def between(points: Sequence[tuple[float, float]], moment: float) -> float:
    """The fraction at a moment, on a straight line between two points."""
    place = bisect_right(points, moment, key=lambda point: point[0])
    if place == len(points):
        return points[-1][1]
    (before, low), (after, high) = points[place - 1], points[place]
    return low + (high - low) * (moment - before) / (after - before)


def by_duration(seconds: float, history: History | None) -> Guess | None:
    """The rest of what such tasks took, of those that took longer than so many seconds."""
    if history is None or not history.seconds.number:
        return None
    off = max(math.sqrt(history.seconds.variance(DURATION_OFF, 1.0)), 0.05)
    passed = NORMAL.cdf((math.log(max(seconds, 1e-6)) - history.seconds.mean) / off)
    quarter, half, rest = (
        # so many of those that are still at work have ended by then
        max(
            math.exp(history.seconds.mean + off * NORMAL.inv_cdf(min(passed + (1 - passed) * part, 1 - 1e-9)))
            - seconds,
            seconds / 50,
            1e-3,
        )
        for part in (0.25, 0.5, 0.75)
    )
    spread = (math.log(rest) - math.log(quarter)) / 1.349
    return Guess(math.log(half), max(spread**2, 0.01))


def blended(guesses: Sequence[Guess]) -> Guess:
    """Several guesses as one, by their inverse variances; what they disagree by is added to its own."""
    weights = [1 / guess.variance for guess in guesses]
    whole = sum(weights)
    log = sum(guess.log * weight for guess, weight in zip(guesses, weights, strict=True)) / whole
    apart = (
        sum(weight * (guess.log - log) ** 2 for guess, weight in zip(guesses, weights, strict=True)) / whole
    )
    return Guess(log, 1 / whole + apart)
