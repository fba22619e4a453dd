"""A heartbeat process that dies while its worker lives."""

from __future__ import annotations

import os
import signal
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.executors.guardian import processes
from dumbwaiter.store.rows import WorkerRow
from dumbwaiter.worker.heartbeat import LOOK, PROGRAM, Heartbeat
from tests.support.trials import words_of
from tests.support.waiting import until

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def heartbeat_processes() -> set[int]:
    return {
        one.pid
        for one in processes().values()
        if one.parent == os.getpid() and PROGRAM.name in words_of(one.pid)
    }


def test_its_end_is_heard_of_at_once_and_the_worker_beats_itself_while_another_starts(
    waiter: Dumbwaiter,
) -> None:
    store = waiter.store
    store.register(WorkerRow("here-1", "here", 1, "1", {}, {}, LONG_AGO, LONG_AGO, stopping=False))

    def last_beat() -> datetime:
        return store.workers()[0].heartbeat_at

    before = heartbeat_processes()
    fallen = threading.Event()
    # an hour passes between two beats: each that is seen here was sent for its own reason
    heartbeat = Heartbeat(store, "here-1", timedelta(hours=1), lease=timedelta(hours=2), fallen=fallen.set)
    heartbeat.start()
    try:
        until(lambda: last_beat() > LONG_AGO)
        first = last_beat()
        [pid] = heartbeat_processes() - before
        assert not fallen.is_set()

        os.kill(pid, signal.SIGKILL)

        assert fallen.wait(10)
        heartbeat.round()
        assert last_beat() > first
        [successor] = heartbeat_processes() - before
        assert successor != pid
    finally:
        heartbeat.stop()
    until(lambda: heartbeat_processes() == before)


def test_until_the_process_has_been_heard_the_worker_beats_itself(
    waiter: Dumbwaiter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = waiter.store
    store.register(WorkerRow("here-1", "here", 1, "1", {}, {}, LONG_AGO, LONG_AGO, stopping=False))
    # one that a busy machine does not get to, until it may
    may = tmp_path / "may"
    late = tmp_path / "late_beat.py"
    late.write_text(
        "import pathlib, runpy, select\n"
        f"while not pathlib.Path({str(may)!r}).exists():\n"
        "    select.select([], [], [], 0.02)\n"
        f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr("dumbwaiter.worker.heartbeat.PROGRAM", late)
    interval = timedelta(seconds=0.5)
    heartbeat = Heartbeat(store, "here-1", interval, lease=timedelta(hours=2), fallen=lambda: None)

    def last_beat() -> datetime:
        return store.workers()[0].heartbeat_at

    def rounds() -> tuple[float, bool]:
        """How long to wait for the next, and whether this one has beaten."""
        before = last_beat()
        return heartbeat.round(), last_beat() > before

    heartbeat.start()
    try:
        assert [rounds(), rounds()] == [(0.5, True)] * 2
        may.touch()
        until(lambda: heartbeat.round() == LOOK)
        os.kill(heartbeat._process.pid, signal.SIGSTOP)  # type: ignore[union-attr]

        assert rounds() == (LOOK, False)
    finally:
        os.kill(heartbeat._process.pid, signal.SIGCONT)  # type: ignore[union-attr]
        heartbeat.stop()
