from __future__ import annotations

import time

import httpx

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
