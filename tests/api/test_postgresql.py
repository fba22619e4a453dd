"""The routes on a server database: what may differ there is the clock, ids and transactions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi import FastAPI

from dumbwaiter.dashboard.views import Offer, page
from dumbwaiter.integrations.fastapi import lifespan, owner_of, router
from tests.api.conftest import BYTES, ended, make_waiter
from tests.support.databases import Database, Kind
from tests.support.serving import serving


@pytest.mark.service("postgresql")
def test_a_file_is_made_and_downloaded_on_postgresql(
    make_database: Callable[[Kind], Database], tmp_path: Path
) -> None:
    waiter = make_waiter(make_database("postgresql").url, tmp_path)
    waiter.migrate()
    app = FastAPI(lifespan=lifespan(waiter))
    app.include_router(router(waiter, public=True))
    headers = {"Idempotency-Key": "one"}
    with serving(app) as client:
        first = client.post("/tasks/report", json={}, headers=headers)
        again = client.post("/tasks/report", json={}, headers=headers)
        task = ended(client, first.headers["Location"])

        assert (first.status_code, again.status_code, again.json()["task_id"]) == (202, 200, task["task_id"])
        assert client.get(task["files"][0]["url"]).content == BYTES


@pytest.mark.service("postgresql")
def test_without_tables_every_route_says_that_it_is_not_available(
    make_database: Callable[[Kind], Database], tmp_path: Path
) -> None:
    waiter = make_waiter(make_database("postgresql").url, tmp_path)
    app = FastAPI(lifespan=lifespan(waiter))
    app.include_router(router(waiter, public=True))
    app.include_router(page(waiter, [Offer("report", "Report", "report")], owner_of(None)))
    with serving(app) as client:
        answers = [
            client.post("/tasks/report", json={}),
            client.get("/tasks/0190a6c8-0000-7000-8000-000000000000"),
            client.get("/"),
        ]

    assert [answer.status_code for answer in answers] == [503, 503, 503]
    assert answers[0].headers["Content-Type"] == "application/problem+json"
