"""The results of a run: kept as they come, written as JSON, and put together over all rounds."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from bench.environments import ROOT
from bench.musts import Figure, Medians


@dataclass(frozen=True)
class Result:
    """One measurement of one contestant in one round: its values, or why it does not count."""

    round: int
    contestant: str
    measure: str
    values: dict[str, float] = field(default_factory=dict)
    failure: str = ""
    load: float = 0.0


@dataclass
class Results:
    """All of a run, in a file that is whole after each measurement."""

    path: Path
    machine: dict[str, Any]
    settings: dict[str, str]
    all: list[Result] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.all.append(result)
        self.write()

    def write(self) -> None:
        content = {
            "machine": self.machine,
            "settings": self.settings,
            "results": [asdict(one) for one in self.all],
            "verdicts": self.verdicts,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".part")
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        beside.replace(self.path)

    @property
    def medians(self) -> Medians:
        return medians(self.all)

    @property
    def failures(self) -> list[Result]:
        return [one for one in self.all if one.failure]


def medians(results: Sequence[Result]) -> dict[Figure, float]:
    """The median of each value over the rounds. A measurement that does not count takes no part."""
    seen: defaultdict[Figure, list[float]] = defaultdict(list)
    for result in results:
        for name, value in result.values.items():
            seen[Figure(result.contestant, result.measure, name)].append(value)
    return {figure: statistics.median(values) for figure, values in seen.items()}


def read(path: Path) -> Results:
    """The results of an earlier run."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Results(
        path, content["machine"], content["settings"], [Result(**one) for one in content["results"]]
    )


def machine(versions: dict[str, str], sizes: dict[str, Any]) -> dict[str, Any]:
    """What the figures depend on, without naming the machine."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "servers": versions,
        "sizes": sizes,
    }
