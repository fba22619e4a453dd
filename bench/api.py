"""`./dev bench api`: `POST /tasks/noop` beside a bare FastAPI route that inserts one row with the same driver, in turns."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.servers import Server, big_directory
from bench.web import Line, Site, percentile, served

# What must be: a share of the bare route's rate.
LEAST = 0.5
ROUTES: dict[str, tuple[str, Any]] = {
    "bare": ("/bare", {"number": 1}),
    "noop": ("/tasks/noop", {"number": 1}),
}


@dataclass(frozen=True)
class Load:
    """How many clients ask, for how many seconds, in how many turns."""

    clients: int = 16
    seconds: float = 15
    rounds: int = 5


FULL, QUICK = Load(), Load(seconds=1, rounds=1)


@dataclass(frozen=True)
class Rate:
    """What was answered in one turn."""

    per_s: float
    p95_ms: float
    refused: int


@dataclass(frozen=True)
class Measured:
    """The turns of one database."""

    server: str
    rates: dict[str, list[Rate]]

    def median(self, route: str) -> float:
        return statistics.median(rate.per_s for rate in self.rates[route])

    @property
    def share(self) -> float:
        return self.median("noop") / self.median("bare")


def measure(server: Server, load: Load) -> Measured:
    """Both routes of one server process, in turns, on an empty database."""
    rates: dict[str, list[Rate]] = {name: [] for name in ROUTES}
    with (
        tempfile.TemporaryDirectory(prefix="dumbwaiter-bench-", dir=big_directory()) as home,
        served(server.fresh(), Path(home)) as site,
    ):
        for path, body in ROUTES.values():  # tables, connections, prepared statements
            asyncio.run(asked(site, path, body, Load(load.clients, min(load.seconds, 2))))
        for _ in range(load.rounds):
            for name, (path, body) in ROUTES.items():
                rates[name].append(asyncio.run(asked(site, path, body, load)))
    return Measured(server.name, rates)


async def asked(site: Site, path: str, body: Any, load: Load) -> Rate:
    """Clients that each ask again as soon as they are answered."""
    took: list[float] = []
    refused = 0
    end = time.perf_counter() + load.seconds

    async def client() -> None:
        nonlocal refused
        line = await Line.to(site)
        while (began := time.perf_counter()) < end:
            status, _ = await line.post(path, body)
            took.append(time.perf_counter() - began)
            refused += status != 202
        line.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(load.clients)))
    return Rate(len(took) / (time.perf_counter() - began), 1_000 * percentile(took, 0.95), refused)


def show(measured: Iterable[Measured]) -> list[str]:
    """Print what was measured; what missed its must."""
    missed = []
    for one in measured:
        for name, rates in one.rates.items():
            worst = max(rate.p95_ms for rate in rates)
            print(
                f"{one.server:12} {name:6} {one.median(name):8,.0f} requests/s   p95 ≤ {worst:.1f} ms",
                flush=True,
            )
            if refused := sum(rate.refused for rate in rates):
                missed.append(f"{one.server}: {refused} requests of {name} were refused")
        met = one.share >= LEAST
        print(
            f"{one.server:12} share  {one.share:8.2f} (must be ≥ {LEAST}){'' if met else '  MISSED'}",
            flush=True,
        )
        if not met:
            missed.append(f"{one.server}: {one.share:.2f} of the bare route's rate")
    return missed


def all_of(servers: Iterable[Server], load: Load) -> Iterator[Measured]:
    for server in servers:
        yield measure(server, load)
