"""How each database goes about the statements that run all the time, with many rows behind them.

The tests look at a hundred thousand rows, `./dev bench plans` at a million.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from psycopg import sql

from dumbwaiter.store.claiming import Concern
from dumbwaiter.store.fronts import Place
from dumbwaiter.store.rows import Finish, Limit
from dumbwaiter.store.store import Store
from dumbwaiter.task import Outcome
from tests.store.world import LEASE, NOBODY, NOW, at, new, want
from tests.support.filling import analyse, due_later, fill, finished, running

OURS = Concern(("t",), ["default"])
OWNER = "ada"


def filled(store: Store, rows: int = 100_000) -> Store:
    """Many finished tasks, some of them of one owner, a backlog that is ready, some that are due later, a few that run."""
    backlog, future, past = rows // 4, rows // 20, rows // 20
    fill(store, rows - backlog - future - past, finished(NOW), at=NOW)
    # whoever has a long past and little under way: to count that must not read the past
    fill(store, past, {**finished(NOW), "owner": OWNER}, first=5 * rows, at=NOW)
    fill(store, backlog, first=rows, at=NOW)
    fill(store, future, due_later(at(9_999)), first=2 * rows, at=NOW)
    fill(store, 20, running("w1", NOW), first=3 * rows, at=NOW)
    # at the end of the queue, where a look through the backlog finds them last
    fill(store, 20, {"attempt": 1, "crash_count": 1, "priority": -1}, first=4 * rows, at=NOW)
    analyse(store)
    return store


def sent(store: Store, work: Callable[[], object], *tables: str) -> list[tuple[str, Any]]:
    """The statements about tasks (or these tables) that work sends to the database, with their parameters."""
    names = [store.tables.prefix + table for table in tables or ("tasks",)]
    heard: list[tuple[str, Any]] = []

    def hear(_connection, _cursor, statement, parameters, _context, _many):
        heard.append((statement, parameters))

    duties = store.connections.engine
    with store.connections.for_a_request():
        requests = store.connections.engine
    engines = {duties, requests}
    for engine in engines:
        sa.event.listen(engine, "before_cursor_execute", hear)
    try:
        work()
    finally:
        for engine in engines:
            sa.event.remove(engine, "before_cursor_execute", hear)
    return [one for one in heard if "SELECT 1" not in one[0] and any(name in one[0] for name in names)]


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


def works(store: Store) -> dict[str, Callable[[], object]]:
    held = store.held("w1")
    only_here: dict[str, Callable[[], object]] = {}
    if store.db.dialect.ends_looks:
        only_here["claim from places"] = lambda: claim_from_places(store)
    return only_here | {
        "claim": lambda: store.claim(want(3), "w2", now=at(60)),
        "claim in steps": lambda: store.claim(
            want(3, needs={"t": {"c": 1}}, free={"c": 3}), "w2", now=at(60)
        ),
        "stage": lambda: store.stage(now=at(60)),
        "ahead": lambda: store.ahead(OURS),
        "around": lambda: store.around(LEASE, now=at(10)),
        "claim beside suspects": lambda: store.claim(want(3, in_process=("t",)), "w2", now=at(60)),
        "claim alone": lambda: store.claim(want(1, alone=True), "w2", now=at(60)),
        "reserve": lambda: store.reserve(OURS, "w2", LEASE, now=at(60)),
        "beat": lambda: store.heartbeat("w1", now=at(0)),
        "rescue": lambda: store.rescue(LEASE, now=at(10)),
        "finish": lambda: store.finish([Finish(held[0], Outcome.succeeded())], now=at(60)),
        "finish many": lambda: store.finish(
            [Finish(one, Outcome.succeeded()) for one in held[1:8]], now=at(60)
        ),
        "queues": store.queues_with_work,
        # of two that wait, one of them at the end of the queue
        "lines": lambda: store.lines(
            [replace(held[0], priority=number, run_at=NOW) for number in (0, -1)], now=at(60)
        ),
        "latest of a key": lambda: store.latest("t", "order-42", "ada"),
        "recent of an owner": lambda: store.recent("ada"),
        "active of an owner": lambda: store.enqueue(new(owner=OWNER, limits=[Limit(3), Limit(2, "t")])),
        "versions": lambda: store.versions([one.id for one in held]),
    }


def claim_from_places(store: Store) -> None:
    places = [Place(0, NOW, NOBODY), Place(7, NOW, NOBODY)]
    store.claim_from(places, want(3), "w2", now=at(60))


SERVED = {
    "claim": "ready",
    "claim from places": "ready",
    "claim in steps": "ready",
    "stage": "due",
    "ahead": "due",
    "around": "beat",
    "claim beside suspects": "ready",
    "claim alone": "suspect",
    "reserve": "suspect",
    "beat": "beat",
    "rescue": "beat",
    "finish": "pkey",
    "finish many": "pkey",
    "queues": "ready",
    "lines": "ready",
    "latest of a key": "key",
    "recent of an owner": "owner",
    "active of an owner": "active",
    "versions": "pkey",
}


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


@dataclass(frozen=True)
class Plan:
    """How a database goes about one statement, and what is wrong with that."""

    name: str
    text: str
    faults: tuple[str, ...]


def plans(store: Store) -> Iterator[Plan]:
    """The plan of every statement that runs all the time. The first that each sends is the one that looks for rows."""
    judge = {"postgresql": postgresql_faults, "sqlite": sqlite_faults, "mysql": mysql_faults}[store.kind]
    for name, work in works(store).items():
        statement, parameters = sent(store, work)[0]
        text = explained(store, statement, parameters)
        yield Plan(name, text, tuple(judge(store, name, text)))


def generic_plans(store: Store, names: Sequence[str] = tuple(SERVED)) -> Iterator[Plan]:
    """PostgreSQL's plans for values that it does not know: a statement that was prepared may get one of these."""
    for name in names:
        work = works(store)[name]
        statement, parameters = sent(store, work)[0]
        text = generic_plan(store, statement, parameters)
        yield Plan(f"{name}, values unknown", text, tuple(postgresql_faults(store, name, text)))


def postgresql_faults(store: Store, name: str, plan: str) -> Iterator[str]:
    tasks = store.tables.tasks.name
    if f"{tasks}_{SERVED[name]}" not in plan:
        yield f"not by {SERVED[name]}"
    if f"Seq Scan {tasks}" in plan:
        yield "reads the whole table"
    # the stager and the rescuer order by the index's one column, and the claim by the rest of its columns
    if "Sort" in plan:
        yield "sorts"


def sqlite_faults(store: Store, name: str, plan: str) -> Iterator[str]:
    tasks = store.tables.tasks.name
    served = "sqlite_autoindex" if SERVED[name] == "pkey" else f"{tasks}_{SERVED[name]}"
    if served not in " ".join(line for line in plan.splitlines() if "USING" in line):
        yield f"not by {served}"
    if f"SCAN {tasks}\n" in f"{plan}\n":
        yield "reads the whole table"
    if "TEMP B-TREE" in plan:
        yield "sorts"


def mysql_faults(store: Store, name: str, plan: str) -> Iterator[str]:
    ours = {"finish": "PRIMARY", "finish many": "PRIMARY", "versions": "PRIMARY", "beat": "tasks_worker_full"}
    served = ours.get(name, f"tasks_{SERVED[name]}_full")
    if served not in plan.split("key_len")[-1]:
        yield f"not by {served}"
    # the table is met by its name; of the table that a statement's parameters make every row is read
    if re.search(rf" {store.tables.tasks.name} (ALL|index) ", plan):
        yield "reads the whole table"
