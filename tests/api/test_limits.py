"""How many tasks an owner may have under way, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Request

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import ConfigurationError
from dumbwaiter.integrations.fastapi import lifespan, router
from tests.api.conftest import make_waiter
from tests.support.serving import serving

ADA, EVE = {"X-User": "ada"}, {"X-User": "eve"}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[httpx.Client]:
    """An owner may have two tasks under way, of which one may be `rare`; nothing runs."""
    waiter = make_waiter(f"sqlite:///{tmp_path / 'tasks.db'}", tmp_path, max_active_per_owner=2)

    @waiter.task("rare", http=True, max_active_per_owner=1)
    def rare() -> None: ...

    def user(request: Request) -> str | None:
        return request.headers.get("X-User")

    app = FastAPI(lifespan=lifespan(waiter, worker=False))
    app.include_router(router(waiter, authorize=user))
    with serving(app) as client:
        yield client


def test_more_than_the_limit_is_429_until_one_has_ended(shop: httpx.Client) -> None:
    first = shop.post("/tasks/greet", json={"name": "1"}, headers=ADA)
    shop.post("/tasks/greet", json={"name": "2"}, headers=ADA)
    refused = shop.post("/tasks/greet", json={"name": "3"}, headers=ADA)
    hers = shop.post("/tasks/greet", json={"name": "3"}, headers=EVE)
    shop.post(first.json()["links"]["cancel"], headers=ADA)
    later = shop.post("/tasks/greet", json={"name": "3"}, headers=ADA)

    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
    assert refused.json()["type"] == "urn:dumbwaiter:too-many-active"
    assert refused.json()["detail"].startswith("You have 2 tasks under way, and 2 are allowed.")
    assert (hers.status_code, later.status_code) == (202, 202)


def test_a_task_type_may_have_a_limit_of_its_own(shop: httpx.Client) -> None:
    answers = [shop.post(f"/tasks/{name}", json={}, headers=ADA) for name in ("rare", "rare", "report")]

    assert [answer.status_code for answer in answers] == [202, 429, 202]


def test_making_again_counts_too(shop: httpx.Client) -> None:
    url = shop.post("/tasks/greet", json={"name": "1"}, headers=ADA).headers["Location"]
    shop.post(f"{url}/cancel", headers=ADA)
    for number in range(2):
        shop.post("/tasks/greet", json={"name": str(number)}, headers=ADA)

    assert shop.post(f"{url}/retry", headers=ADA).status_code == 429


def test_what_belongs_to_nobody_is_not_counted(shop: httpx.Client) -> None:
    assert {shop.post("/tasks/greet", json={"name": "x"}).status_code for _ in range(4)} == {202}


def test_a_limit_below_one_is_refused_where_it_is_written() -> None:
    waiter = Dumbwaiter("sqlite:///never.db")

    with pytest.raises(ConfigurationError, match="must be at least 1"):
        waiter.task("x", max_active_per_owner=0)(lambda: None)
    with pytest.raises(ConfigurationError, match="max_active_per_owner"):
        Dumbwaiter("sqlite:///never.db", max_active_per_owner=-1)
