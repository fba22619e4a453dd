"""How each database goes about what housekeeping asks: by an index, however many records and files are not due."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from dumbwaiter.store.pruning import StoredFile
from dumbwaiter.store.store import Store
from tests.store.plans import explained, generic_plan, sent
from tests.store.world import NOW, at
from tests.support.databases import Kind
from tests.support.filling import analyse, fill, finished

ROWS = 20_000
LATER = at(9_999)
DUE = at(1)


def filled(store: Store) -> Store:
    """Many records with a file and an attempt each, of which hardly any are due; many files that are deleted already."""
    fill(store, ROWS, {**finished(NOW), "prune_at": LATER}, at=NOW)
    fill(store, ROWS // 4, first=ROWS, at=NOW)
    fill(store, 20, {**finished(NOW), "prune_at": DUE}, first=2 * ROWS, at=NOW)
    tables = store.tables
    tasks, files, attempts = tables.tasks, tables.files, tables.attempts
    due = tasks.c.prune_at == sa.literal(DUE, tasks.c.prune_at.type)
    file: dict[str, Any] = {
        "task_id": tasks.c.id,
        "name": sa.literal("a.txt"),
        "attempt": sa.literal(1),
        "content_type": sa.literal("text/plain"),
        "size": sa.literal(1),
        "sha256": sa.literal("0" * 64, files.c.sha256.type),
        "object_key": sa.cast(tasks.c.id, sa.String(36)).concat("/1/a.txt"),
        "created_at": tasks.c.created_at,
        "expires_at": tasks.c.created_at,
        "deleted_at": sa.case((due, sa.null()), else_=tasks.c.created_at),
    }
    attempt: dict[str, Any] = {
        "task_id": tasks.c.id,
        "number": sa.literal(1),
        "worker_id": sa.literal("w1"),
        "started_at": tasks.c.created_at,
        "ended_at": tasks.c.created_at,
        "outcome": sa.literal("failed"),
        "sweep_at": sa.case((due, tasks.c.prune_at), else_=sa.null()),
    }
    with store.connections.unhurried() as connection:
        for table, row in ((files, file), (attempts, attempt)):
            chosen = sa.select(*row.values()).where(tasks.c.prune_at.is_not(None))
            connection.execute(sa.insert(table).from_select(list(row), chosen))
        connection.commit()
    analyse(store)
    return store


def works(store: Store) -> dict[str, tuple[Callable[[], object], tuple[str, ...]]]:
    """What housekeeping asks, and the indexes that are to serve it."""
    ids = store.old_records(now=at(60))
    files = [StoredFile(one, "a.txt", f"{one}/1/a.txt") for one in ids]
    attempts = [(one, 1) for one in ids]
    return {
        "prunable": (lambda: store.prunable(now=at(60)), ("files_expiry", "attempts_sweep", "tasks_prune")),
        "expired files": (lambda: store.expired_files(now=at(60)), ("files_expiry",)),
        "mark deleted": (lambda: store.mark_deleted(files, now=at(60)), ("files_pkey",)),
        "leftovers": (lambda: store.leftovers(now=at(60)), ("attempts_sweep",)),
        "swept": (lambda: store.swept(attempts, now=at(60)), ("attempts_pkey",)),
        "old records": (lambda: store.old_records(now=at(60)), ("tasks_prune",)),
        "belongings": (lambda: store.belongings(ids), ("files_pkey", "attempts_pkey")),
        "prune": (lambda: store.prune(ids, now=at(60)), ()),
    }


def faults(store: Store, plan: str, served: tuple[str, ...]) -> list[str]:
    """What is wrong with a plan, which must read no table as a whole, and sort nothing."""
    prefix, found = store.tables.prefix, []
    for index in served:
        table = index.rpartition("_")[0]
        name = {
            "postgresql": f"{prefix}{index}",
            "sqlite": f"sqlite_autoindex_{prefix}{table}" if index.endswith("pkey") else f"{prefix}{index}",
            "mysql": "PRIMARY" if index.endswith("pkey") else f"{prefix}{index}_full",
        }[store.kind]
        if name not in plan:
            found.append(f"not by {name}")
    for table in ("tasks", "files", "attempts"):
        whole = {
            "postgresql": rf"Seq Scan {prefix}{table}$",
            "sqlite": rf"SCAN {prefix}{table}$",
            "mysql": rf" {prefix}{table} (ALL|index) ",
        }[store.kind]
        if re.search(whole, plan, re.MULTILINE):
            found.append(f"reads all of {table}")
    if "TEMP B-TREE" in plan or "Sort" in plan or "filesort" in plan:
        found.append("sorts")
    return found


def test_what_housekeeping_asks_is_served_by_indexes(
    empty_store: Callable[[Kind], Store], database_kind: Kind
) -> None:
    store = filled(empty_store(database_kind))
    wrong = []
    for name, (work, served) in works(store).items():
        statement, parameters = sent(store, work, "tasks", "files", "attempts")[0]
        plans = [explained(store, statement, parameters)]
        if store.kind == "postgresql":
            plans.append(generic_plan(store, statement, parameters))
        wrong += [(name, fault, plan) for plan in plans for fault in faults(store, plan, served)]

    assert wrong == []
