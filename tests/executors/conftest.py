"""Attempts to run, and what they left behind."""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dumbwaiter.executors.base import Ended, Running, Surroundings
from dumbwaiter.executors.command import GuardedCommands
from dumbwaiter.executors.context import Publication
from dumbwaiter.executors.guardian import Process, process, send_signal
from dumbwaiter.executors.process import ProcessExecutor
from dumbwaiter.executors.registry import TaskType, placeholders, reference_of
from dumbwaiter.executors.signature import Signature
from dumbwaiter.task import Status, Task
from tests.executors.work import HOSTILE_SIZE, lines

# of this process alone: what bears a tag is ended by it, and other test processes run beside this one
WORKER = f"host-{os.getpid()}-{secrets.token_hex(4)}"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """Wait for a condition, at most so long, and give what it gave."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
    return value


def alive(pid: int) -> bool:
    found = process(pid)
    return found is not None and found.alive


started: list[Process] = []


@pytest.fixture(autouse=True)
def no_hostile_tree_outlives_a_failed_test() -> Iterator[None]:
    yield
    for one in started:
        send_signal(one, signal.SIGKILL)
    started.clear()


def hostile_pids(path: Path) -> list[int]:
    """The pids of the hostile tree, once all of it is there."""
    until(lambda: lines(path) >= HOSTILE_SIZE)
    pids = [int(word) for word in path.read_text().split()]
    started.extend(one for pid in pids if (one := process(pid)) is not None)
    return pids


def none_left(pids: list[int], seconds: float = 5) -> bool:
    until(lambda: not any(map(alive, pids)), seconds)
    return True


def held() -> tuple[int, int]:
    """How many descriptors and threads this process has."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def nothing_more_held_than(before: tuple[int, int]) -> None:
    """Wait until the process has no more descriptors and threads than it had."""
    until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))


class Attempt:
    """One attempt and how it ended."""

    def __init__(self, entry: TaskType, task: Task, workdir: Path) -> None:
        self.ended: Ended | None = None
        self.times = 0
        self.published: list[tuple[str, bytes, str | None]] = []
        self.refuse_with: BaseException | None = None
        self._done = threading.Event()
        around = Surroundings(
            workdir=lambda _: workdir,
            publish=self._publish,
            commands=lambda running: GuardedCommands(running, WORKER, timedelta(seconds=0.5)),
            done=self._end,
        )
        self.running = Running(task, entry, around)

    def _publish(self, running: Running, publication: Publication) -> None:
        if self.refuse_with is not None:
            raise self.refuse_with
        self.published.append((publication.name, publication.path.read_bytes(), publication.content_type))

    def _end(self, running: Running, ended: Ended) -> None:
        self.times += 1
        self.ended = ended
        self._done.set()

    def wait(self, seconds: float = 30) -> Ended:
        assert self._done.wait(seconds), "the attempt did not end in time"
        assert self.ended is not None
        return self.ended

    @property
    def result(self) -> Any:
        ended = self.wait()
        if ended.error is not None:
            raise ended.error
        return ended.result

    @property
    def error(self) -> BaseException:
        error = self.wait().error
        assert error is not None
        return error


@pytest.fixture
def attempt(tmp_path: Path) -> Callable[..., Attempt]:
    """Makes an attempt of a function (or of a command's words) with these arguments."""
    numbers = itertools.count(1)

    def make(work: Any, arguments: dict[str, Any] | None = None, **how: Any) -> Attempt:
        number = next(numbers)
        if isinstance(work, list):
            words = tuple(work)
            entry = TaskType(
                "cmd",
                lambda: None,
                Signature.of_command("cmd", placeholders("cmd", words)),
                argv=words,
                **how,
            )
        else:
            name = work.__name__
            entry = TaskType(
                name, work, Signature(name, work), isolate=True, reference=reference_of(work), **how
            )
        task = Task(
            id=f"0199-{number:04}",
            task_type=entry.name,
            queue="default",
            status=Status.RUNNING,
            payload=arguments or {},
            created_at=NOW,
            updated_at=NOW,
            run_at=NOW,
            attempt=1,
            worker_id=WORKER,
            timeout=timedelta(minutes=1),
        )
        return Attempt(entry, task, tmp_path / "work" / f"{task.id}-1")

    return make


@pytest.fixture
def processes() -> Iterator[ProcessExecutor]:
    executor = ProcessExecutor(WORKER, grace=timedelta(seconds=0.5), warm=2)
    yield executor
    executor.close()


@pytest.fixture
def run(processes: ProcessExecutor, attempt: Callable[..., Attempt]) -> Callable[..., Attempt]:
    """Starts an attempt in an isolated process."""

    def begin(work: Any, arguments: dict[str, Any] | None = None, **how: Any) -> Attempt:
        one = attempt(work, arguments, **how)
        processes.start(one.running)
        return one

    return begin
