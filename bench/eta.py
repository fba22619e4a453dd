"""How far off the estimates of the time left are: of simulated shapes, and of real exports through a worker, as a page sees them."""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.shapes import SHAPES, error_at, history_of, run
from dumbwaiter import Dumbwaiter
from dumbwaiter.jobs.video import load
from dumbwaiter.jobs.video.errors import RecordingError
from dumbwaiter.jobs.video.task import RECORDINGS, register

# The median error at half of the time is to be no more.
ALLOWED = 0.2
SHORTEST = 20.0
LONGEST = 2 * 3600.0
EARLIER = (0, 1, 5)
LOOK_EVERY = 0.2


@dataclass(frozen=True, slots=True)
class Errors:
    """By how much of the time that was really left the estimates were off."""

    name: str
    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def line(self) -> str:
        ninth = sorted(self.values)[int(len(self.values) * 0.9)]
        return f"{self.name:44} median {self.median:4.0%}  nine of ten {ninth:4.0%}  worst {max(self.values):4.0%}"


def of_shapes(seeds: int) -> Iterator[Errors]:
    """Each shape, for the first task of its type and for those after others; lengths differ by half, speeds by a third."""
    for name, curve in SHAPES.items():
        for earlier in EARLIER:
            errors = []
            for seed in range(seeds):
                rng = random.Random(seed)
                runs = [run(curve, rng, seconds=rng.lognormvariate(4, 0.5)) for _ in range(earlier + 1)]
                errors.append(error_at(runs[-1], history_of(runs[:-1])))
            yield Errors(f"{name}, {earlier} before", errors)


@dataclass(frozen=True, slots=True)
class Export:
    """One export as a page saw it: how long it took, and what was shown when, both in seconds since its start."""

    recording: str
    seconds: float
    shown: Sequence[tuple[float, float]]

    def error(self, share: float) -> float:
        """The error when so much of the time had gone; all of it if nothing was shown by then."""
        at = self.seconds * share
        told = [(moment, left) for moment, left in self.shown if moment <= at]
        if not told:
            return 1.0
        moment, left = told[-1]
        # what a page shows counts down between two looks
        return abs(max(left - (at - moment), 0.0) - (self.seconds - at)) / (self.seconds - at)


def long_enough(directories: Sequence[Path]) -> dict[str, Path]:
    """The recordings of twenty seconds and more in these directories."""
    found: dict[str, Path] = {}
    for directory in directories:
        for path in sorted(directory.glob("*.json")):
            with contextlib.suppress(RecordingError):
                if SHORTEST <= load(path).duration_ms / 1000 <= LONGEST:
                    found[path.stem] = path
    return found


def of_exports(recordings: Mapping[str, Path], rounds: int) -> Iterator[Export]:
    """Export each of them, round after round, through one worker; its history begins with nothing."""
    with tempfile.TemporaryDirectory(prefix="dumbwaiter-eta-") as place:
        here = Path(place)
        (here / "recordings").mkdir()
        for name, path in recordings.items():
            (here / "recordings" / f"{name}.json").write_bytes(path.read_bytes())
        os.environ[RECORDINGS] = str(here / "recordings")
        waiter = Dumbwaiter(
            f"sqlite:///{here / 'tasks.db'}", files=str(here / "files"), workdir=str(here / "work")
        )
        export = register(waiter)
        waiter.migrate()
        worker = waiter.worker()
        worker.start()
        try:
            for _ in range(rounds):
                for name in recordings:
                    yield watched(waiter, export.enqueue(recording=f"{name}.json").id, name)
        finally:
            worker.stop(hurry=True)
            worker.join(30)
            waiter.close()


def watched(waiter: Dumbwaiter, task_id: str, name: str) -> Export:
    """Look at a task until it has ended."""
    shown: list[tuple[float, float]] = []
    while True:
        task, now = waiter.get(task_id), waiter.store.now()
        if task.status.final:
            break
        left = task.remaining(now)
        if left is not None and task.started_at is not None:
            shown.append(((now - task.started_at).total_seconds(), left.total_seconds()))
        time.sleep(LOOK_EVERY)
    if task.status != "success" or task.started_at is None or task.finished_at is None:
        raise RuntimeError(f"{name}: {task.status}: {task.error_message}")
    return Export(name, (task.finished_at - task.started_at).total_seconds(), shown)


def show(seeds: int, directories: Sequence[Path], rounds: int) -> int:
    """Print everything; how many of what was to be within ALLOWED is not. A first task of its type is only shown."""
    over = 0
    print("the error half-way, simulated")
    for errors in of_shapes(seeds):
        bad = errors.median > ALLOWED and not errors.name.endswith(" 0 before")
        over += bad
        print(f"  {errors.line()}{'  TOO MUCH' if bad else ''}", flush=True)
    recordings = long_enough(directories)
    if not recordings or not rounds:
        return over
    print("real exports: the error at a quarter, at half, at three quarters of the time")
    exports = []
    for export in of_exports(recordings, rounds):
        exports.append(export)
        errors_there = "  ".join(f"{export.error(share):4.0%}" for share in (0.25, 0.5, 0.75))
        print(f"  {export.recording:44} {export.seconds:6.1f} s   {errors_there}", flush=True)
    halves = Errors("exports, half-way", [export.error(0.5) for export in exports])
    bad = halves.median > ALLOWED
    print(f"  {halves.line()}{'  TOO MUCH' if bad else ''}")
    worst = max(exports, key=lambda export: export.error(0.5))
    print(f"  the worst is {worst.recording}, {worst.error(0.5):.0%} half-way")
    return over + bad
