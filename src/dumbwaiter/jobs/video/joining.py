"""From finished segments to the one file that was asked for, and a look at it before it is called a result."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dumbwaiter.jobs.video.encoder import REPORT, find_ffmpeg, launcher
from dumbwaiter.jobs.video.errors import BadVideo, EncoderFailed, EncoderMissing, EncoderStuck
from dumbwaiter.jobs.video.formats import (
    CONTAINERS,
    GIF,
    GIF_FPS,
    GIF_SIDE,
    SAMPLE_ENTRIES,
    Container,
    codec_of,
)
from dumbwaiter.jobs.video.mp4 import read_mp4
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import Plan
from dumbwaiter.jobs.video.processes import end_tree, environment

WAIT_SECONDS = 0.1
# Copying gigabytes, and a palette of an hour, take their time; a program that says nothing for so long has stopped.
JOIN_SECONDS = 600.0
POSTER_AT = 0.1
COMPLAINT = 1000

Ask = Callable[[], None]


def join(
    parts: Sequence[tuple[Path, float]], container: Container, options: Options, out: Path, ask: Ask
) -> None:
    """Put segments, each with its duration in seconds, one after the other, without encoding them again.

    `ask` is called while it goes on, and ends it by raising.

    Raises:
        EncoderFailed, EncoderStuck
    """
    if len(parts) == 1:
        parts[0][0].replace(out)
        return
    part = CONTAINERS[container.parts]
    order = out.with_suffix(".list")
    # relative to the list, and of names that we gave
    order.write_text("".join(f"file {path.name}\nduration {seconds:.6f}\n" for path, seconds in parts))
    words = ["-f", "concat", "-safe", "1", "-i", str(order), "-c", "copy", "-map_metadata", "-1"]
    run([*words, *tags(options, container), *part.closing, "-f", part.muxer, str(out)], options, ask)
    order.unlink()


def tags(options: Options, container: Container) -> list[str]:
    """A tag that FFmpeg forgets when it copies."""
    return ["-tag:v", "hvc1"] if codec_of(container, options) == "h265" else []


def gif_size(width: int, height: int) -> tuple[int, int]:
    """Width and height of the GIF of a picture of this size."""
    wide = min(GIF_SIDE, width)
    return wide, max(round(height * wide / width / 2), 1) * 2


def as_gif(video: Path, plan: Plan, options: Options, out: Path, ask: Ask) -> None:
    """A GIF of a video, with colours of its own, no more than 12 frames a second and 800 pixels wide."""
    fps = min(GIF_FPS, plan.fps)
    width, height = gif_size(plan.width, plan.height)
    # of a video of a single frame that one
    scaled = f"fps={fps}:eof_action=pass,scale={width}:{height}:flags=lanczos"
    palette = "split[a][b];[a]palettegen=stats_mode=diff[p];[b][p]paletteuse=dither=bayer:bayer_scale=4:diff_mode=rectangle"
    run(["-i", str(video), "-vf", f"{scaled},{palette}", "-f", "gif", str(out)], options, ask)


def take_poster(video: Path, plan: Plan, options: Options, out: Path, ask: Ask) -> None:
    """One picture of a video, a tenth into it, as JPEG, PNG or WebP by the name's suffix."""
    at = f"{plan.duration_seconds * POSTER_AT:.3f}"
    run(["-ss", at, "-i", str(video), "-frames:v", "1", "-q:v", "3", "-update", "1", str(out)], options, ask)
    if not out.is_file() or not out.stat().st_size:
        raise BadVideo(f"no picture could be taken at {at} s")


def check_mp4(path: Path, plan: Plan, samples: int, container: Container, options: Options) -> None:
    """Look at what came out before it is called a result: half a file can come with exit status 0.

    Raises:
        BadVideo
    """
    made = read_mp4(path)
    wanted = (plan.width, plan.height, samples, SAMPLE_ENTRIES[codec_of(container, options)])
    found = (made.width, made.height, made.frames, made.codec)
    if found != wanted:
        raise BadVideo(f"asked for (width, height, frames, codec) {wanted}, got {found}")
    if abs(made.duration_seconds - plan.duration_seconds) > 1.01 / plan.fps:
        raise BadVideo(f"asked for {plan.duration_seconds:.3f} s, got {made.duration_seconds:.3f} s")


def check_by_reading(path: Path, plan: Plan, samples: int | None, options: Options, ask: Ask) -> None:
    """The same for files whose index is not read here: FFmpeg goes through them from end to end.

    Raises:
        BadVideo
    """
    if not path.is_file():
        raise BadVideo(f"there is no file {path.name}")
    try:
        told = run(
            ["-xerror", "-i", str(path), "-map", "0:v:0", "-c", "copy", "-f", "null", "-"], options, ask
        )
    except EncoderFailed as error:
        raise BadVideo(f"{path.name} cannot be read to its end: {error}") from None
    frames, seconds = int(told.get("frame", 0)), int(told.get("out_time_us", 0) or 0) / 1e6
    if (samples is not None and frames != samples) or frames < 1:
        raise BadVideo(
            f"asked for {samples:,} frames, got {frames:,}" if samples else "there is no frame in it"
        )
    tolerance = 1.5 / min(plan.fps, GIF_FPS) if samples is None else 1.01 / plan.fps
    if abs(seconds - plan.duration_seconds) > tolerance:
        raise BadVideo(f"asked for {plan.duration_seconds:.3f} s, got {seconds:.3f} s")


def check(
    path: Path,
    plan: Plan,
    samples: int,
    *,
    container: Container,
    options: Options,
    ask: Ask = lambda: None,
) -> None:
    """Look at a file of any kind; `samples` is how many frames it must have, but for a GIF, which has its own.

    Raises:
        BadVideo
    """
    if container.parts == ".mp4" and path.suffix == ".mp4":
        check_mp4(path, plan, samples, container, options)
    else:
        check_by_reading(path, plan, None if container is GIF else samples, options, ask)


def run(words: list[str], options: Options, ask: Ask) -> dict[str, str]:
    """Run FFmpeg to its end; the last that it told of its progress.

    Raises:
        EncoderMissing, EncoderFailed, EncoderStuck
    """
    command = [*launcher(), str(find_ffmpeg(options.ffmpeg)), *REPORT, *words]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment(),
        )
    except OSError as error:
        raise EncoderMissing(f"FFmpeg does not start: {error}") from None
    deadline = time.monotonic() + JOIN_SECONDS
    told, complaint = b"", b""
    try:
        while True:
            try:
                told, complaint = process.communicate(timeout=WAIT_SECONDS)
                break
            except subprocess.TimeoutExpired:
                ask()
                if time.monotonic() > deadline:
                    raise EncoderStuck(f"FFmpeg was not ready after {JOIN_SECONDS:g} s") from None
    finally:
        end_tree(process)
    if process.returncode != 0:
        words_of_it = complaint.decode("utf-8", "replace").strip()[-COMPLAINT:] or "it did not say why"
        raise EncoderFailed(f"FFmpeg ended with status {process.returncode}: {words_of_it}")
    lines = [line.partition("=") for line in told.decode("utf-8", "replace").splitlines()]
    return {name.strip(): value.strip() for name, _, value in lines}
