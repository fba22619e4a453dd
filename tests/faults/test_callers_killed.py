"""A caller that is killed around its commit: the business row exists exactly when the task does."""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from dumbwaiter import Dumbwaiter
from tests.support.databases import Database
from tests.support.programs import program
from tests.support.workers import ROOT

CALLER = """
import os, signal, sys
import sqlalchemy as sa
from dumbwaiter import Dumbwaiter

address, way, moment = sys.argv[1:]
waiter = Dumbwaiter(address, env="test")
waiter.task("invoice")(lambda order: None)
url = waiter.store.connections.url

def connect():
    if way == "sqlalchemy":
        return sa.create_engine(url).connect()
    if url.get_backend_name() == "sqlite":
        import sqlite3
        return sqlite3.connect(url.database, timeout=30)
    if url.get_backend_name() == "postgresql":
        import psycopg
        return psycopg.connect(url.set(drivername="postgresql").render_as_string(hide_password=False))
    import pymysql
    return pymysql.connect(host=url.host, port=url.port or 3306, user=url.username, database=url.database)

connection = connect()
DRIVER = {"sqlite": "sqlite3", "postgresql": "psycopg", "mysql": "pymysql"}[url.get_backend_name()]

def run(sql, parameters=None):
    if way == "sqlalchemy":
        return connection.execute(sa.text(sql))
    return connection.cursor().execute(*((sql,) if parameters is None else (sql, parameters)))

for number in range(1, 100_000):
    run(f"INSERT INTO orders (id) VALUES ({number})")
    if way == "statement":
        statement = waiter.statement("invoice", {"order": number}, driver=DRIVER, key=f"order-{number}")
        run(statement.sql, statement.parameters)
    else:
        waiter.enqueue("invoice", {"order": number}, connection=connection, key=f"order-{number}")
    if number == 3 and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    connection.commit()
    if number == 3 and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    print("order", number, flush=True)
"""


@pytest.mark.parametrize(
    ("way", "moment"),
    [
        ("driver", "before"),
        ("driver", "after"),
        ("statement", "before"),
        ("statement", "whenever"),
        ("sqlalchemy", "whenever"),
    ],
)
def test_the_business_row_exists_exactly_when_the_task_does(
    database: Database, tmp_path: Path, way: str, moment: str
) -> None:
    waiter = Dumbwaiter(database.url, env="test")
    waiter.migrate()
    with waiter.store.connections.writing() as connection:
        connection.execute(sa.text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))

    argv = (sys.executable, "-c", CALLER, database.url, way, moment)
    with program(*argv, cwd=tmp_path, PYTHONPATH=str(ROOT / "src")) as caller:
        if moment == "whenever":
            caller.says("order 5", 40)
            time.sleep(random.uniform(0, 0.2))  # any moment will do
            caller.signal(signal.SIGKILL)
        assert caller.wait(40) == -signal.SIGKILL, caller.said

    # a server may be about to carry out the last commit when its client is gone
    def both() -> tuple[list[int], list[int]]:
        return orders(waiter), sorted(task.payload["order"] for task in waiter.find(limit=100_000))

    seen = both()
    while seen != (again := both()):
        seen = again
    ids, tasks = seen
    assert ids == tasks
    if moment != "whenever":
        assert ids == ([1, 2] if moment == "before" else [1, 2, 3])
    waiter.close()


def orders(waiter: Dumbwaiter) -> list[int]:
    with waiter.store.connections.reading() as connection:
        return list(connection.execute(sa.text("SELECT id FROM orders ORDER BY id")).scalars())
