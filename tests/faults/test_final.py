"""Final is final: a trigger in the database itself watches that no task leaves a final status, whoever is late."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import Status
from tests.store.proxies import Mode, Proxy, proxied
from tests.support.waiting import until
from tests.support.workers import Place

FEW, MANY = (2, 25, 0.4), (3, 1_000, 3.0)  # workers, tasks, the longest delay of an answer
# the smallest intervals that there may be: sweeps, beats and looks come one after another
RESTLESS = {
    "DUMBWAITER_LEASE": "2s",
    "DUMBWAITER_HEARTBEAT": "300ms",
    "DUMBWAITER_SWEEP": "100ms",
    "DUMBWAITER_POLL": "100ms",
}
LEFT = "OLD.status IN ('success', 'failed', 'cancelled') AND NEW.status <> OLD.status"
NOTE = "INSERT INTO left_final VALUES (OLD.id, OLD.status, NEW.status)"
WATCH = {
    "sqlite": [
        f"CREATE TRIGGER watch AFTER UPDATE ON dumbwaiter_tasks FOR EACH ROW WHEN {LEFT} BEGIN {NOTE}; END"
    ],
    "postgresql": [
        f"CREATE FUNCTION note_left() RETURNS trigger AS $$ BEGIN {NOTE}; RETURN NEW; END $$ LANGUAGE plpgsql",
        f"CREATE TRIGGER watch AFTER UPDATE ON dumbwaiter_tasks FOR EACH ROW WHEN ({LEFT}) EXECUTE FUNCTION note_left()",
    ],
    "mysql": [
        f"CREATE TRIGGER watch AFTER UPDATE ON dumbwaiter_tasks FOR EACH ROW BEGIN IF {LEFT} THEN {NOTE}; END IF; END"
    ],
}


@contextlib.contextmanager
def late_answers(url: str, longest: float) -> Iterator[str]:
    """The address by which everything comes after a random delay; a file has no network in between."""
    if url.startswith("sqlite"):
        yield url
        return
    over = threading.Event()

    def vary(proxy: Proxy) -> None:
        while not over.wait(0.1):
            proxy.late = random.uniform(0.05, longest) / 2  # once on the way there, once on the way back

    with proxied(url) as (proxy, address):
        varying = threading.Thread(target=vary, args=(proxy,))
        varying.start()
        proxy.mode = Mode.DELAY
        try:
            yield address
        finally:
            over.set()
            varying.join()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("database_kind", "load"),
    [
        pytest.param("sqlite", FEW),
        pytest.param("sqlite", MANY, marks=pytest.mark.long),
        pytest.param("postgresql", MANY, marks=[pytest.mark.long, pytest.mark.service("postgresql")]),
        pytest.param("mysql", MANY, marks=[pytest.mark.long, pytest.mark.service("mysql")]),
    ],
)
def test_no_task_leaves_a_final_status_though_answers_are_late_and_sweeps_never_rest(
    here: Place, waiter: Dumbwaiter, load: tuple[int, int, float]
) -> None:
    workers, tasks, longest = load
    here.settings.update(RESTLESS)
    with waiter.store.connections.writing() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE left_final (id CHAR(36), was VARCHAR(20), became VARCHAR(20))"
        )
        for statement in WATCH[waiter.store.kind]:
            connection.exec_driver_sql(statement)

    with late_answers(here.database.url, longest) as address:
        for _ in range(workers):
            # with as many slots as make the answers, not the claims, what it waits for
            here.start_worker("-q", "default=50", environment={"DUMBWAITER_DATABASE": address})
        asked = {waiter.enqueue("flicker").id for _ in range(tasks)}
        until(lambda: not unfinished(waiter), 800, every=0.2)
        here.stop()

    with waiter.store.connections.reading() as reading:
        assert reading.exec_driver_sql("SELECT * FROM left_final").all() == []
    found = waiter.find(limit=tasks + 1)
    assert {task.id for task in found} == asked
    assert [task.error_message for task in found if task.status is not Status.SUCCESS] == []


def unfinished(waiter: Dumbwaiter) -> int:
    tasks = waiter.store.tables.tasks
    statement = sa.select(sa.func.count()).where(tasks.c.status.in_(["pending", "running"]))
    with waiter.store.connections.reading() as connection:
        return int(connection.execute(statement).scalar_one())


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_the_trigger_sees_a_task_that_leaves_a_final_status(here: Place, waiter: Dumbwaiter) -> None:
    """So that the test above can fail."""
    task = waiter.cancel(waiter.enqueue("flicker").id)
    with waiter.store.connections.writing() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE left_final (id CHAR(36), was VARCHAR(20), became VARCHAR(20))"
        )
        connection.exec_driver_sql(WATCH["sqlite"][0])
        connection.exec_driver_sql("UPDATE dumbwaiter_tasks SET status = 'failed'")
        seen = connection.exec_driver_sql("SELECT * FROM left_final").all()

    assert seen == [(task.id, "cancelled", "failed")]
