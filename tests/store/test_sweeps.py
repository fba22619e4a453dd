"""Sweeps that are cut off, killed, or find no slot free: what dead workers held comes back all the same."""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter.errors import DumbwaiterError
from dumbwaiter.store import enqueueing
from dumbwaiter.store.store import Store
from tests.store.world import LEASE, NOW, count, emptied, new, store_of, until, want
from tests.support.workers import ROOT

ORPHANS = 250


def orphaned(store: Store) -> None:
    """Tasks of a worker that was heard of for the last time on a day long ago."""
    with store.connections.writing() as connection:
        for _ in range(ORPHANS):
            enqueueing.enqueue(store.db, connection, new(), NOW)
    assert len(store.claim(want(ORPHANS), "dead", now=NOW)) == ORPHANS


def all_came_back_once(store: Store) -> bool:
    tasks, attempts = store.tables.tasks, store.tables.attempts
    with store.connections.reading() as connection:
        told = connection.execute(sa.select(sa.func.count()).select_from(attempts)).scalar_one()
    return (ORPHANS, ORPHANS) == (
        count(store, tasks.c.status == "pending", tasks.c.ready, tasks.c.crash_count == 1),
        told,
    )


def broken_off(connection: Any) -> None:
    """The server drops the connection on which the next statement is about to be sent. SQLite has none to drop."""
    driver = connection.connection.driver_connection
    other = store_of(connection.engine.url.render_as_string(hide_password=False))
    with contextlib.closing(other), other.connections.writing() as ours:
        match connection.dialect.name:
            case "postgresql":
                ours.execute(sa.select(sa.func.pg_terminate_backend(driver.info.backend_pid)))
            case "mysql":
                ours.execute(sa.text(f"KILL {driver.thread_id()}"))


@contextlib.contextmanager
def cut_off_at(store: Store, number: int) -> Iterator[list[int]]:
    """The connection breaks before the statement of that number."""
    seen = [0]

    def count_and_cut(connection: Any, *_: object) -> None:
        seen[0] += 1
        if seen[0] != number:
            return
        if store.kind == "sqlite":
            raise sqlite3.OperationalError("disk I/O error")
        broken_off(connection)

    engine = store.connections.engine
    sa.event.listen(engine, "before_cursor_execute", count_and_cut)
    try:
        yield seen
    finally:
        sa.event.remove(engine, "before_cursor_execute", count_and_cut)


def sweep(store: Store) -> int:
    """One sweep, in rounds of a hundred as the rescuer makes them; how many tasks it took back."""
    taken = 0
    while found := len(store.rescue(LEASE)):
        taken += found
    return taken


def cut_off_anywhere(store: Store, numbers: list[int]) -> None:
    for number in numbers:
        emptied(store)
        orphaned(store)
        with cut_off_at(store, number) as seen:
            # its duty goes on with the next round
            with contextlib.suppress(DumbwaiterError, sa.exc.OperationalError):
                sweep(store)
            assert seen[0] >= number, "the sweep was over before"
        sweep(store)
        assert all_came_back_once(store), f"cut off before statement {number}"


@pytest.mark.timeout(120)
def test_a_sweep_that_is_cut_off_anywhere_is_made_good_by_the_next_one(store):
    # its first look, and the middle of its second round
    cut_off_anywhere(store, [1, 350])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_sweep_that_is_cut_off_at_any_of_many_moments_is_made_good_by_the_next_one(store):
    seed = random.randrange(1_000_000)
    print(f"\nseed {seed}")
    cut_off_anywhere(store, sorted(random.Random(seed).sample(range(1, 500), 30)))


KILLED = """
import os, signal, sys
import sqlalchemy as sa
from tests.store.world import LEASE, store_of
store = store_of(sys.argv[1])
seen = 0
@sa.event.listens_for(store.connections.engine, "before_cursor_execute")
def kill(*_):
    global seen
    seen += 1
    if seen == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
while store.rescue(LEASE):
    pass
"""


@pytest.mark.timeout(120)
def test_a_sweeper_that_is_killed_in_mid_sweep_leaves_everything_to_the_next_one(store):
    orphaned(store)
    done = subprocess.run([sys.executable, "-c", KILLED, store.settings.database, "350"], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    tasks = store.tables.tasks
    assert 0 < count(store, tasks.c.status == "running") < ORPHANS
    # a server lets go of the dead one's locks once it has seen that it is gone; until then those rows are passed over
    until(lambda: sweep(store) == 0 and all_came_back_once(store), "all to come back")
