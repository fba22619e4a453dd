"""One SQLite file under workers, web pages that ask, a host application, readers that stay, and a backup."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dumbwaiter import Dumbwaiter
from tests.support.databases import Database, Kind
from tests.support.waiting import until
from tests.support.workers import Place, place

KIB, MIB = 2**10, 2**20


@pytest.fixture
def shared(make_database: Callable[[Kind], Database], tmp_path: Path) -> Iterator[Place]:
    with place(make_database("sqlite"), tmp_path) as found:
        yield found


@dataclass
class Host:
    """The application that the file belongs to: plain sqlite3, with the five seconds of patience that it has by default."""

    path: str
    over: threading.Event = field(default_factory=threading.Event)
    longest_wait: float = 0.0

    def connect(self) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(sqlite3.connect(self.path, timeout=5))

    def write(self) -> int:
        """Twenty rows a second, until it is over."""
        rows = 0
        with self.connect() as connection:
            while not self.over.wait(0.05):
                asked = time.monotonic()
                with connection:
                    connection.execute("INSERT INTO orders (note) VALUES (?)", ("x" * 200,))
                self.longest_wait = max(self.longest_wait, time.monotonic() - asked)
                rows += 1
        return rows

    def read(self, seconds: float) -> None:
        """One read transaction that stays open: no reader may hold up a writer."""
        with self.connect() as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM orders").fetchone()
            time.sleep(seconds)
            connection.rollback()

    def hold(self, seconds: float) -> None:
        """A transaction that takes very long, such as a migration of its own."""
        with self.connect() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO orders (note) VALUES ('long')")
            time.sleep(seconds)
            connection.commit()

    def back_up(self, into: Path) -> str:
        with self.connect() as connection, contextlib.closing(sqlite3.connect(into)) as copy:
            connection.backup(copy)
            return str(copy.execute("PRAGMA integrity_check").fetchone()[0])


def ask(waiter: Dumbwaiter, ids: list[str], over: threading.Event) -> int:
    """What a page does: fifty times a second, how does a task stand?"""
    asked = 0
    while not over.wait(0.02):
        waiter.get(ids[asked % len(ids)])
        asked += 1
    return asked


def watch_log(path: str, over: threading.Event) -> int:
    largest = 0
    while not over.wait(0.1):
        largest = max(largest, log_size(path))
    return largest


def log_size(path: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"{path}-wal").stat().st_size
    return 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "load",
    [
        pytest.param((2, 200, 1.5, 3.0), id="two hundred tasks", marks=pytest.mark.long),
        pytest.param((4, 10_000, 8.0, 30.0), id="ten thousand tasks", marks=pytest.mark.long),
    ],
)
def test_a_sqlite_file_that_many_share_is_locked_for_nobody_and_its_log_stays_small(
    shared: Place, tmp_path: Path, load: tuple[int, int, float, float]
) -> None:
    workers, tasks, held, read = load
    waiter, *pages = (shared.app() for _ in range(3))
    path = str(waiter.store.connections.url.database)
    host = Host(path)
    with host.connect() as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT)")
    for _ in range(workers):
        shared.start_worker("-q", "default=4")
    ids = [waiter.enqueue("murmur", {"seconds": 0.5}).id for _ in range(tasks // 50)]
    until(shared.starts)

    with ThreadPoolExecutor(8) as threads:
        working = [threads.submit(host.write), threads.submit(watch_log, path, host.over)]
        working += [threads.submit(ask, page, ids, host.over) for page in pages]
        try:
            reading = threads.submit(host.read, read)
            ids += [waiter.enqueue("flicker").id for _ in range(tasks // 2)]
            backed_up = threads.submit(host.back_up, tmp_path / "backup.db")
            ids += [waiter.enqueue("flicker").id for _ in range(tasks - len(ids))]
            until(lambda: ended_well(path) >= tasks // 2, 400, every=0.2)
            reading.result()
            written = len(ids) + ended_well(path)
            # nothing can be put back before the reader's snapshot is gone; then the next writer does it
            until(lambda: log_size(path) < 16 * MIB, 60, every=0.2)
        finally:
            host.over.set()
        rows, largest, *asked = (one.result() for one in working)
        assert backed_up.result() == "ok"
    print(
        f"\nhost: {rows} rows, longest wait {host.longest_wait:.2f} s; asked {asked}; log {largest / MIB:.1f} MiB"
    )

    # nobody else writes while one holds the lock so long: their patience of five seconds would be at an end
    host.hold(held)
    until(lambda: ended_well(path) == tasks, 400, every=0.2)

    assert shared.starts_by_task() == dict.fromkeys(ids, 1)
    assert rows > 0
    assert min(asked) > 0
    # while a reader stays the log keeps what is written: so much for each task that is put down, and for each that ends
    assert largest < 64 * MIB + written * 30 * KIB
    assert "locked" not in shared.log()
    with host.connect() as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (rows + 1,)
    for one in (waiter, *pages):
        one.close()


def ended_well(path: str) -> int:
    with contextlib.closing(sqlite3.connect(path, timeout=5)) as connection:
        statement = "SELECT count(*) FROM dumbwaiter_tasks WHERE status = 'success'"
        return int(connection.execute(statement).fetchone()[0])
