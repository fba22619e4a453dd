"""Real worker processes, and the ledger that their tasks write."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import Task
from tests.support.databases import Database
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
KITCHEN = "tests.support.kitchen:waiter"


@dataclass(frozen=True)
class Entry:
    """One line of the ledger."""

    at: float
    event: str
    task_id: str
    attempt: int
    pid: int
    more: Mapping[str, str]


@dataclass
class Place:
    """A database, a directory and a ledger of a test's own, and the worker processes started on them."""

    database: Database
    home: Path
    settings: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        ours = {
            "DUMBWAITER_DATABASE": self.database.url,
            "DUMBWAITER_WORKDIR": str(self.home / "work"),
            "DUMBWAITER_FILES": str(self.home / "files"),
            "LEDGER": str(self.ledger_path),
            # what was first there stays: a mutant of the package, for one
            "PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)]),
        }
        return {**os.environ, **ours, **self.settings}

    @property
    def ledger_path(self) -> Path:
        return self.home / "ledger.txt"

    def app(self, like: Dumbwaiter | None = None) -> Dumbwaiter:
        """The kitchen's task types, or another's, on this place's database, for producing in the test's own process."""
        from tests.support import kitchen

        named: dict[str, Any] = {
            name.removeprefix("DUMBWAITER_").lower(): value for name, value in self.settings.items()
        }
        waiter = Dumbwaiter(
            self.database.url, files=str(self.home / "files"), workdir=str(self.home / "work"), **named
        )
        for entry in (like or kitchen.waiter).registry:
            waiter.registry.add(entry)
        return waiter

    def start_worker(
        self,
        *arguments: str,
        app: str | None = KITCHEN,
        environment: Mapping[str, str] | None = None,
        inside: Sequence[str] = (),
        **how: Any,
    ) -> subprocess.Popen[bytes]:
        """A standalone worker in a process group of its own; without `app`, of the jobs that come with the package.

        `environment` is for this worker alone; `inside` is a command that starts it, such as unshare.
        """
        chosen = [] if app is None else ["--app", app]
        command = [*inside, sys.executable, "-m", "dumbwaiter", *chosen, "worker", *arguments]
        with (self.home / "workers.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**self.environment, **(environment or {})},
                stdout=log,
                stderr=log,
                start_new_session=True,
                **how,
            )
        self.processes.append(process)
        return process

    def ledger(self) -> list[Entry]:
        if not self.ledger_path.exists():
            return []
        return [entry(line) for line in self.ledger_path.read_text(encoding="utf-8").splitlines()]

    def starts(self, task_id: str | None = None) -> list[Entry]:
        return [one for one in self.ledger() if one.event == "start" and task_id in (None, one.task_id)]

    def starts_by_task(self) -> Counter[str]:
        return Counter(one.task_id for one in self.starts())

    def freeze(self, process: subprocess.Popen[bytes]) -> None:
        """Stop a worker's whole group, at a moment when it does not hold SQLite's one write lock: all others would wait for it."""
        os.killpg(process.pid, signal.SIGSTOP)
        while self._locked():
            os.killpg(process.pid, signal.SIGCONT)
            os.killpg(process.pid, signal.SIGSTOP)

    def _locked(self) -> bool:
        if self.database.kind != "sqlite":
            return False
        with closing(sqlite3.connect(self.database.url.removeprefix("sqlite:///"), timeout=0)) as file:
            try:
                file.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
        return False

    def stop(self) -> None:
        """End every worker that still runs, hard."""
        for process in self.processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)

    def log(self) -> str:
        path = self.home / "workers.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def entry(line: str) -> Entry:
    at, event, task_id, attempt, pid, *more = line.split(" ")
    pairs = dict(word.split("=", 1) for word in more)
    return Entry(float(at), event, task_id, int(attempt), int(pid), pairs)


@contextmanager
def place(database: Database, home: Path, **settings: str) -> Iterator[Place]:
    """A migrated database with nobody working on it yet; every worker is gone at the end."""
    here = Place(database, home, {f"DUMBWAITER_{name.upper()}": value for name, value in settings.items()})
    waiter = here.app()
    waiter.migrate()
    waiter.close()
    try:
        yield here
    finally:
        here.stop()


def ended(waiter: Dumbwaiter, tasks: Sequence[Task], seconds: float = 30) -> list[Task]:
    """The tasks once all of them are final."""

    def all_final() -> list[Task] | None:
        found = [waiter.get(task.id) for task in tasks]
        return found if all(task.status.final for task in found) else None

    return until(all_final, seconds, every=0.05)
