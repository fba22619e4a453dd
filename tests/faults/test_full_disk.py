"""Disks that are full: of work and result files, and of the SQLite file; and what becomes of it when there is room again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import DatabaseUnavailable
from dumbwaiter.task import Status
from tests.support import scullery
from tests.support.databases import Database
from tests.support.disks import disk
from tests.support.waiting import until
from tests.support.workers import Place, ended, place

SCULLERY = "tests.support.scullery:waiter"
SHORT = {"lease": "2s", "heartbeat": "400ms", "sweep": "500ms", "poll": "200ms"}

pytestmark = [pytest.mark.service("mounts"), pytest.mark.timeout(150)]


def scullery_of(here: Place) -> Dumbwaiter:
    waiter = here.app()
    for entry in scullery.waiter.registry:
        waiter.registry.add(entry)
    return waiter


def files_below(where: Path) -> list[Path]:
    return [path for path in where.rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_disk_without_room_for_a_result_fails_the_attempt_and_the_next_one_with_room_succeeds(
    database: Database, tmp_path: Path
) -> None:
    with disk(tmp_path / "disk", megabytes=4) as small, place(database, tmp_path, **SHORT) as here:
        results, work = small.place / "files", small.place / "work"
        waiter = scullery_of(here)
        on_disk = {"DUMBWAITER_FILES": str(results), "DUMBWAITER_WORKDIR": str(work)}
        here.start_worker(app=SCULLERY, environment=on_disk)
        ended(waiter, [waiter.enqueue("store-thread", {"megabytes": 0.5})], 60)
        first = files_below(results)
        # room for one file in its work directory, and then not for its copy among the results
        small.fill(leave=800 * 1024)
        tasks = [waiter.enqueue(kind, {"megabytes": 0.5}) for kind in ("store-thread", "store-process")]
        until(lambda: all(waiter.attempts(task.id) for task in tasks))
        attempts = [one for task in tasks for one in waiter.attempts(task.id)]
        assert {True} == {"No space left on device" in str(one.error) for one in attempts}, attempts
        small.empty()
        found = ended(waiter, tasks, 60)

        assert {Status.SUCCESS} == {task.status for task in found}
        assert [512 * 1024] * 2 == [file.size for task in found for file in task.files]
        until(lambda: len(files_below(results)) == len(first) + 2 and not files_below(work))
        waiter.close()


@pytest.mark.long
def test_a_full_disk_under_a_sqlite_file_loses_nothing_and_is_waited_for(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", megabytes=4) as small:
        database = Database("sqlite", f"sqlite:///{small.place}/tasks.db")
        with place(database, tmp_path, **SHORT) as here:
            waiter = scullery_of(here)
            worker = here.start_worker(app=SCULLERY)
            running = [waiter.enqueue(kind, {"seconds": 1}) for kind in ("nap", "doze")]
            until(lambda: len(here.starts()) == 2)
            small.fill()
            with pytest.raises(DatabaseUnavailable, match="database or disk is full"):
                waiter.enqueue("nap", {"seconds": 0})
            # longer than a lease, within which no beat can be written
            time.sleep(3)
            assert worker.poll() is None
            small.empty()
            found = ended(waiter, running)

            assert {Status.SUCCESS} == {task.status for task in found}
            assert {1} == {task.attempt for task in found}
            assert len(found) == len(waiter.find())
            ended(waiter, [waiter.enqueue("nap", {"seconds": 0})])
            waiter.close()
