"""A place for worker processes, with the default settings unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dumbwaiter import Dumbwaiter
from tests.support.databases import Database
from tests.support.workers import Place, place


@pytest.fixture
def here(database: Database, tmp_path: Path) -> Iterator[Place]:
    with place(database, tmp_path) as found:
        yield found


@pytest.fixture
def waiter(here: Place) -> Iterator[Dumbwaiter]:
    waiter = here.app()
    yield waiter
    waiter.close()
