"""One migrated database of each kind for all tests of the store; each test finds it empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dumbwaiter.store.store import Store
from tests.store.world import emptied, store_of
from tests.support import servers
from tests.support.databases import Databases, Kind


@pytest.fixture(scope="session")
def stores(databases: Databases) -> Iterator[Callable[[Kind], Store]]:
    made: dict[Kind, Store] = {}

    def make(kind: Kind) -> Store:
        if kind not in made:
            try:
                database = databases.make(kind)
            except servers.ServiceMissing as missing:
                sentence = str(missing)
                pytest.fail(sentence, pytrace=False)
            made[kind] = store_of(database.url)
            made[kind].schema.migrate()
        return made[kind]

    yield make
    for store in made.values():
        store.close()


@pytest.fixture
def empty_store(stores: Callable[[Kind], Store]) -> Callable[[Kind], Store]:
    """The store of one kind of database, with nothing in it."""

    def empty(kind: Kind) -> Store:
        store = stores(kind)
        emptied(store)
        return store

    return empty


@pytest.fixture
def store(database_kind: Kind, empty_store: Callable[[Kind], Store]) -> Store:
    """A store with nothing in it, on each kind of database in turn."""
    return empty_store(database_kind)


@pytest.fixture
def another(store: Store) -> Iterator[Store]:
    """Another process's view of the same database: a store with connections of its own."""
    other = store_of(store.settings.database)
    yield other
    other.close()
