from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from dumbwaiter import Dumbwaiter
from tests.api.conftest import ended, running


def test_a_waiting_task_is_cancelled_at_once(idle_client: httpx.Client) -> None:
    url = idle_client.post("/tasks/greet", json={"name": "Kitchen"}).headers["Location"]
    answer = idle_client.post(f"{url}/cancel")

    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")


def test_a_running_task_is_asked_to_stop_and_stops(client: httpx.Client) -> None:
    url = client.post("/tasks/endless", json={}).headers["Location"]
    running(client, url)
    began = time.monotonic()
    answer = client.post(f"{url}/cancel")

    assert (answer.status_code, answer.json()["phase"]) == (202, "cancelling")
    assert ended(client, url)["status"] == "cancelled"
    assert time.monotonic() - began < 5  # seen within 1 s, and the grace time is 3 s


def test_cancelling_what_has_ended_is_409_with_the_task(client: httpx.Client) -> None:
    url = client.post("/tasks/greet", json={"name": "Kitchen"}).headers["Location"]
    ended(client, url)
    answer = client.post(f"{url}/cancel")

    assert (answer.status_code, answer.json()["task"]["status"]) == (409, "success")
    assert answer.json()["type"] == "urn:dumbwaiter:not-possible-now"
    assert answer.json()["detail"] == "Cannot cancel this task: it has succeeded."


def test_a_failed_task_is_made_again_as_a_new_one(client: httpx.Client) -> None:
    url = client.post("/tasks/hopeless", json={}).headers["Location"]
    ended(client, url)
    answer = client.post(f"{url}/retry")

    assert answer.status_code == 202
    assert answer.headers["Location"] == answer.json()["links"]["self"] != url
    assert ended(client, url)["status"] == "failed"


def test_a_success_that_is_still_good_is_made_again_only_by_force(client: httpx.Client) -> None:
    url = client.post("/tasks/greet", json={"name": "Kitchen"}).headers["Location"]
    ended(client, url)
    refused = client.post(f"{url}/retry")
    forced = client.post(f"{url}/retry", params={"force": True})

    assert (refused.status_code, refused.json()["task"]["status"], forced.status_code) == (
        409,
        "success",
        202,
    )


def test_an_active_task_is_not_made_again(idle_client: httpx.Client) -> None:
    url = idle_client.post("/tasks/greet", json={"name": "Kitchen"}).headers["Location"]

    assert idle_client.post(f"{url}/retry").status_code == 409


def test_a_type_that_is_not_open_to_http_is_not_made_again_there(
    client: httpx.Client, waiter: Dumbwaiter
) -> None:
    task = waiter.enqueue("private")
    url = f"/tasks/{task.id}"
    ended(client, url)
    answer = client.post(f"{url}/retry", params={"force": True})

    assert (answer.status_code, answer.json()["type"]) == (404, "urn:dumbwaiter:no-such-task-type")
    assert len(waiter.find(task_type="private")) == 1


def test_the_same_wish_to_make_it_again_twice_is_one_task(client: httpx.Client, waiter: Dumbwaiter) -> None:
    url, other = (client.post("/tasks/hopeless", json={}).headers["Location"] for _ in range(2))
    ended(client, url)
    ended(client, other)
    headers = {"Idempotency-Key": "click-7"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.post(f"{url}/retry", headers=headers), range(8)))
    again = client.post(f"{url}/retry", headers=headers)

    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [202]
    assert len({answer.json()["task_id"] for answer in [*answers, again]}) == 1
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
    assert again.headers["Location"] == again.json()["links"]["self"] != url
    assert len(waiter.find(task_type="hopeless")) == 3
    # one key, two wishes
    refused = [client.post(path, headers=headers, json={}) for path in (f"{other}/retry", "/tasks/hopeless")]
    assert [answer.json()["type"] for answer in refused] == ["urn:dumbwaiter:idempotency-key-reused"] * 2
    assert client.post(f"{url}/retry", headers={"Idempotency-Key": "x" * 201}).status_code == 422
    # without a key each wish is one of its own
    assert client.post(f"{url}/retry").json()["task_id"] != again.json()["task_id"]
