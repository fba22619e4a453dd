"""What the figures must be, of which most are ratios: a machine moves, and only what ran in one run can be compared. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Figure(NamedTuple):
    """One value of a measure of a contestant."""

    contestant: str
    measure: str
    value: str = "per_s"


Medians = Mapping[Figure, float]
Verdict = Literal["met", "missed", "not measured"]


@dataclass(frozen=True)
class Must:
    """A figure, or its ratio to that of another, and the bound that it must keep; `aim` is where we would like it to be."""

    title: str
    figure: Figure
    bound: float
    beside: Figure | None = None
    aim: float | None = None
    at_most: bool = False
    unit: str = ""

    def value(self, medians: Medians) -> float | None:
        value = medians.get(self.figure)
        if value is None or self.beside is None:
            return value
        other = medians.get(self.beside)
        return value / other if other else None

    def verdict(self, medians: Medians) -> Verdict:
        value = self.value(medians)
        if value is None:
            return "not measured"
        return "met" if self.keeps(value, self.bound) else "missed"

    def keeps(self, value: float, bound: float) -> bool:
        return value <= bound if self.at_most else value >= bound


PG, SQLITE, MARIADB = "dumbwaiter/postgresql", "dumbwaiter/sqlite", "dumbwaiter/mariadb"
PGQUEUER, OBAN, HUEY = "pgqueuer/postgresql", "oban/postgresql", "huey/sqlite"
TITLES = {PG: "PostgreSQL", SQLITE: "SQLite", MARIADB: "MariaDB"}


def ratio(
    title: str,
    bound: float,
    figure: Figure,
    other: str,
    *,
    aim: float | None = None,
    at_most: bool = False,
    of: Figure | None = None,
) -> Must:
    """A figure beside the same one of another contestant, or beside the figure `of` that."""
    beside = of or Figure(other, figure.measure, figure.value)
    name = "the raw limit" if of else other.split("/")[0]
    return Must(f"{title}, × {name}", figure, bound, beside, aim, at_most, "×")


def behind(where: str) -> list[Must]:
    bound, aim = (0.9, 0.95) if where == PG else (0.7, None)
    kinds = {
        "finished": "1,000,000 finished rows",
        "backlog": "500,000 waiting rows",
        "future": "500,000 future rows",
    }
    return [
        Must(
            f"drain on {TITLES[where]} with {rows}, × empty",
            Figure(where, "behind", kind),
            bound,
            aim=aim,
            unit="×",
        )
        for kind, rows in kinds.items()
    ]


def at_rest(where: str) -> list[Must]:
    title = f"worker at rest on {TITLES[where]}"
    most = {
        "statements_per_s": ("statements a second", 2.0 if where == MARIADB else 1.0, ""),
        "cpu_percent": ("of a core", 0.5, " %"),
        "pss_mb": ("memory of its own", 80.0, " MB"),
    }
    return [
        Must(f"{title}, {what}", Figure(where, "idle", value), bound, at_most=True, unit=unit)
        for value, (what, bound, unit) in most.items()
    ]


def several(where: str) -> list[Must]:
    return [
        Must(f"{name} workers on {TITLES[where]}, × one", Figure(where, "workers", name), 0.8, unit="×")
        for name in ("two", "four")
    ]


DRAIN, NAP, ENQUEUE, MANY = (Figure(PG, name) for name in ("drain", "nap", "enqueue", "many"))
P50, P99 = Figure(PG, "latency", "p50_ms"), Figure(PG, "latency", "p99_ms")
MUSTS: Sequence[Must] = (
    ratio("no-op drain on PostgreSQL", 1.5, DRAIN, PGQUEUER, aim=2.0),
    ratio("no-op drain on PostgreSQL", 6.0, DRAIN, OBAN),
    ratio("no-op drain on PostgreSQL", 0.4, DRAIN, PG, aim=0.6, of=Figure(PG, "raw", "batch_per_s")),
    ratio("no-op drain on SQLite", 2.0, Figure(SQLITE, "drain"), HUEY),
    ratio(
        "no-op drain on MariaDB",
        0.3,
        Figure(MARIADB, "drain"),
        MARIADB,
        aim=0.5,
        of=Figure(MARIADB, "raw", "batch_per_s"),
    ),
    ratio("tasks of 10 ms on PostgreSQL", 2.5, NAP, OBAN),
    ratio("tasks of 10 ms on PostgreSQL", 0.7, NAP, PGQUEUER),
    ratio("enqueue one by one on PostgreSQL", 0.8, ENQUEUE, PGQUEUER),
    ratio(
        "enqueue one by one on PostgreSQL", 0.6, ENQUEUE, PG, aim=0.8, of=Figure(PG, "raw", "insert_per_s")
    ),
    ratio("enqueue a thousand a call on PostgreSQL", 1.5, MANY, PGQUEUER, aim=2.5),
    ratio("pick-up on PostgreSQL, p50", 0.8, P50, PGQUEUER, at_most=True),
    ratio("pick-up on PostgreSQL, p99", 0.8, P99, PGQUEUER, at_most=True),
    Must(
        "pick-up on SQLite, same process, p50",
        Figure(SQLITE, "inside", "p50_ms"),
        2.0,
        at_most=True,
        unit=" ms",
    ),
    Must(
        "pick-up on SQLite, other process, p50",
        Figure(SQLITE, "latency", "p50_ms"),
        30.0,
        at_most=True,
        unit=" ms",
    ),
    *behind(PG),
    *behind(SQLITE),
    *behind(MARIADB),
    Must(
        "claim p99 on PostgreSQL with an old snapshot held, × fresh",
        Figure(PG, "snapshot", "times"),
        3.0,
        aim=1.5,
        at_most=True,
        unit="×",
    ),
    ratio(
        "processor time per 1,000 no-ops on PostgreSQL",
        1.0,
        Figure(PG, "drain", "cpu"),
        PGQUEUER,
        aim=0.6,
        at_most=True,
    ),
    *at_rest(PG),
    *at_rest(SQLITE),
    *at_rest(MARIADB),
    *several(PG),
    *several(SQLITE),
    *several(MARIADB),
)
