from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import ConfigurationError
from dumbwaiter.integrations.fastapi import checked_owner, router
from tests.api.conftest import ended
from tests.support.serving import serving

ADA, EVE = {"X-User": "ada"}, {"X-User": "eve"}


def test_a_router_without_authorize_must_be_called_public(waiter: Dumbwaiter) -> None:
    with pytest.raises(ConfigurationError, match="authorize="):
        router(waiter)


def test_a_task_belongs_to_who_asked_for_it(owned_client: httpx.Client, waiter: Dumbwaiter) -> None:
    answer = owned_client.post("/jobs/tasks/greet", json={"name": "Kitchen"}, headers=ADA)

    assert waiter.get(answer.json()["task_id"]).owner == "ada"
    assert answer.headers["Location"] == f"/jobs/tasks/{answer.json()['task_id']}"
    assert owned_client.get(answer.headers["Location"], headers=ADA).status_code == 200


def test_another_owners_task_does_not_exist_on_any_route(owned_client: httpx.Client) -> None:
    url = owned_client.post("/jobs/tasks/report", json={}, headers=ADA).headers["Location"]
    ended(owned_client, url, **ADA)
    answers = [
        owned_client.get(url, headers=EVE),
        owned_client.get(f"{url}/progress", headers=EVE),
        owned_client.get(f"{url}/events", headers=EVE),
        owned_client.get(f"{url}/files/report.bin", headers=EVE),
        owned_client.head(f"{url}/files/report.bin", headers=EVE),
        owned_client.post(f"{url}/cancel", headers=EVE),
        owned_client.post(f"{url}/retry", headers=EVE),
    ]
    unknown = owned_client.get("/jobs/tasks/0190a6c8-0000-7000-8000-000000000000", headers=EVE)

    assert [answer.status_code for answer in answers] == [404] * 7
    assert answers[0].json() == unknown.json()


def test_two_owners_may_use_one_idempotency_key(owned_client: httpx.Client) -> None:
    ids = {
        owned_client.post(
            "/jobs/tasks/greet", json={"name": "x"}, headers={**who, "Idempotency-Key": "1"}
        ).json()["task_id"]
        for who in (ADA, EVE)
    }

    assert len(ids) == 2


def test_what_authorize_refuses_is_a_problem_with_its_headers(owned_client: httpx.Client) -> None:
    answer = owned_client.get("/jobs/tasks/0190a6c8-0000-7000-8000-000000000000")

    assert (answer.status_code, answer.json()["detail"]) == (401, "Say who you are.")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["WWW-Authenticate"] == "X-User"


def test_a_plain_authorize_function_serves_too(waiter: Dumbwaiter) -> None:
    app = FastAPI()
    app.include_router(router(waiter, authorize=lambda request: request.headers["X-User"]))
    with serving(app) as client:
        answer = client.post("/tasks/greet", json={"name": "Kitchen"}, headers=ADA)

    assert waiter.get(answer.json()["task_id"]).owner == "ada"


def test_an_owner_must_be_text() -> None:
    with pytest.raises(ConfigurationError, match=r"str\(user\.id\)"):
        checked_owner(7)


def test_a_public_router_shows_no_task_that_has_an_owner(client: httpx.Client, waiter: Dumbwaiter) -> None:
    task = waiter.enqueue("greet", {"name": "Kitchen"}, owner="ada")

    assert client.get(f"/tasks/{task.id}").status_code == 404
