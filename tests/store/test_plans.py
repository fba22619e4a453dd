"""What the databases make of the statements: plans, locks, and what MySQL 8 would be sent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from dumbwaiter.eta import History
from dumbwaiter.store import claiming, durations, ending, enqueueing, keeping, positions
from dumbwaiter.store.claiming import Concern
from dumbwaiter.store.dialects import MySQL
from dumbwaiter.store.rows import Database, Finish, NewTask, Report
from dumbwaiter.store.store import Store
from dumbwaiter.store.tables import Tables
from dumbwaiter.task import AttemptOutcome, Kind, Outcome, Progress
from tests.store.plans import filled, generic_plans, plans
from tests.store.world import LEASE, at, claimed_ids, enqueued, new, new_id, started, want
from tests.support.filling import analyse


@pytest.mark.service("postgresql")
@pytest.mark.parametrize("rows", [100, 20_000, 100_000])
def test_postgresql_serves_every_statement_by_the_index_made_for_it_and_sorts_nothing(empty_store, rows):
    store = filled(empty_store("postgresql"), rows)

    assert [plan for plan in plans(store) if plan.faults] == []
    # and needs no parameter's value to see that a partial index serves
    assert [plan for plan in generic_plans(store) if plan.faults] == []


@pytest.mark.service("postgresql")
def test_a_plan_that_was_made_for_an_empty_table_is_good_for_a_full_one(empty_store):
    """A worker waits on an empty table, and keeps the plan of its prepared claim when the table fills."""
    store = empty_store("postgresql")
    with store.connections.writing() as connection:
        connection.execute(sa.text(f"TRUNCATE {store.tables.tasks.name}"))
    analyse(store)

    claims = list(generic_plans(store, ["claim", "claim from places", "claim beside suspects", "beat"]))

    assert len(claims) == 4
    assert [plan for plan in claims if plan.faults] == []


def test_sqlite_serves_every_statement_by_the_index_made_for_it_and_sorts_nothing(empty_store):
    store = filled(empty_store("sqlite"))

    assert [plan for plan in plans(store) if plan.faults] == []


@pytest.mark.service("mysql")
def test_mysql_serves_every_statement_by_the_index_made_for_it(empty_store):
    store = filled(empty_store("mysql"))

    assert [plan for plan in plans(store) if plan.faults] == []


@pytest.mark.service("postgresql")
def test_a_missing_index_is_seen_in_the_plans(empty_store):
    """So that the tests above can fail."""
    store = filled(empty_store("postgresql"), rows=10_000)
    [index] = [one for one in store.tables.tasks.indexes if str(one.name).endswith("tasks_ready")]
    with store.connections.writing() as connection:
        index.drop(connection)
    try:
        assert {plan.name for plan in plans(store) if plan.faults} == {
            "ahead",
            "claim",
            "claim from places",
            "claim in steps",
            "claim beside suspects",
            "queues",
            "lines",
        }
    finally:
        with store.connections.writing() as connection:
            index.create(connection)


OFF = ("hashjoin", "mergejoin", "hashagg", "sort", "material")


@pytest.mark.service("postgresql")
def test_a_claim_of_three_takes_three_whatever_plan_postgresql_makes(empty_store):
    store = empty_store("postgresql")
    with store.connections.writing() as connection:
        # not only empty: the pages that the other tests left make the planner choose otherwise
        connection.execute(sa.text(f"TRUNCATE {store.tables.tasks.name}"))
    for _ in range(30):
        enqueued(store)
    with store.connections.reading() as connection:
        # or the plan of the control below depends on whether autovacuum has been here
        connection.execute(sa.text(f"ANALYZE {store.tables.tasks.name}"))

    def first_three(materialized: bool) -> int:
        tasks, now = store.tables.tasks, at(1)
        statement: sa.Executable = claiming.claiming_at_once(store.db, want(3), "w1", now)
        if not materialized:
            chosen = claiming.due(store.db, want(3), now, tasks.c.id)
            statement = (
                claiming.taking(store.db, want(3), "w1", now)
                .where(tasks.c.id.in_(chosen))
                .returning(tasks.c.id)
            )
        with store.connections.engine.connect() as connection:
            for name in OFF:
                connection.execute(sa.text(f"SET LOCAL enable_{name} = off"))
            taken = len(connection.execute(statement).all())
            connection.rollback()
        return taken

    assert first_three(materialized=True) == 3
    assert first_three(materialized=False) > 3  # so that the line above can fail
    assert len(claimed_ids(store, 3)) == 3


@pytest.mark.service("postgresql")
def test_a_heartbeat_and_a_claim_do_not_wait_for_a_caller_who_looked_at_a_key(empty_store):
    """`DO UPDATE` would lock the row of the holder to the end of the caller's transaction."""
    store = empty_store("postgresql")
    holder = started(store, business_key="k")
    with store.connections.engine.begin() as connection:
        task, _ = store.enqueue(new(business_key="k"), connection=connection)

        assert task.id == holder.id
        assert store.heartbeat("w1", now=at(9)) == 1
        assert store.finish([Finish(holder, Outcome.succeeded())], now=at(9)) == ["success"]


# MySQL 8, which is not run here


class Recorder:
    """A connection that compiles what it is given for MySQL 8.0, and answers as an empty database would."""

    def __init__(self) -> None:
        self.dialect = mysql.dialect()
        self.dialect.server_version_info = (8, 0, 36)
        self.texts: list[str] = []
        self.rows: list[Any] = []

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        self.texts.append(str(statement.compile(dialect=self.dialect)))
        return Answer(self.rows.pop(0) if self.rows else [])


class Answer:
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows
        self.rowcount = 1

    def mappings(self):
        return self

    def all(self):
        return self.rows

    def first(self):
        return self.rows[0] if self.rows else None

    def scalar(self):
        return self.rows[0] if self.rows else None

    def one(self):
        return self.rows[0]


def test_every_statement_compiles_for_mysql_8_without_returning(empty_store):
    db = Database(Tables(), MySQL())
    now = db.now(None)
    task = started(empty_store("sqlite"), business_key="k")
    recorder = Recorder()
    connection: Any = recorder
    asked = want(3, needs={"t": {"c": 1}}, free={"c": 3})
    keyed = NewTask(
        new_id(), "t", {}, business_key="k", request_key="r", request_hash="h", reuse_for=timedelta(1)
    )

    enqueueing.insert_once(db, connection, keyed, now)
    enqueueing.insert_plain(db, connection, new(run_at=at(5)), now)
    enqueueing.still_active(db, connection, task)
    enqueueing.by_active_key(db, connection, "k" * 64, locked=True)
    recorder.rows = [[(task.id, "t")]]
    claiming.claim_in_steps(db, connection, asked, "w1", now)
    recorder.rows = [[], [row_of(empty_store("sqlite"))]]
    claiming.claim_one(db, connection, asked, "w1", now, task_id=task.id)
    claiming.queues_with_work(db, connection)
    for kind in Kind:
        outcome = Outcome(kind, AttemptOutcome.FAILED, delay=timedelta(seconds=5))
        ending.finish(db, connection, Finish(task, outcome), now)
    ending.written_before(db, connection, Finish(task, Outcome.succeeded()))
    ending.cancel_pending(db, connection, task, now, "why")
    ending.request_cancel(db, connection, task, now)
    ending.rescue(db, connection, now, lease=LEASE, decide=lambda *_: Outcome.released(), limit=5)
    ending.expire(db, connection, now, 5)
    connection.execute(keeping.beating(db, "w1", now))
    connection.execute(keeping.worker_beating(db, "w1", now))
    keeping.report(db, connection, [Report(task, Progress(0.5, "step"), timedelta(seconds=5))], now)
    recorder.rows = [[(task.id, "default")]]
    keeping.stage(db, connection, now, 5)
    recorder.rows = [[(None, 0, 0)], [(0, 0, now)]]
    keeping.ahead(db, connection, Concern(("t",)), db.now(None))
    keeping.around(db, connection, db.now(None), LEASE)
    recorder.rows = [[(task.id, "t", None, 0, 1)]]
    claiming.reserve(db, connection, Concern(("t",), ["default"]), "w1", now, lease=LEASE)
    claiming.reserved(db, connection, task.id, "w1")
    keeping.forget_silent(db, connection, now, timedelta(minutes=5))
    recorder.rows = [[("t", History.of(3).as_json())]]
    durations.add(db, connection, {"t": History.of(5)}, now)
    connection.execute(
        positions.looking(db, {"default": positions.Depth(0, at(0)), "q": positions.Depth(1, at(0))})
    )

    verbs = {text.split()[0] for text in recorder.texts}
    assert verbs == {"SELECT", "INSERT", "UPDATE", "DELETE"}
    assert len(recorder.texts) > 30
    for text in recorder.texts:
        assert "RETURNING" not in text
        assert "MATERIALIZED" not in text
        assert "IGNORE" not in text
    assert any("FOR UPDATE SKIP LOCKED" in text for text in recorder.texts)


def row_of(store: Store) -> Any:
    task = enqueued(store)
    tasks = store.tables.tasks
    with store.connections.reading() as connection:
        return connection.execute(sa.select(tasks).where(tasks.c.id == task.id)).mappings().one()
