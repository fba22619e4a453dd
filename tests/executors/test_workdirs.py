"""Work directories, and who may remove them when."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from dumbwaiter.errors import ConfigurationError
from dumbwaiter.executors.workdirs import Workdirs, dead, removed, sweep
from tests.executors import work
from tests.executors.conftest import until

HOLDER = """
import sys, time
from pathlib import Path
from dumbwaiter.executors.workdirs import Workdirs
workdirs = Workdirs(Path(sys.argv[1]), sys.argv[2])
workdirs.open()
(Path(sys.argv[1]) / sys.argv[2] / "task-1").mkdir()
print("open", flush=True)
time.sleep(600)
"""


@pytest.fixture
def worker(tmp_path):
    """Starts another process that holds work directories under the root."""
    started = []

    def start(name: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path), name], stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_an_attempt_has_a_directory_of_its_own_until_it_is_removed(tmp_path, attempt):
    workdirs = Workdirs(tmp_path, "w")
    workdirs.open()
    task = attempt(work.report).running.task
    path = workdirs.path(task)
    path.mkdir(parents=True)
    (path / "file").write_text("x")
    workdirs.remove(task)
    workdirs.remove(task)

    assert path == tmp_path / "w" / f"{task.id}-1"
    assert not path.exists()
    workdirs.close()
    assert list(tmp_path.iterdir()) == []


def test_a_worker_removes_what_attempts_that_ended_left_and_nothing_else(tmp_path, attempt):
    workdirs = Workdirs(tmp_path, "w")
    workdirs.open()
    running, over = (attempt(work.report).running.task for _ in range(2))
    for task in (running, over):
        (workdirs.path(task) / "deep").mkdir(parents=True)
    (tmp_path / "w" / "of-something-else").mkdir()

    assert workdirs.sweep(lambda: {workdirs.name(running)}) == 1
    assert sorted(path.name for path in (tmp_path / "w").iterdir()) == sorted(
        [workdirs.name(running), "of-something-else"]
    )
    workdirs.close()


def test_the_directories_of_a_killed_worker_are_swept_and_a_living_one_keeps_its_own(tmp_path, worker):
    killed = worker("killed")
    worker("living")
    killed.kill()
    killed.wait()

    assert sweep(tmp_path) == ["killed"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["living", "living.lock"]
    assert (tmp_path / "living" / "task-1").is_dir()


def test_two_sweepers_may_meet(tmp_path, worker):
    for number in range(5):
        process = worker(f"w{number}")
        for inner in range(50):
            (tmp_path / f"w{number}" / f"task-{inner}" / "deep").mkdir(parents=True)
        process.kill()
        process.wait()
    swept: list[str] = []
    sweepers = [threading.Thread(target=lambda: swept.extend(sweep(tmp_path))) for _ in range(4)]
    for sweeper in sweepers:
        sweeper.start()
    for sweeper in sweepers:
        sweeper.join(20)
    sweep(tmp_path)

    assert len(set(swept)) == len(swept)
    assert list(tmp_path.iterdir()) == []


def test_what_others_keep_in_the_same_place_is_not_touched(tmp_path):
    (tmp_path / "apt").mkdir()
    (tmp_path / "apt" / "file").write_text("x")
    (tmp_path / "apt.lock").write_text("")
    (tmp_path / "task").mkdir()

    assert sweep(tmp_path) == []
    assert (tmp_path / "apt" / "file").exists()


def test_a_fork_of_the_worker_does_not_keep_it_alive(tmp_path):
    workdirs = Workdirs(tmp_path, "w")
    workdirs.open()
    fork = multiprocessing.get_context("fork").Process(target=forever)
    fork.start()
    try:
        workdirs.let_go()

        assert until(lambda: dead(tmp_path) == {"w"})
    finally:
        fork.kill()
        fork.join()
        sweep(tmp_path)


def forever() -> None:
    threading.Event().wait()


def test_a_started_program_does_not_hold_the_lock(tmp_path):
    workdirs = Workdirs(tmp_path, "w")
    workdirs.open()
    with subprocess.Popen(["sleep", "60"], close_fds=False) as program:
        workdirs.let_go()

        assert dead(tmp_path) == {"w"}
        program.kill()


def test_read_only_directories_and_dead_links_are_removed(tmp_path):
    inner = tmp_path / "w" / "read-only"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    (inner / "link").symlink_to("/nowhere")
    (inner / "home").symlink_to(tmp_path)
    inner.chmod(0o500)

    assert removed(tmp_path / "w")
    assert tmp_path.exists()


AS_NOBODY = """
import os, sys
from pathlib import Path
from dumbwaiter.executors.workdirs import removed
home = Path(sys.argv[1])
if os.getuid() == 0:
    os.chown(home, 65534, 65534)
    os.setuid(65534)
inner = home / "w" / "read-only" / "inner"
inner.mkdir(parents=True)
(inner / "file").write_text("x")
for place in (inner, inner.parent):
    place.chmod(0o500)
assert removed(home / "w")
"""


def test_read_only_directories_are_removed_without_the_rights_of_root():
    home = Path(tempfile.mkdtemp())
    try:
        subprocess.run([sys.executable, "-c", AS_NOBODY, str(home)], check=True)

        assert list(home.iterdir()) == []
    finally:
        home.rmdir()


def test_a_place_that_cannot_be_used_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("x")

    with pytest.raises(ConfigurationError, match="DUMBWAITER_WORKDIR"):
        Workdirs(tmp_path / "file" / "work", "w").open()


def test_the_lock_says_whose_it_is(tmp_path):
    workdirs = Workdirs(tmp_path, "w")
    workdirs.open()

    assert Path(tmp_path / "w.lock").read_text() == f"dumbwaiter worker w, pid {os.getpid()}\n"
    workdirs.close()
