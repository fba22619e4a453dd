"""One queue on one server, with what a measurement does to it: empty it, fill it, set workers on it, look from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench import processes, rows
from bench.contestants import Contestant
from bench.environments import ROOT
from bench.records import VARIABLE, Record, Records
from bench.servers import Server

LOOK = 0.004
HAND_SECONDS = 300.0


class Failed(Exception):
    """A measurement that does not count; its text says why."""


@dataclass(frozen=True)
class Drain:
    """What was seen of a drain: its records, when the workers were started and when nothing was left (ns), what it used."""

    records: list[Record]
    started: int
    empty: int
    worker_cpu: float
    server_cpu: float
    peak_mb: float

    @property
    def first(self) -> int:
        return min(record.began for record in self.records)

    @property
    def last(self) -> int:
        return max(record.ended for record in self.records)

    @property
    def per_s(self) -> float:
        """From the first task's start until nothing was left: its end is written too."""
        return len(self.records) / max((self.empty - self.first) / 1e9, 1e-9)

    def tasks_per_s(self, begin: float = 0.0, end: float = 1.0) -> float:
        """How fast tasks ended, between these parts of all of them."""
        ends = sorted(record.ended for record in self.records)
        low, high = int(begin * (len(ends) - 1)), int(end * (len(ends) - 1))
        start = self.first if low == 0 else ends[low]
        return (high - low + (low == 0)) / max((ends[high] - start) / 1e9, 1e-9)


class Trial:
    """A contestant with its interpreter, its server and a directory for what passes."""

    def __init__(self, contestant: Contestant, server: Server, python: Path, home: Path) -> None:
        self.contestant = contestant
        self.server = server
        self.home = home
        self._python = python
        # memory, where there is any: a slow disk is no part of what is measured
        shared = Path("/dev/shm")
        self.records = Records((shared if os.access(shared, os.W_OK) else home) / f"{home.name}.records")
        self.address = ""

    def fresh(self) -> None:
        """Nothing but an empty schema."""
        self.address = self.server.fresh()
        self.records.clear()
        self.hand("prepare")

    def close(self) -> None:
        self.records.path.unlink(missing_ok=True)

    # the hand inside the queue's environment

    @property
    def environment(self) -> dict[str, str]:
        ours = {
            "BENCH_ADDRESS": self.address,
            VARIABLE: str(self.records.path),
            "PYTHONPATH": str(ROOT),
            "PATH": f"{self._python.parent}:{os.environ.get('PATH', '')}",
        }
        return {**os.environ, **ours}

    def hand(self, word: str, **given: Any) -> dict[str, Any]:
        done = subprocess.run(
            self._command(word, given),
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=HAND_SECONDS,
        )
        if done.returncode:
            raise Failed(f"{word}: {done.stderr.strip().splitlines()[-1:] or done.returncode}")
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer

    def _command(self, word: str, given: Mapping[str, Any]) -> list[str]:
        return [str(self._python), "-m", "bench.hand", self.contestant.queue, word, json.dumps(given)]

    # tasks

    def fill(self, task: str, number: int, *, behind: rows.Behind = "nothing", many: int = 0) -> None:
        """So many tasks that wait, numbered from 0, with many rows of another kind behind them."""
        if self.contestant.ours:
            rows.fill_ours(self.address, task, number, behind, many)
            return
        if behind != "nothing":
            self._copy_rows(behind, many)
        if number:
            self.hand("many", task=task, first=0, number=number)

    def _copy_rows(self, behind: rows.Behind, many: int) -> None:
        copied = self.contestant.copied
        if copied is None:
            raise Failed("nobody has said how to put rows behind it")
        self.hand("many", task="noop", first=0, number=1)
        if behind == "finished":
            with self.workers("noop"):
                self.wait(lambda: self.left() == 0 and self.records.count() == 1, 30)
            self.records.clear()
        rows.copy(self.server, copied.finished if behind == "finished" else copied.pending, many)

    def left(self) -> int:
        """How many tasks wait or run; 0 where nobody can tell."""
        return int(self.server.ask(self.contestant.left)) if self.contestant.left else 0

    # workers

    @contextlib.contextmanager
    def workers(self, task: str, count: int = 1, **more: str) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Worker processes; at the end they are told to stop, and whatever is left of them is ended."""
        with (self.home / "workers.log").open("ab") as log:
            workers = [
                subprocess.Popen(
                    self._command("work", {"task": task}),
                    cwd=self.home,
                    env={**self.environment, **more},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                for _ in range(count)
            ]
        try:
            yield workers
        finally:
            started = [process for worker in workers for process in processes.tree(worker.pid)]
            for worker in workers:
                worker.send_signal(signal.SIGTERM)
            for worker in workers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.wait(10)
            for process in started:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            for worker in workers:
                worker.wait()

    def wait(self, look: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not look():
            if time.monotonic() > deadline:
                raise Failed(f"waited {seconds:.0f} s in vain; {self.records.count()} tasks had run")
            time.sleep(LOOK)

    def drain(
        self, task: str, number: int, *, count: int = 1, empty: bool = True, seconds: float = 300, **more: str
    ) -> Drain:
        """Set workers on what waits, until so many tasks have run and, if it shall be `empty`, nothing is left."""
        self.records.clear()
        self.server.settle()
        started = time.time_ns()
        with self.workers(task, count, **more) as workers:
            self.wait(lambda: self.records.count() > 0, 60)
            worker_cpu, server_cpu = self._cpu(workers), self.server.cpu()
            self.wait(lambda: self.records.count() >= number, seconds)
            if empty and self.contestant.left:
                self.wait(lambda: self.left() == 0, 60)
            ended = time.time_ns()
            used = self._cpu(workers) - worker_cpu, self.server.cpu() - server_cpu
            peak = sum(processes.peak_mb(worker.pid) for worker in workers)
        records = self.records.read()
        last = max(record.ended for record in records)
        # where nobody can tell what is left, the last record is all that is known
        return Drain(records, started, ended if self.contestant.left else last, *used, peak)

    def _cpu(self, workers: list[subprocess.Popen[bytes]]) -> float:
        return sum(processes.cpu(worker.pid) for worker in workers)

    def check(self, drained: range, *, among: int | None = None) -> None:
        """Raises Failed unless each number was seen once and, of ours, each row tells of one attempt that succeeded.

        `among` is how many rows there are in all, if some of them are not of this drain.
        """
        if faults := self.records.wrong(drained):
            raise Failed(faults)
        self.check_rows(len(drained), among=among)

    def check_rows(self, drained: int, *, among: int | None = None) -> None:
        """Raises Failed if one of our rows tells of something else than one attempt that succeeded."""
        if self.contestant.ours and (faults := rows.wrong(self.server, drained, among)):
            raise Failed(faults)
