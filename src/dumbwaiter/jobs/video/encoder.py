"""FFmpeg: found, fed with pictures and their times over a pipe, watched, and ended."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from dumbwaiter.jobs.video.errors import EncoderFailed, EncoderMissing, EncoderStuck
from dumbwaiter.jobs.video.formats import CONTAINERS, ENCODERS, MP4, Container, encoder_words
from dumbwaiter.jobs.video.options import Codec, Options
from dumbwaiter.jobs.video.plan import Plan
from dumbwaiter.jobs.video.processes import end_tree, environment

VARIABLE = "DUMBWAITER_FFMPEG"
INSTALL = (
    "install it with `apt-get install ffmpeg` (Debian, Ubuntu), `brew install ffmpeg` (macOS) or "
    f"the package's extra `video` (in a checkout: `pip install '.[video]'`), or name it in {VARIABLE}"
)
PROBE_SECONDS = 20.0
STDERR_BYTES = 8192
WAIT_SECONDS = 0.25
# A player finds any time of the video by decoding no more than this.
KEY_FRAME_SECONDS = 10
REPORT = [
    "-y", "-nostdin", "-hide_banner", "-v", "error", "-nostats", "-progress", "pipe:1", "-stats_period", "0.25",
]  # fmt: skip
# When we are killed, FFmpeg reads the end of its input and goes on with the frames of a held picture: for a minute, at 111 of
# them a second. Linux can end it with us; code between fork and exec may deadlock, so a small process asks for that and
# becomes FFmpeg.
LAUNCHER = """
import ctypes, os, signal, sys
try:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
except (AttributeError, OSError):
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def find_ffmpeg(option: Path | str | None = None) -> Path:
    """The encoder to use: the option, the environment, PATH, the package imageio-ffmpeg.

    Raises:
        EncoderMissing: there is none; the message says what to install.
    """
    for origin, named in (("the option", option), (VARIABLE, os.environ.get(VARIABLE))):
        if named:
            found = shutil.which(str(named))
            if found is None:
                raise EncoderMissing(
                    f"{named}, named by {origin}, is no program that can be started; {INSTALL}"
                )
            return Path(found)
    if found := shutil.which("ffmpeg"):
        return Path(found)
    try:
        import imageio_ffmpeg  # type: ignore[import-untyped,unused-ignore]

        return Path(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        raise EncoderMissing(f"no FFmpeg was found; {INSTALL}") from None


def writes(ffmpeg: Path, codec: Codec = "h264") -> bool:
    """Whether this FFmpeg has the encoder for a codec; some distributions leave x264 out."""
    command = [str(ffmpeg), "-hide_banner", "-encoders"]
    try:
        listed = subprocess.run(
            command, capture_output=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL, env=environment()
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ENCODERS[codec].encode() in listed.stdout


def command(ffmpeg: Path, plan: Plan, options: Options, out: Path, container: Container = MP4) -> list[str]:
    """The command line for a segment of such a file. Pure.

    Chromium's JPEG is full-range BT.601; a video of this size is limited-range BT.709, and says so. Conversion comes before
    the frame rate, so that a held picture is converted once. `-fps_mode cfr -r` is one frame late; the filter is not.

    The filter `colorspace` is exact, in half of the time of `scale`, which rounds white to a tint, and otherwise at the edges of the
    slices that its threads take; told to be exact, it takes four times as long as it does.
    """
    matrix = "ispace=bt470bg:space=bt709:iprimaries=bt709:primaries=bt709:itrc=bt709:trc=bt709"
    convert = f"format=yuvj420p,colorspace={matrix}:irange=pc:range=tv:format=yuv420p"
    tags = ["-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv"]
    if options.constant_rate:
        timing = ["-vf", f"{convert},fps={plan.fps}:start_time=0", "-frames:v", str(plan.frames)]
    else:
        timing = ["-vf", convert, "-fps_mode", "vfr", "-enc_time_base", f"1/{plan.fps}"]
    seekable = [
        "-g", str(plan.fps * KEY_FRAME_SECONDS), "-force_key_frames", f"expr:gte(t,n_forced*{KEY_FRAME_SECONDS})",
    ]  # fmt: skip
    part = CONTAINERS[container.parts]
    return [
        str(ffmpeg), *REPORT, "-f", "ivf", "-i", "pipe:0", "-an", *timing, *tags, *encoder_words(container, options),
        *seekable, *part.closing, "-map_metadata", "-1", "-f", part.muxer, str(out),
    ]  # fmt: skip


def launcher() -> list[str]:
    """What a program's command line begins with, so that it ends with us."""
    return [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid())]


class Encoder:
    """One FFmpeg that makes one file; leaving the `with` block ends it however it stands.

    It is fed IVF, whose frames have times: a picture that stays for a minute is sent seven times, so that there is one to go to each ten seconds.
    """

    def __init__(
        self,
        plan: Plan,
        options: Options,
        out: Path,
        cancelled: Callable[[], None] = lambda: None,
        container: Container = MP4,
    ) -> None:
        self._plan = plan
        self._constant = options.constant_rate
        self._sent = 0
        self._within = options.encoder_timeout.total_seconds()
        self._check = cancelled
        self._last: bytes | None = None
        self._last_frame = -1
        self._said = bytearray()
        self._closed = False
        self.frames = 0
        try:
            self.process = subprocess.Popen(
                [*launcher(), *command(find_ffmpeg(options.ffmpeg), plan, options, out, container)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=environment(),
            )
        except OSError as error:
            raise EncoderMissing(f"FFmpeg does not start: {error}; {INSTALL}") from None
        assert self.process.stdin is not None
        self._pipe = self.process.stdin
        os.set_blocking(self._pipe.fileno(), False)
        self._moved = time.monotonic()
        self._readers = [
            threading.Thread(target=work, daemon=True) for work in (self._read_progress, self._read_stderr)
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def put(self, frame: int, picture: bytes) -> None:
        """From this frame on, the video shows this picture (a JPEG)."""
        if self._last is None:
            self._write(ivf_header(self._plan))
        else:
            self._hold(frame)
        self._send(frame, picture)

    def finish(self, on_wait: Callable[[], None] = lambda: None) -> None:
        """Show the last picture to the end, and wait until the file is written.

        Raises:
            EncoderStuck: no frame was written for `encoder_timeout`.
            EncoderFailed: FFmpeg ended with an error.
        """
        if self._last is None:
            raise EncoderFailed("no picture was drawn")
        last = self._plan.frames - 1
        self._hold(last)
        if self._last_frame < last:
            self._send(last, self._last)
        self._pipe.close()
        while (status := self._ended()) is None:
            on_wait()
        if status != 0:
            raise EncoderFailed(f"FFmpeg ended with status {status}: {self.complaint()}")

    @property
    def samples(self) -> int:
        """How many frames the file has, once it is finished."""
        return self._plan.frames if self._constant else self._sent

    def close(self) -> None:
        """End the process; can be called twice."""
        if self._closed:
            return  # its number may be another's by now
        self._closed = True
        end_tree(self.process)
        with contextlib.suppress(OSError):
            self._pipe.close()
        for reader in self._readers:
            reader.join(WAIT_SECONDS)

    def complaint(self) -> str:
        """The last that FFmpeg said about itself."""
        if self.process.poll() is not None:
            # it has said all, but the thread that reads it may not be there yet
            self._readers[1].join(WAIT_SECONDS)
        return self._said[-STDERR_BYTES:].decode("utf-8", "replace").strip()[-1000:] or "it did not say why"

    def _send(self, frame: int, picture: bytes) -> None:
        self._last, self._last_frame = picture, frame
        self._write(ivf_frame(frame, picture))
        self._sent += 1

    def _hold(self, until: int) -> None:
        """Show the last picture again now and then, up to a frame: players seek from one to the next."""
        step = self._plan.fps * KEY_FRAME_SECONDS
        while not self._constant and self._last is not None and self._last_frame + step < until:
            self._send(self._last_frame + step, self._last)

    def _ended(self) -> int | None:
        try:
            return self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._must_move()
            return None

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            _, writable, _ = select.select([], [self._pipe], [], WAIT_SECONDS)
            if not writable:
                self._must_move()
                continue
            try:
                written = os.write(self._pipe.fileno(), left)
            except BlockingIOError:
                continue
            except OSError:
                raise self._gone() from None
            left = left[written:]
            self._moved = time.monotonic()

    def _must_move(self) -> None:
        self._check()
        if time.monotonic() - self._moved > self._within:
            raise EncoderStuck(f"FFmpeg did nothing for {self._within:g} s, at frame {self.frames:,}")

    def _gone(self) -> EncoderFailed:
        try:
            status = self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            return EncoderFailed(f"FFmpeg stopped reading: {self.complaint()}")
        return EncoderFailed(f"FFmpeg ended early with status {status}: {self.complaint()}")

    def _read_progress(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                name, _, value = line.strip().partition(b"=")
                if name == b"frame" and value.isdigit() and int(value) > self.frames:
                    self.frames = int(value)
                    self._moved = time.monotonic()

    def _read_stderr(self) -> None:
        # An encoder that nobody listens to stops at a full pipe.
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            while part := os.read(stream.fileno(), STDERR_BYTES):
                self._said += part
                del self._said[: -2 * STDERR_BYTES]


def ivf_header(plan: Plan) -> bytes:
    """The head of an IVF stream of JPEG pictures, in the time base 1/fps."""
    return struct.pack("<4sHH4sHHIIII", b"DKIF", 0, 32, b"MJPG", plan.width, plan.height, plan.fps, 1, 0, 0)


def ivf_frame(frame: int, picture: bytes) -> bytes:
    """One picture with its time."""
    return struct.pack("<IQ", len(picture), frame) + picture
