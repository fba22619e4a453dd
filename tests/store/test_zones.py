"""Time zones: of the caller's process, of its session in the database, and of the instants that it gives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from dumbwaiter.store.rows import Finish
from dumbwaiter.store.store import Store
from dumbwaiter.task import Outcome
from tests.store.world import claimed_ids, enqueued, new, store_of, want

ZONES = ["UTC", "Asia/Shanghai", "America/New_York", "Asia/Kathmandu"]
# named zones are not loaded on every MySQL
OFFSETS = {
    "UTC": "+00:00",
    "Asia/Shanghai": "+08:00",
    "America/New_York": "-05:00",
    "Asia/Kathmandu": "+05:45",
}


@pytest.fixture(params=["America/New_York", "Asia/Kathmandu"])
def here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The zone of this process: another one than that of its sessions."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def session_zone(store: Store, zone: str) -> str | None:
    match store.kind:
        case "postgresql":
            return f"SET TIME ZONE '{zone}'"
        case "mysql":
            return f"SET time_zone = '{OFFSETS[zone]}'"
        case _:
            return None


def test_an_instant_means_the_same_in_every_zone_of_process_session_and_value(store, here):
    theirs = ZONES[(ZONES.index(here) + 1) % len(ZONES)]
    engine = sa.create_engine(store.connections.url)
    instant = datetime(2026, 3, 8, 7, 30, 0, 123457, tzinfo=UTC)  # within an hour that New York skips
    with engine.connect() as connection:
        if zone := session_zone(store, theirs):
            connection.execute(sa.text(zone))
        before = store.now()
        given = {
            zone: store.enqueue(new(run_at=instant.astimezone(ZoneInfo(zone))), connection=connection)[0].id
            for zone in ZONES
        }
        delayed = store.enqueue(new(delay=timedelta(hours=1)), connection=connection)[0].id
        at_once = store.enqueue(new(), connection=connection)[0].id
        connection.commit()
    engine.dispose()
    after = store.now()

    for zone, task_id in given.items():
        assert store.get(task_id).run_at == instant, zone
    assert before <= store.get(at_once).created_at <= after
    assert before <= store.get(delayed).run_at - timedelta(hours=1) <= after
    # a worker that has not been here before looks from the start, where these are: their time was long ago
    assert set(claimed_ids(store, 100, now=None, worker=here)) == {*given.values(), at_once}


@pytest.mark.service("postgresql")
def test_a_database_whose_own_zone_is_another_one_keeps_utc(make_database):
    database = make_database("postgresql")
    store = store_of(database.url)
    store.schema.migrate()
    with store.connections.writing() as connection:
        name = store.connections.url.database
        connection.execute(sa.text(f"ALTER DATABASE {name} SET timezone TO 'Asia/Kathmandu'"))
    store.close()
    store = store_of(database.url)
    asked = datetime.now(UTC)
    task = enqueued(store, now=None)
    [claimed] = store.claim(want(), "w1")
    store.finish([Finish(claimed, Outcome.succeeded())])
    ended = store.get(task.id)
    store.close()

    assert abs(task.created_at - asked) < timedelta(seconds=30)
    instants = [ended.created_at, ended.started_at, ended.finished_at]
    assert instants == sorted(instant for instant in instants if instant is not None)
