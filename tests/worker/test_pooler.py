"""Behind PgBouncer in transaction mode: every statement may meet another session of the server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import Status
from tests.support.databases import Database, Kind
from tests.support.poolers import pooled
from tests.support.waiting import until
from tests.support.workers import Place, ended, place

pytestmark = [pytest.mark.timeout(120), pytest.mark.service("postgresql"), pytest.mark.service("pgbouncer")]

MakeDatabase = Callable[[Kind], Database]


@pytest.fixture
def direct(make_database: MakeDatabase) -> str:
    return make_database("postgresql").url


@pytest.fixture
def here(direct: str, tmp_path: Path) -> Iterator[Place]:
    """A place whose database is reached through the pooler alone, by everybody."""
    # PgBouncer runs as another user, who cannot look into pytest's directories
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        with pooled(direct, Path(above) / "pooler") as through:
            short = {"lease": "3s", "heartbeat": "600ms", "sweep": "500ms", "poll": "300ms"}
            with place(Database("postgresql", through), tmp_path, pgbouncer="true", **short) as found:
                yield found


@pytest.fixture
def waiter(here: Place) -> Iterator[Dumbwaiter]:
    waiter = here.app()
    yield waiter
    waiter.close()


def test_two_workers_do_behind_a_pooler_whatever_they_do_without_one(here: Place, waiter: Dumbwaiter) -> None:
    for _ in range(2):
        here.start_worker()
    long = [waiter.enqueue(name, {"seconds": 5}) for name in ("nap", "slumber")]  # longer than a lease
    short = [waiter.enqueue("flicker") for _ in range(60)]
    again = waiter.enqueue("flaky", {"failures": 1})
    with ThreadPoolExecutor(12) as askers:
        keyed = list(askers.map(lambda _: waiter.enqueue("nap", {"seconds": 0.5}, key="one"), range(36)))
    until(lambda: here.starts(long[0].id))
    waiter.cancel(waiter.enqueue("doze", {"seconds": 60}).id)
    found = ended(waiter, [*long, *short, again, keyed[0]], 60)

    assert {Status.SUCCESS} == {task.status for task in found}
    assert 1 == len({task.id for task in keyed})
    assert {1} == {here.starts_by_task()[task.id] for task in [*long, *short, keyed[0]]}
    assert "prepared statement" not in here.log()


@pytest.mark.long
def test_tasks_of_a_worker_killed_behind_a_pooler_are_taken_back(here: Place, waiter: Dumbwaiter) -> None:
    first = here.start_worker()
    task = waiter.enqueue("doze", {"seconds": 2})
    until(lambda: here.starts())
    first.kill()
    here.start_worker()
    [found] = ended(waiter, [task])

    assert (Status.SUCCESS, 2, 1) == (found.status, found.attempt, found.crash_count)


def test_a_tasks_own_transaction_holds_behind_a_pooler(here: Place, waiter: Dumbwaiter) -> None:
    with waiter.store.connections.writing() as connection:
        connection.execute(sa.text("CREATE TABLE orders (task text)"))

    @waiter.task("order")
    def order(ctx) -> str:
        with ctx.transaction() as connection:
            connection.execute(sa.text("INSERT INTO orders VALUES (:id)"), {"id": ctx.task.id})
        return "ordered"

    worker = waiter.worker()
    worker.start()
    try:
        tasks = [order.enqueue() for _ in range(5)]
        assert {Status.SUCCESS} == {task.status for task in ended(waiter, tasks)}
    finally:
        worker.stop(hurry=True)
        assert worker.join(15)
    with waiter.store.connections.reading() as connection:
        written = connection.execute(sa.text("SELECT task FROM orders")).scalars().all()
    assert sorted(task.id for task in tasks) == sorted(written)


@pytest.mark.long
def test_with_the_direct_address_beside_the_pooler_a_worker_is_woken_and_without_it_it_polls(
    here: Place, waiter: Dumbwaiter, direct: str
) -> None:
    here.settings["DUMBWAITER_POLL"] = "20s"
    here.start_worker()
    until(lambda: waiter.store.workers())
    polled = waiter.enqueue("nap", {"seconds": 0})
    here.settings["DUMBWAITER_LISTEN_DATABASE"] = direct
    here.start_worker()
    until(lambda: len(waiter.store.workers()) == 2)
    ended(waiter, [polled], 40)
    with waiter.store.connections.reading() as connection:
        listening = sa.text(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dumbwaiter listener'"
            " AND datname = current_database()"
        )
        until(lambda: connection.execute(listening).scalar() == 1)
    woken = [waiter.enqueue("nap", {"seconds": 0}) for _ in range(3)]

    ended(waiter, woken, 10)
