"""Finding a browser and starting it: in which order, as whom, and what is said when it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from dumbwaiter.jobs.video import chromium
from dumbwaiter.jobs.video.browser import start
from dumbwaiter.jobs.video.chromium import User, Way, find_chromium, ways
from dumbwaiter.jobs.video.errors import ChromiumMissing
from dumbwaiter.jobs.video.fonts import missing_fonts
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.recording import Recording
from dumbwaiter.jobs.video.replay import SCRIPTS, replay_page
from tests.jobs.video.support import Tag


def program(path: Path, script: str = "exit 0") -> Path:
    """A program in a browser's place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no browser: the directory that is its PATH."""
    for name in (chromium.VARIABLE, "PLAYWRIGHT_BROWSERS_PATH", "PUPPETEER_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_a_missing_browser_is_named_with_what_to_install(bare: Path) -> None:
    with pytest.raises(ChromiumMissing, match="apt-get install chromium-headless-shell"):
        find_chromium()


def test_a_browser_named_but_not_there_is_an_error_and_not_passed_over(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(bare / "chromium")
    monkeypatch.setenv(chromium.VARIABLE, "/nowhere/chrome")
    with pytest.raises(ChromiumMissing, match="DUMBWAITER_CHROMIUM"):
        find_chromium()


def test_a_headless_shell_comes_before_a_full_browser(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = program(bare / "google-chrome")
    assert find_chromium() == full
    cached = "home/.cache/ms-playwright/chromium_headless_shell-1200/chrome-linux/headless_shell"
    shell = program(tmp_path / cached)
    assert find_chromium() == shell
    debian = program(bare / "chromium-headless-shell")
    assert find_chromium() == debian
    monkeypatch.setenv(chromium.VARIABLE, str(full))
    assert find_chromium() == full
    assert find_chromium(shell) == shell


def test_root_never_runs_the_sandboxed_browser_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = User(65534, 65534)
    monkeypatch.setattr(chromium, "unprivileged", lambda: nobody)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert ways(None) == [Way(nobody, True), Way(nobody, False), Way(None, False)]
    assert ways(True) == [Way(nobody, True)]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert ways(None) == [Way(None, True), Way(None, False)]
    assert ways(False) == [Way(None, False)]


def test_a_browser_that_does_not_start_is_reported_with_its_words(tmp_path: Path, tag: Tag) -> None:
    broken = program(tmp_path / "chrome", "echo 'No usable sandbox!' >&2; exit 1")
    with pytest.raises(ChromiumMissing, match="No usable sandbox"):
        start(Options(chromium=broken), tmp_path / "work", 640, 360, [])
    assert tag.gone()
    assert list((tmp_path / "work").iterdir()) == []


def test_the_browser_has_no_rights_and_opens_no_port(tmp_path: Path, tag: Tag) -> None:
    with start(Options(), tmp_path, 640, 360, []):
        browsers = tag.processes("--remote-debugging-pipe")
        assert browsers
        for process in browsers:
            assert process.uids().real != 0
            listening = [c for c in process.net_connections() if c.status == psutil.CONN_LISTEN]
            assert listening == []
    assert tag.gone()


def test_the_sandbox_is_on_or_its_absence_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    with start(Options(), tmp_path, 640, 360, said) as browser:
        assert browser.way.sandbox == (said == [])


def test_the_page_carries_only_scripts_of_our_own(form: Recording) -> None:
    html = replay_page("word").decode()
    assert (
        html.count("<script")
        == html.count('<script nonce="word">')
        == html.count("</script>")
        == len(SCRIPTS)
    )


def test_this_machine_can_draw_chinese_and_emoji() -> None:
    assert missing_fonts() == []


def test_a_browser_gets_nothing_secret_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "DATABASE_URL",
        "DUMBWAITER_DATABASE",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
        "LD_SDK_KEY",
        "NIX_CONFIG",
        "SNAPSHOT_PASSWORD",
        "LC_SECRET",
    ):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    # the last three lines of what it says are told
    tells = program(tmp_path / "chrome", "env | grep -c canary >&2; env | grep LC_TIME >&2; exit 1")

    with pytest.raises(ChromiumMissing) as refused:
        start(Options(chromium=tells), tmp_path / "work", 640, 360, [])

    assert "0 | LC_TIME=C.UTF-8" in str(refused.value)
