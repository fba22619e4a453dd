"""A task as one statement for a driver that we do not drive: its SQL, and its parameters in the driver's own form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import Dialect as SADialect

from dumbwaiter.errors import InvalidOption
from dumbwaiter.store import enqueueing
from dumbwaiter.store.rows import Database, NewTask


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement that enqueues a task: execute it in your transaction.

    `parameters` is a mapping where `sql` names them (psycopg), else a list in their order. `task_id` is the new task's id,
    if the statement inserted one: with a key that an active task holds, it inserts nothing.
    """

    sql: str
    parameters: Any
    task_id: str


def psycopg() -> SADialect:
    from sqlalchemy.dialects.postgresql import psycopg as driver

    return driver.dialect()  # type: ignore[no-untyped-call]


def asyncpg() -> SADialect:
    from sqlalchemy.dialects.postgresql import asyncpg as driver

    return driver.dialect()  # type: ignore[no-untyped-call]


def pymysql() -> SADialect:
    from sqlalchemy.dialects.mysql import pymysql as driver

    return driver.dialect()


def question_marks() -> SADialect:
    from sqlalchemy.dialects import sqlite

    return sqlite.dialect(paramstyle="qmark")


def formatted() -> SADialect:
    from sqlalchemy.dialects import sqlite

    # Django's SQLite cursor takes ? too, but with DEBUG=True it fails on them
    return sqlite.dialect(paramstyle="format")


FORMS: Mapping[str, Mapping[str, Callable[[], SADialect]]] = {
    "psycopg": {"postgresql": psycopg},
    "asyncpg": {"postgresql": asyncpg},
    "pymysql": {"mysql": pymysql},
    "sqlite3": {"sqlite": question_marks},
    "aiosqlite": {"sqlite": question_marks},
    "django": {"postgresql": psycopg, "mysql": pymysql, "sqlite": formatted},
}


def statement(db: Database, new: NewTask, driver: str) -> Statement:
    """The insert of a task. Raises InvalidOption for a driver of another database, and for what takes several statements."""
    forms = FORMS.get(driver)
    if forms is None:
        raise InvalidOption(f"driver={driver!r} is not known; there are {', '.join(FORMS)}")
    form = forms.get(db.dialect.name)
    if form is None:
        raise InvalidOption(
            f"driver={driver!r} does not speak to the tasks' database, which is {db.dialect.name}"
        )
    if new.on_duplicate != "return" or new.reuse_for is not None:
        raise InvalidOption(
            "on_duplicate= and reuse_for= take several statements: with waiter.statement(…) a key that is taken means that "
            "no row is inserted, and no more; enqueue with connection= where you can"
        )
    return compiled(insertion(db, new), form(), new.id)


def insertion(db: Database, new: NewTask) -> sa.Executable:
    """The insert, which on PostgreSQL also wakes the workers if it inserted, once the transaction commits."""
    tasks = db.tables.tasks
    row = enqueueing.values(db, new, db.now(None), new.active_key)
    match db.dialect.name:
        case "postgresql":
            from sqlalchemy.dialects import postgresql

            inserted = (
                postgresql.insert(tasks)
                .values(row)
                .on_conflict_do_nothing()
                .returning(tasks.c.id, tasks.c.queue)
                .cte("inserted")
            )
            return sa.select(inserted.c.id, sa.func.pg_notify(db.tables.channel, inserted.c.queue))
        case "sqlite":
            from sqlalchemy.dialects import sqlite

            return sqlite.insert(tasks).values(row).on_conflict_do_nothing()
        case _:
            # never INSERT IGNORE: it turns NULL into '' and cuts what is too long
            return sa.insert(tasks).values(row)


def compiled(what: sa.Executable, dialect: SADialect, task_id: str) -> Statement:
    text: Any = what.compile(dialect=dialect)  # type: ignore[attr-defined]
    sql, parameters = driver_form(text)
    return Statement(sql, parameters, task_id)


def driver_form(compiled: Any) -> tuple[str, Mapping[str, Any] | Sequence[Any]]:
    """A compiled statement as its driver takes it: the text, and a mapping or a list of plain values."""
    parameters = dict(compiled.params)
    for name, process in compiled._bind_processors.items():
        parameters[name] = process(parameters[name])
    if compiled.positional:
        return str(compiled), [parameters[name] for name in compiled.positiontup]
    return str(compiled), parameters
