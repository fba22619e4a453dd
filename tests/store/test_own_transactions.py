"""The transaction of a task's own writes: it ends with the task's success, or leaves nothing, also when connections break."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from dumbwaiter.errors import DatabaseUnavailable, LostClaim, TaskCancelled
from dumbwaiter.store.rows import Finish
from dumbwaiter.store.store import Store
from dumbwaiter.task import AttemptOutcome, Kind, Outcome, Status, Task
from tests.store.proxies import proxied
from tests.store.world import NOW, SERVERS, count, end, enqueued, row, started, store_of, want

FAILED = Outcome(Kind.RETRY, AttemptOutcome.FAILED)


@pytest.fixture
def own_table(store: Store) -> Iterator[Store]:
    with store.connections.writing() as connection:
        connection.execute(sa.text("CREATE TABLE own_writes (task VARCHAR(36))"))
    yield store
    with store.connections.writing() as connection:
        connection.execute(sa.text("DROP TABLE own_writes"))


def write(store: Store, task: Task, outcome: Outcome | None = None) -> None:
    success = outcome or Outcome.succeeded({"n": 1})
    with store.succeeding(task, lambda: Finish(task, success), now=NOW) as connection:
        connection.execute(sa.text("INSERT INTO own_writes (task) VALUES (:id)"), {"id": task.id})


def connect(store: Store) -> None:
    """PyMySQL commits when it connects; that is not the commit that is to be lost."""
    with store.connections.writing(engine=store.connections.unhurried_engine) as connection:
        connection.execute(sa.text("SELECT 1"))


def written(store: Store) -> list[str]:
    with store.connections.reading() as connection:
        return list(connection.execute(sa.text("SELECT task FROM own_writes")).scalars())


def test_the_writes_and_the_success_are_there_together(own_table: Store) -> None:
    task = started(own_table)
    write(own_table, task)

    assert (Status.SUCCESS, {"n": 1}) == ((found := own_table.get(task.id)).status, found.result)
    assert [task.id] == written(own_table)


def test_a_task_that_was_asked_to_end_does_not_begin(own_table: Store) -> None:
    task = started(own_table)
    own_table.cancel(task.id, now=NOW)
    with pytest.raises(TaskCancelled):
        write(own_table, task)

    assert (Status.RUNNING, []) == (own_table.get(task.id).status, written(own_table))


def test_a_superseded_attempt_does_not_begin(own_table: Store) -> None:
    task = started(own_table)
    end(own_table, task, Outcome.rescued("in a test"))
    with pytest.raises(LostClaim):
        write(own_table, task)

    assert [] == written(own_table)


def test_a_follower_becomes_ready_with_the_commit(own_table: Store) -> None:
    task = started(own_table, business_key="k")
    follower = enqueued(own_table, business_key="k", on_duplicate="after")
    woken: list[str] = []
    stop = own_table.on_ready(woken.append)
    write(own_table, task)
    stop()

    assert bool(row(own_table, follower.id)["ready"])
    assert ["default"] == woken


def test_what_the_attempt_says_after_its_success_changes_nothing(own_table: Store) -> None:
    for task in (started(own_table), retried(own_table)):
        write(own_table, task)
        before = row(own_table, task.id)

        assert Status.SUCCESS is end(own_table, task, FAILED)
        assert before == row(own_table, task.id)


def retried(store: Store) -> Task:
    task = started(store)
    end(store, task, Outcome.rescued("in a test"))
    again = store.claim_one(task.id, "w2", want(1, task.task_type), now=NOW)
    assert again is not None
    return again


@pytest.mark.parametrize("database_kind", SERVERS)
def test_a_commit_that_was_not_heard_of_is_found_out(own_table: Store) -> None:
    task = started(own_table)
    with proxied(own_table.settings.database) as (proxy, address):
        through = store_of(address)
        connect(through)
        proxy.swallow = b"COMMIT"
        write(through, task)

        assert proxy.swallowed.wait(5)
        through.close()
    assert (Status.SUCCESS, [task.id]) == (own_table.get(task.id).status, written(own_table))


@pytest.mark.parametrize("database_kind", SERVERS)
def test_a_connection_that_breaks_before_the_commit_leaves_nothing(own_table: Store) -> None:
    task = started(own_table)
    with proxied(own_table.settings.database) as (proxy, address):
        through = store_of(address)
        connect(through)
        proxy.swallow = b"UPDATE"
        with pytest.raises(DatabaseUnavailable):
            write(through, task)

        assert proxy.swallowed.wait(5)
        through.close()
    assert (1, []) == (
        count(own_table, own_table.tables.tasks.c.status == Status.RUNNING.value),
        written(own_table),
    )
