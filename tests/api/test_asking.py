from __future__ import annotations

import json

import httpx

from dumbwaiter import Dumbwaiter
from tests.api.conftest import ended, running

PROBLEM = "application/problem+json"


def test_a_task_is_enqueued_looked_at_and_done(client: httpx.Client) -> None:
    answer = client.post("/tasks/greet", json={"name": "Kitchen", "times": 2})

    assert answer.status_code == 202
    assert answer.headers["Location"] == f"/tasks/{answer.json()['task_id']}"
    task = ended(client, answer.headers["Location"])
    assert (task["status"], task["result"], task["progress_percentage"]) == (
        "success",
        "Hello Kitchen! Hello Kitchen! ",
        100,
    )
    assert task["display"] == "ready"
    assert task["max_attempts"] == 4
    assert task["links"]["cancel"] == f"/tasks/{task['task_id']}/cancel"


def test_a_type_that_is_not_open_to_http_does_not_exist_there(client: httpx.Client) -> None:
    closed, unknown = client.post("/tasks/private", json={}), client.post("/tasks/nonsense", json={})

    assert (closed.status_code, unknown.status_code) == (404, 404)
    assert closed.json() == unknown.json()
    assert closed.headers["Content-Type"] == PROBLEM


def test_wrong_arguments_are_all_named_with_their_paths(client: httpx.Client) -> None:
    answer = client.post("/tasks/greet", json={"times": "2", "colour": 1})

    assert answer.status_code == 422
    assert {fault["path"] for fault in answer.json()["errors"]} == {"name", "times", "colour"}
    assert answer.json()["type"] == "urn:dumbwaiter:invalid-arguments"


def test_a_body_that_is_no_json_object_is_refused_with_400(client: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    for body in (b"", b"{", b"[]", b"null", b'"text"', b'{"name": NaN}', b"\xff\xfe{}", b"[" * 50_000):
        answer = client.post("/tasks/greet", content=body, headers=headers)
        assert (answer.status_code, answer.headers["Content-Type"]) == (400, PROBLEM), body[:20]


def test_a_lone_surrogate_is_refused_by_name(client: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post("/tasks/greet", content=b'{"name": "\\ud800"}', headers=headers)

    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "name")


def test_a_body_over_the_limit_is_refused_with_413(client: httpx.Client, waiter: Dumbwaiter) -> None:
    body = json.dumps({"name": "x" * waiter.settings.max_payload})
    answer = client.post("/tasks/greet", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code == 413


def test_a_form_of_another_page_cannot_enqueue(client: httpx.Client) -> None:
    body = b'{"name": "Eve"}'
    form = client.post("/tasks/greet", content=body, headers={"Content-Type": "text/plain"})
    blob = client.post("/tasks/greet", content=body, headers={"Origin": "http://evil.example"})

    assert (form.status_code, blob.status_code) == (415, 415)


def test_a_body_of_another_kind_and_a_body_that_is_no_json_are_two_problems(client: httpx.Client) -> None:
    kind = client.post("/tasks/greet", content=b"name=Eve", headers={"Content-Type": "text/plain"}).json()
    text = client.post(
        "/tasks/greet", content=b"name=Eve", headers={"Content-Type": "application/json"}
    ).json()

    assert (kind["type"], kind["title"]) == (
        "urn:dumbwaiter:unsupported-media-type",
        "Unsupported media type",
    )
    assert (text["type"], text["title"]) == ("urn:dumbwaiter:not-json", "Not json")


def test_the_same_request_twice_is_one_task(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "order-42"}
    first = client.post("/tasks/greet", json={"name": "Kitchen"}, headers=headers)
    again = client.post("/tasks/greet", json={"name": "Kitchen"}, headers=headers)

    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["task_id"] == again.json()["task_id"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers


def test_one_idempotency_key_for_two_requests_is_refused(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "order-42"}
    client.post("/tasks/greet", json={"name": "Kitchen"}, headers=headers)
    answer = client.post("/tasks/greet", json={"name": "Bob"}, headers=headers)

    elsewhere = client.post("/tasks/report", json={"name": "Kitchen"}, headers=headers)

    for one in (answer, elsewhere):
        assert (one.status_code, one.json()["type"]) == (422, "urn:dumbwaiter:idempotency-key-reused")
        assert one.json()["detail"] == "This Idempotency-Key was sent before, for another request."


def test_a_task_that_has_not_changed_is_304(idle_client: httpx.Client) -> None:
    url = idle_client.post("/tasks/greet", json={"name": "Kitchen"}).headers["Location"]
    tag = idle_client.get(url).headers["ETag"]

    same = idle_client.get(url, headers={"If-None-Match": tag})
    idle_client.post(f"{url}/cancel")
    changed = idle_client.get(url, headers={"If-None-Match": tag})

    assert (same.status_code, same.content, changed.status_code) == (304, b"", 200)


def test_what_is_no_lower_case_uuid_of_a_task_is_404(client: httpx.Client) -> None:
    known = client.post("/tasks/greet", json={"name": "Kitchen"}).json()["task_id"]
    for name in (
        known.upper(),
        "1",
        "nonsense",
        known.replace("-", ""),
        "0190a6c8-0000-7000-8000-000000000000",
        "%00",
    ):
        assert client.get(f"/tasks/{name}").status_code == 404, name


def test_a_person_sees_their_own_text_and_no_operators_text(client: httpx.Client) -> None:
    task = ended(client, client.post("/tasks/hopeless", json={}).headers["Location"])

    assert (task["status"], task["user_message"]) == ("failed", "This ledger cannot be read.")
    assert "secret" not in json.dumps(task)


def test_a_running_task_tells_how_far_it_is(client: httpx.Client) -> None:
    url = client.post("/tasks/endless", json={}).headers["Location"]
    task = running(client, url)

    assert (task["progress_percentage"], task["current_step"], task["attempt"], task["display"]) == (
        50,
        "thinking",
        1,
        "working",
    )


def test_the_routes_are_described_in_openapi(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]

    assert {path for path in paths if path.startswith("/tasks")} == {
        "/tasks",
        "/tasks/endless",
        "/tasks/greet",
        "/tasks/hopeless",
        "/tasks/report",
        "/tasks/{task_id}",
        "/tasks/{task_id}/progress",
        "/tasks/{task_id}/events",
        "/tasks/events",
        "/tasks/{task_id}/files/{name}",
        "/tasks/{task_id}/cancel",
        "/tasks/{task_id}/retry",
    }
    assert "application/problem+json" in paths["/tasks/{task_id}"]["get"]["responses"]["404"]["content"]
