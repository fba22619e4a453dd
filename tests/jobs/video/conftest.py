"""Fixtures of the video job's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dumbwaiter.jobs.video.export import Video, export
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.recording import Recording, load
from tests.jobs.video.support import RECORDINGS, Tag


@pytest.fixture(scope="session")
def form() -> Recording:
    """A form filled in, in Chinese: 6.7 s."""
    return load(RECORDINGS / "own" / "form-chinese.json")


@pytest.fixture(scope="session")
def tour() -> Recording:
    """A long page being scrolled: 8.8 s."""
    return load(RECORDINGS / "own" / "scroll-long.json")


@pytest.fixture(scope="session")
def tour_video(tour: Recording, tmp_path_factory: pytest.TempPathFactory) -> Video:
    """The tour of the page as a video, without the pointer."""
    work = tmp_path_factory.mktemp("tour")
    return export(tour, work / "tour.mp4", options=Options(cursor=False), workdir=work / "work")


@pytest.fixture(scope="session")
def form_progress() -> list[tuple[float, str]]:
    """What the export of the form told of its progress; filled by `form_video`."""
    return []


@pytest.fixture(scope="session")
def form_video(
    form: Recording, form_progress: list[tuple[float, str]], tmp_path_factory: pytest.TempPathFactory
) -> Video:
    """The form as a video, with the pointer."""
    work = tmp_path_factory.mktemp("form")

    def told(fraction: float, step: str) -> None:
        form_progress.append((fraction, step))

    return export(form, work / "form.mp4", progress=told, workdir=work / "work")


@pytest.fixture(scope="session")
def form_without_pointer(form: Recording, tmp_path_factory: pytest.TempPathFactory) -> Video:
    """The form as a video, without the pointer."""
    work = tmp_path_factory.mktemp("form")
    return export(form, work / "form.mp4", options=Options(cursor=False), workdir=work / "work")


@pytest.fixture
def tag(monkeypatch: pytest.MonkeyPatch) -> Tag:
    """Marks every process that this test starts."""
    tag = Tag()
    monkeypatch.setenv("DUMBWAITER_TAG", tag.word)
    return tag


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Video]:
    """Export bytes or a recording: `make(recording, fps=10)`."""

    def make(source: Recording | bytes | Path, suffix: str = ".mp4", **options: Any) -> Video:
        recording = source if isinstance(source, Recording) else load(source)
        return export(
            recording, tmp_path / f"out{suffix}", options=Options(**options), workdir=tmp_path / "work"
        )

    return make
