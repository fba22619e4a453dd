"""A task enqueued on the caller's own connection, session or async session lives and dies with the caller's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import InvalidOption
from tests.support.databases import Database


@pytest.fixture
def waiter(database: Database) -> Iterator[Dumbwaiter]:
    waiter = Dumbwaiter(database.url, env="test")
    waiter.migrate()
    waiter.task("invoice")(invoice)
    yield waiter
    waiter.close()


def invoice(order: int) -> None: ...


@pytest.fixture
def engine(waiter: Dumbwaiter) -> Iterator[sa.Engine]:
    """The caller's own engine on the same database."""
    engine = sa.create_engine(waiter.store.connections.url)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("key", [None, "order-7"])
def test_a_task_commits_and_rolls_back_with_the_callers_session(
    waiter: Dumbwaiter, engine: sa.Engine, key: str | None
) -> None:
    with Session(engine) as session:
        waiter.enqueue("invoice", {"order": 7}, connection=session, key=key)
        session.rollback()
    assert waiter.find() == []

    with Session(engine) as session:
        task = waiter.enqueue("invoice", {"order": 7}, connection=session, key=key)
        session.commit()
    assert [found.id for found in waiter.find()] == [task.id]


@pytest.mark.service("postgresql")
def test_a_task_commits_and_rolls_back_with_an_async_session(
    make_database: Callable[[str], Database],
) -> None:
    waiter = Dumbwaiter(make_database("postgresql").url, env="test")
    waiter.migrate()
    waiter.task("invoice")(invoice)

    async def story() -> list[int]:
        engine = create_async_engine(waiter.store.connections.url)
        counts = []
        async with AsyncSession(engine) as session:
            await waiter.aenqueue("invoice", {"order": 7}, connection=session)
            counts.append(len(waiter.find()))
            await session.commit()
            counts.append(len(waiter.find()))
        async with engine.connect() as connection:
            await waiter.aenqueue("invoice", {"order": 8}, connection=connection)
            await connection.rollback()
        counts.append(len(waiter.find()))
        await engine.dispose()
        return counts

    counts = asyncio.run(story())
    waiter.close()

    assert counts == [0, 1, 1]


def test_a_connection_of_another_kind_is_refused_by_name(tmp_path) -> None:
    waiter = Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db")
    waiter.task("invoice")(invoice)

    with pytest.raises(InvalidOption, match="give a SQLAlchemy Connection or Session, a psycopg"):
        waiter.enqueue("invoice", {"order": 7}, connection=object())
