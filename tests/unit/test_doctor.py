"""The doctor finds what is wrong, says how to mend it, and never falls ill itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.doctor import LOOKS, Check, checks
from dumbwaiter.settings import without_password
from tests.support.databases import Database


@pytest.fixture
def make_waiter(tmp_path: Path) -> Iterator[Callable[..., Dumbwaiter]]:
    """Makes applications on SQLite in the test's directory; arguments change single settings."""
    made: list[Dumbwaiter] = []

    def make(**given: object) -> Dumbwaiter:
        settings = {"database": f"sqlite:///{tmp_path}/tasks.db", "env": "test"} | given
        made.append(Dumbwaiter(**settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for waiter in made:
        waiter.close()


def found(waiter: Dumbwaiter) -> dict[str, Check]:
    return {check.name: check for check in checks(waiter)}


def test_a_healthy_application_has_nothing_that_is_bad(make_waiter: Callable[..., Dumbwaiter]) -> None:
    report = found(make_waiter())

    assert list(report) == [name for name, _ in LOOKS]
    assert {name for name, check in report.items() if check.ok is False} == set()
    assert {
        name for name in ("database", "schema", "clock", "files", "work directory") if not report[name].ok
    } == set()


def test_what_is_bad_says_how_to_mend_it(make_waiter: Callable[..., Dumbwaiter]) -> None:
    report = found(
        make_waiter(database="postgresql://nobody:secret@127.0.0.1:1/nothing", files="/proc/nowhere")
    )

    assert [name for name, check in report.items() if check.ok is False and not check.mend] == []
    assert report["database"].ok is False
    assert "secret" not in report["database"].found
    assert report["files"].ok is False


@pytest.mark.service("postgresql")
def test_missing_tables_are_mended_by_migrate(
    make_waiter: Callable[..., Dumbwaiter], make_database: Callable[[str], Database]
) -> None:
    waiter = make_waiter(database=make_database("postgresql").url)

    before = found(waiter)["schema"]
    waiter.migrate()
    after = found(waiter)

    assert before.ok is False
    assert before.mend == "run: dumbwaiter migrate"
    assert after["schema"].ok
    assert after["clock"].ok


def test_a_database_of_another_environment_is_told_apart_from_a_broken_one(
    make_waiter: Callable[..., Dumbwaiter],
) -> None:
    make_waiter(env="production").migrate()

    report = found(make_waiter(env="laptop"))

    assert report["database"].ok
    assert report["schema"].ok is None
    assert report["environment"].ok is False
    assert "production" in report["environment"].found


def test_the_probe_leaves_nothing_behind(make_waiter: Callable[..., Dumbwaiter], tmp_path: Path) -> None:
    found(make_waiter())

    assert [path for path in (tmp_path / "files").rglob("*") if path.is_file()] == []
    assert list((tmp_path / "work").iterdir()) == []


def test_a_work_directory_that_cannot_be_is_bad(
    make_waiter: Callable[..., Dumbwaiter], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")

    check = found(make_waiter(workdir=str(tmp_path / "file")))["work directory"]

    assert check.ok is False
    assert "DUMBWAITER_WORKDIR" in check.mend


def test_a_missing_browser_matters_only_where_videos_are_made(
    make_waiter: Callable[..., Dumbwaiter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUMBWAITER_CHROMIUM", "/nowhere/chromium")
    plain, video = make_waiter(), make_waiter()

    @video.task("video-export")
    def export() -> None: ...

    assert found(plain)["browser"].ok is None
    assert found(video)["browser"].ok is False
    assert "/nowhere/chromium" in found(video)["browser"].found


def test_a_program_that_does_not_start_is_not_good(
    make_waiter: Callable[..., Dumbwaiter], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "ffmpeg"
    broken.write_text("#!/bin/sh\necho cannot >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("DUMBWAITER_FFMPEG", str(broken))

    check = found(make_waiter())["encoder"]

    assert not check.ok
    assert "does not start" in check.found


def test_a_clock_that_is_off_is_bad(
    make_waiter: Callable[..., Dumbwaiter], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiter = make_waiter()
    theirs = waiter.store.now
    monkeypatch.setattr(waiter.store, "now", lambda: theirs() + timedelta(seconds=90))

    check = found(waiter)["clock"]

    assert check.ok is False
    assert check.found.startswith(("90.", "89.9"))


def test_a_look_that_fails_is_a_finding_and_not_the_end(
    make_waiter: Callable[..., Dumbwaiter], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiter = make_waiter()
    monkeypatch.setattr(waiter.store, "now", lambda: 1 / 0)

    report = found(waiter)

    assert report["clock"].ok is False
    assert "ZeroDivisionError" in report["clock"].found
    assert len(report) == len(LOOKS)


def test_the_doctor_hints_that_tasks_wait_and_nobody_works(make_waiter: Callable[..., Dumbwaiter]) -> None:
    waiter = make_waiter()

    @waiter.task("soup")
    def soup() -> None: ...

    quiet = found(waiter)["workers"]
    waiter.enqueue("soup", delay=timedelta(hours=1))
    later = found(waiter)["workers"]
    waiter.enqueue("soup")
    waits = found(waiter)["workers"]

    assert (quiet.ok, later.ok, waits.ok) == (True, True, None)
    assert (waits.found, "dumbwaiter worker" in waits.mend) == ("none at work, and tasks wait", True)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://shop:s@cr:et@db/shop", "postgresql://shop@db/shop"),
        ("postgresql://shop@db/shop", "postgresql://shop@db/shop"),
        ("sqlite:///a@b/tasks.db", "sqlite:///a@b/tasks.db"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("/srv/files", "/srv/files"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, expected: str) -> None:
    assert without_password(address) == expected


def test_the_doctor_is_a_light_import() -> None:
    heavy = "sqlalchemy, alembic, obstore, fastapi, rich, typer"
    code = f"import sys, dumbwaiter.doctor; print([name for name in '{heavy}'.split(', ') if name in sys.modules])"

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert told.stdout.strip() == "[]"
