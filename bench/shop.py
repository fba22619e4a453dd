"""The web application that `./dev bench api` and `./dev bench sse` serve: task routes, and a route of the barest kind.

It is told by its environment where its database is, as any application is.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
from fastapi import FastAPI

from dumbwaiter import Dumbwaiter
from dumbwaiter.integrations.fastapi import lifespan, router

waiter = Dumbwaiter(env="bench", app="bench.shop:waiter")


@waiter.task("noop", http=True)
def noop(number: int = 0) -> None: ...


@waiter.task("nap", http=True)
async def nap(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


app = FastAPI(lifespan=lifespan(waiter, worker=False))
app.include_router(router(waiter, public=True))

TABLE = "CREATE TABLE IF NOT EXISTS bare (id {key} PRIMARY KEY, payload text NOT NULL, created_at {time} NOT NULL)"


def inserting(database: str) -> Callable[[str, str], object]:
    """Inserts a row by one statement that commits by itself, on the bare driver; each thread has a connection of its own."""
    own = threading.local()
    if database.startswith("sqlite"):
        path = database.removeprefix("sqlite:///")

        def insert(key: str, payload: str) -> object:
            if not hasattr(own, "connection"):
                own.connection = sqlite3.connect(path, timeout=30, isolation_level=None)
                own.connection.execute("PRAGMA journal_mode = WAL")
                own.connection.execute("PRAGMA synchronous = NORMAL")  # as ours
                own.connection.execute(TABLE.format(key="text", time="text"))
            return own.connection.execute(
                "INSERT INTO bare VALUES (?, ?, strftime('%Y-%m-%dT%H:%M:%f'))", (key, payload)
            )

        return insert

    def insert_there(key: str, payload: str) -> object:
        if not hasattr(own, "connection"):
            own.connection = psycopg.connect(database, autocommit=True)
            own.connection.execute("SELECT pg_advisory_lock(1)")  # or two make the table at once
            own.connection.execute(TABLE.format(key="uuid", time="timestamptz"))
            own.connection.execute("SELECT pg_advisory_unlock(1)")
        return own.connection.execute("INSERT INTO bare VALUES (%s, %s, now())", (key, payload))

    return insert_there


insert = inserting(waiter.settings.database)


@app.post("/bare", status_code=202)
def bare(body: dict[str, Any]) -> dict[str, str]:
    """A route that inserts one row, and does nothing else."""
    key = str(uuid.uuid4())
    insert(key, json.dumps(body))
    return {"id": key}
