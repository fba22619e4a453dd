"""Rows that a measurement puts into tables, and what must be true of them afterwards."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Literal

from bench.servers import Server
from dumbwaiter.settings import Settings
from dumbwaiter.store.store import Store
from tests.support.filling import due_later, fill, finished

Behind = Literal["nothing", "finished", "backlog", "future"]
OTHERS = 10_000_000


def fill_ours(address: str, task: str, number: int, behind: Behind = "nothing", many: int = 0) -> None:
    """So many tasks of ours that wait, as `enqueue` writes them, and many other rows behind them.

    A backlog is tasks of the same kind and priority that came later; what is due in the future has a higher priority.
    """
    now = datetime.now(UTC)
    later = due_later(now + timedelta(days=1), priority=50)
    change = {"nothing": None, "finished": finished(now), "backlog": None, "future": later}[behind]
    with closing(Store(Settings.load({"database": address}, environ={}))) as store:
        fill(store, many, change, task_type=task, first=OTHERS, at=now + timedelta(microseconds=1))
        fill(store, number, task_type=task, at=now)


def wrong(server: Server, drained: int, among: int | None = None) -> str:
    """What is wrong with our rows after so many of them were drained, in words: each must be a success at its first attempt.

    `among` is how many rows there are in all; those that finished before are successes at their first attempt too.
    """
    good = "status = 'success' AND attempt = 1 AND finished_at IS NOT NULL"
    table = "dumbwaiter_tasks"
    succeeded = int(server.ask(f"SELECT count(*) FROM {table} WHERE {good}"))
    bad = int(server.ask(f"SELECT count(*) FROM {table} WHERE status <> 'pending' AND NOT ({good})"))
    faults = []
    if succeeded < drained:
        faults.append(f"{succeeded} rows are successes at their first attempt, and {drained} tasks ran")
    if bad:
        faults.append(f"{bad} rows are neither waiting nor successes at their first attempt")
    if among is not None and int(server.ask(f"SELECT count(*) FROM {table}")) != among:
        faults.append(f"there are not {among} rows any more")
    return "; ".join(faults)


def copy(server: Server, table: str, number: int) -> None:
    """Copies of a table's one row on PostgreSQL, each with a key of its own; no trigger hears of it."""
    columns = str(
        server.ask(
            "SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns "
            f"WHERE table_name = '{table}' AND is_generated = 'NEVER' AND column_name <> 'id'"
        )
    )
    server.ask(
        f"BEGIN; SET LOCAL session_replication_role = replica; INSERT INTO {table} ({columns}) "
        f"SELECT {columns} FROM (SELECT * FROM {table} LIMIT 1) AS one, generate_series(1, {number}); COMMIT"
    )
