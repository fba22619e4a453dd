"""A worker inside the test process, on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.worker.loop import Worker
from tests.support.databases import Database
from tests.support.workers import Place, place

FAST = {
    "heartbeat": "300ms",
    "lease": "2s",
    "sweep": "500ms",
    "poll": "200ms",
    "grace": "1s",
    "shutdown_grace": "5s",
}


@pytest.fixture
def here(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A migrated database, a home and a ledger, with short intervals."""
    with place(database, tmp_path, **FAST) as found:
        monkeypatch.setenv("LEDGER", str(found.ledger_path))
        yield found


@pytest.fixture
def waiter(here: Place) -> Iterator[Dumbwaiter]:
    waiter = here.app()
    yield waiter
    waiter.close()


@pytest.fixture
def start_worker(waiter: Dumbwaiter) -> Iterator[Callable[..., Worker]]:
    """Starts workers in this process, and stops them in the end."""
    workers: list[Worker] = []

    def start(queues: dict[str, int] | None = None, **how: object) -> Worker:
        worker = waiter.worker(queues, **how)  # type: ignore[arg-type]
        worker.start()
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.stop(hurry=True)
    for worker in workers:
        assert worker.join(15), "the worker did not stop"
