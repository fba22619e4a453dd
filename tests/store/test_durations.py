"""How long tasks of each type took: one row a type, which many workers write."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from dumbwaiter.eta import GRID, History
from tests.store.world import NOW, SERVERS


def took(*seconds: float) -> History:
    first, *others = (History.of(value, [value * fraction for fraction in GRID]) for value in seconds)
    for other in others:
        first = first.merged(other)
    return first


def test_what_is_seen_is_added_to_what_is_known(store):
    assert store.durations() == {}

    store.add_durations({"slow": took(60), "quick": took(1)}, now=NOW)
    written = store.add_durations({"slow": took(60, 60)}, now=NOW)

    assert list(store.durations(["slow"])) == ["slow"]
    assert written["slow"].seconds.number == 3
    assert written["slow"].mean_seconds == pytest.approx(60, rel=0.001)
    assert set(store.durations()) == {"slow", "quick"}
    assert store.durations(["unknown"]) == {}
    assert store.durations([]) == {}


@pytest.mark.parametrize("database_kind", SERVERS, indirect=True)
def test_workers_that_write_at_once_lose_nothing(store):
    def write(number: int) -> int:
        """As a worker does: what was not written is given again."""
        fresh = {"a": took(10), "b": took(20), f"own-{number}": took(30)}
        while fresh:
            written = store.add_durations(fresh)
            fresh = {name: history for name, history in fresh.items() if name not in written}
        return number

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    known = store.durations()

    assert (known["a"].seconds.number, known["b"].seconds.number) == (8, 8)
    assert len(known) == 10
