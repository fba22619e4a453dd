"""The routes on a server database: what may differ there is the clock, ids and transactions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi import FastAPI

from dumbwaiter.integrations.fastapi import lifespan, router
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

        assert (first.status_code, again.status_code, again.json()["id"]) == (202, 200, task["id"])
        assert client.get(task["files"][0]["url"]).content == BYTES
