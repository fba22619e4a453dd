"""A worker whose disk is nearly full: it leaves what needs disk to others, says so, and goes on once there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.cli.show import worker_state
from dumbwaiter.doctor import checks
from dumbwaiter.store.rows import WorkerRow
from dumbwaiter.task import Status
from tests.support.disks import Disk, disk
from tests.support.waiting import until

MIB = 1024**2


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Disk]:
    with disk(tmp_path / "disk", megabytes=8) as small:
        yield small


@pytest.mark.service("mounts")
def test_what_needs_disk_waits_until_there_is_room_and_the_rest_goes_on(
    small: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small.fill(leave=2 * MIB)
    waiter = Dumbwaiter(
        f"sqlite:///{tmp_path}/tasks.db",
        workdir=str(small.place / "work"),
        files=str(small.place / "files"),
        disk_reserve="50%",
        poll="100ms",
    )
    waiter.task("light")(lambda: None)
    waiter.task("heavy", disk=True)(lambda: None)
    waiter.migrate()
    heavy, light = waiter.enqueue("heavy"), waiter.enqueue("light")
    worker = waiter.worker()
    worker.start()

    def shown() -> WorkerRow:
        [row] = waiter.store.workers()
        return row

    until(lambda: waiter.get(light.id).status is Status.SUCCESS)
    until(lambda: shown().short_of)
    assert waiter.get(heavy.id).status is Status.PENDING
    assert "less than the 4 MiB of disk_reserve: tasks that need disk are not claimed" in caplog.text
    assert worker_state(shown(), waiter.store.now(), waiter.settings.lease) == "short of disk"
    said = {check.name: check for check in checks(waiter) if check.name in ("workers", "work directory")}
    assert [check.ok for check in said.values()] == [False, False]
    assert all("disk_reserve" in check.found for check in said.values())

    small.empty()
    until(lambda: waiter.get(heavy.id).status is Status.SUCCESS)
    until(lambda: shown().short_of is None)
    worker.stop()
    assert worker.join(15)
    waiter.close()
