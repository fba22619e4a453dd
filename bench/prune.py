"""`./dev bench prune`: expired files and old records go while tasks flow, and how much that costs the flow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa

from bench.servers import Server, big_directory
from dumbwaiter import Dumbwaiter
from dumbwaiter.settings import Settings
from dumbwaiter.store.store import Store
from tests.support.filling import analyse, fill, finished

Due = Literal["nothing", "files", "records"]
DUE: tuple[Due, ...] = ("files", "records")
# What must be, and what the issue of this measurement says.
MOST_MS, LEAST_RATE = 100.0, 0.8
SLOTS, OTHERS = 100, 10_000_000
PATIENCE = 3_600.0


@dataclass(frozen=True)
class Amounts:
    """How many expired files and old records there are, and how many tasks flow meanwhile."""

    files: int = 100_000
    records: int = 1_000_000
    tasks: int = 200_000


FULL = Amounts()
QUICK = Amounts(files=2_000, records=20_000, tasks=3_000)


@dataclass(frozen=True)
class Cleaned:
    """What was seen: tasks a second, how long it took until nothing was due, how long statements of housekeeping took in ms."""

    server: str
    due: Due
    per_s: float
    seconds: float
    statements: int
    p50: float
    p99: float
    longest: float
    left: int


def measure(server: Server, amounts: Amounts, only: Sequence[Due] = DUE) -> Iterator[Cleaned]:
    """The flow alone, then beside expired files, then beside old records; the table is as full each time."""
    for due in ("nothing", *only):
        with tempfile.TemporaryDirectory(prefix="dumbwaiter-prune-", dir=big_directory()) as home:
            yield cleaned(server, amounts, due, Path(home))


def cleaned(server: Server, amounts: Amounts, due: Due, home: Path) -> Cleaned:
    address = server.fresh()
    with closing(Store(Settings.load({"database": address}, environ={}))) as store:
        store.schema.migrate()
        filled(store, amounts, due, home)
        analyse(store)
        server.settle()
        began = time.monotonic()
        with working(address, home, amounts.tasks) as worker:
            per_s = told(worker)["per_s"]
            while any_due(store):
                if time.monotonic() - began > PATIENCE:
                    raise TimeoutError(f"there is something left after {PATIENCE:.0f} s")
                time.sleep(0.2)
            seconds = time.monotonic() - began
            assert worker.stdin is not None
            worker.stdin.close()
            seen = told(worker)
        return Cleaned(server.name, due, per_s, seconds, left=left(store, due, home), **seen)


def any_due(store: Store) -> bool:
    prunable = store.prunable()
    return prunable.files or prunable.records


def left(store: Store, due: Due, home: Path) -> int:
    """What should be gone and is not: files on the disk, or records."""
    if due == "files":
        return sum(len(files) for _, _, files in os.walk(home / "files"))
    if due == "nothing":
        return 0
    tasks = store.tables.tasks
    with store.connections.reading() as connection:
        counted = sa.select(sa.func.count()).select_from(tasks).where(tasks.c.task_type == "old")
        return int(connection.execute(counted).scalar_one())


def filled(store: Store, amounts: Amounts, due: Due, home: Path) -> None:
    now = datetime.now(UTC)
    past, future = now - timedelta(minutes=1), now + timedelta(days=7)
    ended = dict(finished(now - timedelta(days=30)))
    prune_at = past if due == "records" else future
    fill(store, amounts.records, ended | {"prune_at": prune_at}, task_type="old", first=OTHERS, at=now)
    fill(store, amounts.tasks, task_type="noop", at=now)
    with_files(store, amounts.records // 10, past, deleted=True)
    if due == "files":
        fill(store, amounts.files, ended | {"prune_at": future}, task_type="filed", first=2 * OTHERS, at=now)
        for key in with_files(store, amounts.files, past, deleted=False, task_type="filed"):
            path = home / "files" / key
            path.parent.mkdir(parents=True)
            path.write_bytes(b"x")


def with_files(
    store: Store, number: int, expired: datetime, *, deleted: bool, task_type: str = "old"
) -> list[str]:
    """Give so many tasks a file that has expired; their keys."""
    tasks, files = store.tables.tasks, store.tables.files
    key = sa.cast(tasks.c.id, sa.String(36)).concat("/1/a.txt")
    row: dict[str, Any] = {
        "task_id": tasks.c.id,
        "name": sa.literal("a.txt"),
        "attempt": sa.literal(1),
        "content_type": sa.literal("text/plain"),
        "size": sa.literal(1),
        "sha256": sa.literal("0" * 64, files.c.sha256.type),
        "object_key": key,
        "created_at": sa.literal(expired, files.c.created_at.type),
        "expires_at": sa.literal(expired, files.c.expires_at.type),
    }
    if deleted:
        row["deleted_at"] = sa.literal(expired, files.c.deleted_at.type)
    chosen = sa.select(*row.values()).where(tasks.c.task_type == task_type).limit(number)
    with store.connections.unhurried() as connection:
        connection.execute(sa.insert(files).from_select(list(row), chosen))
        connection.commit()
        if deleted:
            return []
        there = sa.select(files.c.object_key).where(files.c.deleted_at.is_(None))
        return list(connection.execute(there).scalars())


@contextmanager
def working(address: str, home: Path, tasks: int) -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own; it tells of the flow, and, once its input is closed, of its housekeeping."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.prune", address, str(home), str(tasks)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
        process.wait(60)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def told(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def work(address: str, home: Path, tasks: int) -> None:
    """What the worker's process does."""
    from dumbwaiter.worker.loop import collect_seldom

    waiter = Dumbwaiter(address, files=str(home / "files"), workdir=str(home / "work"))
    counter = Counter(tasks)
    waiter.task("noop")(counter.noop)
    seconds = timed(waiter.store)
    worker = waiter.worker({"default": SLOTS})
    collect_seldom()
    worker.start()
    counter.done.wait()
    print(json.dumps({"per_s": counter.per_s}), flush=True)
    sys.stdin.read()
    worker.stop()
    worker.join(60)
    print(json.dumps(figures(seconds)), flush=True)


class Counter:
    """Counts what ran, and says how many it were in a second."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._number = number
        self._began = 0.0
        self.done = threading.Event()
        self.per_s = 0.0

    async def noop(self, number: int) -> None:
        self._began = self._began or time.monotonic()
        self._left -= 1
        if self._left == 0:
            self.per_s = self._number / max(time.monotonic() - self._began, 1e-9)
            self.done.set()


def timed(store: Store) -> list[float]:
    """The seconds of each statement of the housekeeper's thread, from now on."""
    seconds: list[float] = []
    began = threading.local()

    def before(*_: object) -> None:
        began.at = time.perf_counter()

    def after(*_: object) -> None:
        if threading.current_thread().name == "dumbwaiter-housekeeper":
            seconds.append(time.perf_counter() - began.at)

    sa.event.listen(store.connections.engine, "before_cursor_execute", before)
    sa.event.listen(store.connections.engine, "after_cursor_execute", after)
    return seconds


def figures(seconds: list[float]) -> Mapping[str, float]:
    """Of how many statements; in ms."""
    ordered = sorted(seconds) or [0.0]

    def part(share: float) -> float:
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1_000

    return {"statements": len(seconds), "p50": part(0.5), "p99": part(0.99), "longest": part(1.0)}


def show(found: Iterator[Cleaned]) -> int:
    """Print what was seen; how many of the musts are missed."""
    alone: dict[str, float] = {}
    missed = 0
    for one in found:
        if one.due == "nothing":
            alone[one.server] = one.per_s
            print(f"{one.server}: {one.per_s:,.0f} tasks/s while nothing is due", flush=True)
            continue
        share = one.per_s / alone[one.server]
        good = share >= LEAST_RATE and one.p99 <= MOST_MS and not one.left
        missed += not good
        print(
            f"{one.server}: {one.per_s:,.0f} tasks/s ({share:.0%}) beside {one.due} that go; all gone after {one.seconds:.0f} s; "
            f"{one.statements:,} statements of {one.p50:.1f} ms, p99 {one.p99:.1f}, at most {one.longest:.1f}; {one.left} left: "
            f"{'good' if good else 'MISSED'}",
            flush=True,
        )
    return missed


if __name__ == "__main__":
    work(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
