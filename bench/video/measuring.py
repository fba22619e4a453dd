"""A whole run: the lines one after another, then the tables."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import results
from bench.results import Results
from bench.video import lines, table
from bench.video.lines import FULL, LINES, QUICK, Bench, Sizes
from dumbwaiter.jobs.video import find_chromium, find_ffmpeg
from dumbwaiter.jobs.video.kept import version


def sizes(*, quick: bool, rounds: int | None = None) -> Sizes:
    """How much is to be done."""
    chosen = QUICK if quick else FULL
    return chosen if rounds is None else dataclasses.replace(chosen, rounds=rounds)


def measure(directory: Path, names: Sequence[str], chosen: Sizes, seed: int, out: Path) -> int:
    """Measure these lines and print the tables; how many musts are missed, and measurements do not count."""
    print(f"bench: seed {seed}", file=sys.stderr)
    programs = {
        "chromium": version(str(find_chromium()), "--version"),
        "ffmpeg": version(str(find_ffmpeg()), "-version"),
    }
    amounts = {"video": names, "seed": seed, "quick": chosen.end > 0, **dataclasses.asdict(chosen)}
    with lines.a_home() as home:
        bench = Bench(directory, home, chosen, seed, Results(out, results.machine(programs, amounts), {}))
        bench.found.settings.update(dict.fromkeys(sorted(bench.names), ""))
        for name in names:
            LINES[name](bench)
    found = bench.found
    found.verdicts[:] = [
        {
            "line": line.must.title, "must": line.must.bound, "aim": line.must.aim, "at_most": line.must.at_most,
            "unit": line.must.unit, "is": line.value, "verdict": line.verdict, "worst": line.worst,
        }
        for line in table.verdicts(found)
    ]  # fmt: skip
    found.write()
    missed = table.show(found)
    print(f"bench: {out}", file=sys.stderr)
    return missed + len(found.failures)
