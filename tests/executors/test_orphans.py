"""Processes that outlived their worker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dumbwaiter.executors import orphans
from dumbwaiter.executors.guardian import TAG
from dumbwaiter.executors.workdirs import Workdirs, sweep
from tests.executors import work
from tests.executors.conftest import WORKER, alive, hostile_pids, none_left

ONE = f"{WORKER}:1:1"


@pytest.fixture
def tree(tmp_path):
    """Starts a hostile tree without a guardian, tagged for a worker."""
    started = []

    def start(worker: str) -> list[int]:
        file = tmp_path / f"pids-{worker}"
        process = subprocess.Popen(
            [sys.executable, "-c", work.HOSTILE, str(file)],
            env={**os.environ, TAG: f"{worker}:0199:1"},
            start_new_session=True,
        )
        pids = hostile_pids(file)
        started.append((process, pids))
        return pids

    yield start
    for process, pids in started:
        process.kill()
        process.wait()
        for pid in pids:
            if alive(pid):
                os.kill(pid, 9)


def test_the_tree_of_a_dead_worker_is_ended_and_that_of_a_living_one_is_not(tmp_path, tree):
    root = tmp_path / "root"
    living, gone = Workdirs(root, f"living-{WORKER}"), Workdirs(root, f"gone-{WORKER}")
    living.open()
    gone.open()
    gone.let_go()
    kept, orphaned = tree(f"living-{WORKER}"), tree(f"gone-{WORKER}")
    count = orphans.sweep(root)

    assert count == len(orphaned) == work.HOSTILE_SIZE
    assert none_left(orphaned, seconds=1)
    assert all(map(alive, kept))
    assert sweep(root) == [f"gone-{WORKER}"]
    living.close()


def test_the_tree_of_a_worker_with_another_root_is_not_touched(tmp_path, tree):
    pids = tree(f"elsewhere-{WORKER}")
    (tmp_path / "root").mkdir()

    assert orphans.sweep(tmp_path / "root") == 0
    assert all(map(alive, pids))


def test_what_a_tagged_process_started_goes_with_it_though_its_own_tag_is_gone(tmp_path):
    script = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], env={}).pid, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, TAG: ONE},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        orphans.end_tagged(lambda tag: tag == ONE)

        assert none_left([process.pid, pid], seconds=1)


INNER_WORKER = """
import subprocess, sys
if sys.argv[1] == "outer":
    sys.exit(subprocess.run([sys.executable, __file__, "inner", sys.argv[2]]).returncode)
from dumbwaiter.executors import orphans
print(orphans.end_tagged(lambda tag: tag == sys.argv[2]))
"""


def test_a_new_worker_inside_the_tree_of_a_dead_one_spares_itself_and_its_parents(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(INNER_WORKER)
    done = subprocess.run(
        [sys.executable, str(program), "outer", ONE],
        env={**os.environ, TAG: ONE},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "0\n")
