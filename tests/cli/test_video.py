"""The main job from the command line, with a real browser and a real encoder."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from dumbwaiter.jobs.video.mp4 import read_mp4
from tests.cli.conftest import Cli
from tests.support.programs import dumbwaiter, program, python
from tests.support.waiting import until

DEMO = python("-m", "dumbwaiter", "demo", "--port", "0")


def element(number: int, tag: str, *children: dict[str, Any]) -> dict[str, Any]:
    return {"type": 2, "id": number, "tagName": tag, "attributes": {}, "childNodes": list(children)}


def session(seconds: float) -> list[dict[str, Any]]:
    """A recorded page whose one word changes ten times a second."""
    body = element(4, "body", {"type": 3, "id": 5, "textContent": "0 灯笼"})
    page = {"type": 0, "id": 1, "childNodes": [element(2, "html", element(3, "head"), body)]}
    events: list[dict[str, Any]] = [
        {
            "type": 4,
            "timestamp": 1_700_000_000_000,
            "data": {"href": "http://shop.example/", "width": 320, "height": 240},
        },
        {
            "type": 2,
            "timestamp": 1_700_000_000_000,
            "data": {"node": page, "initialOffset": {"left": 0, "top": 0}},
        },
    ]
    for step in range(1, round(seconds * 10) + 1):
        change = {
            "source": 0,
            "texts": [{"id": 5, "value": f"{step} 灯笼"}],
            "attributes": [],
            "removes": [],
            "adds": [],
        }
        events.append({"type": 3, "timestamp": 1_700_000_000_000 + step * 100, "data": change})
    return events


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "visit.json"
    path.write_text(json.dumps(session(1)))
    return path


def test_the_demo_makes_a_video_and_ends(recording: Path, tmp_path: Path) -> None:
    answer = dumbwaiter("demo", recording.name, "--once", "--port", "0", "--out", "x.mp4", cwd=tmp_path)

    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f"{tmp_path / 'x.mp4'}\n"
    assert read_mp4(tmp_path / "x.mp4").duration_seconds == pytest.approx(1, abs=0.06)
    assert "the page, until the video is made: http://127.0.0.1:" in answer.stderr


def test_the_demo_keeps_its_page_up_with_the_download_until_ctrl_c(recording: Path, tmp_path: Path) -> None:
    with program(*DEMO, recording.name, "--out", "x.mp4", cwd=tmp_path) as demo:
        address = demo.says(r"(http://127\.0\.0\.1:\d+) stays up", 50)[1]
        page = httpx.get(address).text
        download = page.partition('href="tasks/')[2].partition('"')[0]
        video = httpx.get(f"{address}/tasks/{download}")
        demo.signal(signal.SIGINT)
        status = demo.wait()

    assert status == 0
    assert video.content == (tmp_path / "x.mp4").read_bytes()
    assert "Traceback" not in demo.said


def test_ctrl_c_in_the_middle_of_the_demo_leaves_the_task_in_its_queue(tmp_path: Path) -> None:
    (tmp_path / "long.json").write_text(json.dumps(session(60)))
    with program(*DEMO, "long.json", cwd=tmp_path) as demo:
        demo.says("rendering", 50)
        demo.signal(signal.SIGINT)
        status = demo.wait()

    with sqlite3.connect(tmp_path / ".dumbwaiter" / "tasks.db") as database:
        rows = database.execute("SELECT status, retry_count FROM dumbwaiter_tasks").fetchall()
    database.close()
    assert (status, rows) == (130, [("pending", 0)])
    assert "Traceback" not in demo.said
    until(lambda: not processes_in(tmp_path))


def test_a_second_demo_in_one_directory_says_that_the_first_may_do_the_work(
    recording: Path, tmp_path: Path
) -> None:
    with program(*DEMO, recording.name, "--out", "x.mp4", cwd=tmp_path) as first:
        first.says(r"stays up", 50)
        with program(*DEMO, recording.name, "--once", "--out", "y.mp4", cwd=tmp_path) as second:
            second.says(rf"process {first.process.pid} works on the tasks in \.dumbwaiter too", 50)
            assert second.wait(50) == 0
        first.signal(signal.SIGINT)
        assert first.wait() == 0
    assert "too, and may do the work" not in first.said


def processes_in(place: Path) -> list[str]:
    """The command lines of processes that name the directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(place) in line:
            found.append(line)
    return found


def test_a_recording_that_cannot_be_exported_is_status_1_and_a_sentence(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("[]")
    for words in (
        ["demo", "empty.json", "--once", "--port", "0"],
        ["export-video", "empty.json", "-o", "x.mp4"],
    ):
        answer = cli(*words)
        assert (answer.returncode, answer.stderr.splitlines()[-1][:12]) == (1, "dumbwaiter: "), words
    assert not (tmp_path / "x.mp4").exists()


def test_videos_are_exported_without_a_queue(cli: Cli, recording: Path, tmp_path: Path) -> None:
    answer = cli("export-video", recording.name, "-o", "x.mp4")

    assert answer.returncode == 0, answer.stderr
    assert read_mp4(tmp_path / "x.mp4").frames > 10
    assert not (tmp_path / ".dumbwaiter").exists()


def test_one_broken_recording_does_not_keep_the_others_from_being_exported(
    cli: Cli, recording: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.json").write_text("[]")
    answer = cli("export-video", "empty.json", recording.name, "-o", "videos")

    assert answer.returncode == 1
    assert "dumbwaiter: empty.json: " in answer.stderr
    assert "1 of 2 recordings" in answer.stderr
    assert [path.name for path in (tmp_path / "videos").iterdir()] == ["visit.mp4"]


def test_an_output_that_cannot_be_is_refused_before_the_work(cli: Cli, recording: Path) -> None:
    for words in (
        ["export-video", recording.name, "-o", "nowhere/x.mp4"],
        ["export-video", recording.name, recording.name, "-o", f"{recording.name}/"],
        ["demo", recording.name, "--once", "--out", "nowhere/x.mp4"],
    ):
        answer = cli(*words)
        assert (answer.returncode, answer.stderr.count("\n")) == (1, 1), words


@pytest.mark.parametrize(
    ("recordings", "out"), [(["visit.json"], "x.avi"), (["visit.json", "other.json"], "one.mp4")]
)
def test_a_name_that_the_output_cannot_have_is_wrong_usage(
    cli: Cli, recording: Path, recordings: list[str], out: str, tmp_path: Path
) -> None:
    answer = cli("export-video", *recordings, "-o", out)

    assert answer.returncode == 2
    assert f"-o {out}: " in answer.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["visit.json"]


def test_an_output_that_ends_with_a_slash_is_a_directory_made_with_its_first_video(
    cli: Cli, recording: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.json").write_text("[]")
    failed = cli("export-video", "empty.json", "missing.json", "-o", "none/")
    assert (failed.returncode, (tmp_path / "none").exists()) == (1, False)

    answer = cli("export-video", recording.name, "-o", "new/videos/")

    assert answer.returncode == 0, answer.stderr
    assert [path.name for path in (tmp_path / "new" / "videos").iterdir()] == ["visit.mp4"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("module", ["dumbwaiter export-video", "dumbwaiter.jobs.video"])
def test_an_export_that_is_told_to_end_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, module: str
) -> None:
    (tmp_path / "long.json").write_text(json.dumps(session(60)))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = python("-m", *module.split(), "long.json", "-o", "x.mp4")
    # under nohup a hangup is ignored, by all that is started too
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with program(*command, cwd=tmp_path, TMPDIR=str(temporary), PYTHONUNBUFFERED="1") as export:
            # not by a glob, which is upset when a browser is tried in another way and its directory goes
            until(lambda: any({"stderr"} & {*names} for _, _, names in os.walk(temporary)), 50)
            export.signal(number)
            status = export.wait()
    finally:
        signal.signal(signal.SIGHUP, before)

    assert status == 128 + number
    assert "Traceback" not in export.said
    assert list(temporary.iterdir()) == []
    assert [path.name for path in tmp_path.glob("*.mp4")] == []
    until(lambda: not processes_in(tmp_path))


def test_a_warning_of_the_export_is_said(cli: Cli, tmp_path: Path) -> None:
    events = session(1.5)
    events[0]["data"]["width"] = 0
    events[-1]["timestamp"] = 10**17
    (tmp_path / "odd.json").write_text(json.dumps(events))
    answer = cli("export-video", "odd.json", "-o", "x.mp4")

    assert answer.returncode == 0, answer.stderr
    assert "odd.json: warning: a page without a usable size was taken as 1280x720" in answer.stderr
    assert "odd.json: warning: 1 event left out: more than a day away" in answer.stderr


def test_what_cannot_be_exported_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("[]")
    for name, reason in (
        ("empty.json", "there are no events"),
        ("missing.json", "No such file"),
    ):
        answer = cli("export-video", name, "-o", "x.mp4")
        assert answer.returncode == 1
        assert answer.stderr.splitlines()[-1].startswith(f"dumbwaiter: {name}: {reason}")


def test_a_directory_standard_input_and_options_make_videos_too(
    cli: Cli, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "visits").mkdir()
    for name in ("one.json", "two.json"):
        (tmp_path / "visits" / name).write_bytes(recording.read_bytes())
    answer = cli(
        "export-video", "visits", "-o", "videos/", "--format", "webm", "--max-side", "160", "--poster", "jpg"
    )
    assert answer.returncode == 0, answer.stderr
    assert sorted(path.name for path in (tmp_path / "videos").iterdir()) == [
        "one.jpg",
        "one.webm",
        "two.jpg",
        "two.webm",
    ]

    words = [
        "export-video",
        "-",
        "-o",
        "x.mp4",
        "--size",
        "200x100",
        "--start",
        "0:00",
        "--end",
        "500ms",
        "--resume",
    ]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(recording.read_bytes())))
    answer = cli(*words)
    assert answer.returncode == 0, answer.stderr
    made = read_mp4(tmp_path / "x.mp4")
    assert (made.width, made.height) == (200, 100)
    assert made.duration_seconds == pytest.approx(0.56, abs=0.001)
    assert not (tmp_path / "x.mp4.parts").exists()


def test_an_option_that_one_recording_cannot_have_keeps_no_other_from_its_video(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "short.json").write_text(json.dumps(session(0.4)))
    (tmp_path / "whole.json").write_text(json.dumps(session(1.2)))
    answer = cli("export-video", "short.json", "whole.json", "-o", "videos/", "--start", "1s")

    assert answer.returncode == 1
    assert "short.json: start=1 s: the recording lasts 0.4 s" in answer.stderr
    assert [path.name for path in (tmp_path / "videos").iterdir()] == ["whole.mp4"]
    assert cli("export-video", "short.json", "-o", "x.mp4", "--start", "1s").returncode == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--size", "big"], "--size big: write recording"),
        (["--start", "soon"], "--start soon: write a time"),
        (["--start", "2s", "--end", "1s"], "--start 2 s: that is not before the end"),
        (["--start", "1:5"], "--start 1:5: write a time"),
        (["--start", "2h garbage"], "--start 2h garbage: write a time"),
        (["--end", "1,5s"], "--end 1,5s: write a time"),
        (["--size", "99999x99999"], "--size 99999: give a number"),
        (["--preset", "quick"], "--preset quick: give one of ultrafast"),
        (["--codec", "vp9"], "--codec vp9: a .mp4 takes h264 or h265"),
        (["--format", "gif"], "--format gif: x.mp4 is another kind of file"),
        (["--fps", "500"], "--fps 500: give a number from 1 to 60"),
        (["--poster", "bmp"], "--poster bmp: write jpg, png or webp"),
        (["-"], "standard input can be read once"),
    ],
)
def test_an_option_that_cannot_be_is_told_before_anything_is_read(
    words: list[str], said: str, cli: Cli, tmp_path: Path
) -> None:
    answer = cli("export-video", "-", "-o", "x.mp4", *words)

    assert answer.returncode == 2
    assert said in " ".join(answer.stderr.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_turns_out_not_to_be_writable_is_named_and_not_the_recording(
    cli: Cli, recording: Path, tmp_path: Path
) -> None:
    # there is such a directory, and nobody may make a file in it, root neither
    answer = cli("export-video", recording.name, "-o", "/proc/x.mp4", "--end", "0.2s")

    assert answer.returncode == 1
    assert "visit.json: /proc/x.mp4 cannot be written: No such file" in answer.stderr
    assert list(tmp_path.iterdir()) == [recording]


def test_a_window_that_the_recording_has_not_is_wrong_usage(cli: Cli, recording: Path) -> None:
    answer = cli("export-video", recording.name, "-o", "x.mp4", "--window", "nope")

    assert answer.returncode == 2
    assert "--window nope: there is no window 'nope'" in " ".join(answer.stderr.replace("│", " ").split())


def test_a_recording_named_twice_is_exported_once_and_parts_that_nobody_named_stay(
    cli: Cli, recording: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "visit.mp4.parts" / "mine"
    mine.parent.mkdir()
    mine.write_bytes(b"no part of any video")
    answer = cli("export-video", recording.name, recording.name, "-o", "visit.mp4", "--end", "0.2s")

    assert answer.returncode == 0, answer.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["visit.json", "visit.mp4", "visit.mp4.parts"]
    assert mine.read_bytes() == b"no part of any video"


def test_an_empty_directory_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    answer = cli("export-video", "nothing", "-o", "videos/")

    assert answer.returncode == 1
    assert "nothing: no file in this directory is called like a recording" in answer.stderr
