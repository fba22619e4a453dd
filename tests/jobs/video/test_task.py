"""The task type: what may be named, what is reported, what comes out."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import InvalidArguments, TaskCancelled
from dumbwaiter.executors.context import Publication, Stop, TaskContext
from dumbwaiter.jobs.video import load, sample, sample_names
from dumbwaiter.jobs.video.errors import EmptyRecording, ImpossibleOption, NoSuchRecording
from dumbwaiter.jobs.video.mp4 import read_mp4
from dumbwaiter.jobs.video.task import RECORDINGS as VARIABLE
from dumbwaiter.jobs.video.task import export_video, filename, read_recording, register
from dumbwaiter.task import Progress
from tests.jobs.video.support import RECORDINGS
from tests.support.waiting import until


class Listener:
    """The worker's end of a task context: keeps what it is told."""

    def __init__(self, keep: Path, stop_after: float = 2.0) -> None:
        self.keep, self.stop_after = keep, stop_after
        self.told: list[Progress] = []
        self.published: list[Publication] = []

    def report(self, progress: Progress) -> None:
        self.told.append(progress)

    def publish(self, publication: Publication) -> None:
        shutil.copy(publication.path, self.keep / publication.name)
        self.published.append(publication)

    def transaction(self, result: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def stopped(self) -> Stop | None:
        far = self.told and (self.told[-1].fraction or 0) > self.stop_after
        return Stop.CANCEL if far else None

    def wait(self, seconds: float) -> Stop | None:
        return self.stopped()

    def run(self, *words: Any, **how: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def context(tmp_path: Path) -> Callable[..., tuple[TaskContext, Listener]]:
    """A task context and who listens to it."""

    def build(**how: Any) -> tuple[TaskContext, Listener]:
        listener = Listener(tmp_path, **how)
        task: Any = SimpleNamespace(id="t", attempt=1)
        return TaskContext(task, listener, tmp_path / "work"), listener

    return build


@pytest.fixture
def allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory whose recordings may be exported."""
    directory = tmp_path / "recordings"
    directory.mkdir()
    shutil.copy(RECORDINGS / "own" / "css-animation.json", directory / "moving.json")
    monkeypatch.setenv(VARIABLE, str(directory))
    return directory


def test_an_export_publishes_a_video_and_returns_what_it_is(
    allowed: Path, context: Callable[..., tuple[TaskContext, Listener]], tmp_path: Path
) -> None:
    ctx, listener = context()
    result = export_video(ctx, "moving.json", fps=10)
    assert [(p.name, p.content_type) for p in listener.published] == [("moving.mp4", "video/mp4")]
    made = read_mp4(tmp_path / "moving.mp4")
    assert (result["frames"], result["width"], result["height"]) == (made.frames, 1280, 720)
    assert result["duration_seconds"] == pytest.approx(6.158, abs=0.2)
    assert list(dict.fromkeys(p.step for p in listener.told)) == [
        "reading",
        "rendering",
        "encoding",
        "publishing",
    ]
    assert [path.name for path in (tmp_path / "work").rglob("*") if path.is_file()] == ["video.mp4"]


def test_an_upload_becomes_a_video_of_the_size_and_speed_that_were_asked_for(tmp_path: Path) -> None:
    waiter = Dumbwaiter(f"sqlite:///{tmp_path / 'tasks.db'}", files=str(tmp_path / "files"), env="test")
    made = register(waiter).enqueue(
        recording=RECORDINGS / "own" / "css-animation.json", fps=10, max_side=320, speed=4
    )
    worker = waiter.worker(in_app=True)
    worker.start()
    try:
        task = until(lambda: found if (found := waiter.get(made.id)).status.final else None)
    finally:
        worker.stop(hurry=True)
        worker.join()
        waiter.close()

    assert task.status == "success", task.error_message
    assert [file.name for file in task.files] == ["css-animation.mp4"]
    duration = load(RECORDINGS / "own" / "css-animation.json").duration_ms / 1000
    assert task.result["width"] == 320
    assert abs(task.result["duration_seconds"] - duration / 4) <= 0.2


def test_a_cancelled_export_says_so(
    allowed: Path, context: Callable[..., tuple[TaskContext, Listener]]
) -> None:
    ctx, listener = context(stop_after=0.2)
    with pytest.raises(TaskCancelled):
        export_video(ctx, "moving.json")
    assert listener.published == []


def test_a_recording_that_cannot_be_shown_fails_with_words_for_both_readers(
    allowed: Path, context: Callable[..., tuple[TaskContext, Listener]]
) -> None:
    (allowed / "empty.json").write_text("[]")
    ctx, _ = context()
    with pytest.raises(EmptyRecording) as failure:
        export_video(ctx, "empty.json")
    assert failure.value.user_message == "This recording is empty."
    assert not failure.value.transient


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"start_seconds": 5.0, "end_seconds": 2.0}, "start=5 s: that is not before the end, 2 s"),
        ({"start_seconds": 5000.0}, "the recording lasts"),
        ({"masks": ["a[["]}, "is no CSS selector"),
    ],
)
def test_what_cannot_be_done_as_it_was_asked_for_is_told_to_the_person(
    options: dict[str, Any], said: str, allowed: Path, context: Callable[..., tuple[TaskContext, Listener]]
) -> None:
    ctx, _ = context()
    with pytest.raises(ImpossibleOption) as failure:
        export_video(ctx, "moving.json", **options)
    assert failure.value.user_message.startswith("It cannot be exported as it was asked for: ")
    assert said in failure.value.user_message
    assert not failure.value.transient


@pytest.mark.parametrize(
    ("arguments", "path", "said"),
    [
        ({"recording": "sample:nope"}, "recording", "there is no sample 'nope'; there are: shop-tour"),
        (
            {"recording": "sample:shop-tour", "end_seconds": 2.0, "start_seconds": 5.0},
            "end_seconds",
            "the part to show ends at 2 s, which is not after its beginning at 5 s",
        ),
    ],
)
def test_what_nobody_could_make_is_refused_where_it_is_asked_for(
    arguments: dict[str, Any], path: str, said: str, tmp_path: Path
) -> None:
    waiter = Dumbwaiter(f"sqlite:///{tmp_path / 'tasks.db'}")
    waiter.migrate()
    video_export = register(waiter)
    with closing(waiter), pytest.raises(InvalidArguments) as refusal:
        video_export.enqueue(**arguments)
    assert refusal.value.errors == ((path, said),)


def test_what_only_a_worker_can_know_is_taken_as_it_is(tmp_path: Path) -> None:
    waiter = Dumbwaiter(f"sqlite:///{tmp_path / 'tasks.db'}")
    waiter.migrate()
    video_export = register(waiter)
    with closing(waiter):
        task = video_export.enqueue(recording="elsewhere.json", start_seconds=5.0, end_seconds=5.5)
    assert task.payload == {"recording": "elsewhere.json", "start_seconds": 5.0, "end_seconds": 5.5}


@pytest.mark.parametrize(
    "reference",
    [
        "../secret.json",
        "/etc/passwd",
        "link.json",
        "",
        ".",
        "sample:../task",
        "sample:",
        "a\0b",
        "x" * 5000,
        "circle",
    ],
)
def test_nothing_outside_the_directory_is_read(reference: str, allowed: Path) -> None:
    (allowed.parent / "secret.json").write_bytes((RECORDINGS / "own" / "css-animation.json").read_bytes())
    (allowed / "link.json").symlink_to(allowed.parent / "secret.json")
    (allowed / "circle").symlink_to(allowed / "circle")
    with pytest.raises(NoSuchRecording):
        read_recording(reference)


def test_without_a_directory_no_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(NoSuchRecording, match=VARIABLE):
        read_recording(str(RECORDINGS / "own" / "css-animation.json"))


def test_an_absolute_path_into_the_directory_is_read(allowed: Path) -> None:
    assert read_recording(str(allowed / "moving.json")).title == "CSS animation"


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("sample:shop-tour", "shop-tour.mp4"),
        ("a/b/会话 1.json.gz", "会话 1.mp4"),
        ("../..", "recording.mp4"),
        ("x;y.json", "x-y.mp4"),
    ],
)
def test_the_file_is_named_after_the_recording(reference: str, name: str) -> None:
    assert filename(reference) == name


def test_the_bundled_session_is_whole() -> None:
    assert sample_names() == ["shop-tour"]
    session = sample("shop-tour")
    assert session.title == "Lantern & Leaf · 灯笼与茶"
    assert session.viewport == (1280, 720)
    assert 30_000 < session.duration_ms < 50_000
    assert session.warnings == ()


def test_the_vendored_player_is_the_one_that_was_fetched() -> None:
    vendor = files("dumbwaiter.jobs.video") / "vendor"
    sums = dict(line.split()[::-1] for line in (vendor / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == {"rrweb.umd.min.cjs", "rrweb.min.css"}
    for name, digest in sums.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest
