"""Database servers of a test's own: to be stopped and crashed, or to be had with more connections than the shared ones have."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.support import servers
from tests.support.databases import Database, Kind
from tests.support.servers import Running, ServiceMissing


@dataclass
class Server:
    """A server of a test's own, which keeps its data and its address."""

    kind: Kind
    running: Running
    database: Database
    start: Callable[[], Running]

    def away(self, seconds: float, *, crash: bool) -> None:
        servers.stop(self.running, crash=crash)
        time.sleep(seconds)  # the outage itself
        self.running = self.start()

    def told(self, *statements: str) -> None:
        """Say something to the server itself, not to the trial's database."""
        import psycopg

        with psycopg.connect(self.running.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@contextmanager
def served(kind: Kind, *, connections: int = 100) -> Iterator[Server]:
    """As an operator would have it, with the durability that it has by default; for so many connections."""
    # not in pytest's own directory, which the server's user may not enter
    home = Path(tempfile.mkdtemp(prefix="dumbwaiter-server-"))
    home.chmod(0o755)
    data = home / kind
    start: Callable[[], Running]
    if kind == "postgresql":
        programs = servers.postgresql_programs()
        if programs is None:
            raise ServiceMissing("PostgreSQL's own programs are needed: apt install postgresql")
        settings = {"max_connections": connections}
        running = servers.serve_postgresql(programs, data, settings)
        port = urlsplit(running.url).port or 0
        start = lambda: servers.start_postgresql(programs, data, settings, port)  # noqa: E731
        address = running.url.rpartition("/")[0] + "/trial"
        server = Server(kind, running, Database(kind, address), start)
        server.told("CREATE DATABASE trial")
    else:
        found = servers.mariadb_programs()
        if found is None:
            raise ServiceMissing("MariaDB's own programs are needed: apt install mariadb-server")
        options = [f"--max-connections={connections}"]
        running = servers.serve_mariadb(found, data, options)
        port = urlsplit(running.url).port or 0
        start = lambda: servers.start_mariadb(found[0], data, options, port)  # noqa: E731
        server = Server(kind, running, Database(kind, f"{running.url}/trial"), start)
        with servers.mysql_connection(running.url) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE trial CHARACTER SET utf8mb4")
    try:
        yield server
    finally:
        servers.end(server.running)
        shutil.rmtree(home)
