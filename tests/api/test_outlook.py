"""How far a task is, and how far away: steps, message, place in the queue, over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from dumbwaiter import Dumbwaiter, TaskContext
from dumbwaiter.api.looks import Look, looks
from dumbwaiter.eta import History
from dumbwaiter.outlook import Outlook, Place
from tests.support.streams import events
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def cake(waiter: Dumbwaiter) -> None:
    @waiter.task("cake", http=True, steps={"mixing": 1, "baking": 8, "icing": 1})
    def bake(ctx: TaskContext) -> None:
        ctx.progress(0.5, step="baking", message="<b>cake</b> 2 of 4")
        ctx.sleep(600)


def test_a_waiting_task_tells_its_place_and_when_it_will_start(
    client: httpx.Client, waiter: Dumbwaiter
) -> None:
    waiter.store.add_durations({"cake": History.of(60)})
    running = [client.post("/tasks/cake", json={}).headers["Location"] for _ in range(10)]
    until(lambda: all(client.get(place).json()["status"] == "running" for place in running))
    first, second = (client.post("/tasks/cake", json={}).json()["links"] for _ in range(2))
    seen = client.get(second["self"]).json()

    assert (seen["queue_position"], seen["queue_position_is_lower_bound"]) == (2, False)
    start = datetime.fromisoformat(seen["expected_start_at"]) - datetime.fromisoformat(seen["created_at"])
    assert timedelta(seconds=20) < start < timedelta(seconds=80)
    assert client.get(second["progress"]).json()["queue_position"] == 2
    before = client.get(second["self"]).headers["ETag"]
    client.post(first["cancel"])
    assert client.get(second["self"], headers={"If-None-Match": before}).json()["queue_position"] == 1
    client.post(running[0] + "/cancel")
    assert (
        until(lambda: view if (view := client.get(second["self"]).json())["started_at"] else None)[
            "queue_position"
        ]
        is None
    )


def test_without_a_worker_there_is_a_place_but_no_expected_start(idle_client: httpx.Client) -> None:
    place = idle_client.post("/tasks/cake", json={}).headers["Location"]
    seen = idle_client.get(place).json()

    assert (seen["queue_position"], seen["expected_start_at"]) == (1, None)


def test_tasks_that_nobody_works_on_are_told_of_in_the_log_once_in_a_while(
    waiter: Dumbwaiter, caplog: pytest.LogCaptureFixture
) -> None:
    task = waiter.enqueue("cake")

    def told(seconds: float) -> int:
        looks(waiter, [waiter.get(task.id)], task.run_at + timedelta(seconds=seconds))
        return caplog.text.count("no worker is at work")

    # a worker may be about to start; then a line, and another one ten minutes later
    assert [told(seconds) for seconds in (0, 4, 6, 7, 500, 700)] == [0, 0, 1, 1, 1, 2]
    assert "lifespan=lifespan(waiter)" in caplog.text


def test_a_running_task_tells_its_steps_and_its_message(client: httpx.Client) -> None:
    place = client.post("/tasks/cake", json={}).headers["Location"]
    seen = until(lambda: view if (view := client.get(place).json())["progress_percentage"] else None)

    assert (seen["progress_percentage"], seen["current_step"]) == (50, "baking")
    assert seen["message"] == "<b>cake</b> 2 of 4"
    assert [(step["name"], step["weight"], step["state"]) for step in seen["steps"]] == [
        ("mixing", 1, "done"),
        ("baking", 8, "current"),
        ("icing", 1, "waiting"),
    ]
    client.post(f"{place}/cancel")
    ended = until(lambda: view if (view := client.get(place).json())["finished_at"] else None)
    assert ended["message"] is None


def test_that_a_start_becomes_known_or_moves_is_told_though_the_place_stays(
    client: httpx.Client, waiter: Dumbwaiter
) -> None:
    running = [client.post("/tasks/cake", json={}).headers["Location"] for _ in range(10)]
    until(lambda: all(client.get(url).json()["status"] == "running" for url in running))
    url = client.post("/tasks/cake", json={}).headers["Location"]
    tags = [client.get(url).headers["ETag"]]

    with client.stream("GET", f"{url}/events") as answer:
        told = (event.data for event in events(answer.iter_lines()))
        before = next(told)
        waiter.store.add_durations({"cake": History.of(60)})
        known = next(view for view in told if view["expected_start_at"] is not None)
        tags.append(client.get(url, headers={"If-None-Match": tags[-1]}).headers["ETag"])
        waiter.store.add_durations({"cake": History.of(3600)})
        later = next(view for view in told if view["expected_start_at"] != known["expected_start_at"])
        moved = client.get(url, headers={"If-None-Match": tags[-1]})

    assert before["expected_start_at"] is None
    assert {view["queue_position"] for view in (before, known, later)} == {1}
    assert (len(set(tags)), moved.status_code) == (2, 200)


def test_an_estimate_that_trembles_is_no_news_and_one_that_moves_is(waiter: Dumbwaiter) -> None:
    task, start = waiter.enqueue("cake"), datetime(2026, 11, 29, 12, 0, 10, tzinfo=UTC)
    now = start - timedelta(minutes=5)

    def mark(place: Place | None) -> str:
        return Look(task, now, Outlook(place=place)).mark

    known = mark(Place(1, expected_start_at=start))
    trembling = [mark(Place(1, expected_start_at=start + timedelta(seconds=by))) for by in (-2, 1, 3.5)]
    others = [
        None,
        Place(1),
        Place(11, expected_start_at=start),
        Place(1, lower_bound=True, expected_start_at=start),
        Place(1, lower_bound=True),
        *(Place(1, expected_start_at=start + timedelta(seconds=by)) for by in (-60, 60, 3600)),
    ]

    assert set(trembling) == {known}
    assert len({known, *(mark(place) for place in others)}) == len(others) + 1
