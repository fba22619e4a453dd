"""The schema: how it comes into a database, and which databases are refused."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter.errors import SchemaMismatch, WrongEnvironment
from dumbwaiter.store.migrations import versions
from dumbwaiter.store.schema import REVISION
from dumbwaiter.store.store import Store
from dumbwaiter.store.tables import Tables
from tests.store.racing import meet, raced_by
from tests.store.world import SERVERS, enqueued, new, store_of
from tests.support.databases import Database


@pytest.fixture
def opened() -> Iterator[Callable[..., Store]]:
    """Opens stores, and closes them when the test ends."""
    with contextlib.ExitStack() as stack:

        def open_one(url: str, **settings: Any) -> Store:
            store = store_of(url, **settings)
            stack.callback(store.close)
            return store

        yield open_one


@pytest.fixture
def fresh(database: Database, opened: Callable[..., Store]) -> Store:
    """A store on a database without tables."""
    return opened(database.url)


def set_revision(store: Store, revision: str) -> None:
    table = sa.table(store.tables.version_table, sa.column("version_num"))
    with store.connections.writing() as connection:
        connection.execute(sa.update(table).values(version_num=revision))


def test_the_newest_migration_is_the_revision_that_this_version_works_with():
    found = sorted(path.name[:4] for path in Path(versions.__path__[0]).glob("[0-9]*.py"))

    assert found[-1] == REVISION


def test_the_migrations_make_the_tables_that_the_program_speaks_of(fresh, make_database, opened):
    fresh.schema.migrate()
    other = opened(make_database(fresh.kind).url)
    with other.connections.writing() as connection:
        other.tables.metadata.create_all(connection)

    migrated, declared = definitions(fresh), definitions(other)

    assert migrated == declared
    assert len([name for name in migrated if name.startswith("dumbwaiter_")]) >= 9


def definitions(store: Store) -> dict[str, Any]:
    """Every table, index, constraint and setting in the database's own words."""
    with store.connections.reading() as connection:
        if store.kind == "sqlite":
            return dict(
                named(connection, "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE '%alembic%'")
            )
        if store.kind == "mysql":
            tables = [str(name) for (name,) in connection.execute(sa.text("SHOW TABLES"))]
            shown = {
                name: connection.execute(sa.text(f"SHOW CREATE TABLE {name}")).one()[1] for name in tables
            }
            # keys stand there in any order
            return {name: sorted(text.split("\n")) for name, text in shown.items() if "alembic" not in name}
        columns = named(
            connection,
            "SELECT table_name || '.' || column_name, data_type || ' ' || is_nullable || ' '"
            " || coalesce(character_maximum_length, datetime_precision, 0) FROM information_schema.columns"
            " WHERE table_schema = 'public' AND table_name NOT LIKE '%alembic%'",
        )
        indexes = named(
            connection,
            "SELECT indexname, indexdef FROM pg_indexes"
            " WHERE schemaname = 'public' AND indexname NOT LIKE '%alembic%'",
        )
        constraints = named(
            connection,
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE connamespace = 'public'::regnamespace AND conname NOT LIKE '%alembic%'",
        )
        settings = named(
            connection,
            "SELECT relname || ' with', reloptions::text FROM pg_class"
            " WHERE relnamespace = 'public'::regnamespace AND reloptions IS NOT NULL",
        )
        return dict(columns) | dict(indexes) | dict(constraints) | dict(settings)


def named(connection: sa.Connection, question: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in connection.execute(sa.text(question))]


@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)
def test_the_table_of_tasks_is_vacuumed_before_a_fifth_of_it_is_dead(fresh):
    fresh.schema.migrate()

    settings = definitions(fresh)[f"{fresh.tables.tasks.name} with"]

    assert settings == "{autovacuum_vacuum_scale_factor=0.02,autovacuum_vacuum_threshold=1000}"


def test_a_second_migration_does_nothing(fresh):
    assert fresh.schema.migrate() == [REVISION]
    task = enqueued(fresh)

    assert fresh.schema.migrate() == []
    assert fresh.get(task.id) == task


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_database_without_tables_says_so_in_one_line(make_database, kind, opened):
    store = opened(make_database(kind).url)

    with pytest.raises(
        SchemaMismatch, match=r"^the database has no Dumbwaiter tables yet: run `dumbwaiter migrate`$"
    ):
        store.enqueue(new())


@pytest.mark.parametrize("kind", SERVERS)
def test_tables_that_are_too_old_say_so_in_one_line(make_database, kind, opened):
    store = opened(make_database(kind).url)
    store.schema.migrate()
    set_revision(store, "0000")

    with pytest.raises(SchemaMismatch, match=r"^[^\n]*at revision 0000[^\n]*run `dumbwaiter migrate`$"):
        opened(store.settings.database).schema.ensure()


def test_tables_that_are_too_new_say_so_in_one_line_and_are_left_alone(fresh, opened):
    fresh.schema.migrate()
    set_revision(fresh, "9999")

    for method in (fresh.schema.check, fresh.schema.migrate, opened(fresh.settings.database).schema.ensure):
        with pytest.raises(
            SchemaMismatch, match=r"^[^\n]*at revision 9999, newer[^\n]*upgrade the dumbwaiter package"
        ):
            method()

    assert fresh.schema.revision() == "9999"


def test_a_database_of_another_environment_is_refused_in_one_line(fresh, opened):
    fresh.schema.migrate()
    other = opened(fresh.settings.database, env="production")

    for method in (other.schema.ensure, other.schema.migrate, lambda: other.enqueue(new())):
        with pytest.raises(
            WrongEnvironment, match=r"^[^\n]*'development'[^\n]*'production'[^\n]*DUMBWAITER_ENV"
        ):
            method()

    assert fresh.find() == []


def test_a_sqlite_file_is_created_by_itself_with_its_directory(tmp_path, opened):
    path = tmp_path / "new" / "tasks.db"
    store = opened(f"sqlite:///{path}")

    task = enqueued(store)

    assert store.get(task.id) == task
    assert path.exists()


def migrate(pipe: Connection, url: str) -> None:
    store = store_of(url)
    meet(pipe)
    try:
        store.schema.migrate()
        pipe.send(store.enqueue(new())[1])
    except Exception as error:  # noqa: BLE001 - the test shows it
        pipe.send(repr(error))
    store.close()


@pytest.mark.service("postgresql")
@pytest.mark.service("mysql")
def test_applications_that_migrate_their_databases_on_threads_of_one_process_all_succeed(
    make_database, opened
):
    kinds = ("sqlite", "sqlite", "sqlite", "postgresql", "mysql")
    stores = [opened(make_database(kind).url) for kind in kinds]
    with ThreadPoolExecutor(len(stores)) as pool:
        applied = [pool.submit(store.schema.migrate) for store in stores]

    assert [[REVISION]] * len(stores) == [one.result() for one in applied]
    for store in stores:
        assert store.get(enqueued(store, now=None).id)


def test_three_processes_that_migrate_at_once_all_succeed(database, opened):
    assert raced_by(migrate, [(database.url,)] * 3) == [True] * 3
    store = opened(database.url)
    assert len(store.find()) == 3


def test_two_prefixes_keep_two_installations_in_one_database(database, opened):
    first, second = (opened(database.url, table_prefix=prefix) for prefix in ("dw_a_", "dw_b_"))
    for store in (first, second):
        store.schema.migrate()
    task = enqueued(first)

    assert ([one.id for one in first.find()], second.find()) == ([task.id], [])
    assert first.tables.channel != second.tables.channel


@pytest.mark.service("postgresql")
def test_a_schema_setting_keeps_the_tables_in_that_schema(make_database, opened):
    database = make_database("postgresql")
    store = opened(database.url, schema="kitchen")
    store.schema.migrate()
    task = enqueued(store)

    assert store.get(task.id) == task
    with store.connections.reading() as connection:
        schemas = set(
            connection.execute(
                sa.text("SELECT schemaname FROM pg_tables WHERE tablename LIKE 'dumb%'")
            ).scalars()
        )
    assert schemas == {"kitchen"}
    assert store.schema.migrate() == []
    with pytest.raises(SchemaMismatch, match="no Dumbwaiter tables"):
        opened(database.url).schema.ensure()


@pytest.mark.parametrize(
    "change",
    [
        {"status": "done"},
        {"status": "running"},
        {"status": "success"},
        {"status": "failed", "finished_at": None},
        {"worker_id": "w1"},
        {"ready": True, "status": "cancelled", "finished_at": "now", "active_key": None},
        {"status": "success", "finished_at": "now", "ready": False},
    ],
    ids=str,
)
def test_the_database_refuses_a_row_that_cannot_be(store, change):
    task = enqueued(store, business_key="k")
    tasks = store.tables.tasks
    values = {name: store.now() if value == "now" else value for name, value in change.items()}

    refused = pytest.raises(sa.exc.DBAPIError, match=re.compile("check|constraint", re.IGNORECASE))
    with refused, store.connections.writing() as connection:
        connection.execute(sa.update(tasks).where(tasks.c.id == task.id).values(values))

    assert store.get(task.id) == task


def test_the_tables_of_two_prefixes_share_no_name():
    first, second = (
        {table.name for table in Tables(prefix).metadata.sorted_tables} for prefix in ("a_", "b_")
    )

    assert first.isdisjoint(second)
