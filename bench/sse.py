"""`./dev bench sse`: many clients follow tasks that end all the time; none may miss an end, and no memory may grow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from bench.servers import Server, big_directory
from bench.web import Line, Site, percentile, served, working

# What must be: seconds from a task's end to its display, and megabytes by which the server may grow after the first tenth.
MOST_LATE, MOST_GROWN = 1.0, 16.0


@dataclass(frozen=True)
class Crowd:
    """So many clients, each with one task after another, so that so many end in a second; for so many seconds."""

    clients: int = 500
    per_s: float = 50
    seconds: float = 600

    @property
    def nap(self) -> float:
        return self.clients / self.per_s


FULL, QUICK = Crowd(), Crowd(clients=40, per_s=20, seconds=8)


@dataclass
class Heard:
    """What the clients heard."""

    server: str = ""
    asked: int = 0
    late: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    worker_megabytes: float = 0.0

    @property
    def grown(self) -> float:
        """From a tenth of the time on, when everything has been there once, to the highest."""
        settled = self.megabytes[len(self.megabytes) // 10 :]
        return max(settled) - settled[0] if settled else 0.0


def measure(server: Server, crowd: Crowd) -> Heard:
    """The crowd before one server process, with a worker in another, on an empty database."""
    with tempfile.TemporaryDirectory(prefix="dumbwaiter-bench-", dir=big_directory()) as home:
        database = server.fresh()
        with served(database, Path(home)) as site, working(database, Path(home), crowd.clients + 50):
            heard = asyncio.run(followed(site, crowd))
    heard.server = server.name
    return heard


async def followed(site: Site, crowd: Crowd) -> Heard:
    heard = Heard()
    end = time.monotonic() + crowd.seconds

    async def client(number: int) -> None:
        await asyncio.sleep(number / crowd.per_s)  # one after another, as the tasks are to end
        while time.monotonic() < end:
            await one_task(site, crowd, heard)

    async def watch() -> None:
        while True:
            heard.megabytes.append(site.megabytes)
            await asyncio.sleep(1)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(client(number) for number in range(crowd.clients)))
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    return heard


async def one_task(site: Site, crowd: Crowd, heard: Heard) -> None:
    """Ask for a task and follow it to its end."""
    asking, following = await Line.to(site), await Line.to(site)
    status, body = await asking.post("/tasks/nap", {"seconds": crowd.nap})
    task = json.loads(body)
    heard.asked += 1
    ends = 0
    try:
        if status != 202:
            raise ConnectionError(f"asked for a task: {status}")
        async with asyncio.timeout(crowd.nap + 60):
            async for name, view in following.events(task["links"]["events"]):
                if name == "end":
                    ends += 1
                    heard.late.append(time.time() - datetime.fromisoformat(view["finished_at"]).timestamp())
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        heard.lost.append(f"{task.get('task_id')}: {type(error).__name__} {error}")
    else:
        if ends != 1:
            heard.lost.append(f"{task['task_id']}: {ends} ends")
    finally:
        asking.close()
        following.close()


def show(measured: Iterable[Heard]) -> list[str]:
    """Print what was heard; what missed its must."""
    missed = []
    for one in measured:
        p50, p95, longest = (percentile(one.late, share) for share in (0.5, 0.95, 1.0))
        print(
            f"{one.server:12} {one.asked:,} tasks, {len(one.late):,} ends heard, {len(one.lost)} lost; from end to display "
            f"p50 {p50:.2f} s, p95 {p95:.2f} s, longest {longest:.2f} s; the server grew by {one.grown:.1f} MB "
            f"to {max(one.megabytes, default=0):.0f}",
            flush=True,
        )
        for sentence in one.lost[:10]:
            print(f"             {sentence}", flush=True)
        missed += [f"{one.server}: {len(one.lost)} ends were lost"] * bool(one.lost)
        missed += [f"{one.server}: p95 from end to display {p95:.2f} s"] * (p95 > MOST_LATE)
        missed += [f"{one.server}: the server grew by {one.grown:.1f} MB"] * (one.grown > MOST_GROWN)
    for sentence in missed:
        print(f"MISSED  {sentence}", flush=True)
    return missed


def all_of(servers: Iterable[Server], crowd: Crowd) -> Iterator[Heard]:
    for server in servers:
        yield measure(server, crowd)
