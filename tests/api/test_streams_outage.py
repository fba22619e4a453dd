"""Streams outlive their database's restart, and no end that came meanwhile is lost."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from dumbwaiter.integrations.fastapi import lifespan, router
from tests.api.conftest import make_waiter
from tests.store.proxies import Mode, proxied
from tests.support.databases import Database, Kind
from tests.support.serving import serving
from tests.support.streams import Event, events
from tests.support.waiting import until

STREAMS = 10


@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.BLACKHOLE])
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
        pytest.param("mysql", marks=pytest.mark.service("mysql")),
    ],
)
def test_streams_go_past_an_outage_and_tell_what_ended_in_it(
    make_database: Callable[[Kind], Database], tmp_path: Path, kind: Kind, mode: Mode
) -> None:
    database = make_database(kind).url
    direct = make_waiter(database, tmp_path)
    direct.migrate()
    ids = [direct.enqueue("greet", {"name": str(number)}).id for number in range(STREAMS)]
    told: dict[str, list[Event]] = {task_id: [] for task_id in ids}
    with proxied(database) as (proxy, url), contextlib.ExitStack() as stack:
        stack.callback(direct.close)
        served = make_waiter(url, tmp_path, request_timeout="5s")
        app = FastAPI(lifespan=lifespan(served, worker=False))
        app.include_router(router(served, public=True))
        client = stack.enter_context(serving(app))
        followers = [
            threading.Thread(target=follow, args=(client.base_url, task_id, told[task_id])) for task_id in ids
        ]
        for follower in followers:
            follower.start()
        until(lambda: all(told.values()))
        proxy.mode = mode
        for task_id in ids:
            direct.cancel(task_id)  # where the server cannot see it
        time.sleep(3)  # the length of the outage
        still_open = sum(follower.is_alive() for follower in followers)
        while_away = client.get(f"/tasks/{ids[0]}").status_code
        proxy.mode = Mode.PASS
        for follower in followers:
            follower.join(30)

    assert (still_open, while_away) == (STREAMS, 503)
    for task_id, heard in told.items():
        assert [event.name for event in heard] == ["task", "end"]
        assert heard[-1].data["task_id"] == task_id
        assert heard[-1].data["status"] == "cancelled"


def follow(base: httpx.URL, task_id: str, told: list[Event]) -> None:
    with httpx.stream("GET", f"{base}/tasks/{task_id}/events", timeout=60) as answer:
        assert answer.status_code == 200
        for event in events(answer.iter_lines()):
            told.append(event)  # noqa: PERF402 - the test looks at what there is so far
