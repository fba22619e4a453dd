"""A database that is locked or silent for longer than a lease, under a worker that lives."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter import Dumbwaiter, Retry, TaskContext
from dumbwaiter.errors import DatabaseUnavailable
from dumbwaiter.executors.registry import Registry, TaskType
from dumbwaiter.executors.signature import Signature
from dumbwaiter.store.connections import normal_url
from dumbwaiter.task import Fence, Status
from dumbwaiter.worker import loop
from dumbwaiter.worker.buffer import Buffer
from dumbwaiter.worker.claimer import Claimer
from dumbwaiter.worker.loop import Worker
from dumbwaiter.worker.slots import Slots
from tests.store.proxies import Mode, proxied
from tests.support.databases import KINDS, Database, Kind
from tests.support.waiting import until

SHORT: dict[str, Any] = {
    "lease": "1s",
    "heartbeat": "200ms",
    "sweep": "200ms",
    "poll": "100ms",
    "grace": "500ms",
}


@contextmanager
def working(waiter: Dumbwaiter) -> Iterator[Worker]:
    worker = waiter.worker()
    worker.start()
    try:
        yield worker
    finally:
        worker.stop(hurry=True)
        assert worker.join(15)
        waiter.close()


def test_a_sqlite_file_that_was_locked_for_longer_than_a_lease_starts_nothing_again(tmp_path: Path) -> None:
    waiter = Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db", **SHORT)
    started, go_on = threading.Event(), threading.Event()

    @waiter.task("long")
    def long() -> None:
        started.set()
        go_on.wait(30)

    task = long.enqueue()
    with working(waiter) as worker:
        assert started.wait(10)
        # past the time for which a new worker takes nothing back
        until(lambda: worker._rescuer._still_until < time.monotonic())
        backup = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
        backup.execute("BEGIN IMMEDIATE")
        time.sleep(2)
        backup.execute("ROLLBACK")
        backup.close()
        back = waiter.store.now()
        until(lambda: (beat := waiter.get(task.id).heartbeat_at) is not None and beat > back)
        go_on.set()
        done = until(lambda: found if (found := waiter.get(task.id)).status.final else None)

    assert (Status.SUCCESS, 1, 0) == (done.status, done.attempt, done.crash_count)


@pytest.mark.parametrize("kind", KINDS)
def test_a_database_that_goes_away_at_any_step_of_a_start_is_waited_for(
    make_database: Callable[[Kind], Database], tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "WAIT_FOR_DATABASE", 0.01)
    database = make_database(kind)
    waiter = Dumbwaiter(database.url, files=str(tmp_path / "files"), workdir=str(tmp_path / "work"), **SHORT)
    waiter.migrate()
    seen: list[str] = []

    def away(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if threading.current_thread().name == "dumbwaiter-start" and statement not in seen:
            seen.append(statement)
            raise DatabaseUnavailable("it has just gone away")

    @waiter.task("short")
    def short() -> str:
        return "done"

    task = short.enqueue()
    sa.event.listen(sa.Engine, "before_cursor_execute", away)
    try:
        with working(waiter) as worker:
            done = until(lambda: found if (found := waiter.get(task.id)).status.final else None)
            [row] = waiter.store.workers()
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", away)

    assert (Status.SUCCESS, worker.name) == (done.status, row.name)
    assert {"SELECT", "INSERT", "DELETE"} <= {statement.split()[0] for statement in seen}


@pytest.mark.service("postgresql")
def test_a_silent_database_holds_up_neither_a_timeout_nor_the_stop(
    make_database: Callable[[Kind], Database], tmp_path: Path
) -> None:
    with proxied(make_database("postgresql").url) as (proxy, url):
        waiter = Dumbwaiter(url, files=str(tmp_path / "files"), workdir=str(tmp_path / "work"), **SHORT)
        waiter.migrate()

        @waiter.task("long", timeout=timedelta(seconds=1.5), retry=Retry(max_retries=0))
        def long(ctx: TaskContext) -> None:
            ctx.sleep(60)

        long.enqueue()
        with working(waiter) as worker:
            [running] = until(lambda: worker.running)
            proxy.mode = Mode.BLACKHOLE
            until(lambda: running.ended, 4)
            asked = time.monotonic()
            worker.stop(hurry=True)
            assert worker.join(15)
            # 3 s, and what a busy machine needs for them; the database is waited for much longer than that
            assert time.monotonic() - asked < 6


def steadily(
    waiter: Dumbwaiter, name: str, seconds: float, each: float = 0.2
) -> tuple[list[str], list[float]]:
    """Enqueue one task after another for so long: the ids that were given, and how long refusals took."""
    ids, refused, until_then = [], [], time.monotonic() + seconds
    while (began := time.monotonic()) < until_then:
        try:
            ids.append(waiter.enqueue(name).id)
        except DatabaseUnavailable:
            refused.append(time.monotonic() - began)
        time.sleep(each)
    return ids, refused


MODES = [
    pytest.param(Mode.RESET, 3.0),
    *(
        pytest.param(mode, 30.0, marks=[pytest.mark.long, pytest.mark.timeout(150)])
        for mode in (Mode.RESET, Mode.REFUSE, Mode.BLACKHOLE, Mode.DRIP, Mode.SWALLOW, Mode.DELAY)
    ),
]


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize(("mode", "seconds"), MODES)
def test_after_an_outage_every_loop_acts_again_and_nothing_is_lost_or_started_twice(
    make_database: Callable[[Kind], Database], tmp_path: Path, kind: Kind, mode: Mode, seconds: float
) -> None:
    database = make_database(kind).url
    place: dict[str, Any] = {"files": str(tmp_path / "files"), "workdir": str(tmp_path / "work")}
    # the outage is longer than the lease
    short: dict[str, Any] = {**SHORT, "lease": "2s", "heartbeat": "500ms", "request_timeout": "4s"}
    with proxied(database) as (proxy, url):
        waiter = Dumbwaiter(url, **place, **short)
        waiter.migrate()
        starts: list[str] = []
        go_on = threading.Event()

        @waiter.task("long")
        def long(ctx: TaskContext) -> None:
            starts.append(ctx.task.id)
            go_on.wait(150)

        @waiter.task("short")
        def brief(ctx: TaskContext) -> None:
            starts.append(ctx.task.id)

        held = long.enqueue()
        with working(waiter) as first, working(Dumbwaiter(url, **place, **short)):
            until(lambda: held.id in starts)
            until(lambda: first._rescuer._still_until < time.monotonic())
            before, _ = steadily(waiter, "short", 0.5)
            proxy.mode = mode
            during, refused = steadily(waiter, "short", seconds)
            proxy.mode = Mode.PASS
            over = time.monotonic()
            # what came through in spite of all may be there; what enqueue gave back must be
            later = until(lambda: steadily(waiter, "short", 0.1)[0], 15)
            until(lambda: later[-1] in starts, 15)
            print(
                f"\n{kind}, {mode.value} for {seconds:.0f} s: a new task started {time.monotonic() - over:.1f} s after its end; "
                f"{len(refused)} enqueues failed, the slowest in {max(refused, default=0):.1f} s"
            )
            there = {task.id: task for task in waiter.find(limit=5_000)}
            go_on.set()
            until(lambda: all(task.status.final for task in waiter.find(limit=5_000)), 60, every=0.3)
            ends = {task.id: task for task in waiter.find(limit=5_000)}

    assert max(refused, default=0) < 5.5
    assert {*before, *during} <= set(there)
    assert {Status.SUCCESS} == {task.status for task in ends.values()}
    assert (1, 1) == (ends[held.id].attempt, starts.count(held.id))


@pytest.mark.service("postgresql")
@pytest.mark.parametrize("fault", ["killed", pytest.param("silent", marks=pytest.mark.long)])
def test_a_listener_whose_connection_died_is_woken_again_soon(
    make_database: Callable[[Kind], Database], tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumbwaiter.store.waking.PROBE", 1.0)
    monkeypatch.setattr("dumbwaiter.store.patience.ANSWER", 2.0)
    database = make_database("postgresql").url
    with proxied(database) as (proxy, url):
        slow: dict[str, Any] = {**SHORT, "poll": "60s", "listen_database": url}
        waiter = Dumbwaiter(database, files=str(tmp_path / "files"), workdir=str(tmp_path / "work"), **slow)
        waiter.migrate()
        started = threading.Event()

        @waiter.task("wake")
        def wake() -> None:
            started.set()

        elsewhere = Dumbwaiter(database)
        elsewhere.registry.add(wake.entry)
        with working(waiter):
            until(lambda: proxy.links)
            elsewhere.enqueue("wake")
            assert started.wait(20)
            started.clear()
            listened = len(proxy.accepted)
            if fault == "killed":
                proxy.reset()
            else:
                proxy.mode = Mode.BLACKHOLE
                until(lambda: len(proxy.accepted) > listened)  # it noticed, and looks for a new one
                proxy.mode = Mode.PASS
                listened += 1
            until(lambda: len(proxy.accepted) > listened and len(proxy.links) > 0)
            elsewhere.enqueue("wake")

            assert started.wait(20)  # by far sooner than the next poll
        elsewhere.close()


@pytest.mark.service("postgresql")
def test_a_worker_with_fifty_sleeping_tasks_needs_few_connections(
    make_database: Callable[[Kind], Database], tmp_path: Path
) -> None:
    database = make_database("postgresql").url
    waiter = Dumbwaiter(
        database, files=str(tmp_path / "files"), workdir=str(tmp_path / "work"), slots=50, poll="100ms"
    )
    waiter.migrate()
    go_on, asleep = threading.Event(), threading.Semaphore(0)

    @waiter.task("sleep")
    def sleep() -> None:
        asleep.release()
        go_on.wait(60)

    elsewhere = Dumbwaiter(database)
    elsewhere.registry.add(sleep.entry)
    for _ in range(50):
        elsewhere.enqueue("sleep")
    elsewhere.close()
    count = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    engine = sa.create_engine(normal_url(database))
    most = 0
    with working(waiter), engine.connect() as connection:
        for _ in range(50):
            assert asleep.acquire(timeout=30)
        look_until = time.monotonic() + 2
        while time.monotonic() < look_until:
            most = max(most, int(connection.execute(count).scalar_one()))
            time.sleep(0.02)
        go_on.set()
        until(lambda: {task.status for task in waiter.find(limit=60)} == {Status.SUCCESS}, 30)
    engine.dispose()
    print(f"\nat most {most} connections")

    assert (
        0 < most <= 7
    )  # what the page about outages promises: 3 for duties, the listener, the heartbeat, and the test's look


def test_a_task_that_ends_while_lost_claims_are_looked_for_is_not_started_again() -> None:
    """The look into the table finds it; when that answer is there it has ended, and the worker has forgotten it."""
    known = [Fence("id", "w1", 1)]
    launched: list[Any] = []

    class Row:
        id, queue, task_type = "id", "default", "t"
        fence = Fence("id", "w1", 1)
        ahead = False

    class Table:
        def held(self, worker: str) -> list[Row]:
            known.clear()
            return [Row()]

    registry = Registry()
    registry.add(TaskType("t", print, Signature("t", lambda: None)))
    slots = Slots({"default": 1}, 1, {})
    claimer = Claimer(
        Table(),  # type: ignore[arg-type]
        registry,
        slots,
        Buffer(slots, registry, launch=launched.append, announce=tuple, give_back=launched.append),
        "w1",
        launch=launched.append,
        running=lambda: tuple(known),
        poll=timedelta(seconds=1),
        grace=timedelta(seconds=1),
        lease=timedelta(seconds=20),
    )
    claimer._take_up_unknown()

    assert launched == []
