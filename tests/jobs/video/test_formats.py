"""Files of other kinds: WebM, GIF, other codecs, and a picture beside them."""

from __future__ import annotations

import importlib
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from PIL import Image, ImageSequence

from dumbwaiter.jobs.video.encoder import find_ffmpeg, writes
from dumbwaiter.jobs.video.errors import BadVideo, ImpossibleOption
from dumbwaiter.jobs.video.export import Video, export
from dumbwaiter.jobs.video.formats import GIF, MP4, WEBM
from dumbwaiter.jobs.video.joining import as_gif, check, gif_size
from dumbwaiter.jobs.video.mp4 import read_mp4
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import Plan, plan
from dumbwaiter.jobs.video.recording import Recording
from dumbwaiter.jobs.video.segments import cut
from tests.jobs.video.support import decode, element, page, ssim, text

# the package has a function of that name
EXPORTS = importlib.import_module("dumbwaiter.jobs.video.export")


@pytest.fixture
def quick(form: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Exports the form at three times its speed, small, in several segments: `quick("out.webm")`."""
    monkeypatch.setattr(EXPORTS, "cut", lambda likely: cut(likely, 15))

    def make(name: str, poster: str | None = None, **options: object) -> Video:
        chosen = Options(speed=3, max_side=480, **options)  # type: ignore[arg-type]
        picture = None if poster is None else tmp_path / poster
        return export(form, tmp_path / name, options=chosen, workdir=tmp_path / "work", poster=picture)

    return make


@pytest.mark.parametrize(
    ("name", "codec", "found"),
    [("a.webm", None, "vp9"), ("a.webm", "vp8", "vp8"), ("a.mp4", "h265", "hevc"), ("a.mp4", None, "h264")],
)
def test_each_kind_of_file_shows_the_same(quick, name, codec, found):
    if not writes(find_ffmpeg(), codec or ("vp9" if name.endswith("webm") else "h264")):
        pytest.skip(f"this FFmpeg has no encoder for {codec}")
    video = quick(name, codec=codec)
    assert video.segments >= 3
    assert found in told_of(video.path)
    assert abs(seconds_of(video.path) - video.frames / 25) < 0.045
    frames = decode(video.path, 5, 30, 50)
    reference = decode(quick("reference.mp4").path, 5, 30, 50)
    assert min(ssim(one, other) for one, other in zip(frames, reference, strict=True)) > 0.9


def test_a_gif_moves_and_is_small(quick, form):
    video = quick("a.gif")
    with Image.open(video.path) as picture:
        assert picture.format == "GIF"
        assert picture.size == (480, 270)
        lasted = [frame.info["duration"] for frame in ImageSequence.Iterator(picture)]
    assert sum(lasted) / 1000 == pytest.approx(form.duration_ms / 3000, abs=0.2)
    assert len(lasted) > 5


def test_a_gif_of_a_single_frame_has_it(make):
    still = make(page(element("p", text("one", 10), id=9)), ".gif", start=timedelta(seconds=0.999))
    with Image.open(still.path) as picture:
        assert getattr(picture, "n_frames", 1) == 1
        assert picture.size == gif_size(still.width, still.height)


@pytest.mark.parametrize(("width", "height"), [(640, 360), (1920, 1080), (1000, 333), (801, 16)])
def test_the_size_of_a_gif_is_known(width, height, tmp_path):
    blank = tmp_path / "blank.mp4"
    source = f"color=white:s={width - width % 2}x{height - height % 2}:r=25:d=0.2"
    subprocess.run([find_ffmpeg(), "-v", "error", "-f", "lavfi", "-i", source, str(blank)], check=True)
    grid = Plan(25, 5, width - width % 2, height - height % 2, 1.0)
    as_gif(blank, grid, Options(), tmp_path / "a.gif", lambda: None)
    with Image.open(tmp_path / "a.gif") as picture:
        assert picture.size == gif_size(grid.width, grid.height)


@pytest.mark.parametrize("name", ["poster.jpg", "poster.png", "poster.webp"])
def test_a_picture_of_the_video_is_written_beside_it(name, quick):
    video = quick("a.mp4", poster=name)
    assert video.poster is not None
    with Image.open(video.poster) as picture:
        assert picture.size == (480, 270)
        assert len(picture.convert("L").getcolors(256) or [0] * 257) > 10


def test_a_name_or_a_codec_that_no_file_has_is_refused_before_anything_is_drawn(quick):
    with pytest.raises(ImpossibleOption, match=r"\.mp4, \.webm, \.gif"):
        quick("a.avi")
    with pytest.raises(ImpossibleOption, match="takes vp9 or vp8"):
        quick("a.webm", codec="h264")


def test_half_a_webm_is_not_accepted(quick, form, tmp_path):
    video = quick("a.webm")
    grid = plan(form, Options(speed=3, max_side=480))
    whole = video.path.read_bytes()
    half = tmp_path / "half.webm"
    for share in (0.0, 0.3, 0.8):
        half.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(BadVideo):
            check(half, grid, 10_000, container=WEBM, options=Options())
    half.unlink()
    with pytest.raises(BadVideo, match="there is no file"):
        check(half, grid, 1, container=WEBM, options=Options())


def test_an_mp4_of_another_codec_or_length_is_not_accepted(quick, form):
    video = quick("a.mp4")
    grid = plan(form, Options(speed=3, max_side=480))
    samples = read_mp4(video.path).frames
    check(video.path, grid, samples, container=MP4, options=Options())
    with pytest.raises(BadVideo, match="hvc1"):
        check(video.path, grid, samples, container=MP4, options=Options(codec="h265"))
    longer = plan(form, Options(speed=2, max_side=480))
    with pytest.raises(BadVideo, match="asked for"):
        check(video.path, longer, samples, container=MP4, options=Options())
    assert GIF.parts == MP4.suffix


def told_of(path: Path) -> str:
    """What FFmpeg says of a file."""
    run = subprocess.run([str(find_ffmpeg()), "-i", str(path)], capture_output=True, text=True)
    return run.stderr


def seconds_of(path: Path) -> float:
    """How long a file plays, as its header says."""
    hours, minutes, seconds = told_of(path).split("Duration: ")[1].split(",")[0].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
