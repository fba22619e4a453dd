"""A trial: workers that are killed and disturbed at random while they work, and what must be true when it is over.

The ledger outside the product is the witness. A trial notes each death and each standstill that it deals out, so every
attempt that was taken back can be asked whether its worker had really fallen silent.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import pytest
from fastapi import FastAPI

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import IllegalMove, StoreError
from dumbwaiter.executors.guardian import Process, descendants, process, processes
from dumbwaiter.integrations.fastapi import router
from dumbwaiter.strict_json import loads
from dumbwaiter.task import Attempt, AttemptOutcome, Status, Task
from tests.store.proxies import Proxy, proxied
from tests.support import feast
from tests.support.databases import KINDS, Database, sessions
from tests.support.serving import serving
from tests.support.waiting import until
from tests.support.workers import Entry, Place, place

Found = TypeVar("Found")
FEAST, LIGHT = "tests.support.feast:waiter", "tests.support.feast:light"
# How many places of two workers run at a time: a server with its usual 100 connections has room for no more, beside other
# tests, and then workers wait for connections rather than for a lease.
AT_ONCE = {"sqlite": 20, "postgresql": 6, "mysql": 10}
# How long the processes of a killed worker may be seen after it: on a busy machine everything takes its time.
GONE = 10.0
TAKEN_BACK = {AttemptOutcome.CRASHED, AttemptOutcome.LOST}
WAYS = {"the whole group": 35, "the worker alone": 35, "its heartbeat": 15, "a guardian": 15}


def everywhere(*size: object) -> list[object]:
    """Parameters for a long trial of this size on each database."""
    return [pytest.param(*kind.values, *size, marks=[*kind.marks, pytest.mark.long]) for kind in KINDS]


@dataclass(frozen=True)
class Silence:
    """A worker that was killed, or stopped until it was let go on."""

    pid: int
    begun: float
    over: float = float("inf")


@dataclass
class Trial:
    """A place with two or more workers, the tasks that it was given, and what was done to the workers."""

    place: Place
    waiter: Dumbwaiter
    chance: random.Random
    accepted: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)
    final: dict[str, Task] = field(default_factory=dict)
    history: dict[str, list[Attempt]] = field(default_factory=dict)
    app: str = FEAST
    proxy: Proxy | None = None
    sessions_before: int = 0
    slowest_end: float = 0.0

    def enqueue(self, task_type: str, seconds: float, **options: Any) -> Task:
        """Ask for a task until it is accepted: the same request asked again is the same task."""
        request = str(self.chance.random())
        task = insisted(
            lambda: self.waiter.enqueue(task_type, {"seconds": seconds}, request_key=request, **options)
        )
        self.accepted.add(task.id)
        return task

    def cancel(self) -> None:
        """Cancel any task that runs at this moment, if it still does."""
        running = [task for task in self.look() if task.status is Status.RUNNING]
        if running:
            task = self.chance.choice(running)
            # before it is asked: the answer may be lost
            self.cancelled.add(task.id)
            with suppress(IllegalMove):
                insisted(lambda: self.waiter.cancel(task.id))

    def enqueue_any(self, number: int, longest: float = 1.0) -> None:
        """So many tasks of any kind, some of them under a key that another one may hold."""
        for _ in range(number):
            self.enqueue(
                self.chance.choice(feast.KINDS),
                round(self.chance.uniform(0, longest), 3),
                key=self.chance.choice([None, None, "table 1", "table 2", "table 3"]),
                on_duplicate=self.chance.choice(["return", "after"]),
            )

    def enqueue_burst(self, number: int, longest: float) -> None:
        """So many short tasks at once, as one transaction: a backlog."""
        for task_type in feast.SHORT:
            seconds = [round(self.chance.uniform(0, longest), 4) for _ in range(number // len(feast.SHORT))]
            self.accepted.update(self.waiter.enqueue_many(task_type, [{"seconds": one} for one in seconds]))

    def start_worker(self) -> subprocess.Popen[bytes]:
        worker = self.place.start_worker("-q", "default=4", app=self.app)
        self.workers.append(worker)
        return worker

    def strike(self) -> None:
        """Kill one worker, or a part of it, at any moment, and replace what is gone."""
        victim = self._victim()
        [way] = self.chance.choices(list(WAYS), list(WAYS.values()))
        below = family(victim.pid)
        if way == "its heartbeat":
            struck = [one for one in below if "beat.py" in words_of(one.pid)]
        else:
            struck = [one for one in below if one.parent == victim.pid and "guardian.py" in words_of(one.pid)]
        if way in {"its heartbeat", "a guardian"} and struck:
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(struck).pid, signal.SIGKILL)
            self.tally[way] += 1
            return
        if way != "the whole group":
            way = "the worker alone"  # it had no such part at that moment
        self.tally[way] += 1
        self.kill(victim, whole_group=way == "the whole group")
        self.start_worker()

    def _victim(self) -> subprocess.Popen[bytes]:
        """Mostly the one that started a task last; now and then another, whatever it is at."""
        starts = self.place.starts()
        last = pid_of(starts[-1].more["worker"]) if starts else 0
        busy = [one for one in self.workers if one.pid == last]
        return busy[0] if busy and self.chance.random() < 0.8 else self.chance.choice(self.workers)

    def kill(self, victim: subprocess.Popen[bytes], *, whole_group: bool = True) -> None:
        """Kill a worker with -9, and see that all of its processes go with it."""
        below = family(victim.pid)
        begun = time.time()
        if whole_group:
            os.killpg(victim.pid, signal.SIGKILL)
        else:
            victim.kill()
        victim.wait(10)
        self.silences.append(Silence(victim.pid, begun))
        self.workers.remove(victim)
        ended = time.monotonic()
        until(lambda: not any(still(one) for one in below), GONE)
        self.slowest_end = max(self.slowest_end, time.monotonic() - ended)

    def look(self) -> list[Task]:
        """All tasks in one look; those that were final at an earlier one have not changed."""
        tasks = insisted(lambda: self.waiter.find(limit=100_000))
        for task in tasks:
            before = self.final.setdefault(task.id, task) if task.status.final else self.final.get(task.id)
            assert before in (None, task), f"final task {task.id} changed: {differences(before, task)}"
        return tasks

    def drain(self, seconds: float) -> None:
        """Wait until every task is final. One look sees all of them: between two, a sweep may put one back."""
        try:
            until(lambda: all(task.status.final for task in self.look()), seconds, every=0.25)
        except AssertionError:
            stuck = [task for task in self.look() if not task.status.final]
            raise AssertionError(
                f"{len(stuck)} tasks are stuck: {stuck[:3]}\n{self.place.log()[-3_000:]}"
            ) from None

    def close(self) -> None:
        """End the workers as a deploy does, once each has started: before that, TERM ends a program as it ends any."""
        until(
            lambda: {one.pid for one in self.workers} <= {one.pid for one in self.waiter.store.workers()}, 60
        )
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            assert worker.wait(40) == 0, self.place.log()[-3_000:]
        self.workers.clear()


@contextmanager
def trial(database: Database, home: Path, chance: random.Random, **settings: str) -> Iterator[Trial]:
    """A trial on a database of its own. Whatever it starts is gone at its end."""
    home.mkdir(parents=True, exist_ok=True)
    with place(database, home, **settings) as here:
        waiter = here.app()
        for entry in feast.waiter.registry:
            waiter.registry.add(entry)
        try:
            yield Trial(here, waiter, chance, sessions_before=sessions(database))
        finally:
            here.stop()
            waiter.close()
            for one in belonging_to(here):
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)


@contextmanager
def through_proxy(here: Trial) -> Iterator[Proxy]:
    """Workers that are started within this reach their server through a proxy; the trial itself goes straight to it."""
    with proxied(here.place.database.url) as (proxy, address):
        here.proxy = proxy
        here.place.settings["DUMBWAITER_DATABASE"] = address
        yield proxy


def insisted(work: Callable[[], Found]) -> Found:
    """Do it until the database is there: a trial may have ended the sessions of the trial itself."""
    for _ in range(100):
        with suppress(StoreError):
            return work()
        time.sleep(0.1)
    return work()


# what must be true at the end


def all_is_well(trial: Trial) -> None:
    """The common checks at the end of every trial, once all tasks are final. Ends the trial's workers."""
    tasks = {task.id: trial.waiter.get(task.id) for task in trial.look()}
    kept_files_gone(trial)
    trial.close()
    faults = [
        *lost(trial, tasks),
        *badly_ended(trial, tasks),
        *disagreeing(trial, tasks),
        *wrongly_taken_back(trial, tasks),
        *overlapping(trial),
        *wrong_files(trial, tasks),
        *not_strict_json(trial, tasks),
    ]
    assert not faults, "\n".join(faults)
    nothing_left(trial)


def differences(before: Task | None, after: Task) -> dict[str, tuple[object, object]]:
    """The fields that differ, before and after."""
    pairs = {one.name: (getattr(before, one.name), getattr(after, one.name)) for one in fields(after)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def lost(trial: Trial, tasks: dict[str, Task]) -> list[str]:
    return [f"{task_id} was accepted and is gone" for task_id in trial.accepted - set(tasks)] + [
        f"{task_id} came from nowhere" for task_id in set(tasks) - trial.accepted
    ]


def badly_ended(trial: Trial, tasks: dict[str, Task]) -> list[str]:
    return [
        f"{task.id} {task.task_type} ended as {task.status}: {task.error_message}"
        for task in tasks.values()
        if task.status is not Status.SUCCESS
        and not (task.status is Status.CANCELLED and task.cancel_requested_at)
    ]


def disagreeing(trial: Trial, tasks: dict[str, Task]) -> list[str]:
    """Where the ledger and the table tell different things."""
    faults = []
    lines: dict[str, list[Entry]] = {}
    for entry in trial.place.ledger():
        lines.setdefault(entry.task_id, []).append(entry)
    for task in tasks.values():
        mine = lines.get(task.id, [])
        started = Counter(one.attempt for one in mine if one.event == "start")
        history = trial.history[task.id] = trial.waiter.attempts(task.id)
        counted = Counter(one.outcome for one in history)
        if any(times > 1 for times in started.values()):
            faults.append(f"{task.id}: an attempt was started twice: {started}")
        if [one.number for one in history] != list(range(1, len(history) + 1)):
            faults.append(f"{task.id}: its history has gaps: {[one.number for one in history]}")
        if set(started) - set(range(1, task.attempt + 1)):
            faults.append(f"{task.id}: starts {set(started)} of {task.attempt} attempts")
        if counted[AttemptOutcome.CRASHED] != task.crash_count:
            faults.append(f"{task.id}: {task.crash_count} crashes, and a history of {counted}")
        if task.status is not Status.SUCCESS:
            continue
        ended = {one.attempt for one in mine if one.event == "end"}
        if task.attempt not in ended:
            faults.append(
                f"{task.id}: a success of attempt {task.attempt}, and ends of {ended} in the ledger"
            )
        if task.result != {"attempt": task.attempt}:
            faults.append(f"{task.id}: attempt {task.attempt} succeeded with the result {task.result}")
        if len(history) not in ({0} if task.attempt == 1 else {task.attempt}):
            faults.append(f"{task.id}: {task.attempt} attempts, and a history of {len(history)}")
        if task.attempt > 1 and counted[AttemptOutcome.SUCCESS] != 1:
            faults.append(f"{task.id}: {counted[AttemptOutcome.SUCCESS]} successes in its history")
    return faults


def wrongly_taken_back(trial: Trial, tasks: dict[str, Task]) -> list[str]:
    """Attempts that were taken from a worker that lived and was not stopped."""
    return [
        f"{task.id}: attempt {one.number} was taken from {one.worker_id} at {one.ended_at}, which lived: {one.error}"
        for task in tasks.values()
        for one in trial.waiter.attempts(task.id)
        if one.outcome in TAKEN_BACK and not silent(trial, one.worker_id, one.ended_at.timestamp())
    ]


def overlapping(trial: Trial) -> list[str]:
    """Second starts while the first one was still at it, by the ledger; a worker that stood still is excused."""
    faults = []
    last: dict[str, dict[int, Entry]] = {}
    first: dict[str, dict[int, Entry]] = {}
    for entry in trial.place.ledger():
        last.setdefault(entry.task_id, {})[entry.attempt] = entry
        first.setdefault(entry.task_id, {}).setdefault(entry.attempt, entry)
    workers = {(one.task_id, one.attempt): one.more["worker"] for one in trial.place.starts()}
    for task_id, attempts in first.items():
        for number, began in sorted(attempts.items())[1:]:
            for earlier, entry in last[task_id].items():
                worker = workers.get((task_id, earlier), "")
                if earlier < number and entry.at > began.at and not silent(trial, worker, began.at):
                    faults.append(
                        f"{task_id}: attempt {number} began at {began.at}, and attempt {earlier} of {worker} "
                        f"wrote {entry.event} at {entry.at}"
                    )
    return faults


def silent(trial: Trial, worker: str, at: float) -> bool:
    """Whether this trial had killed or stopped the worker by then."""
    return any(one.pid == pid_of(worker) and one.begun <= at <= one.over for one in trial.silences)


def wrong_files(trial: Trial, tasks: dict[str, Task]) -> list[str]:
    faults = []
    for task in tasks.values():
        if task.task_type == "roast" and task.status is Status.SUCCESS:
            [file] = task.files
            stored = b"".join(trial.waiter.files.stream(file.object_key)).decode()
            if file.attempt != task.attempt or stored != feast.contents(task.id, task.attempt):
                faults.append(f"{task.id}: its file is of attempt {file.attempt} and says {stored[:60]!r}")
        elif task.files:
            faults.append(f"{task.id} {task.task_type} has files: {task.files}")
    return faults


def kept_files_gone(trial: Trial) -> None:
    """Only the files of successes stay. What a dead worker left of a task that ended, a sweep finds: every 30 s."""
    root = trial.place.home / "files"
    shown = {
        trial.waiter.files.local_path(file.object_key)
        for task in trial.look()
        if task.task_type == "roast"
        for file in trial.waiter.get(task.id).files
    }

    def surplus() -> set[Path]:
        return {path for path in root.rglob("*") if path.is_file() and path not in shown}

    try:
        until(lambda: not surplus(), 50, every=0.25)
    except AssertionError:
        raise AssertionError(f"files that belong to nobody: {sorted(map(str, surplus()))}") from None


# FastAPI makes an application's parts at its first request, and in several threads at once it cannot.
SERVING = threading.Lock()


def not_strict_json(trial: Trial, tasks: dict[str, Task]) -> list[str]:
    app = FastAPI()
    faults = []
    with SERVING, serving(app) as client:
        app.include_router(router(trial.waiter, public=True))
        for task_id in tasks:
            response: httpx.Response = client.get(f"/tasks/{task_id}")
            if response.status_code != 200 or loads(response.content)["task_id"] != task_id:
                faults.append(f"{task_id}: {response.status_code} {response.text[:200]}")
    return faults


def nothing_left(trial: Trial) -> None:
    """No process, no work directory, no session of the workers."""
    until(lambda: not belonging_to(trial.place), GONE)
    work = trial.place.home / "work"
    left = sorted(work.iterdir())
    assert not left, f"work directories that belong to nobody: {left}"
    if trial.proxy is not None:
        trial.proxy.reset()  # of connections that it forgot, the server never hears
    trial.waiter.store.connections.close()  # its own, of which its pools keep some
    until(lambda: sessions(trial.place.database) <= max(trial.sessions_before, 1), GONE)
    assert [] == trial.waiter.store.workers() or trial.silences, "workers that ended are still on the list"


# processes


def pid_of(worker: str) -> int:
    """The pid in a worker's name."""
    return int(worker.split("-")[-2]) if worker.count("-") >= 2 else 0


def family(pid: int) -> list[Process]:
    """All processes that stem from this one, without it."""
    return descendants([pid], processes())


def still(one: Process) -> bool:
    """Whether exactly this process lives."""
    now = process(one.pid)
    return now is not None and now.started == one.started and now.alive


def words_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def belonging_to(place: Place) -> list[Process]:
    """Living processes that stem from workers of this place, by the ledger's path in their environment."""
    word = f"LEDGER={place.ledger_path}".encode()
    table = processes()
    roots = [one for one in table.values() if one.alive and word in environ_of(one.pid)]
    below = descendants([one.pid for one in roots], table)
    return [*roots, *(one for one in below if one not in roots)]


def environ_of(pid: int) -> Sequence[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def memory_of(pid: int) -> tuple[int, int, int]:
    """Resident bytes, descriptors and threads of a process."""
    process = psutil.Process(pid)
    with process.oneshot():
        return process.memory_info().rss, process.num_fds(), process.num_threads()
