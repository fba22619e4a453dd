"""Every end of an export cleans up, every wait is bounded, and a lost browser is worth another try."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from dumbwaiter.jobs.video import chromium, leftovers
from dumbwaiter.jobs.video.errors import (
    BrowserLost,
    EncoderFailed,
    EncoderStuck,
    ExportCancelled,
    MemoryExceeded,
    TooSlow,
)
from dumbwaiter.jobs.video.export import Video, export
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.recording import Recording, load
from tests.jobs.video.support import RECORDINGS, Tag, decode, element, page, ssim, wait_for

pytestmark = pytest.mark.usefixtures("tag")
HALFWAY = 0.3
FROZEN = 2.5


class Interference:
    """Does one thing when the export has come some way; told of progress by `export`."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self.at: float | None = None

    def __call__(self, fraction: float, step: str) -> None:
        if self.at is None and fraction > HALFWAY:
            self.at = time.monotonic()
            self._act()

    @property
    def seconds(self) -> float:
        """How long ago it was done."""
        assert self.at is not None, "the export ended before it came that far"
        return time.monotonic() - self.at


def nothing_left(tag: Tag, directory: Path) -> bool:
    """No process, no file."""
    return tag.gone() and [path for path in directory.rglob("*") if path.is_file()] == []


def send(tag: Tag, name: str, number: signal.Signals) -> Callable[[], None]:
    """Signals every process of ours that has `name` in its command line."""

    def act() -> None:
        found = tag.processes(name)
        assert found, f"no process {name}"
        for process in found:
            with contextlib.suppress(ProcessLookupError):  # with its browser a renderer goes by itself
                os.kill(process.pid, number)

    return act


def test_a_finished_export_leaves_its_video_and_nothing_else(
    form: Recording, tag: Tag, tmp_path: Path
) -> None:
    seen: list[int] = []
    look = Interference(lambda: seen.append(len(tag.processes("chrom")) * len(tag.processes("ffmpeg"))))
    export(form, tmp_path / "out.mp4", progress=look, workdir=tmp_path / "work")
    assert seen[0] >= 1, "the tag in the environment must reach browser and encoder"
    assert tag.gone()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["out.mp4"]


def test_a_cancelled_export_leaves_nothing(form: Recording, tag: Tag, tmp_path: Path) -> None:
    cancel = Interference(lambda: None)
    with pytest.raises(ExportCancelled):
        export(
            form,
            tmp_path / "out.mp4",
            progress=cancel,
            cancelled=lambda: cancel.at is not None,
            workdir=tmp_path / "work",
        )
    assert cancel.seconds < 2.0
    assert nothing_left(tag, tmp_path)


def test_a_cancel_is_heard_while_a_browser_starts_that_does_not_answer(tag: Tag, tmp_path: Path) -> None:
    silent = tmp_path / "chrome"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    began = time.monotonic()
    with pytest.raises(ExportCancelled):
        export(
            load(page(element("p", id=9))),
            tmp_path / "out.mp4",
            options=Options(chromium=silent),
            cancelled=lambda: time.monotonic() - began > 1,
            workdir=tmp_path / "work",
        )
    assert time.monotonic() - began < 3
    assert nothing_left(tag, tmp_path / "work")


def test_an_exception_in_the_middle_leaves_nothing(form: Recording, tag: Tag, tmp_path: Path) -> None:
    def act() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(form, tmp_path / "out.mp4", progress=Interference(act), workdir=tmp_path / "work")
    assert nothing_left(tag, tmp_path)


def test_a_killed_browser_is_noticed_at_once_and_worth_a_retry(
    form: Recording, tag: Tag, tmp_path: Path
) -> None:
    kill = Interference(send(tag, "--remote-debugging-pipe", signal.SIGKILL))
    with pytest.raises(BrowserLost) as lost:
        export(
            form, tmp_path / "out.mp4", options=Options(restarts=0), progress=kill, workdir=tmp_path / "work"
        )
    assert kill.seconds < 5.0
    assert lost.value.transient
    assert nothing_left(tag, tmp_path)


def test_a_killed_page_process_is_noticed_at_once(form: Recording, tag: Tag, tmp_path: Path) -> None:
    kill = Interference(send(tag, "--type=renderer", signal.SIGKILL))
    with pytest.raises(BrowserLost):
        export(
            form, tmp_path / "out.mp4", options=Options(restarts=0), progress=kill, workdir=tmp_path / "work"
        )
    assert kill.seconds < 5.0
    assert nothing_left(tag, tmp_path)


def test_after_a_lost_browser_the_export_goes_on_with_the_same_pictures(
    form: Recording, form_video: Video, tag: Tag, tmp_path: Path
) -> None:
    kill = Interference(send(tag, "--remote-debugging-pipe", signal.SIGKILL))
    video = export(form, tmp_path / "out.mp4", progress=kill, workdir=tmp_path / "work")
    assert any("started again at frame" in warning for warning in video.warnings)
    frames = (10, 60, 110, 160)
    pairs = zip(decode(form_video.path, *frames), decode(video.path, *frames), strict=True)
    assert min(ssim(one, other) for one, other in pairs) > 0.995


def test_a_browser_that_stops_is_noticed_within_the_bound(form: Recording, tag: Tag, tmp_path: Path) -> None:
    stop = Interference(send(tag, "--type=renderer", signal.SIGSTOP))
    options = Options(restarts=0, frame_timeout=timedelta(seconds=2))
    with pytest.raises(BrowserLost, match="in time"):
        export(form, tmp_path / "out.mp4", options=options, progress=stop, workdir=tmp_path / "work")
    assert stop.seconds < 6.0
    assert nothing_left(tag, tmp_path)


def test_progress_is_told_on_and_on_though_one_frame_takes_long(
    form: Recording, tag: Tag, tmp_path: Path
) -> None:
    told: list[float] = []
    stop = Interference(send(tag, "--type=renderer", signal.SIGSTOP))
    go_on = Interference(send(tag, "--type=renderer", signal.SIGCONT))

    def progress(fraction: float, step: str) -> None:
        told.append(time.monotonic())
        stop(fraction, step)
        if stop.at is not None and stop.seconds > FROZEN:
            go_on(fraction, step)

    export(form, tmp_path / "out.mp4", progress=progress, workdir=tmp_path / "work")
    while_frozen = [at for at in told if stop.at is not None and 0 <= at - stop.at <= FROZEN]
    assert len(while_frozen) > FROZEN
    assert max(later - earlier for earlier, later in pairwise(told)) < 1.0


def test_an_export_that_takes_too_long_is_ended(form: Recording, tag: Tag, tmp_path: Path) -> None:
    stop = Interference(send(tag, "--type=renderer", signal.SIGSTOP))
    options = Options(wall_limit=timedelta(seconds=3))
    with pytest.raises(TooSlow, match="longer than the allowed 0:00:03"):
        export(form, tmp_path / "out.mp4", options=options, progress=stop, workdir=tmp_path / "work")
    assert nothing_left(tag, tmp_path)


def test_an_encoder_that_stops_is_noticed_within_the_bound(form: Recording, tag: Tag, tmp_path: Path) -> None:
    stop = Interference(send(tag, "ffmpeg", signal.SIGSTOP))
    with pytest.raises(EncoderStuck):
        export(
            form,
            tmp_path / "out.mp4",
            options=Options(encoder_timeout=timedelta(seconds=2)),
            progress=stop,
            workdir=tmp_path / "work",
        )
    assert stop.seconds < 12.0
    assert nothing_left(tag, tmp_path)


def test_a_killed_encoder_is_noticed(form: Recording, tag: Tag, tmp_path: Path) -> None:
    kill = Interference(send(tag, "ffmpeg", signal.SIGKILL))
    with pytest.raises(EncoderFailed):
        export(form, tmp_path / "out.mp4", progress=kill, workdir=tmp_path / "work")
    assert kill.seconds < 5.0
    assert nothing_left(tag, tmp_path)


def test_a_page_that_takes_more_memory_than_allowed_is_ended(
    form: Recording, tag: Tag, tmp_path: Path
) -> None:
    options = Options(max_memory=32 << 20)  # no browser is as small as that
    with pytest.raises(MemoryExceeded, match="32 MB") as exceeded:
        export(form, tmp_path / "out.mp4", options=options, workdir=tmp_path / "work")
    assert not exceeded.value.transient
    assert nothing_left(tag, tmp_path)


@pytest.mark.long
def test_a_style_sheet_made_to_eat_memory_does_not_harm_the_worker(tag: Tag, tmp_path: Path) -> None:
    greedy = load(RECORDINGS / "broken" / "css-attacks.json")
    with pytest.raises(MemoryExceeded):
        export(greedy, tmp_path / "out.mp4", options=Options(max_memory=600 << 20), workdir=tmp_path / "work")
    assert nothing_left(tag, tmp_path)


def test_a_profile_outside_the_work_directory_is_removed_too(tag: Tag, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root starts the browser as another user, who may not reach the work directory")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    user = chromium.unprivileged()
    assert user is not None
    profile = chromium.make_profile(closed / "work", user)
    assert not profile.is_relative_to(tmp_path)
    assert profile.stat().st_uid == user.uid
    # the process that made it is alive, so it stays
    age(profile)
    leftovers.sweep()
    assert profile.exists()
    leftovers.remove(profile)
    assert not profile.exists()


def test_the_work_directory_of_a_killed_command_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = (
        "import signal; from dumbwaiter.jobs.video import leftovers\n"
        "print(leftovers.hold(leftovers.WORK), flush=True); signal.pause()"
    )
    # who is elsewhere cannot tell by its number whether a process lives: a container that shares the directory
    elsewhere = ["unshare", "--pid", "--fork", "--mount-proc"] if os.geteuid() == 0 else []
    other = subprocess.Popen(
        [*elsewhere, sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    assert other.stdout is not None
    with other.stdout as told:
        held = Path(told.readline().strip())
    (held / "segments").mkdir()
    age(held)
    with leftovers.work_directory() as directory:
        assert held.exists()
        assert not leftovers.is_left(held)
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()
        assert wait_for(lambda: leftovers.is_left(held), 5.0)
        age(directory)
        with leftovers.work_directory():
            assert directory.exists()
            assert not held.exists()
    assert list(tmp_path.iterdir()) == []


def test_what_was_made_a_moment_ago_is_not_taken_for_left_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its lock it is held by nobody."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    new = tmp_path / f"{leftovers.WORK}1-x"
    new.mkdir()
    leftovers.sweep()
    assert new.exists()
    age(new)
    leftovers.sweep()
    assert not new.exists()


def age(directory: Path) -> None:
    """Make it seem two minutes old."""
    before = time.time() - 2 * leftovers.YOUNG_SECONDS
    os.utime(directory, (before, before))


def test_when_the_worker_is_killed_browser_and_encoder_leave_by_themselves(tag: Tag, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from dumbwaiter.jobs.video import export, sample\n"
        "def tell(fraction, step): fraction > 0.05 and print('rendering', flush=True)\n"
        "work = Path(sys.argv[1]); export(sample('shop-tour'), work / 'out.mp4', progress=tell, workdir=work)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    with worker.stdout as told:
        assert told.readline() == b"rendering\n"
        # between two segments there is no encoder for a moment
        assert wait_for(lambda: bool(tag.processes("ffmpeg")), 5.0)
        assert tag.processes("--remote-debugging-pipe")
        worker.kill()
        worker.wait()
    assert wait_for(lambda: not tag.processes(), 3.0)
    assert not (tmp_path / "out.mp4").exists()
