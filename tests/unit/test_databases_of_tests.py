"""The fixtures that give tests their databases."""

from __future__ import annotations

import sqlalchemy
from sqlalchemy.pool import NullPool

from tests.support.databases import Database

DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "sqlite": "sqlite"}


def _tables(database: Database, statement: str = "") -> list[str]:
    url = sqlalchemy.make_url(database.url).set(drivername=DRIVERS[database.kind])
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        if statement:
            connection.execute(sqlalchemy.text(statement))
        return sqlalchemy.inspect(connection).get_table_names()


def test_a_test_gets_an_empty_database_of_its_own(database, make_database):
    _tables(database, "CREATE TABLE dishes (id INTEGER PRIMARY KEY)")
    another = make_database(database.kind)

    assert _tables(database) == ["dishes"]
    assert _tables(another) == []


def test_a_database_is_dropped_while_a_connection_to_it_is_open(database, databases):
    another = databases.make(database.kind)
    url = sqlalchemy.make_url(another.url).set(drivername=DRIVERS[database.kind])
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    connection = engine.connect()
    connection.execute(sqlalchemy.text("CREATE TABLE dishes (id INTEGER PRIMARY KEY)"))

    databases.drop(another)

    connection.invalidate()
    connection.close()
