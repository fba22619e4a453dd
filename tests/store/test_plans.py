"""What the databases make of the statements: plans, locks, and what MySQL 8 would be sent."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy.dialects import mysql

from dumbwaiter.store import claiming, ending, enqueueing, keeping
from dumbwaiter.store.dialects import MySQL
from dumbwaiter.store.rows import Database, Finish, NewTask, Report
from dumbwaiter.store.store import Store
from dumbwaiter.store.tables import Tables
from dumbwaiter.task import AttemptOutcome, Kind, Outcome, Progress
from tests.store.world import LEASE, at, claimed_ids, enqueued, new, new_id, started, want

HISTORY = 4_000
BACKLOG = 1_500


def fill(store: Store, rows: list[dict[str, Any]]) -> None:
    with store.connections.writing() as connection:
        for begin in range(0, len(rows), 500):
            connection.execute(sa.insert(store.tables.tasks), rows[begin : begin + 500])


def filled(store: Store) -> Store:
    """Many finished tasks, a backlog that is ready, some that are due later, a few that run."""
    base = enqueueing.values(store.db, new(), at(0)) | {
        "finished_at": None,
        "worker_id": None,
        "heartbeat_at": None,
    }
    done = {"status": "success", "ready": False, "finished_at": at(1)}
    running = {"status": "running", "ready": False, "worker_id": "w1", "heartbeat_at": at(0), "attempt": 1}
    kinds = [
        ({**done}, HISTORY),
        ({}, BACKLOG),
        ({"ready": False, "run_at": at(9_999)}, 500),
        ({**running}, 20),
    ]
    fill(store, [base | change | {"id": new_id()} for change, number in kinds for _ in range(number)])
    with store.connections.reading() as connection:
        analyse = {"mysql": f"ANALYZE TABLE {store.tables.tasks.name}"}.get(store.kind, "ANALYZE")
        connection.execute(sa.text(analyse)).close()
    return store


def sent(store: Store, work: Any) -> list[tuple[str, Any]]:
    """The statements that work sends to the database, with their parameters."""
    heard: list[tuple[str, Any]] = []

    def hear(_connection, _cursor, statement, parameters, _context, _many):
        heard.append((statement, parameters))

    sa.event.listen(store.connections.engine, "before_cursor_execute", hear)
    try:
        work()
    finally:
        sa.event.remove(store.connections.engine, "before_cursor_execute", hear)
    return [one for one in heard if "SELECT 1" not in one[0] and store.tables.tasks.name in one[0]]


def explained(store: Store, statement: str, parameters: Any) -> str:
    """The plan, on one line per step; nothing that the statement did is kept."""
    words = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN (FORMAT JSON) ", "mysql": "EXPLAIN "}
    with store.connections.engine.connect() as connection:
        cursor = connection.connection.cursor()
        cursor.execute(words[store.kind] + statement, parameters)
        rows = cursor.fetchall()
        cursor.close()
        connection.rollback()
    if store.kind != "postgresql":
        return "\n".join(" ".join(str(part) for part in row) for row in rows)
    plan = rows[0][0] if isinstance(rows[0][0], list) else json.loads(rows[0][0])
    return "\n".join(steps(plan[0]["Plan"]))


def steps(plan: dict[str, Any]) -> list[str]:
    name = plan.get("Index Name") or plan.get("Relation Name", "")
    return [f"{plan['Node Type']} {name}".strip()] + [
        step for part in plan.get("Plans", []) for step in steps(part)
    ]


def works(store: Store) -> dict[str, Any]:
    [held] = store.held("w1")[:1]
    return {
        "claim": lambda: store.claim(want(3), "w2", now=at(60)),
        "claim in steps": lambda: store.claim(
            want(3, needs={"t": {"c": 1}}, free={"c": 3}), "w2", now=at(60)
        ),
        "stage": lambda: store.stage(now=at(60)),
        "next due": store.next_due,
        "beat": lambda: store.heartbeat("w1", now=at(0)),
        "rescue": lambda: store.rescue(LEASE, now=at(10)),
        "finish": lambda: store.finish([Finish(held, Outcome.succeeded())], now=at(60)),
        "queues": store.queues_with_work,
    }


SERVED = {
    "claim": "ready",
    "claim in steps": "ready",
    "stage": "due",
    "next due": "due",
    "beat": "beat",
    "rescue": "beat",
    "finish": "pkey",
    "queues": "ready",
}


@pytest.mark.service("postgresql")
def test_postgresql_serves_every_statement_by_the_index_made_for_it_and_sorts_nothing(empty_store):
    store = filled(empty_store("postgresql"))

    for name, work in works(store).items():
        statement, parameters = sent(store, work)[0]
        plan = explained(store, statement, parameters)
        assert f"{store.tables.tasks.name}_{SERVED[name]}" in plan, (name, plan)
        assert f"Seq Scan {store.tables.tasks.name}" not in plan, (name, plan)
        # the stager and the rescuer order by the index's one column, and the claim by the rest of its columns
        assert "Sort" not in plan, (name, plan)


@pytest.mark.service("postgresql")
def test_postgresql_needs_no_parameters_value_to_see_that_a_partial_index_serves(empty_store):
    """A statement that was prepared may get a generic plan, which knows no value."""
    store = filled(empty_store("postgresql"))

    for name, work in works(store).items():
        statement, parameters = sent(store, work)[0]
        plan = generic_plan(store, statement, parameters)
        assert f"{store.tables.tasks.name}_{SERVED[name]}" in plan, (name, plan)


def generic_plan(store: Store, statement: str, parameters: Any) -> str:
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", statement)
    values = sql.SQL(", ").join(sql.Literal(parameters[name]) for name in names)
    execute = sql.SQL(
        "EXPLAIN (FORMAT JSON) EXECUTE trial({})" if names else "EXPLAIN (FORMAT JSON) EXECUTE trial"
    )
    with store.connections.engine.connect() as connection:
        cursor: Any = connection.connection.cursor()
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute(f"PREPARE trial AS {numbered}")
        plan = cursor.execute(execute.format(values)).fetchall()
        cursor.execute("DEALLOCATE trial")
        cursor.close()
        connection.rollback()
    return "\n".join(steps(plan[0][0][0]["Plan"]))


def indexes_used(plan: str) -> str:
    return " ".join(line for line in plan.splitlines() if "USING" in line)


def test_sqlite_serves_every_statement_by_the_index_made_for_it_and_sorts_nothing(empty_store):
    store = filled(empty_store("sqlite"))

    for name, work in works(store).items():
        statement, parameters = sent(store, work)[0]
        plan = explained(store, statement, parameters)
        served = "sqlite_autoindex" if SERVED[name] == "pkey" else f"{store.tables.tasks.name}_{SERVED[name]}"
        assert served in indexes_used(plan), (name, plan)
        assert "TEMP B-TREE" not in plan, (name, plan)
        assert f"SCAN {store.tables.tasks.name}\n" not in f"{plan}\n", (name, plan)


@pytest.mark.service("mysql")
def test_mysql_serves_every_statement_by_the_index_made_for_it(empty_store):
    store = filled(empty_store("mysql"))
    ours = {"finish": "PRIMARY", "beat": "tasks_worker_full"}
    served = {name: f"tasks_{index}_full" for name, index in SERVED.items()} | ours

    for name, work in works(store).items():
        statement, parameters = sent(store, work)[0]
        plan = explained(store, statement, parameters)
        assert served[name] in plan.split("key_len")[-1], (name, plan)
        assert " ALL " not in plan, (name, plan)


OFF = ("hashjoin", "mergejoin", "hashagg", "sort", "material")


@pytest.mark.service("postgresql")
def test_a_claim_of_three_takes_three_whatever_plan_postgresql_makes(empty_store):
    store = empty_store("postgresql")
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
    claiming.claim(db, connection, asked, "w1", now)
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
    keeping.next_due(db, connection, db.now(None))
    keeping.forget_silent(db, connection, now, timedelta(minutes=5))

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
