"""What the figures of `./dev bench video` must be, and where we would like them to be. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.musts import Figure, Medians, Must

# A figure of this is the worst of all recordings.
EVERY = "every recording"
IDLE, POSTHOG, DEMO = "idle-10min", "posthog-export-5-scrubbed", "rrweb-player-demo"
SPA, MUTATIONS, CSS_ATTACKS = "spa-typical", "mutation-heavy", "css-attacks"
# Made here.
ENDLESS, LARGE_SNAPSHOT, LARGE_PICTURE = "endless-animations", "snapshot-30mb", "dataurl-30mb"
POSITIONS, SCRIPTS = "one-million-mouse", "script-everything"
MADE = (ENDLESS, LARGE_SNAPSHOT, LARGE_PICTURE, POSITIONS, SCRIPTS)


def fast(name: str, must: float, aim: float | None = None) -> Must:
    return Must(
        f"{name}, browser start to finished MP4, × real time", Figure(name, "speed", "times"), must, aim=aim, unit="×"
    )  # fmt: skip


def beside(name: str, measure: str, what: str, must: float, aim: float | None = None) -> Must:
    return Must(f"{name}, × {what}", Figure(name, measure, "ratio"), must, aim=aim, unit="×")


def none(measure: str, value: str, what: str) -> Must:
    return Must(what, Figure(EVERY, measure, value), 0, at_most=True)


KILLED = {
    "killed": "killed in each third",
    "emptied": "two workers, killed in each third, work directory emptied",
}


def killed(measure: str) -> list[Must]:
    how = KILLED[measure]
    return [
        none(measure, "pictures_differ", f"{how}: pictures that differ"),
        Must(
            f"{how}: segments begun again, each kill and worker",
            Figure(EVERY, measure, "again"),
            1,
            at_most=True,
        ),
        none(measure, "left", f"{how}: processes that outlive it"),
    ]


# These depend on the machine or on how much is done, and say nothing in a quick run.
FULL_ONLY: Sequence[Must] = (
    fast(IDLE, 60, 120),
    fast(POSTHOG, 25, 45),
    fast(DEMO, 6, 12),
    fast(ENDLESS, 10, 20),
    fast(SPA, 1.8, 3),
    Must(
        f"{SPA}, two workers, × one",
        Figure(SPA, "speed", "two"),
        1.2,
        beside=Figure(SPA, "speed", "times"),
        unit="×",
    ),
    fast(MUTATIONS, 1.0, 1.5),
    beside(EVERY, "recordvideo", "Playwright's recordVideo", 1),
    beside(SPA, "recordvideo", "Playwright's recordVideo", 1, 2),
    beside(IDLE, "recordvideo", "Playwright's recordVideo", 1, 50),
    beside(SPA, "every-frame", "a picture of every frame", 1.2),
    beside(IDLE, "every-frame", "a picture of every frame", 20),
    Must(
        "memory of all processes, typical sessions",
        Figure(EVERY, "memory", "peak_mb"),
        500,
        at_most=True,
        unit=" MB",
    ),
    Must(
        "memory of all processes, a snapshot of 30 MB",
        Figure(LARGE_SNAPSHOT, "large", "peak_mb"),
        1300,
        at_most=True,
        unit=" MB",
    ),
    *(Must(f"{how}: segments", Figure(EVERY, measure, "segments"), 3) for measure, how in KILLED.items()),
    Must("truth, photographs", Figure(EVERY, "truth", "points"), 20),
    Must("css-attacks ends within", Figure(CSS_ATTACKS, "hostile", "seconds"), 20, at_most=True, unit=" s"),
    Must("css-attacks, memory", Figure(CSS_ATTACKS, "hostile", "peak_mb"), 2000, at_most=True, unit=" MB"),
)

ALWAYS: Sequence[Must] = (
    none("twice", "pictures_differ", "two exports: pictures that differ"),
    none("twice", "bytes_differ", "two exports, one encoder thread: files that differ"),
    *killed("killed"),
    *killed("emptied"),
    Must(
        "length, off the plan",
        Figure(EVERY, "file", "frames_off"),
        1,
        at_most=True,
        unit=" frames",
    ),
    none("file", "unordered", "times that do not follow one another"),
    none("file", "wrong", "pixel format, colour tags, place of the index: wrong"),
    Must("truth, within 200 ms after a change", Figure(EVERY, "truth", "fresh_percent"), 50, unit=" %"),
    Must("truth, the least alike, SSIM", Figure(EVERY, "truth", "least"), 0.98),
    Must("truth at quality 100, crf 12, 60 fps, the least alike, SSIM", Figure(EVERY, "truth", "sharp_least"), 0.98),
    Must("truth at quality 100, crf 12, 60 fps, mean SSIM", Figure(EVERY, "truth", "sharp_mean"), 0.995),
    Must(
        "frames equal byte for byte to a picture of each", Figure(EVERY, "frames", "equal_percent"), 99, aim=100, unit=" %"
    ),
    Must("of the others the least alike, SSIM", Figure(EVERY, "frames", "least"), 0.999),
    none("hostile", "requests", "hostile: requests that reach the listener"),
    none("hostile", "code", "hostile: scripts that run"),
    none("hostile", "unnamed", "hostile: ends that are neither a video nor a named error"),
    none("hostile", "left", "hostile: processes and files left"),
    Must("css-attacks ends in a named error", Figure(CSS_ATTACKS, "hostile", "refused"), 1),
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line of the table: what must be, what is, and how that is judged."""

    must: Must
    value: float | None
    verdict: str
    worst: str = ""

    @property
    def aimed(self) -> bool:
        return (
            self.value is not None
            and self.must.aim is not None
            and self.must.keeps(self.value, self.must.aim)
        )


def lines(musts: Iterable[Must], medians: Medians, present: Collection[str], *, judged: bool) -> list[Line]:
    """Each must beside what was measured. What is not `judged` is shown all the same."""
    found = []
    for must in musts:
        known, worst = with_worst(must, medians)
        value, verdict = must.value(known), str(must.verdict(known))
        if value is None and must.figure.contestant not in present:
            verdict = "not here"
        elif value is not None and not judged:
            verdict = "not judged"
        found.append(Line(must, value, verdict, worst))
    return found


def with_worst(must: Must, medians: Medians) -> tuple[Medians, str]:
    """The figures, with the worst of all recordings for a must that holds for every one; and which recording that is."""
    if must.figure.contestant != EVERY:
        return medians, ""
    values = {figure.contestant: value for figure, value in medians.items() if figure[1:] == must.figure[1:]}
    if not values:
        return medians, ""
    worst = (max if must.at_most else min)(values, key=lambda name: values[name])
    return {**medians, must.figure: values[worst]}, worst if len(set(values.values())) > 1 else ""


def by_measure(medians: Medians) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """The figures of each measure, by recording and value."""
    found: defaultdict[str, defaultdict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for figure, value in medians.items():
        found[figure.measure][figure.contestant][figure.value] = value
    return found
