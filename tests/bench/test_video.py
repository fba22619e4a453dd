"""`./dev bench video`: what it takes for a fault is one, and a quick run goes through."""

from __future__ import annotations

import io
import json
import random
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from PIL import Image

from bench.environments import ROOT
from bench.musts import Figure, Must
from bench.run import VIDEO_LINES
from bench.video import files, frames, hostile, kills, lines, truth
from bench.video.exports import Export
from bench.video.job import Job, options_of
from bench.video.lines import LINES, busiest
from bench.video.musts import ALWAYS, EVERY, FULL_ONLY, MADE, SPA
from bench.video.musts import lines as judged
from bench.video.table import MEASURES
from dumbwaiter.jobs.video import Options, Recording, load
from dumbwaiter.jobs.video.encoder import Encoder
from dumbwaiter.jobs.video.plan import Plan
from dumbwaiter.jobs.video.replay import Picture
from tests.jobs.video import sessions
from tests.jobs.video.support import RECORDINGS, page

FORM = RECORDINGS / "own" / "form-chinese.json"


def test_every_line_of_the_command_is_there_and_every_must_belongs_to_one() -> None:
    measured = {measure for name in VIDEO_LINES for measure in MEASURES.get(name, (name,))}

    assert tuple(LINES) == VIDEO_LINES
    assert {must.figure.measure for must in (*FULL_ONLY, *ALWAYS)} <= measured


def test_a_line_is_met_missed_not_here_or_not_judged() -> None:
    fast, alike = (
        Must("fast", Figure(SPA, "speed", "times"), 2),
        Must("alike", Figure(EVERY, "truth", "least"), 0.9),
    )
    figures = {
        Figure(SPA, "speed", "times"): 1.0,
        Figure("a", "truth", "least"): 0.95,
        Figure("b", "truth", "least"): 0.85,
    }

    def verdicts(present: set[str], *, judging: bool = True) -> list[str]:
        return [line.verdict for line in judged([fast, alike], figures, present, judged=judging)]

    assert verdicts({SPA, EVERY}) == ["missed", "missed"]
    assert verdicts({SPA, EVERY}, judging=False) == ["not judged", "not judged"]
    assert [line.worst for line in judged([fast, alike], figures, {SPA}, judged=True)] == ["", "b"]
    assert [line.verdict for line in judged([fast], {}, {EVERY}, judged=True)] == ["not here"]
    assert [line.verdict for line in judged([fast], {}, {SPA}, judged=True)] == ["not measured"]


def test_the_busiest_part_is_where_most_happens() -> None:
    assert busiest([0, 10, 500, 510, 520, 530, 900], 100) == 500
    assert busiest([5], 100) == 5


# --- truth ---


@pytest.mark.parametrize(
    "name", ["form-chinese.json", "idle-10min.json", "spa-typical.json", "css-animation.json"]
)
def test_photographs_are_taken_all_over_a_recording_and_mostly_soon_after_a_change(name: str) -> None:
    recording = load(RECORDINGS / "own" / name)
    duration, changed = recording.duration_ms / 1000, truth.changes(recording)
    wanted = truth.moments(changed, duration, 24, random.Random(1))
    taken = truth.plays(wanted, duration)

    assert len(wanted) == 24
    assert 0 <= wanted[0] < wanted[-1] <= duration
    assert sum(truth.is_fresh(at, changed) for at in wanted) >= 14
    assert sorted(at for play in taken for at in play.moments) == wanted
    for play in taken:
        assert min(b - a for a, b in zip([play.start - 1, *play.moments], play.moments, strict=False)) >= 0.5
        assert duration <= truth.PLAYED_THROUGH or play.moments[-1] - play.start <= truth.ONE_PLAY_SECONDS


def test_frames_are_asked_for_in_runs() -> None:
    assert list(truth.runs([3, 4, 5, 9, 11, 12])) == [(3, 5), (9, 9), (11, 12)]


def checks(number: int) -> numpy.ndarray:
    """A picture that differs from those of other numbers."""
    rows, columns = numpy.indices((180, 320))
    return (((rows // (4 + number) + columns // (6 + number)) % 2) * 200 + 20).astype(numpy.float64)


def jpeg(picture: numpy.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture.astype(numpy.uint8)).convert("RGB").save(file, "JPEG", quality=95)
    return file.getvalue()


@pytest.fixture(scope="session")
def two_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of a second: one picture for 0.6 s, then another."""
    out = tmp_path_factory.mktemp("video") / "two.mp4"
    with Encoder(Plan(25, 25, 320, 180, 1.0), Options(crf=10), out) as encoder:
        encoder.put(0, jpeg(checks(0)))
        encoder.put(15, jpeg(checks(3)))
        encoder.finish()
    return out


def test_a_video_that_shows_something_else_or_too_late_is_found_out(two_pictures: Path) -> None:
    def likeness(at: float, number: int) -> float:
        return truth.compare(
            two_pictures, 25, [truth.Photograph(at, checks(number), at + 0.04)], [0.6]
        ).values[0]

    assert likeness(0.2, 0) > 0.98
    assert likeness(0.8, 3) > 0.98
    assert likeness(0.2, 3) < 0.9
    assert likeness(0.8, 0) < 0.9
    assert (
        truth.compare(
            two_pictures, 25, [truth.Photograph(at, checks(0), at) for at in (0.5, 0.7, 0.9)], [0.6]
        ).fresh
        == 1
    )


# --- files ---


def test_a_file_that_is_not_as_planned_is_found_out(two_pictures: Path, tmp_path: Path) -> None:
    good = files.look(two_pictures, 1.0, 25)
    assert good.off <= 1
    assert (good.unordered, good.wrong) == (0, ())
    assert files.look(two_pictures, 1.2, 25).off >= 4

    late, other = tmp_path / "late.mp4", tmp_path / "other.mp4"
    words = ["ffmpeg", "-v", "error", "-i", str(two_pictures)]
    subprocess.run([*words, "-c", "copy", str(late)], check=True)
    subprocess.run([*words, "-pix_fmt", "yuv444p", "-color_primaries", "bt470bg", str(other)], check=True)
    assert files.look(late, 1.0, 25).wrong == ("its index is at the end",)
    assert "pix_fmt is yuv444p" in files.look(other, 1.0, 25).wrong
    assert "color_primaries is bt470bg" in files.look(other, 1.0, 25).wrong


# --- frames ---


def test_pictures_that_an_export_leaves_out_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"start": 1.0, "end": 2.0}
    whole = frames.compare(load(FORM), options_of(options), tmp_path)
    assert (whole.percent, whole.least) == (100, 1.0)

    def only_the_first(recording: Recording, options: Options, workdir: Path) -> list[Picture]:
        return [next(iter(frames.every(recording, options, workdir)))]

    monkeypatch.setattr(frames, "changed", only_the_first)
    still = frames.compare(load(FORM), options_of(options), tmp_path)
    assert still.frames == whole.frames
    assert still.percent < 100
    assert still.least < 1


def test_the_endless_animations_change_no_pixel_in_a_browser(tmp_path: Path) -> None:
    recording = load(sessions.endless(seconds=3.0, changes=3))
    pictures = [picture.data for picture in frames.every(recording, Options(size=(640, 360)), tmp_path)]

    seen = [data for before, data in zip([b"", *pictures], pictures, strict=False) if data != before]
    # how it is at first, without the frames and with them, and three changes
    assert len(pictures) == 76
    assert 4 <= len(seen) <= 6


# --- kills ---


@pytest.mark.timeout(180)
@pytest.mark.long
def test_an_export_that_is_killed_three_times_ends_with_the_same_pictures(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    out = str(tmp_path / "out.mp4")
    job = Job(str(FORM), out, str(tmp_path / "work"), {"encoder_threads": 1}, pictures=20)
    with Export(job, tmp_path / "whole") as running:
        whole = running.made()

    done = kills.survive(
        replace(job, checkpoints=str(tmp_path / "kept")), tmp_path, random.Random(5), emptied=True
    )

    assert done.kills == 3
    assert done.made.segments >= 3
    assert done.made.pictures == whole.pictures
    # three that were begun and killed, and perhaps the one before each, which was still being closed
    assert done.made.segments + 3 <= done.begun <= done.made.segments + 6
    assert done.left == 0


# --- hostile ---


def test_the_canary_counts_who_comes() -> None:
    with hostile.listening() as canary:
        aimed = canary.aim(f"http://{sessions.CANARY}/hello".encode()).decode()
        urllib.request.urlopen(aimed).close()
        assert len(canary.heard) == 1


def test_a_script_that_runs_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hostile.scripts_run(sessions.scripts(), tmp_path) == 0

    monkeypatch.setattr("dumbwaiter.jobs.video.replay.POLICY", "")
    assert hostile.scripts_run(sessions.scripts(), tmp_path) > 0


def test_what_an_export_leaves_is_counted(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    done = hostile.endure(page(seconds=0.2), tmp_path, "still.json")
    assert (done.error, done.unnamed, done.processes_left, done.files_left) == ("", False, 0, 0)
    assert done.peak_mb > 50

    refused = hostile.endure(b"[]", tmp_path, "empty.json")
    assert refused.error == "EmptyRecording"
    (tmp_path / "tmp" / "left").mkdir()
    assert hostile.endure(b"[]", tmp_path, "empty.json").files_left == 1


# --- all of it ---


def quick(directory: Path, out: Path, *names: str) -> tuple[int, dict[str, dict[str, dict[str, float]]]]:
    """The exit status of a quick run, and its values by measure and recording."""
    words = ["video", "--recordings", str(directory), "--quick", "--seed", "1", "--out", str(out)]
    words += ["--only", ",".join(names)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.run", *words], cwd=ROOT, capture_output=True, text=True, env=None
    )
    told = json.loads(out.read_text())
    assert [one["failure"] for one in told["results"] if one["failure"]] == [], done.stderr
    values: dict[str, dict[str, dict[str, float]]] = {}
    for one in told["results"]:
        values.setdefault(one["measure"], {})[one["contestant"]] = one["values"]
    assert ("missed" in {line["verdict"] for line in told["verdicts"]}) == (done.returncode != 0)
    return done.returncode, values


def test_a_quick_run_goes_through_and_says_what_is_not_here(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    shutil.copy(FORM, tmp_path / "own")
    out = tmp_path / "run.json"
    status, values = quick(tmp_path, out, "twice", "file")

    assert status == 0
    assert values["twice"]["form-chinese"]["pictures"] > 3
    status, values = quick(tmp_path, out, "every-frame")
    assert (status, values) == (0, {})
    assert {line["verdict"] for line in json.loads(out.read_text())["verdicts"]} == {"not here"}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_quick_run_of_every_line_goes_through(tmp_path: Path) -> None:
    _, values = quick(RECORDINGS, tmp_path / "run.json", *VIDEO_LINES)

    assert {measure for name in VIDEO_LINES for measure in MEASURES.get(name, (name,))} == values.keys()
    assert set(MADE) - {"endless-animations"} <= values["hostile"].keys()
    assert lines.QUICK.points == values["truth"]["css-animation"]["points"]
