"""What a worker costs that has nothing to do, and how soon it sees what nobody told it of."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter import Dumbwaiter
from dumbwaiter.store.claiming import Concern
from dumbwaiter.store.rows import Ahead
from dumbwaiter.store.waking import PROBE
from dumbwaiter.worker import durations, stager
from dumbwaiter.worker.stager import EAGER, RECENTLY, REST, Stager

# What a worker may ask a second, its heartbeat process included, by kind of database.
MOST = {"postgresql": 1.0, "sqlite": 1.6, "mysql": 2.0}
SECONDS = 10.0


def test_a_worker_at_rest_makes_few_statements(database, monkeypatch):
    monkeypatch.setattr(stager, "RECENTLY", 0.0)
    # how long the task took is written once, and soon
    monkeypatch.setattr(durations, "WRITE_EVERY", 0.5)
    waiter = Dumbwaiter(database.url)
    waiter.migrate()
    asked: list[str] = []
    sa.event.listen(
        waiter.store.connections.engine,
        "before_cursor_execute",
        lambda _c, _cursor, statement, _p, _context, _many: asked.append(statement),
    )
    worker = waiter.worker()
    worker.start()
    started = threading.Event()
    waiter.task("t")(started.set).enqueue()
    assert started.wait(20)
    pause = threading.Event()
    pause.wait(2.0)  # what a start makes, and the end of the task
    asked.clear()

    pause.wait(SECONDS)  # no luck is waited for: so long is counted

    counted = len(asked) / SECONDS
    beats = len(waiter.store.heartbeat_statements("w")) / waiter.settings.heartbeat.total_seconds()
    probes = 1 / PROBE if waiter.store.kind == "postgresql" else 0.0
    worker.stop(hurry=True)
    assert worker.join(20)
    waiter.close()
    assert 0 < counted + beats + probes <= MOST[waiter.store.kind] + 0.3, asked


class Table:
    """A task table of which somebody says what lies ahead, with a clock that is set by hand."""

    def __init__(self, kind: str, *, hinted: bool) -> None:
        self.kind, self.hinted = kind, hinted
        self.seconds = 1_000.0
        self.ahead_is = Ahead(None)
        self.looks = 0

    def ahead(self, concern: Concern) -> Ahead:
        self.looks += 1
        return self.ahead_is

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def make() -> Callable[..., Any]:
    def made(table: Table, poll: float = 1.0) -> tuple[Stager, list[float]]:
        called: list[float] = []
        one = Stager(
            table,  # type: ignore[arg-type]
            lambda: Concern(()),
            suspects=lambda waits: None,
            ready=lambda: called.append(table.seconds),
            poll=poll,
            monotonic=table.monotonic,
        )
        return one, called

    return made


@pytest.mark.parametrize(("kind", "hinted"), [("postgresql", True), ("sqlite", True), ("mysql", False)])
def test_looks_are_rare_at_rest_and_a_second_apart_at_most_while_something_happens(make, kind, hinted):
    table = Table(kind, hinted=hinted)
    looking, _ = make(table)

    assert looking.round() == (REST if hinted else EAGER)
    table.seconds += RECENTLY + 1
    assert looking.round() == (stager.QUIET[kind] if hinted else REST)
    looking.stir()
    table.seconds += REST
    assert looking.round() <= REST


def test_a_hint_has_a_look_within_a_second_of_the_last_one_and_no_sooner(make):
    table = Table("postgresql", hinted=True)
    looking, _ = make(table)
    table.seconds += RECENTLY + 1
    looking.round()
    table.seconds += 0.2

    early = looking.round()  # a hint wakes it

    assert (table.looks, early) == (1, pytest.approx(REST - 0.2))
    table.seconds += early
    looking.round()
    assert table.looks == 2


def test_what_may_be_due_in_a_moment_is_looked_at_at_once(make):
    table = Table("postgresql", hinted=True)
    looking, _ = make(table)
    looking.round()
    table.ahead_is = Ahead(timedelta(seconds=0.3))
    looking.hurry()

    assert looking.round() == pytest.approx(0.3)
    assert table.looks == 2


def test_what_is_due_is_told_of_as_often_as_a_worker_is_to_look(make):
    table = Table("mysql", hinted=False)
    looking, called = make(table, poll=60.0)
    table.ahead_is = Ahead(None, ready=True)
    for _ in range(8):
        table.seconds += 10
        looking.round()

    assert called == [1_010.0, 1_070.0]
