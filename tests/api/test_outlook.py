"""How far a task is, and how far away: steps, message, place in the queue, over HTTP."""

from __future__ import annotations

import httpx
import pytest

from dumbwaiter import Dumbwaiter, TaskContext
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def cake(waiter: Dumbwaiter) -> None:
    @waiter.task("cake", http=True, steps={"mixing": 1, "baking": 8, "icing": 1})
    def bake(ctx: TaskContext) -> None:
        ctx.progress(0.5, step="baking", message="<b>cake</b> 2 of 4")
        ctx.sleep(600)


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
