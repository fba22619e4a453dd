"""The worker in a web application, under a real uvicorn; who started what is told by a ledger outside the database."""

from __future__ import annotations

import collections
import contextlib
import re
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.programs import Program, program, python
from tests.support.waiting import until

SITE = """
import asyncio, os, time
from datetime import timedelta
from pathlib import Path
from fastapi import FastAPI
from sse_starlette import EventSourceResponse
from dumbwaiter import Dumbwaiter, TaskContext
from dumbwaiter.integrations.fastapi import lifespan, router

HERE = Path(__file__).parent
waiter = Dumbwaiter(f"sqlite:///{HERE / 'tasks.db'}", env="test")

def note(line):
    ledger = os.open(HERE / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, (line + "\\n").encode())
    os.close(ledger)

# processes are killed on purpose here, and chance may have one task in all of them
@waiter.task("mark", http=True, max_crashes=20)
def mark(ctx: TaskContext, number: int, seconds: float = 0.01) -> None:
    note(f"{number} {ctx.task.attempt} {os.getpid()} {time.time()}")
    ctx.sleep(seconds)

@waiter.task("climb", http=True)
def climb(ctx: TaskContext, steps: int) -> int:
    for number in range(steps):
        ctx.progress(number / steps, step=f"step {number}")
        ctx.sleep(0.1)
    (ctx.workdir / "view.txt").write_text("wide")
    ctx.publish("view.txt")
    return steps

app = FastAPI(lifespan=lifespan(waiter, queues={"default": SLOTS}))
app.include_router(router(waiter, public=True))

@app.get("/hold")
async def hold():
    note("hold")
    await asyncio.sleep(4)
    return "held"

@app.get("/later")
def later() -> str:
    return mark.using(delay=timedelta(hours=1)).enqueue(number=1).id

@app.get("/ticking")
async def ticking():
    async def ticks():
        yield "tick"
        await asyncio.sleep(3600)
    return EventSourceResponse(ticks())

@app.get("/block")
async def block(seconds: float):
    note("block")
    time.sleep(seconds)
    note("free")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_site(tmp_path, slots=4)
    return tmp_path


def write_site(place: Path, slots: int) -> None:
    (place / "shop.py").write_text(SITE.replace("SLOTS", str(slots)))


def uvicorn(*options: str) -> tuple[str, ...]:
    return python("-m", "uvicorn", "shop:app", "--port", "0", *options)


def address(server: Program) -> str:
    # With several processes the address is told before any of them listens there.
    server.says("Application startup complete")
    return server.says(r"running on (http://127\.0\.0\.1:\d+)")[1]


def statuses(place: Path) -> dict[str, int]:
    with contextlib.closing(sqlite3.connect(place / "tasks.db")) as database:
        return dict(database.execute("SELECT status, count(*) FROM dumbwaiter_tasks GROUP BY status"))


def ledger(place: Path) -> list[list[str]]:
    path = place / "ledger"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_two_server_processes_start_each_of_200_tasks_once(place: Path) -> None:
    with (
        program(*uvicorn("--workers", "2"), cwd=place) as server,
        httpx.Client(base_url=address(server)) as client,
    ):
        for number in range(200):
            client.post("/tasks/mark", json={"number": number}).raise_for_status()
        until(lambda: statuses(place) == {"success": 200}, 50)
        server.signal(signal.SIGTERM)
        server.wait()

    starts = collections.Counter(number for number, *_ in ledger(place))
    assert starts == {str(number): 1 for number in range(200)}


@pytest.mark.timeout(300)
def test_three_servers_give_the_same_answer_about_any_task_whichever_started_when(place: Path) -> None:
    phases = ["queued", "running", "success"]
    with contextlib.ExitStack() as stack:

        def start(number: int) -> list[tuple[Program, httpx.Client]]:
            started = [stack.enter_context(program(*uvicorn(), cwd=place)) for _ in range(number)]
            return [
                (one, stack.enter_context(httpx.Client(base_url=address(one), timeout=50))) for one in started
            ]

        servers = start(3)
        urls = [
            servers[number % 2][1].post("/tasks/climb", json={"steps": 15}).headers["Location"]
            for number in range(8)
        ]
        seen: dict[str, list[tuple[int, int, float]]] = {url: [] for url in urls}

        def all_over() -> bool:
            for url in urls:
                for _, client in servers:
                    task = client.get(url).raise_for_status().json()
                    seen[url].append(
                        (task["attempt"], phases.index(task["phase"]), task["progress_percentage"])
                    )
            if len(servers) == 3:
                # one that took some of them goes; what it runs it ends before
                leaving, _ = servers.pop(0)
                leaving.signal(signal.SIGTERM)
            return all(of_one[-1][1] == 2 for of_one in seen.values())

        until(all_over, 100)
        servers += start(1)
        answers = {url: [client.get(url).json() for _, client in servers] for url in urls}
        files = {
            url: {client.get(of_one[0]["files"][0]["url"]).text for _, client in servers}
            for url, of_one in answers.items()
        }

    for url in urls:
        assert seen[url] == sorted(seen[url]), seen[url]
        assert [answer == answers[url][0] for answer in answers[url]] == [True] * len(servers)
        assert (answers[url][0]["result"], files[url]) == (15, {"wide"})
    assert len(servers) == 3


def test_a_term_stops_claims_at_once_while_a_request_is_open(place: Path) -> None:
    write_site(place, slots=1)
    with (
        program(*uvicorn(), cwd=place) as server,
        httpx.Client(base_url=address(server), timeout=20) as client,
    ):
        for number in range(60):
            client.post("/tasks/mark", json={"number": number, "seconds": 0.2}).raise_for_status()
        with subprocess.Popen(
            python("-c", f"import httpx; httpx.get('{address(server)}/hold', timeout=20)")
        ) as asking:
            until(lambda: ["hold"] in ledger(place))
            told = time.time()
            server.signal(signal.SIGTERM)
            server.wait()
            asking.wait()

    starts = [float(entry[3]) for entry in ledger(place) if len(entry) == 4]
    assert time.time() - told > 2  # the open request did hold the server up
    assert [started for started in starts if started > told + 1] == []
    assert len(starts) < 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one process", "two processes"])
def test_a_server_that_is_stopped_ends_its_open_streams_and_stops(
    place: Path, options: tuple[str, ...], number: signal.Signals
) -> None:
    with (
        program(*uvicorn(*options), cwd=place) as server,
        httpx.Client(base_url=address(server), timeout=20) as client,
        contextlib.ExitStack() as stack,
    ):
        # two of ours, with more to come, and one of the application's own
        later = [client.get("/later").json() for _ in range(2)]
        streams = [
            stack.enter_context(client.stream("GET", path)).iter_lines()
            for path in [*(f"/tasks/{task_id}/events" for task_id in later), "/ticking"]
        ]
        for lines in streams:
            next(lines)
        began = time.monotonic()
        server.signal(number)
        # ours end as a stream should: httpx would raise
        for lines in streams[:2]:
            list(lines)
        with pytest.raises(httpx.RemoteProtocolError):  # that one is cut off
            list(streams[2])
        server.wait(15)

    assert time.monotonic() - began < 8


def test_a_second_term_ends_what_runs(place: Path) -> None:
    with program(*uvicorn(), cwd=place) as server:
        httpx.post(f"{address(server)}/tasks/mark", json={"number": 1, "seconds": 600}).raise_for_status()
        until(lambda: ledger(place))
        server.signal(signal.SIGTERM)
        server.says("Waiting for application shutdown")
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        server.wait()

    assert time.monotonic() - began < 8  # not the 10 s of grace that one signal gives


def test_a_task_that_was_interrupted_goes_on_in_the_next_server_without_costing_a_retry(place: Path) -> None:
    with program(*uvicorn(), cwd=place) as server:
        url = httpx.post(f"{address(server)}/tasks/mark", json={"number": 1, "seconds": 600}).headers[
            "Location"
        ]
        until(lambda: ledger(place))
        for _ in range(2):
            server.signal(signal.SIGTERM)
            time.sleep(0.05)  # two signals of one number that arrive together are one
        server.wait()
    with program(*uvicorn(), cwd=place) as server:
        until(lambda: len(ledger(place)) == 2)
        task = httpx.get(address(server) + url).json()
        httpx.post(address(server) + task["links"]["cancel"])

    assert [entry[1] for entry in ledger(place)] == ["1", "2"]
    assert task["phase"] == "running"


def test_importing_the_application_starts_nothing(place: Path) -> None:
    look = "import threading, shop; print(threading.active_count())"
    found = subprocess.run(python("-c", look), cwd=place, capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "1"
    assert not (place / "tasks.db").exists()


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["reload", "kill"])
def test_what_a_server_accepted_ends_though_its_processes_are_replaced(place: Path, how: str) -> None:
    """A file is touched ten times under --reload, or a process of two is killed; between, tasks are asked for."""
    options = ("--reload", "--reload-dir", str(place)) if how == "reload" else ("--workers", "2")
    accepted = []
    short = {"DUMBWAITER_LEASE": "3s", "DUMBWAITER_HEARTBEAT": "500ms", "DUMBWAITER_SWEEP": "1s"}
    with program(*uvicorn(*options), cwd=place, **short) as server:
        url = address(server)
        for number in range(40):
            if number % 4 == 3:
                replace_a_process(server, place, how)
            # a process that is being replaced answers nothing: then nothing was accepted
            with contextlib.suppress(httpx.TransportError):
                asked = httpx.post(f"{url}/tasks/mark", json={"number": number, "seconds": 0.5}, timeout=5)
                asked.raise_for_status()
                accepted.append(asked.json()["task_id"])
        assert accepted
        until(lambda: set(statuses(place)) == {"success"}, 90)
        server.signal(signal.SIGTERM)
        server.wait()

    with contextlib.closing(sqlite3.connect(place / "tasks.db")) as database:
        ended = {
            row[0] for row in database.execute("SELECT id FROM dumbwaiter_tasks WHERE status = 'success'")
        }
    assert set(accepted) <= ended
    # one attempt at a time: each starts with the number after that of the one before
    attempts = collections.defaultdict(list)
    for name, attempt, *_ in ledger(place):
        attempts[name].append(int(attempt))
    assert [] == [(name, seen) for name, seen in attempts.items() if seen != sorted(set(seen))]


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_route_that_blocks_its_server_for_leases_costs_no_task_inside(place: Path) -> None:
    short = {"DUMBWAITER_LEASE": "3s", "DUMBWAITER_HEARTBEAT": "500ms", "DUMBWAITER_SWEEP": "1s"}

    def ask_for(numbers: range, seconds: float, url: str) -> None:
        for number in numbers:
            words = {"number": number, "seconds": seconds}
            httpx.post(f"{url}/tasks/mark", json=words, timeout=20).raise_for_status()

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(program(*uvicorn(), cwd=place, **short))
        ask_for(range(2), 12, address(server))
        until(lambda: len(ledger(place)) == 2)
        # there is somebody who would take them over
        other = stack.enter_context(program(*uvicorn(), cwd=place, **short))
        url = address(other)
        asking = python("-c", f"import httpx; httpx.get('{address(server)}/block?seconds=10', timeout=60)")
        asker = stack.enter_context(subprocess.Popen(asking))
        until(lambda: ["block"] in ledger(place))
        ask_for(range(2, 22), 1, url)
        until(lambda: statuses(place) == {"success": 22}, 60)
        assert asker.wait(60) == 0

    lines = ledger(place)
    while_blocked = lines[lines.index(["block"]) : lines.index(["free"])]
    # it goes on claiming beside the other one
    assert str(server.process.pid) in {entry[2] for entry in while_blocked if len(entry) == 4}
    starts = collections.Counter(entry[0] for entry in lines if len(entry) == 4)
    assert starts == {str(number): 1 for number in range(22)}


def replace_a_process(server: Program, place: Path, how: str) -> None:
    said = len(re.findall("Application startup complete", server.said))
    if how == "reload":
        (place / "shop.py").touch()
    else:
        # what it started ends with it, and is none of those that serve
        serving = [
            one
            for one in psutil.Process(server.process.pid).children()
            if "spawn_main" in " ".join(one.cmdline())
        ]
        serving[0].kill()
    until(lambda: len(re.findall("Application startup complete", server.said)) > said, 30)
