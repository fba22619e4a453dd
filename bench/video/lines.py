"""The lines of `./dev bench video`: each measures one thing on all recordings that it is about."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import report
from bench.musts import Figure
from bench.results import Result, Results
from bench.servers import big_directory
from bench.trials import Failed
from bench.video import files, frames, hostile, kills, real_time, truth
from bench.video.exports import Export, exported
from bench.video.job import Job, Made, options_of
from bench.video.musts import (
    ENDLESS,
    IDLE,
    LARGE_PICTURE,
    LARGE_SNAPSHOT,
    MADE,
    POSITIONS,
    POSTHOG,
    SCRIPTS,
    SPA,
)
from dumbwaiter.jobs.video import Recording, load
from dumbwaiter.jobs.video.plan import plan
from tests.jobs.video import sessions

Values = dict[str, float]
SIZE = (1280, 720)
FOLDERS = ("own", "real")
# A round that takes longer is the only one.
LONG_SECONDS = 60.0


@dataclass(frozen=True)
class Sizes:
    """How much is done: rounds of what is short; the part of each recording that is exported, in seconds; how many recordings a line
    takes; photographs a recording; the longest film in real time; the part of which every frame is photographed; megabytes."""

    rounds: int = 3
    end: float = 0.0
    most: int = 1000
    points: int = 24
    film_seconds: float = 120.0
    every_seconds: float = 120.0
    timed_seconds: float = 60.0
    large_mb: float = 30.0
    positions: int = 1_000_000
    pictures: int = 0
    endless_seconds: float = 60.0
    changes: int = 30


FULL = Sizes()
QUICK = Sizes(
    rounds=1, end=2.0, most=2, points=4, film_seconds=8.0, every_seconds=1.0, timed_seconds=1.0, large_mb=1.0,
    positions=2_000, pictures=8, endless_seconds=4.0, changes=3,
)  # fmt: skip


@dataclass
class Bench:
    """A run: the recordings that are here, a place for files, what was found."""

    directory: Path
    home: Path
    sizes: Sizes
    seed: int
    found: Results
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))
    _done: dict[tuple[str, str], tuple[Made, Path]] = field(default_factory=dict)

    @property
    def recordings(self) -> dict[str, Path]:
        """The whole sessions, by name."""
        return {
            path.name.split(".")[0]: path for folder in FOLDERS for path in inside(self.directory / folder)
        }

    @property
    def some(self) -> dict[str, Path]:
        """Those that a line takes."""
        return dict(list(self.recordings.items())[: self.sizes.most])

    @property
    def names(self) -> set[str]:
        """All that are here or made here."""
        return {*self.recordings, *(path.stem for path in inside(self.directory / "broken")), *MADE}

    def chance(self, *words: object) -> random.Random:
        """Random choices of their own, the same for the same seed."""
        return random.Random(":".join(map(str, (self.seed, *words))))

    def place(self) -> Path:
        """A fresh directory."""
        place = self.home / str(next(self._numbers))
        place.mkdir()
        place.chmod(0o711)
        return place

    def options(self, **more: Any) -> dict[str, Any]:
        """Those of all exports, and more."""
        return {"size": SIZE, **({"end": self.sizes.end} if self.sizes.end else {}), **more}

    def job(self, source: Path, place: Path, **options: Any) -> Job:
        return Job(str(source), str(place / "out.mp4"), str(place / "work"), self.options(**options))

    def export(self, source: Path, **options: Any) -> tuple[Made, Path]:
        """Export a recording."""
        place = self.place()
        return exported(self.job(source, place, **options), place), place / "out.mp4"

    def once(self, source: Path, **options: Any) -> tuple[Made, Path]:
        """The same, but what was exported in this way before is not exported again."""
        key = str(source), repr(options)
        if key not in self._done:
            self._done[key] = self.export(source, **options)
        return self._done[key]

    def shown(self, source: Path, longest: float = 0.0, **options: Any) -> tuple[Recording, dict[str, Any]]:
        """A recording and the options with which its busiest part is shown, if it lasts longer than so many seconds."""
        recording = load(source)
        if longest and recording.duration_ms / 1000 > longest:
            start = busiest(recording.moments, longest * 1000) / 1000
            options |= {"start": start, "end": start + longest}
        return recording, self.options(**options)

    def keep(self, name: str, measure: str, take: Callable[[], Values], number: int = 1) -> Values:
        """Take a measurement. Whatever goes wrong in it is its result, and the run goes on."""
        try:
            result = Result(number, name, measure, take(), load=os.getloadavg()[0])
        except Exception as error:  # noqa: BLE001 - an export may fail in any way, and the others shall be measured
            kind = "" if isinstance(error, Failed) else f"{type(error).__name__}: "
            result = Result(number, name, measure, failure=f"{kind}{error}"[:500])
        self.found.add(result)
        said = f"does not count: {result.failure}" if result.failure else report.line(result.values)
        print(f"{measure:11} {name:26} {said}", file=sys.stderr, flush=True)
        return result.values


def inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


def busiest(moments: Sequence[float], length: float) -> float:
    """When the part of this length begins in which most happens; times as `moments` has them."""
    best, first, start = 0, 0, 0.0
    ordered = sorted(moments)
    for last, at in enumerate(ordered):
        while at - ordered[first] > length:
            first += 1
        if last - first >= best:
            best, start = last - first + 1, ordered[first]
    return start


# --- the lines ---


def speed(bench: Bench) -> None:
    """From the browser's start to the finished file."""
    for name, source in {**bench.recordings, ENDLESS: endless(bench)}.items():
        for number in range(1, bench.sizes.rounds + 1):

            def take(source: Path = source, name: str = name) -> Values:
                made, _ = bench.export(source)
                values = {"times": made.times, "seconds": made.seconds, "pictures": len(made.pictures)}
                if name == SPA:
                    values["two"] = bench.export(source, workers=2)[0].times
                return values

            values = bench.keep(name, "speed", take, number)
            if values.get("seconds", LONG_SECONDS) >= LONG_SECONDS:
                break


def times(bench: Bench, name: str, source: Path) -> float:
    """How fast an export is: as measured in this run, or measured now."""
    measured = bench.found.medians.get(Figure(name, "speed", "times"))
    return measured or bench.export(source)[0].times


def record_video(bench: Bench) -> None:
    """Beside a film of the session, which is played in real time. Of a long one it is enough to know that it lasts no less than itself."""
    filmed = 0
    for name, source in {**bench.recordings, ENDLESS: endless(bench)}.items():
        recording = load(source)
        short = recording.duration_ms / 1000 <= bench.sizes.film_seconds and filmed < bench.sizes.most

        def take(
            name: str = name, source: Path = source, filming: Recording | None = recording if short else None
        ) -> Values:
            theirs = 1.0 if filming is None else film(bench, filming)
            return {
                "times": theirs,
                "ratio": times(bench, name, source) / theirs,
                "filmed": float(filming is not None),
            }

        filmed += bench.keep(name, "recordvideo", take).get("filmed", 0.0) > 0


def film(bench: Bench, recording: Recording) -> float:
    """Film it here, or take what was measured elsewhere."""
    try:
        return real_time.times(recording, SIZE, bench.place())
    except real_time.Unavailable as error:
        print(f"recordvideo: cited, not measured: {error}", file=sys.stderr)
        return real_time.CITED


def every_frame(bench: Bench) -> None:
    """Beside a picture of every frame, of which each takes the same time: of a long recording a part is enough."""
    for name in (SPA, IDLE):
        if (source := bench.recordings.get(name)) is None:
            continue

        def take(name: str = name, source: Path = source) -> Values:
            recording, options = bench.shown(source, bench.sizes.timed_seconds)
            place = bench.place()
            theirs = frames.time_every(recording, options_of(options), place, place / "every.mp4")
            return {"times": theirs, "ratio": times(bench, name, source) / theirs}

        bench.keep(name, "every-frame", take)


ONE_THREAD = {"encoder_threads": 1}


def twice(bench: Bench) -> None:
    """Two exports make the same pictures, and with one encoder thread the same file."""
    for name, source in bench.some.items():

        def take(source: Path = source) -> Values:
            (one, _), (other, _) = bench.once(source, **ONE_THREAD), bench.export(source, **ONE_THREAD)
            return {
                "pictures": len(one.pictures),
                "pictures_differ": differ(one, other),
                "bytes_differ": float(one.sha256 != other.sha256),
            }

        bench.keep(name, "twice", take)


def differ(one: Made, other: Made) -> float:
    """How many pictures only one of them has."""
    return float(len(set(one.pictures) ^ set(other.pictures)))


def killed(bench: Bench) -> None:
    """Killed in each third of the way, and started again: in the same work directory, and by two workers in an empty one."""
    names = [name for name in (SPA, POSTHOG) if name in bench.recordings]
    for name in names[: bench.sizes.most]:
        for measure, workers in (("killed", 1), ("emptied", 2)):

            def take(name: str = name, measure: str = measure, workers: int = workers) -> Values:
                source, place = bench.recordings[name], bench.place()
                whole, _ = bench.once(source, **ONE_THREAD)
                job = bench.job(source, place, workers=workers, **ONE_THREAD)
                job = replace(job, checkpoints=str(place / "kept"), pictures=bench.sizes.pictures)
                chance = bench.chance(name, measure)
                done = kills.survive(job, place, chance, emptied=measure == "emptied")
                return {
                    "pictures_differ": differ(whole, done.made),
                    "segments": done.made.segments,
                    "again": done.again / workers,
                    "left": done.left,
                }

            bench.keep(name, measure, take)


def file(bench: Bench) -> None:
    """Length, times, colours, place of the index, as ffprobe sees them."""
    for name, source in bench.some.items():

        def take(source: Path = source) -> Values:
            _, video = bench.once(source, **ONE_THREAD)
            grid = plan(load(source), options_of(bench.options(**ONE_THREAD)))
            seen = files.look(video, grid.duration_seconds, grid.fps)
            if seen.wrong:
                print(f"file: {', '.join(seen.wrong)}", file=sys.stderr)
            return {"frames_off": seen.off, "unordered": seen.unordered, "wrong": len(seen.wrong)}

        bench.keep(name, "file", take)


PLAIN = {"cursor": False, "clicks": False}
USUAL = {"fps": 25}
# With the usual quality a video is less like the page the more of the page changes: noise gives 0.987, however right it is. And what is
# dragged is somewhere else each 17 ms: most photographs of it fall between two frames of 25 a second, and are like neither.
SHARP = {"quality": 100, "crf": 12, "fps": 60}


def true(bench: Bench) -> None:
    """Beside photographs of rrweb's own Replayer in real time, at the recording's own size, without a pointer.

    What the frames show is judged without what the codec and the frame rate leave out; what they leave out is shown, and bounded for each frame.
    """
    for name, source in bench.some.items():

        def take(name: str = name, source: Path = source) -> Values:
            recording = load(source)
            duration = min(recording.duration_ms / 1000, bench.sizes.end or float("inf"))
            changed = truth.changes(recording)
            wanted = truth.moments(changed, duration, bench.sizes.points, bench.chance(name, "truth"))
            videos = [
                (bench.once(source, size=None, **PLAIN, **how)[1], how["fps"]) for how in (USUAL, SHARP)
            ]
            taken = list(truth.photographs(recording, truth.plays(wanted, duration), bench.place()))
            usual, likeness = (truth.compare(video, fps, taken, changed) for video, fps in videos)
            return {
                "points": len(likeness.values),
                "fresh_percent": likeness.fresh / len(likeness.values) * 100,
                "least": min(usual.values),
                "mean": usual.mean,
                "sharp_least": min(likeness.values),
                "sharp_mean": likeness.mean,
            }

        bench.keep(name, "truth", take)


def equal_frames(bench: Bench) -> None:
    """The frames of an export beside a picture of each."""
    for name, source in bench.some.items():

        def take(source: Path = source) -> Values:
            recording, options = bench.shown(source, bench.sizes.every_seconds)
            likeness = frames.compare(recording, options_of(options), bench.place())
            return {
                "frames": likeness.frames,
                "equal_percent": likeness.percent,
                "least": likeness.least,
            }

        bench.keep(name, "frames", take)


def memory(bench: Bench) -> None:
    """The most that exporter, browser and encoder take together."""
    for name, source in bench.some.items():

        def take(source: Path = source) -> Values:
            return {"peak_mb": peak(bench, source)}

        bench.keep(name, "memory", take)
    large = written(bench, LARGE_SNAPSHOT, sessions.large_snapshot(bench.sizes.large_mb))
    bench.keep(LARGE_SNAPSHOT, "large", lambda: {"peak_mb": peak(bench, large)})


def peak(bench: Bench, source: Path) -> float:
    place = bench.place()
    with Export(bench.job(source, place), place) as running, running.watching() as seen:
        made = running.made()
    if made.error:
        raise Failed(f"{made.error}: {made.message}")
    return seen.mb


def harmful(bench: Bench) -> None:
    """Recordings that are made to do harm, and others that are broken."""
    given = {path.stem: path.read_bytes() for path in inside(bench.directory / "broken")}
    size = bench.sizes
    made = {
        SCRIPTS: sessions.scripts(),
        LARGE_SNAPSHOT: sessions.large_snapshot(size.large_mb),
        LARGE_PICTURE: sessions.large_picture(size.large_mb),
        POSITIONS: sessions.many_positions(size.positions),
    }
    played = {SCRIPTS, *(name for name in given if name.startswith(("breaks-out", "ssrf")))}
    chosen = (
        {**given, **made}
        if size.most > len(made)
        else {**made, **{n: given[n] for n in played & given.keys()}}
    )
    with hostile.listening() as canary:
        for name, raw in chosen.items():

            def take(name: str = name, raw: bytes = canary.aim(raw)) -> Values:
                before = len(canary.heard)
                done = hostile.endure(raw, bench.place(), name)
                code = hostile.scripts_run(raw, bench.place()) if name in played else 0
                return {
                    "requests": len(canary.heard) - before,
                    "code": code,
                    "left": done.processes_left + done.files_left,
                    "unnamed": float(done.unnamed),
                    "refused": float(bool(done.error)),
                    "seconds": done.seconds,
                    "peak_mb": done.peak_mb,
                }

            bench.keep(name, "hostile", take)


def endless(bench: Bench) -> Path:
    return written(bench, ENDLESS, sessions.endless(bench.sizes.endless_seconds, bench.sizes.changes))


def written(bench: Bench, name: str, content: bytes) -> Path:
    path = bench.home / f"{name}.json"
    path.write_bytes(content)
    return path


LINES: Mapping[str, Callable[[Bench], None]] = {
    "speed": speed,
    "recordvideo": record_video,
    "every-frame": every_frame,
    "twice": twice,
    "kills": killed,
    "file": file,
    "truth": true,
    "frames": equal_frames,
    "memory": memory,
    "hostile": harmful,
}


@contextlib.contextmanager
def a_home() -> Iterator[Path]:
    """A directory for all files of a run, which the browser's user may pass through."""
    with tempfile.TemporaryDirectory(prefix="dumbwaiter-video-", dir=big_directory()) as home:
        Path(home).chmod(0o711)
        yield Path(home)
