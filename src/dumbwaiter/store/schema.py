"""The schema of the database: which version it has, how it is brought up to date, and which environment it is for."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.errors import DatabaseUnavailable, SchemaMismatch, WrongEnvironment
from dumbwaiter.settings import Settings
from dumbwaiter.store.connections import Connections
from dumbwaiter.store.tables import Tables

# The revision that this version of the package works with; a test compares it with the newest migration, so that nothing
# has to import Alembic (some 900 ms) to know it.
REVISION = "0001"
INSTALLED = 1
MIGRATION_PATIENCE = 60
# Alembic keeps what it works on in global variables: two threads would run each other's migrations on each other's database.
ONE_AT_A_TIME = threading.Lock()


class Schema:
    """Keeps a process from working on tables that are missing, too old, too new, or another environment's.

    A SQLite file is created and brought up to date by itself; the tables of a server only when `migrate` is called.
    """

    def __init__(self, connections: Connections, tables: Tables, settings: Settings) -> None:
        self._connections = connections
        self._tables = tables
        self._settings = settings
        self._lock = threading.Lock()
        self._fine = False

    def ensure(self) -> None:
        """Raise SchemaMismatch or WrongEnvironment unless the database is ours to work on. Looks once in a process."""
        if self._fine:
            return
        with self._lock:
            if self._connections.dialect.name == "sqlite" and self.revision() is None:
                self._upgrade()
            self.check()
            self._fine = True

    def check(self) -> None:
        """Look now. Raises SchemaMismatch, WrongEnvironment."""
        found = self.revision()
        if found is None:
            raise SchemaMismatch("the database has no Dumbwaiter tables yet: run `dumbwaiter migrate`")
        if found < REVISION:
            if self._connections.dialect.name == "sqlite":
                self._upgrade()
            else:
                raise SchemaMismatch(
                    f"the database's tables are at revision {found}, this version needs {REVISION}: run `dumbwaiter migrate`"
                )
        self._refuse_newer(found)
        self._check_environment()

    def _refuse_newer(self, found: str) -> None:
        if found > REVISION:
            raise SchemaMismatch(
                f"the database's tables are at revision {found}, newer than this version knows ({REVISION}): "
                "upgrade the dumbwaiter package in this process"
            )

    def revision(self) -> str | None:
        """The revision that the database has, or None without our tables."""
        table = sa.table(self._tables.version_table, sa.column("version_num"), schema=self._tables.schema)
        with self._connections.reading() as connection:
            if not sa.inspect(connection).has_table(self._tables.version_table, schema=self._tables.schema):
                return None
            found = connection.execute(sa.select(table.c.version_num)).scalar()
        return None if found is None else str(found)

    def _check_environment(self) -> None:
        installation = self._tables.installation
        with self._connections.reading() as connection:
            found = connection.execute(sa.select(installation.c.environment)).scalar()
        if found is not None and found != self._settings.env:
            raise WrongEnvironment(
                f"this database was installed for the environment {found!r}, and this process runs in {self._settings.env!r}; "
                "set DUMBWAITER_ENV, or give the process its own database"
            )

    @cached_property
    def secret(self) -> str:
        """What links and tokens are signed with: the setting, or what was drawn at random when the tables were made.

        In the table, so that all servers agree and none forgets it with a restart.
        """
        if self._settings.secret:
            return self._settings.secret
        self.ensure()
        with self._connections.reading() as connection:
            return str(connection.execute(sa.select(self._tables.installation.c.secret)).scalar_one())

    def migrate(self) -> list[str]:
        """Bring the tables up to date, whoever else tries at the same time. The revisions that were applied."""
        before = self.revision()
        if before is not None:
            self._check_environment()
            self._refuse_newer(before)
        self._upgrade()
        self._fine = False
        self.check()
        after = self.revision()
        return [] if before == after else [str(after)]

    def _upgrade(self) -> None:
        with self._alone(), self._migrating() as connection:
            upgrade(connection, self._tables)
            self._note_environment(connection)

    @contextlib.contextmanager
    def _migrating(self) -> Iterator[Connection]:
        # not engine.begin(): a migration may have to leave the transaction (CREATE INDEX CONCURRENTLY)
        if self._connections.dialect.name == "sqlite":
            with self._connections.writing() as connection:
                yield connection
            return
        with self._connections.unhurried() as connection:
            yield connection
            connection.commit()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold off other migrations. The lock has a connection of its own: a session's lock outlives its transaction."""
        name = f"{self._tables.schema or ''}{self._tables.prefix}migrate"
        match self._connections.dialect.name:
            case "postgresql":
                # to the end of a transaction: behind a pooler the next statement, and with it an unlock, may meet another session
                with self._connections.writing(engine=self._connections.unhurried_engine) as connection:
                    self._patiently(
                        connection, sa.select(sa.func.pg_try_advisory_xact_lock(sa.func.hashtext(name)))
                    )
                    yield
                return
            case "mysql":
                # a lock's name counts for the whole server
                whole = sa.func.concat(sa.func.left(sa.func.sha1(sa.func.database()), 10), name)
                take, give = sa.select(sa.func.get_lock(whole, 0)), sa.select(sa.func.release_lock(whole))
            case _:
                # BEGIN IMMEDIATE is lock enough
                yield
                return
        with self._connections.reading() as connection:
            self._patiently(connection, take)
            try:
                yield
            finally:
                connection.execute(give)

    @staticmethod
    def _patiently(connection: Connection, take: sa.Select[Any]) -> None:
        give_up = time.monotonic() + MIGRATION_PATIENCE
        while not connection.execute(take).scalar():
            if time.monotonic() > give_up:
                raise DatabaseUnavailable(
                    f"another process has been migrating this database for {MIGRATION_PATIENCE} s; try again later"
                )
            time.sleep(0.05)

    def _note_environment(self, connection: Connection) -> None:
        installation = self._tables.installation
        if connection.execute(sa.select(installation.c.id)).first() is None:
            row = {
                "id": INSTALLED,
                "environment": self._settings.env,
                "secret": secrets.token_urlsafe(32),
                "installed_at": self._connections.dialect.now(),
            }
            connection.execute(sa.insert(installation).values(row))


def upgrade(connection: Connection, tables: Tables, revision: str = "head") -> None:
    """Run the migrations on this connection."""
    import logging

    from alembic import command
    from alembic.config import Config

    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", "dumbwaiter.store:migrations")
    config.attributes.update(connection=connection, tables=tables)
    if tables.schema is not None:
        connection.execute(sa.schema.CreateSchema(tables.schema, if_not_exists=True))
    with ONE_AT_A_TIME:
        command.upgrade(config, revision)
