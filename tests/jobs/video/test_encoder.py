"""Pictures and their times in, an MP4 out: each picture at its frame."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from PIL import Image

from dumbwaiter.jobs.video import encoder as encoders
from dumbwaiter.jobs.video.encoder import Encoder, find_ffmpeg, writes
from dumbwaiter.jobs.video.errors import BadVideo, EncoderFailed, EncoderMissing
from dumbwaiter.jobs.video.formats import MP4
from dumbwaiter.jobs.video.joining import check
from dumbwaiter.jobs.video.mp4 import read_mp4
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import Plan
from tests.jobs.video.support import Tag, decode, wait_for
from tests.support.waiting import until

CONSTANT = Options(constant_rate=True)
PLAN = Plan(fps=25, frames=200, width=320, height=180, scale=1.0)
# the grey level of each picture says which it is
PICTURES = {
    frame: 20 + 15 * number for number, frame in enumerate([0, 1, 2, 3, 10, 11, 50, 51, 52, 100, 150, 151])
}


def jpeg(level: int) -> bytes:
    """A grey picture."""
    buffer = io.BytesIO()
    Image.new("RGB", (PLAN.width, PLAN.height), (level, level, level)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def encode(out: Path, options: Options) -> Path:
    """The pictures as a video."""
    with Encoder(PLAN, options, out) as encoder:
        for frame, level in PICTURES.items():
            encoder.put(frame, jpeg(level))
        encoder.finish()
    return out


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(tmp_path_factory.mktemp("encoder") / "out.mp4", CONSTANT)


def shown_at(frame: int) -> int:
    """The level that frame has to have."""
    return PICTURES[max(start for start in PICTURES if start <= frame)]


def test_every_picture_begins_at_its_frame_and_stays_to_the_next(video: Path) -> None:
    levels = [frame[90, 160] for frame in decode(video)]
    assert len(levels) == PLAN.frames
    assert [k for k, level in enumerate(levels) if abs(level - shown_at(k)) > 4] == []


def test_the_index_says_what_the_decoder_finds(video: Path) -> None:
    made = read_mp4(video)
    assert (made.frames, made.width, made.height, made.codec) == (200, 320, 180, "avc1")
    assert made.duration_seconds == pytest.approx(8.0, abs=0.001)
    assert made.index_first
    assert made.size_bytes == video.stat().st_size


def test_the_encoder_takes_as_many_threads_and_pictures_ahead_on_any_machine(
    video: Path, tmp_path: Path
) -> None:
    """x264 writes into the file how it was told to work; left alone it would count the machine's cores, and take memory for each."""
    usual = video.read_bytes()
    slow = encode(tmp_path / "slow.mp4", Options(preset="slow", encoder_threads=1)).read_bytes()
    assert [b" threads=2 " in usual, b" rc_lookahead=5 " in usual] == [True, True]
    assert [b" threads=1 " in slow, b" rc_lookahead=50 " in slow] == [True, True]


def test_a_variable_rate_file_has_only_the_pictures_and_lasts_as_long(tmp_path: Path) -> None:
    made = read_mp4(encode(tmp_path / "out.mp4", Options()))
    assert made.frames == len(PICTURES) + 1  # the last is repeated at the end
    assert made.duration_seconds == pytest.approx(8.0, abs=0.001)


def test_a_still_has_a_frame_to_go_to_each_ten_seconds(tmp_path: Path) -> None:
    minute = Plan(fps=25, frames=1_500, width=320, height=180, scale=1.0)
    with Encoder(minute, Options(), tmp_path / "out.mp4") as encoder:
        encoder.put(0, jpeg(100))
        encoder.finish()
        assert encoder.samples == 7
    made = read_mp4(tmp_path / "out.mp4")
    assert made.frames == 7
    assert made.duration_seconds == pytest.approx(60.0, abs=0.001)
    assert len(key_frames(tmp_path / "out.mp4")) >= 6


def key_frames(video: Path) -> list[float]:
    """When a video's key frames are, in seconds."""
    command = [str(find_ffmpeg()), "-v", "error", "-skip_frame", "nokey", "-i", str(video)]
    command += ["-vf", "showinfo", "-fps_mode", "passthrough", "-f", "null", "-"]
    told = subprocess.run([*command[:2], "info", *command[3:]], capture_output=True, check=True, text=True)
    return [
        float(line.split("pts_time:")[1].split()[0])
        for line in told.stderr.splitlines()
        if "pts_time:" in line
    ]


def test_half_a_file_is_not_accepted(video: Path, tmp_path: Path) -> None:
    whole = video.read_bytes()
    for share in (0.0, 0.01, 0.5, 0.99):
        half = tmp_path / "half.mp4"
        half.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(BadVideo):
            check(half, PLAN, 200, container=MP4, options=CONSTANT)


def test_a_file_with_too_few_frames_is_not_accepted(video: Path) -> None:
    longer = Plan(fps=25, frames=230, width=320, height=180, scale=1.0)
    with pytest.raises(BadVideo, match="230"):
        check(video, longer, 230, container=MP4, options=CONSTANT)


@pytest.mark.parametrize(
    "damage", [b"", b"\0" * 40, struct.pack(">I4s", 8, b"moov"), b"not a video at all, but text"]
)
def test_what_is_no_mp4_is_refused_by_name(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "odd.mp4"
    path.write_bytes(damage)
    with pytest.raises(BadVideo):
        read_mp4(path)


def test_no_pictures_make_no_video(tmp_path: Path) -> None:
    with (
        Encoder(PLAN, Options(), tmp_path / "out.mp4") as encoder,
        pytest.raises(EncoderFailed, match="no picture"),
    ):
        encoder.finish()


def test_damaged_pictures_fail_with_ffmpegs_own_words(tmp_path: Path) -> None:
    def attempt() -> None:
        with Encoder(PLAN, Options(), tmp_path / "out.mp4") as encoder:
            encoder.put(0, b"no jpeg")
            encoder.finish()
        check(tmp_path / "out.mp4", PLAN, 200, container=MP4, options=CONSTANT)

    with pytest.raises((EncoderFailed, BadVideo)) as failure:
        attempt()
    assert len(str(failure.value)) > 20


def test_the_process_ends_with_the_block(tag: Tag, tmp_path: Path) -> None:
    with Encoder(PLAN, Options(), tmp_path / "out.mp4"):
        # it has its name only once it has become the program
        until(lambda: tag.processes("ffmpeg"))
    assert tag.gone()


def test_the_encoder_of_a_killed_process_does_not_go_on_with_a_long_still(tag: Tag, tmp_path: Path) -> None:
    picture = tmp_path / "picture.jpg"
    picture.write_bytes(jpeg(100))
    program = (
        "import sys, time; from pathlib import Path; from dumbwaiter.jobs.video.encoder import Encoder\n"
        "from dumbwaiter.jobs.video.options import Options; from dumbwaiter.jobs.video.plan import Plan\n"
        "encoder = Encoder(Plan(25, 900_000, 320, 180, 1.0), Options(constant_rate=True), Path(sys.argv[1]) / 'out.mp4')\n"
        "picture = (Path(sys.argv[1]) / 'picture.jpg').read_bytes()\n"
        "for frame in (0, 1, 899_999): encoder.put(frame, picture)\n"
        "while encoder.frames < 50: time.sleep(0.02)\n"
        "print('encoding', flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout as told:
        assert told.readline() == b"encoding\n"
        parent.kill()
        parent.wait()
    assert wait_for(lambda: not tag.processes(), 3.0)


def stand_in(directory: Path, script: str) -> Path:
    """A program in FFmpeg's place."""
    path = directory / "ffmpeg"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_an_encoder_that_exits_at_once_is_reported_with_its_words(tmp_path: Path) -> None:
    options = Options(ffmpeg=stand_in(tmp_path, "echo 'no such codec' >&2; exit 3"))
    with pytest.raises(EncoderFailed, match="no such codec"):
        encode(tmp_path / "out.mp4", options)


def test_an_encoder_gets_nothing_secret_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUMBWAITER_DATABASE_URL", "canary")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    written = tmp_path / "environment"
    with pytest.raises(EncoderFailed):
        encode(tmp_path / "out.mp4", Options(ffmpeg=stand_in(tmp_path, f"env >{written}; exit 3")))

    assert "canary" not in written.read_text()
    assert "LC_TIME=C.UTF-8" in written.read_text()


def test_an_encoder_that_never_reads_or_never_exits_is_ended(tag: Tag, tmp_path: Path) -> None:
    options = Options(ffmpeg=stand_in(tmp_path, "exec sleep 60"), encoder_timeout=timedelta(seconds=1))
    with pytest.raises(EncoderFailed, match="did nothing for 1 s"):
        encode(tmp_path / "out.mp4", options)
    assert tag.gone()


def test_an_encoder_that_talks_without_end_does_not_stop_at_a_full_pipe(tmp_path: Path) -> None:
    chatter = "head -c 3000000 /dev/zero | tr '\\0' x >&2; exec " + str(find_ffmpeg()) + ' "$@"'
    made = read_mp4(
        encode(tmp_path / "out.mp4", Options(ffmpeg=stand_in(tmp_path, chatter), constant_rate=True))
    )
    assert made.frames == 200


def test_success_without_a_file_is_no_success(tmp_path: Path) -> None:
    options = Options(ffmpeg=stand_in(tmp_path, "cat > /dev/null; exit 0"))
    encode(tmp_path / "out.mp4", options)
    with pytest.raises(BadVideo, match="there is no file"):
        check(tmp_path / "out.mp4", PLAN, 200, container=MP4, options=options)


def test_ffmpeg_is_found_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (tmp_path / "one"), (tmp_path / "two")
    for directory in (one, two):
        directory.mkdir()
        stand_in(directory, "exit 0")
    monkeypatch.setenv("PATH", str(two))
    monkeypatch.delenv(encoders.VARIABLE, raising=False)
    assert find_ffmpeg() == two / "ffmpeg"
    monkeypatch.setenv(encoders.VARIABLE, str(one / "ffmpeg"))
    assert find_ffmpeg() == one / "ffmpeg"
    assert find_ffmpeg(two / "ffmpeg") == two / "ffmpeg"


def test_without_ffmpeg_the_package_imageio_ffmpeg_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(encoders.VARIABLE, raising=False)
    imageio = pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is not installed")
    monkeypatch.delenv("IMAGEIO_FFMPEG_EXE", raising=False)
    imageio.get_ffmpeg_exe.cache_clear() if hasattr(imageio.get_ffmpeg_exe, "cache_clear") else None
    found = find_ffmpeg()
    assert os.access(found, os.X_OK)
    assert writes(found)


def test_a_missing_encoder_is_named_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(EncoderMissing, match="apt-get install ffmpeg"):
        find_ffmpeg(tmp_path / "nowhere")


def test_this_machines_ffmpeg_writes() -> None:
    assert writes(find_ffmpeg())


def test_an_encoder_being_waited_for_can_be_cancelled(tmp_path: Path) -> None:
    class Enough(Exception):
        """Somebody lost patience."""

    def cancelled() -> None:
        raise Enough

    options = Options(ffmpeg=stand_in(tmp_path, "exec sleep 60"))
    with Encoder(PLAN, options, tmp_path / "out.mp4", cancelled) as encoder, pytest.raises(Enough):
        put_until_full(encoder)


def put_until_full(encoder: Encoder, picture: Callable[[int], bytes] = jpeg) -> None:
    """More than a pipe takes."""
    for frame in range(1000):
        encoder.put(frame, picture(100))
