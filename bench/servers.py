"""The servers of a run: private ones, with the durability that they have by default, on ports and in directories of their own.

No server that somebody else started is touched: each run starts its own, and ends them by their process ids.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psycopg

from bench import processes
from tests.support.servers import (
    ServiceMissing,
    end,
    free_port,
    mariadb_programs,
    mysql_connection,
    postgresql_programs,
    program,
    serve_mariadb,
    serve_postgresql,
    spawn,
    wait_for,
)

NAME = "bench"


class Server(Protocol):
    """Where the tasks of a measurement lie."""

    name: str
    version: str

    def fresh(self) -> str:
        """The address of an empty database; what was there before is gone."""
        ...

    def ask(self, statement: str) -> Any:
        """The one value that a statement gives."""
        ...

    def settle(self) -> None:
        """The same start for every drain: statistics that are true, and no checkpoint about to come."""
        ...

    def statements(self) -> int | None:
        """How many statements it was sent so far; None if it does not count."""
        ...

    def cpu(self) -> float:
        """The seconds of processor time that its processes used so far."""
        ...

    def stop(self) -> None: ...


class PostgreSQL:
    name = "postgresql"

    def __init__(self, home: Path) -> None:
        programs = postgresql_programs()
        if programs is None:
            raise ServiceMissing("PostgreSQL is not installed")
        # the counter of statements is switched on for the measurement at rest only: it costs a drain 1 to 3 %
        settings = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "none"}
        self._running = serve_postgresql(programs, home / "postgresql", settings)
        self._address = self._running.url.removesuffix("/postgres")
        self.version = self._asked("postgres", "SHOW server_version")

    def fresh(self) -> str:
        for statement in (f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)", f"CREATE DATABASE {NAME}"):
            self._asked("postgres", statement)
        return f"{self._address}/{NAME}"

    def ask(self, statement: str) -> Any:
        return self._asked(NAME, statement)

    def _asked(self, database: str, statement: str) -> Any:
        with psycopg.connect(f"{self._address}/{database}", autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
            return None if row is None else row[0]

    def settle(self) -> None:
        self.ask("ANALYZE")
        self.ask("CHECKPOINT")

    def count_statements(self, on: bool) -> None:
        """Switch its counter, for sessions that begin after this."""
        self.ask("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        self.ask(f"ALTER DATABASE {NAME} SET pg_stat_statements.track = {'top' if on else 'none'}")

    def statements(self) -> int | None:
        counted = self.ask(
            "SELECT sum(calls)::bigint FROM pg_stat_statements JOIN pg_database ON oid = dbid "
            f"WHERE datname = '{NAME}' AND query NOT LIKE '%pg_stat_statements%'"
        )
        return int(counted or 0)

    def cpu(self) -> float:
        return processes.cpu(self._running.pid)

    @contextlib.contextmanager
    def old_snapshot(self) -> Iterator[None]:
        """A transaction that sees what was there when it began, and lets nothing that is dead since then be removed."""
        with psycopg.connect(f"{self._address}/{NAME}") as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT count(*) FROM pg_class").fetchone()
            yield
            connection.rollback()

    def stop(self) -> None:
        end(self._running)


class MariaDB:
    name = "mariadb"

    def __init__(self, home: Path) -> None:
        programs = mariadb_programs()
        if programs is None:
            raise ServiceMissing("MariaDB is not installed")
        self._running = serve_mariadb(programs, home / "mariadb", [])
        self.version = str(self._asked("SELECT version()"))

    def fresh(self) -> str:
        self._asked(f"DROP DATABASE IF EXISTS {NAME}")
        self._asked(f"CREATE DATABASE {NAME} CHARACTER SET utf8mb4")
        return f"{self._running.url}/{NAME}"

    def ask(self, statement: str) -> Any:
        return self._asked(statement, NAME)

    def _asked(self, statement: str, database: str | None = None) -> Any:
        with contextlib.closing(mysql_connection(self._running.url)) as connection:
            if database is not None:
                connection.select_db(database)
            with connection.cursor() as cursor:
                cursor.execute(statement)
                row = cursor.fetchone()
                return None if row is None else row[0]

    def settle(self) -> None:
        with contextlib.closing(mysql_connection(self._running.url)) as connection:
            connection.select_db(NAME)
            with connection.cursor() as cursor:
                cursor.execute("SHOW TABLES")
                for (table,) in cursor.fetchall():
                    cursor.execute(f"ANALYZE TABLE {table}")

    def statements(self) -> int | None:
        """All that it was asked; the two of this look, which opens a connection for itself, are not counted."""
        with (
            contextlib.closing(mysql_connection(self._running.url)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
            row = cursor.fetchone()
            assert row is not None
            self._looks = getattr(self, "_looks", 0) + 2
            return int(row[1]) - self._looks

    def cpu(self) -> float:
        return processes.cpu(self._running.pid)

    def stop(self) -> None:
        end(self._running)


class RabbitMQ:
    name = "rabbitmq"

    def __init__(self, home: Path) -> None:
        server, ports = program("rabbitmq-server"), program("epmd")
        direct = Path(
            "/usr/lib/rabbitmq/bin/rabbitmq-server"
        )  # Debian's word in the path runs it as a system service
        server = str(direct) if direct.exists() else server
        if server is None or ports is None:
            raise ServiceMissing("RabbitMQ is not installed")
        self._home = home / "rabbitmq"
        self._home.mkdir()
        (self._home / "plugins").write_text("[].\n")
        port, registry = free_port(), str(free_port())
        environment = {
            "HOME": str(self._home),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self._home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._home / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._home / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self._home / "none"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": registry,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        command = ["env", *(f"{name}={value}" for name, value in environment.items())]
        self._ports = spawn([*command, ports], None, self._home)
        self._process = spawn([*command, server], None, self._home)
        self._address = f"amqp://guest:guest@127.0.0.1:{port}//"
        self.version = ""
        wait_for(lambda: processes.listens(self._process.pid, port), "RabbitMQ to listen")

    def fresh(self) -> str:
        """Its one queue is emptied by the queue's own `prepare`."""
        return self._address

    def ask(self, statement: str) -> Any:
        raise NotImplementedError("RabbitMQ takes no statements")

    def settle(self) -> None:
        """There is nothing to settle."""

    def statements(self) -> int | None:
        return None

    def cpu(self) -> float:
        return processes.cpu(self._process.pid)

    def stop(self) -> None:
        for process in (self._process, self._ports):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class SQLite:
    name = "sqlite"
    version = sqlite3.sqlite_version

    def __init__(self, home: Path) -> None:
        self._home = home / "sqlite"
        self._path = self._home / f"{NAME}.db"

    def fresh(self) -> str:
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir()
        return f"sqlite:///{self._path}"

    def ask(self, statement: str) -> Any:
        with contextlib.closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection:
            row = connection.execute(statement).fetchone()
            return None if row is None else row[0]

    def settle(self) -> None:
        self.ask("ANALYZE")
        self.ask("PRAGMA wal_checkpoint(TRUNCATE)")

    def statements(self) -> int | None:
        return None

    def cpu(self) -> float:
        return 0.0

    def stop(self) -> None:
        """There is no process to stop."""


KINDS: dict[str, type[PostgreSQL | MariaDB | RabbitMQ | SQLite]] = {
    one.name: one for one in (PostgreSQL, MariaDB, RabbitMQ, SQLite)
}


@contextlib.contextmanager
def started(names: set[str]) -> Iterator[dict[str, Server]]:
    """The servers of these names; all are ended and their data removed when the block is left. What cannot be had is told."""
    servers: dict[str, Server] = {}
    with tempfile.TemporaryDirectory(prefix="dumbwaiter-bench-", dir=big_directory()) as directory:
        home = Path(directory)
        home.chmod(0o755)  # a server's own user must reach its data
        try:
            for name in sorted(names):
                try:
                    servers[name] = KINDS[name](home)
                except (ServiceMissing, OSError, subprocess.SubprocessError) as error:
                    print(f"bench: without {name}: {error}", file=sys.stderr)
            yield servers
        finally:
            for server in servers.values():
                server.stop()


def big_directory() -> str | None:
    """Not /tmp if there is another: on many machines that is memory, where no fsync costs anything."""
    return "/var/tmp" if Path("/var/tmp").is_dir() else None
