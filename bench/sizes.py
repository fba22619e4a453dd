"""How much of everything a run does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """`probe` tasks tell how many the drain of a queue needs to take `drain_seconds`: every round then drains as many."""

    enqueue: int = 20_000
    enqueue_seconds: float = 6.0
    many: int = 50_000
    probe: int = 2_000
    drain_seconds: float = 5.0
    least: int = 2_000
    most: int = 200_000
    pickups: int = 200
    gap: float = 0.05
    beside: int = 20_000
    finished: int = 1_000_000
    backlog: int = 500_000
    future: int = 500_000
    claims: int = 500_000
    fresh_claims: int = 50_000
    raw: int = 100_000
    settle_seconds: float = 20.0
    idle_seconds: float = 30.0
    planned: int = 1_000_000

    def for_a_rate(self, per_s: float) -> int:
        """How many tasks a drain takes that goes on for long enough, in round numbers."""
        return max(self.least, min(self.most, int(per_s * self.drain_seconds) // 1_000 * 1_000))


FULL = Sizes()
# To see that everything works: its figures mean nothing.
QUICK = Sizes(
    enqueue=200,
    enqueue_seconds=2.0,
    many=1_000,
    probe=0,
    least=300,
    most=300,
    pickups=10,
    beside=300,
    finished=5_000,
    backlog=5_000,
    future=5_000,
    claims=2_000,
    fresh_claims=500,
    raw=1_000,
    settle_seconds=2.0,
    idle_seconds=3.0,
    planned=100_000,  # as the tests; of fewer a planner may well read all
)
