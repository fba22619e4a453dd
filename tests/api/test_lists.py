"""What a page asks that comes back: the latest of a key, the recent ones, and the small form to poll."""

from __future__ import annotations

import httpx

from tests.api.conftest import ended, running

ADA, EVE = {"X-User": "ada"}, {"X-User": "eve"}
KEY = {"task_type": "greet", "business_key": "order-42"}


def asked(client: httpx.Client, path: str, name: str, headers: dict[str, str] | None = None) -> str:
    answer = client.post(path, json={"name": name}, headers=headers).raise_for_status()
    return str(answer.json()["task_id"])


def test_a_page_that_comes_back_finds_the_latest_task_of_its_key_with_its_files(client: httpx.Client) -> None:
    key = {"business_key": "order 42/灯"}
    first = client.post("/tasks/report", json={}, params=key)
    ended(client, first.headers["Location"])
    second = client.post("/tasks/report", json={}, params=key)
    ended(client, second.headers["Location"])

    found = client.get("/tasks", params={"task_type": "report", **key}).json()["task"]
    assert found["task_id"] == second.json()["task_id"] != first.json()["task_id"]
    assert found["result_url"] == found["files"][0]["url"]
    assert client.get(found["result_url"]).status_code == 200


def test_of_a_key_that_nobody_used_there_is_no_task(client: httpx.Client) -> None:
    assert client.get("/tasks", params=KEY).json() == {"task": None}
    assert client.get("/tasks", params=KEY | {"business_key": "\0"}).json() == {"task": None}


def test_the_latest_of_a_key_is_ones_own_and_nobody_elses(owned_client: httpx.Client) -> None:
    mine = asked(owned_client, "/jobs/tasks/greet?business_key=order-42", "Kitchen", headers=ADA)

    assert owned_client.get("/jobs/tasks", params=KEY, headers=ADA).json()["task"]["task_id"] == mine
    assert owned_client.get("/jobs/tasks", params=KEY, headers=EVE).json() == {"task": None}


def test_a_latest_task_that_has_not_changed_is_304(idle_client: httpx.Client) -> None:
    asked(idle_client, "/tasks/greet?business_key=order-42", "Kitchen")
    tag = idle_client.get("/tasks", params=KEY).headers["ETag"]
    same = idle_client.get("/tasks", params=KEY, headers={"If-None-Match": tag})
    asked(idle_client, "/tasks/greet?business_key=order-42&on_duplicate=replace", "Hall")
    other = idle_client.get("/tasks", params=KEY, headers={"If-None-Match": tag})

    assert (same.status_code, same.content, other.status_code) == (304, b"", 200)


def test_a_key_without_a_type_is_refused_by_name(client: httpx.Client) -> None:
    answer = client.get("/tasks", params={"business_key": "order-42"})

    assert (answer.status_code, answer.json()["type"]) == (400, "urn:dumbwaiter:no-task-type")


def test_recent_tasks_are_ones_own_the_newest_first(owned_client: httpx.Client) -> None:
    mine = [asked(owned_client, "/jobs/tasks/greet", str(number), headers=ADA) for number in range(4)]
    asked(owned_client, "/jobs/tasks/greet", "hers", headers=EVE)

    def listed(**asked_for: str | int) -> list[str]:
        answer = owned_client.get("/jobs/tasks", params=asked_for, headers=ADA)
        return [task["task_id"] for task in answer.raise_for_status().json()["tasks"]]

    assert listed() == mine[::-1]
    assert listed(limit=2) == [mine[3], mine[2]]
    assert listed(task_type="report") == []
    assert owned_client.get("/jobs/tasks?limit=0", headers=ADA).status_code == 422


def test_links_of_a_listed_task_lead_to_it(owned_client: httpx.Client) -> None:
    asked(owned_client, "/jobs/tasks/greet", "Kitchen", headers=ADA)
    [task] = owned_client.get("/jobs/tasks", headers=ADA).json()["tasks"]

    assert owned_client.get(task["links"]["self"], headers=ADA).json()["task_id"] == task["task_id"]


def test_the_small_form_tells_how_far_it_is_and_has_a_tag(client: httpx.Client) -> None:
    url = client.post("/tasks/endless", json={}).headers["Location"]
    task = running(client, url)
    answer = client.get(task["links"]["progress"])

    assert answer.json() == {name: task[name] for name in answer.json()}
    assert set(answer.json()) == {
        "task_id",
        "status",
        "phase",
        "display",
        "progress_percentage",
        "current_step",
        "message",
        "estimated_remaining_seconds",
        "queue_position",
        "retry_at",
    }
    again = client.get(task["links"]["progress"], headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_second_task_of_an_active_key_is_the_first_one(idle_client: httpx.Client) -> None:
    first = idle_client.post("/tasks/greet?business_key=order-42", json={"name": "Kitchen"})
    again = idle_client.post("/tasks/greet?business_key=order-42", json={"name": "Kitchen"})

    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json() == first.json()
    assert again.headers["Location"] == first.headers["Location"]
    assert "Idempotent-Replayed" not in again.headers


def test_a_second_task_of_an_active_key_is_409_if_that_is_to_be_refused(idle_client: httpx.Client) -> None:
    first = idle_client.post("/tasks/greet?business_key=order-42", json={"name": "Kitchen"})
    again = idle_client.post(
        "/tasks/greet?business_key=order-42&on_duplicate=reject", json={"name": "Kitchen"}
    )

    assert (again.status_code, again.json()["type"]) == (409, "urn:dumbwaiter:duplicate-task")
    assert again.json()["task"]["task_id"] == first.json()["task_id"]
    assert again.json()["detail"] == "A task with this business_key is waiting already."


def test_the_other_policies_are_open_to_http_too(idle_client: httpx.Client) -> None:
    first = idle_client.post("/tasks/greet?business_key=a", json={"name": "Kitchen"}).json()
    put = idle_client.post("/tasks/greet?business_key=a&on_duplicate=replace", json={"name": "Hall"})
    behind = idle_client.post("/tasks/greet?business_key=a&on_duplicate=after", json={"name": "Attic"})
    unknown = idle_client.post("/tasks/greet?business_key=a&on_duplicate=explode", json={"name": "x"})

    assert idle_client.get(first["links"]["self"]).json()["status"] == "cancelled"
    assert (put.status_code, behind.status_code, unknown.status_code) == (202, 202, 422)
    assert len({first["task_id"], put.json()["task_id"], behind.json()["task_id"]}) == 3
    assert unknown.json()["errors"][0]["path"] == "query.on_duplicate"
