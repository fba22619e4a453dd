"""A stop ends in its time although tasks, processes, clients or the database ignore it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from dumbwaiter.task import AttemptOutcome, Status
from tests.store.proxies import Mode, proxied
from tests.support.databases import KINDS, Database, Kind
from tests.support.programs import program, python
from tests.support.waiting import until
from tests.support.workers import ROOT, ended, place

GRACE = 1.0
# What the product promises after the grace time, and what the exit of an interpreter may take on a busy machine.
AFTER, BUSY = 3.0, 3.0
SETTINGS = {"shutdown_grace": f"{GRACE}s", "shutdown_grace_in_app": f"{GRACE}s", "poll": "200ms"}
ENDLESS = ("endless-coroutine", "endless-helper", "endless-thread", "endless-process")

pytestmark = pytest.mark.timeout(120)

MakeDatabase = Callable[[Kind], Database]


def family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The process with its heartbeat, its guardians, and what these started."""
    root = psutil.Process(process.pid)
    return [root, *root.children(recursive=True)]


def test_a_worker_whose_tasks_ignore_the_stop_is_gone_in_time_with_its_children_and_they_end_elsewhere(
    make_database: MakeDatabase, tmp_path: Path
) -> None:
    with place(make_database("sqlite"), tmp_path, **SETTINGS) as here:
        waiter = here.app()
        worker = here.start_worker()
        tasks = [waiter.enqueue(name) for name in ENDLESS]
        until(lambda: len(here.starts()) == len(ENDLESS))
        before = family(worker)
        told = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert 0 == worker.wait(60)
        took = time.monotonic() - told
        _, alive = psutil.wait_procs(before, timeout=BUSY)
        print(f"\nstopped {took:.1f} s after TERM, with a grace time of {GRACE} s")

        assert took < GRACE + AFTER + BUSY
        assert [] == alive
        for task in tasks:
            [attempt] = waiter.attempts(task.id)
            assert AttemptOutcome.INTERRUPTED is attempt.outcome
            assert Status.PENDING is waiter.get(task.id).status
        here.start_worker()
        assert {(Status.SUCCESS, 2)} == {(task.status, task.attempt) for task in ended(waiter, tasks)}
        waiter.close()


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize(
    "idle", [pytest.param(False, id="at work"), pytest.param(True, id="idle", marks=pytest.mark.long)]
)
def test_a_worker_whose_database_fell_silent_stops_in_time_and_its_tasks_are_taken_back(
    make_database: MakeDatabase, tmp_path: Path, kind: Kind, idle: bool
) -> None:
    database = make_database(kind)
    lease = {"lease": "3s", "heartbeat": "600ms", "sweep": "500ms"}
    with place(database, tmp_path, **SETTINGS, **lease) as here, proxied(database.url) as (proxy, url):
        here.settings["DUMBWAITER_DATABASE"] = url
        worker = here.start_worker()
        del here.settings["DUMBWAITER_DATABASE"]
        waiter = here.app()
        until(lambda: waiter.store.workers())
        names = [] if idle else ["endless-thread", "endless-process"]
        tasks = [waiter.enqueue(name) for name in names]
        until(lambda: len(here.starts()) == len(tasks))
        before = family(worker)
        proxy.mode = Mode.BLACKHOLE
        told = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert 0 == worker.wait(60)
        took = time.monotonic() - told
        _, alive = psutil.wait_procs(before, timeout=BUSY)
        print(f"\nstopped {took:.1f} s after TERM, with a grace time of {GRACE} s")

        assert took < GRACE + AFTER + BUSY
        assert [] == alive
        if tasks:
            here.start_worker()
            assert {(Status.SUCCESS, 2)} == {(task.status, task.attempt) for task in ended(waiter, tasks)}
        waiter.close()


@pytest.mark.service("postgresql")
def test_a_worker_that_waits_for_a_silent_database_to_start_stops_in_time(
    make_database: MakeDatabase, tmp_path: Path
) -> None:
    database = make_database("postgresql")
    with place(database, tmp_path, **SETTINGS) as here, proxied(database.url) as (proxy, url):
        proxy.mode = Mode.BLACKHOLE
        here.settings["DUMBWAITER_DATABASE"] = url
        worker = here.start_worker()
        until(lambda: proxy.accepted)
        told = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert 0 == worker.wait(60)

        assert time.monotonic() - told < AFTER + BUSY


SITE = """
import asyncio
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from dumbwaiter.integrations.fastapi import lifespan
from tests.support.kitchen import waiter

app = FastAPI(lifespan=lifespan(waiter))

@app.get("/stream")
async def stream():
    async def pieces():
        while True:
            yield "."
            await asyncio.sleep(0.1)
    return StreamingResponse(pieces())
"""


@pytest.mark.service("postgresql")
def test_a_web_server_with_open_streams_deaf_tasks_and_a_silent_database_stops_in_time(
    make_database: MakeDatabase, tmp_path: Path
) -> None:
    database = make_database("postgresql")
    (tmp_path / "shop.py").write_text(SITE, encoding="utf-8")
    with place(database, tmp_path, **SETTINGS) as here, proxied(database.url) as (proxy, url):
        waiter = here.app()
        options = ("--port", "0", "--timeout-graceful-shutdown", "1", "--app-dir", str(tmp_path))
        environment = {**here.environment, "DUMBWAITER_DATABASE": url}
        with program(*python("-m", "uvicorn", "shop:app", *options), cwd=ROOT, **environment) as server:
            address = server.says(r"running on (http://127\.0\.0\.1:\d+)")[1]
            tasks = [
                waiter.enqueue(name) for name in ("endless-coroutine", "endless-thread", "endless-process")
            ]
            until(lambda: len(here.starts()) == len(tasks))
            clients = [
                subprocess.Popen(
                    python("-c", f"import httpx; httpx.get('{address}/stream', timeout=30)"),
                    stderr=subprocess.DEVNULL,
                )
                for _ in range(5)
            ]
            until(lambda: httpx.get(f"{address}/openapi.json").status_code == 200)
            proxy.mode = Mode.BLACKHOLE
            told = time.monotonic()
            server.signal(signal.SIGTERM)
            server.wait()
            took = time.monotonic() - told
            for client in clients:
                client.wait(10)
        print(f"\nstopped {took:.1f} s after TERM, with a grace time of {GRACE} s")

        assert took < GRACE + AFTER + BUSY
        waiter.close()
