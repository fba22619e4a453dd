"""The small forms of `./dev bench api` and `./dev bench sse`: that they measure, not what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench import api, sse
from bench.servers import SQLite

Tell = Callable[[str], None]


def test_the_routes_are_measured_beside_each_other(tmp_path: Path, tell: Tell) -> None:
    measured = api.measure(SQLite(tmp_path), api.Load(clients=4, seconds=0.5, rounds=1))

    tell(f"{measured.median('noop'):.0f} requests/s beside {measured.median('bare'):.0f}")
    assert all(rate.per_s > 10 and rate.refused == 0 for rates in measured.rates.values() for rate in rates)


def test_a_crowd_hears_every_end(tmp_path: Path, tell: Tell) -> None:
    heard = sse.measure(SQLite(tmp_path), sse.Crowd(clients=20, per_s=10, seconds=4))

    tell(f"{len(heard.late)} ends, p95 {sorted(heard.late)[int(len(heard.late) * 0.95)]:.2f} s")
    assert heard.lost == []
    assert heard.asked == len(heard.late) >= 20
