"""A video in segments: made again only where it is missing, by any number of browsers, with the same pictures."""

from __future__ import annotations

import errno
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from dumbwaiter.jobs.video.effort import busy
from dumbwaiter.jobs.video.errors import BrowserLost
from dumbwaiter.jobs.video.export import Video, export, put_in_place
from dumbwaiter.jobs.video.kept import InDirectory, digest, read
from dumbwaiter.jobs.video.mp4 import read_mp4
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import plan
from dumbwaiter.jobs.video.recording import Recording, load
from dumbwaiter.jobs.video.segments import cut
from tests.jobs.video.support import RECORDINGS, Tag, decode, wait_for

FORM = RECORDINGS / "own" / "form-chinese.json"
# so that the seven seconds of the form have several segments
FEW = 30

# the package has a function of that name
EXPORTS = importlib.import_module("dumbwaiter.jobs.video.export")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of few pictures."""
    monkeypatch.setattr(EXPORTS, "cut", lambda likely: cut(likely, FEW))


@pytest.fixture
def parts(short: None, form: Recording, tmp_path: Path) -> tuple[Video, Path]:
    """A whole export of the form in segments, and where they are kept."""
    kept = tmp_path / "kept"
    video = export(form, tmp_path / "whole.mp4", workdir=tmp_path / "work", checkpoints=InDirectory(kept))
    return video, kept


def again(form: Recording, tmp_path: Path, kept: Path, **options: object) -> Video:
    """Another export with what was kept, in a work directory of its own."""
    return export(
        form,
        tmp_path / "again.mp4",
        options=Options(**options),  # type: ignore[arg-type]
        workdir=tmp_path / "elsewhere",
        checkpoints=InDirectory(kept),
    )


def test_segments_joined_show_what_one_piece_shows(parts: tuple[Video, Path], form_video: Video) -> None:
    video, kept = parts
    assert video.segments >= 3
    assert len(list(kept.glob("*.mp4"))) == video.segments
    assert video.picture_hashes == form_video.picture_hashes
    assert read_mp4(video.path).duration_seconds == pytest.approx(video.frames / 25, abs=0.001)
    assert read_mp4(video.path).index_first
    whole, joined = decode(form_video.path), decode(video.path)
    assert len(whole) == len(joined) == video.frames
    assert max(abs(one - other).mean() for one, other in zip(whole, joined, strict=True)) < 1.5


def test_what_several_keep_under_one_name_is_whole(tmp_path: Path) -> None:
    kept = InDirectory(tmp_path / "kept")
    sources = [tmp_path / letter for letter in "abcd"]
    for source in sources:
        source.write_bytes(source.name.encode() * 1_000_000)

    def keep(source: Path) -> set[int]:
        found: set[int] = set()
        for _ in range(10):
            kept.keep("segment", source)
            assert kept.restore("segment", source.with_suffix(".back"))
            found.add(len(set(source.with_suffix(".back").read_bytes())))
        return found

    with ThreadPoolExecutor(len(sources)) as pool:
        assert set().union(*pool.map(keep, sources)) == {1}
    assert [path.name for path in kept.path.iterdir()] == ["segment"]


def test_what_is_kept_is_not_drawn_again(parts: tuple[Video, Path], form: Recording, tmp_path: Path) -> None:
    video, kept = parts
    assert again(form, tmp_path, kept).segments_restored == video.segments

    (kept / "segment-0001.json").unlink()
    resumed = again(form, tmp_path, kept)
    assert resumed.segments_restored == video.segments - 1
    assert resumed.picture_hashes == video.picture_hashes
    assert resumed.sha256 == video.sha256


@pytest.mark.parametrize(
    "harm",
    [
        "bytes",
        "words",
        "another's",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("half", "no file", "list")),
    ],
)
def test_a_kept_segment_that_is_damaged_is_drawn_again(
    harm: str, parts: tuple[Video, Path], form: Recording, tmp_path: Path
) -> None:
    video, kept = parts
    file, said = kept / "segment-0001.mp4", kept / "segment-0001.json"
    if harm == "bytes":
        whole = bytearray(file.read_bytes())
        whole[len(whole) // 2] ^= 1
        file.write_bytes(whole)
    elif harm == "half":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif harm == "no file":
        file.unlink()
    elif harm == "words":
        said.write_bytes(said.read_bytes()[:40])
    elif harm == "list":
        said.write_text("[]")
    else:
        told = json.loads(said.read_text())
        shutil.copy(kept / "segment-0000.mp4", file)
        said.write_text(json.dumps({**told, "number": 0}))
    resumed = again(form, tmp_path, kept)
    assert resumed.segments_restored == video.segments - 1
    assert resumed.sha256 == video.sha256


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", "null", '{"key": "k"}', "[" * 100_000, '{"key": "k", "number": 0, "samples": "many"}'],
)
def test_what_is_no_word_of_a_segment_is_not_taken_for_one(body: str, tmp_path: Path) -> None:
    said = tmp_path / "segment-0000.json"
    said.write_text(body)
    assert read(said, "k") is None


def test_a_directory_in_a_kept_files_place_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "kept" / "segment-0000.mp4").mkdir(parents=True)
    assert not InDirectory(tmp_path / "kept").restore("segment-0000.mp4", tmp_path / "back")


def test_what_cannot_be_kept_leaves_nothing_half(tmp_path: Path) -> None:
    (tmp_path / "kept" / "name" / "full").mkdir(parents=True)
    (tmp_path / "segment").write_bytes(b"all of it")
    with pytest.raises(OSError, match="name"):
        InDirectory(tmp_path / "kept").keep("name", tmp_path / "segment")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["name"]


def test_a_file_from_another_file_system_may_have_the_longest_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, out = tmp_path / "made", tmp_path / f"{'x' * 251}.mp4"
    made.write_bytes(b"all of it")
    rename = Path.replace

    def elsewhere(path: Path, target: Path) -> Path:
        if path == made:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", elsewhere)
    put_in_place(made, out)
    assert out.read_bytes() == b"all of it"
    assert {path.name for path in tmp_path.iterdir()} == {"made", out.name}


def test_segments_of_another_recording_or_of_other_options_are_not_used(
    parts: tuple[Video, Path], form: Recording, tmp_path: Path
) -> None:
    _, kept = parts
    assert again(form, tmp_path, kept, cursor=False).segments_restored == 0
    other = replace(form, events=form.events.replace("提交".encode("ascii", "backslashreplace"), b"OK"))
    assert other.events != form.events
    assert again(other, tmp_path, kept, cursor=False).segments_restored == 0


def test_two_browsers_draw_what_one_draws(parts: tuple[Video, Path], form: Recording, tmp_path: Path) -> None:
    video, _ = parts
    told: list[float] = []
    both = export(
        form,
        tmp_path / "both.mp4",
        options=Options(workers=2),
        progress=lambda fraction, _: told.append(fraction),
        workdir=tmp_path / "work",
    )
    assert both.picture_hashes == video.picture_hashes
    assert both.sha256 == video.sha256
    assert told == sorted(told)


def test_one_browser_of_two_that_is_lost_for_good_ends_the_export_and_the_other(
    short: None, form: Recording, tag: Tag, tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill(fraction: float, step: str) -> None:
        if fraction > 0.2 and not killed:
            killed.append(tag.processes("--remote-debugging-pipe")[0].pid)
            os.killpg(os.getpgid(killed[0]), signal.SIGKILL)

    with pytest.raises(BrowserLost):
        export(
            form,
            tmp_path / "out.mp4",
            options=Options(workers=2, restarts=0),
            progress=kill,
            workdir=tmp_path / "work",
        )
    assert tag.gone()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


PROGRAM = f"""
import sys; from pathlib import Path
from dumbwaiter.jobs.video import InDirectory, export, load
import importlib; exports = importlib.import_module("dumbwaiter.jobs.video.export")
from dumbwaiter.jobs.video.segments import cut
exports.cut = lambda likely: cut(likely, {FEW})
here = Path(sys.argv[2])
export(load(Path(sys.argv[1])), here / "out.mp4", workdir=here / "work", checkpoints=InDirectory(here / "kept"))
"""


def test_a_killed_export_goes_on_where_it_was_killed(
    short: None, form: Recording, form_video: Video, tag: Tag, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    for done in (1, 3):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(FORM), str(tmp_path)], start_new_session=True
        )
        try:
            reached = wait_for(lambda done=done: len(list(kept.glob("*.json"))) >= done, 60)  # type: ignore[misc]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert reached
        assert wait_for(lambda: not tag.processes(), 3.0)
        shutil.rmtree(tmp_path / "work")
    before = len(list(kept.glob("*.json")))
    resumed = again(form, tmp_path, kept)
    assert resumed.segments_restored == before >= 3
    assert resumed.picture_hashes == form_video.picture_hashes


def test_the_segments_are_the_same_for_everybody(form: Recording) -> None:
    grid = plan(form, Options())
    assert cut(busy(form.moments, grid), FEW) == cut(
        busy(load(FORM).moments, plan(form, Options(workers=3))), FEW
    )


def test_a_short_video_keeps_nothing(form: Recording, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    export(
        form,
        tmp_path / "out.mp4",
        options=Options(fps=2),
        workdir=tmp_path / "work",
        checkpoints=InDirectory(kept),
    )
    assert not kept.exists()


def test_the_time_map_leads_to_the_moment_that_a_frame_shows(
    make: Callable[..., Video], form: Recording, form_video: Video
) -> None:
    quick = make(form, speed=2.0)
    assert form_video.time_map == ((0.0, 0.0), (form_video.frames / 25, form_video.frames / 25))
    assert quick.time_map == ((0.0, 0.0), (quick.frames / 25, quick.frames / 25 * 2))


def test_the_result_says_what_its_file_is(form_video: Video) -> None:
    assert form_video.sha256 == digest(form_video.path)
    assert form_video.size_bytes == form_video.path.stat().st_size
    assert [frame for frame, _ in form_video.picture_hashes] == sorted(
        {frame for frame, _ in form_video.picture_hashes}
    )
    assert set(form_video.timings) == {"start", "rendering", "joining", "whole"}
    assert 0 < form_video.timings["start"] < form_video.timings["rendering"] <= form_video.timings["whole"]
