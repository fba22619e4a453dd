"""The worker is killed in the middle of a video export."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.jobs.video.task import register
from tests.support.databases import Database
from tests.support.waiting import until
from tests.support.workers import place

SHORT = {"lease": "3s", "heartbeat": "500ms", "sweep": "500ms", "poll": "200ms"}
PROGRAMS = ("chrom", "ffmpeg")


def tagged(worker: str) -> list[psutil.Process]:
    """Browsers and encoders that stem from this worker, by the tag that its processes carry."""
    found = []
    for process in psutil.process_iter():
        try:
            name, tag = process.name(), process.environ().get("DUMBWAITER_TAG", "")
            alive = process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if alive and tag.startswith(f"{worker}:") and any(word in name for word in PROGRAMS):
            found.append(process)
    return found


def rendering(waiter: Dumbwaiter, task_id: str) -> str | None:
    """The worker that renders the task at this moment."""
    task = waiter.get(task_id)
    return task.worker_id if task.current_step == "rendering" and task.progress > 0 else None


def whole(found: list[psutil.Process]) -> list[psutil.Process]:
    """These, if there is a browser and an encoder among them: that is started for the first picture."""
    return (
        found if {word for word in PROGRAMS for one in found if word in one.name()} == set(PROGRAMS) else []
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_worker_killed_in_mid_export_leaves_no_browser_no_encoder_and_no_file(
    database: Database, tmp_path: Path
) -> None:
    with place(database, tmp_path, **SHORT) as here:
        waiter = here.app()
        register(waiter)
        tasks = [waiter.enqueue("video-export", {"recording": "sample:shop-tour"}) for _ in range(2)]
        here.start_worker(app=None)
        here.start_worker(app=None)
        names = [until(lambda task=task: rendering(waiter, task.id), 40) for task in tasks]  # type: ignore[misc]
        victim, other = (str(name) for name in names)
        browser = min(process.pid for process in tagged(other))
        doomed = until(lambda: whole(tagged(victim)))

        [pid] = [worker.pid for worker in waiter.store.workers() if worker.name == victim]
        os.killpg(pid, signal.SIGKILL)
        here.start_worker(app=None)
        until(lambda: here.log().count("started") == 3)

        assert [] == tagged(victim)
        assert [] == [one for one in doomed if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
        assert not (tmp_path / "work" / victim).exists()
        # the other's browser was let alone, unless its export has ended by now
        ended = waiter.get(tasks[1].id).status == "success"
        assert ended or browser in {process.pid for process in tagged(other)}
        waiter.close()
