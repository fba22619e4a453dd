"""How a database says that there may be something due: NOTIFY on PostgreSQL, `data_version` on SQLite."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

from dumbwaiter.errors import DatabaseUnavailable
from dumbwaiter.store import impatient, patience
from dumbwaiter.store.connections import Connections, first_line, normal_url

# A look at data_version costs 3 µs; other processes' commits are seen so soon.
LOOK = 0.02
# How often a listener comes back from the database to see whether it should stop.
TURN = 0.5
# How often it asks whether anybody is still at the other end: nothing else tells a quiet connection from a dead one, and
# with a dead one every start would be as late as a poll for weeks.
PROBE = 15.0


def listen(
    connections: Connections, address: str, channel: str, heard: Callable[[], None], stopped: threading.Event
) -> None:
    """Call `heard` whenever something may have become ready, until stopped. Raises DatabaseUnavailable if it cannot listen.

    Where a database has nothing of the kind (MySQL), it only waits: the claimer polls.
    """
    match connections.dialect.name:
        case "postgresql":
            listen_postgresql(connections, address, channel, heard, stopped)
        case "sqlite":
            watch_sqlite(connections, heard, stopped)
        case _:
            stopped.wait()


def listen_postgresql(
    connections: Connections, address: str, channel: str, heard: Callable[[], None], stopped: threading.Event
) -> None:
    import psycopg
    from psycopg import sql

    if connections.pgbouncer and not address:
        # through a pooler in transaction mode no notification arrives, and no error either: polling has to do
        stopped.wait()
        return
    # behind a pooler the direct address is another one
    url = normal_url(address) if address else connections.url
    _, arguments = connections.engine.dialect.create_connect_args(url)
    keep = {"connect_timeout": int(patience.CONNECT), "application_name": "dumbwaiter listener"}
    try:
        with impatient.postgresql().connect(
            **keep | dict[str, Any](arguments), autocommit=True
        ) as connection:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            heard()  # what was said before we listened
            probe = time.monotonic() + PROBE
            while not stopped.is_set():
                for _ in connection.notifies(timeout=TURN, stop_after=1):
                    heard()
                if time.monotonic() > probe:
                    connection.execute("SELECT 1")
                    probe = time.monotonic() + PROBE
    except psycopg.Error as error:
        raise DatabaseUnavailable(f"listening for notifications ended: {first_line(error)}") from error


def watch_sqlite(connections: Connections, heard: Callable[[], None], stopped: threading.Event) -> None:
    """Other connections' commits change `data_version`. Never inside a transaction: there it does not move."""
    with connections.reading() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        before = None
        while not stopped.wait(LOOK):
            try:
                version = driver.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error as error:
                raise DatabaseUnavailable(
                    f"the SQLite file cannot be watched: {first_line(error)}"
                ) from error
            if before is not None and version != before:
                heard()
            before = version
