"""Server-sent events, read from a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import httpx
import pytest
import sqlalchemy as sa

from dumbwaiter import Dumbwaiter
from dumbwaiter.api import events as sse
from tests.api.conftest import ended, running
from tests.support.streams import Event, events
from tests.support.waiting import until

ADA, EVE = {"X-User": "ada"}, {"X-User": "eve"}


def followed(client: httpx.Client, url: str, **headers: str) -> list[Event]:
    """All events of a stream, which has to end by itself."""
    with client.stream("GET", url, headers=headers) as answer:
        assert answer.status_code == 200, answer.status_code
        return list(events(answer.iter_lines()))


def test_a_stream_begins_with_the_whole_task_tells_each_change_and_ends_with_the_end(
    client: httpx.Client,
) -> None:
    url = client.post("/tasks/endless", json={}).headers["Location"]
    running(client, url)

    with client.stream("GET", f"{url}/events") as answer:
        told = events(answer.iter_lines())
        first = next(told)
        client.post(f"{url}/cancel")
        rest = list(told)

    whole = client.get(url).json()
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert (first.name, first.data["phase"], first.data["progress_percentage"]) == ("task", "running", 50)
    assert first.data.keys() == whole.keys()
    assert first.retry is not None
    assert [event.data["phase"] for event in rest[:-1]] == ["cancelling"] * (len(rest) - 1)
    assert (rest[-1].name, rest[-1].data) == ("end", whole)
    assert len({event.id for event in [first, *rest]}) == len(rest) + 1


def test_a_task_that_has_ended_is_told_once_and_the_stream_ends(client: httpx.Client) -> None:
    url = client.post("/tasks/report", json={}).headers["Location"]
    task = ended(client, url)
    [event] = followed(client, f"{url}/events")

    assert (event.name, event.data) == ("end", task)
    assert client.get(event.data["result_url"]).status_code == 200


def test_the_end_is_told_at_once_by_the_process_that_runs_the_task(client: httpx.Client) -> None:
    """Not only at the next look, which may be half a second away."""
    delays = []
    for _ in range(3):
        url = client.post("/tasks/endless", json={}).headers["Location"]
        running(client, url)
        with client.stream("GET", f"{url}/events") as answer:
            told = events(answer.iter_lines())
            next(told)
            client.post(f"{url}/cancel")
            [*_, last] = told
        delays.append(time.time() - datetime.fromisoformat(last.data["finished_at"]).timestamp())

    assert sorted(delays)[1] < 0.4


def test_who_comes_back_with_the_last_id_hears_only_what_has_changed_since(idle_client: httpx.Client) -> None:
    url = idle_client.post("/tasks/greet", json={"name": "Kitchen"}).headers["Location"]
    with idle_client.stream("GET", f"{url}/events") as answer:
        first = next(events(answer.iter_lines()))
    with idle_client.stream("GET", f"{url}/events", headers={"Last-Event-ID": first.id}) as answer:
        told = events(answer.iter_lines())
        idle_client.post(f"{url}/cancel")
        rest = list(told)
    missed = followed(idle_client, f"{url}/events", **{"Last-Event-ID": first.id})

    assert [event.name for event in rest] == ["end"]
    assert [(event.name, event.id) for event in missed] == [("end", rest[0].id)]


def test_who_comes_back_after_the_end_is_told_to_stay_away(idle_client: httpx.Client) -> None:
    url = idle_client.post("/tasks/greet", json={"name": "Kitchen"}).headers["Location"]
    idle_client.post(f"{url}/cancel")
    [end] = followed(idle_client, f"{url}/events")

    assert idle_client.get(f"{url}/events", headers={"Last-Event-ID": end.id}).status_code == 204


def test_many_tasks_are_followed_on_one_connection_which_ends_with_the_last_of_them(
    idle_client: httpx.Client, waiter: Dumbwaiter
) -> None:
    ids = [waiter.enqueue("greet", {"name": str(number)}).id for number in range(50)]
    hers = waiter.enqueue("greet", {"name": "hers"}, owner="eve").id
    asked = ",".join([*ids, hers, "nonsense"])

    with idle_client.stream("GET", "/tasks/events", params={"ids": asked}) as answer:
        told = events(answer.iter_lines())
        first = [next(told) for _ in range(52)]
        for task_id in ids:
            waiter.cancel(task_id)
        rest = list(told)

    assert {event.data["task_id"] for event in first if event.name == "gone"} == {hers, "nonsense"}
    assert all(event.data.keys() == {"task_id"} for event in first if event.name == "gone")
    assert [event.data["task_id"] for event in first if event.name == "task"] == ids
    assert {event.data["task_id"] for event in rest} == set(ids)
    assert {event.name for event in rest} == {"end"}
    again = {"Last-Event-ID": rest[-1].id}
    assert idle_client.get("/tasks/events", params={"ids": asked}, headers=again).status_code == 204


@pytest.mark.parametrize("ids", ["", ",", ",".join(str(number) for number in range(251))])
def test_no_ids_and_too_many_are_refused(client: httpx.Client, ids: str) -> None:
    assert client.get("/tasks/events", params={"ids": ids}).status_code == 422


def test_another_owners_task_has_no_events(owned_client: httpx.Client) -> None:
    url = owned_client.post("/jobs/tasks/greet", json={"name": "x"}, headers=ADA).headers["Location"]
    ended(owned_client, url, **ADA)
    task_id = url.rpartition("/")[2]
    [end] = followed(owned_client, f"/jobs/tasks/events?ids={task_id}", **ADA)
    [gone] = followed(owned_client, f"/jobs/tasks/events?ids={task_id}", **EVE)

    assert owned_client.get(f"{url}/events", headers=EVE).status_code == 404
    assert end.data["links"]["self"] == url
    assert (gone.name, gone.data) == ("gone", {"task_id": task_id})


def test_a_time_that_passes_is_told_too(idle_client: httpx.Client, waiter: Dumbwaiter) -> None:
    task = waiter.enqueue("greet", {"name": "later"}, delay=timedelta(seconds=1))
    with idle_client.stream("GET", f"/tasks/{task.id}/events") as answer:
        told = events(answer.iter_lines())
        phases = [next(told).data["phase"], next(told).data["phase"]]

    assert phases == ["scheduled", "queued"]


def test_a_task_that_is_removed_while_somebody_watches_is_gone(
    idle_client: httpx.Client, waiter: Dumbwaiter
) -> None:
    tasks = waiter.store.tables.tasks
    task_id = waiter.enqueue("greet", {"name": "x"}).id
    with idle_client.stream("GET", f"/tasks/{task_id}/events") as answer:
        told = events(answer.iter_lines())
        next(told)
        with waiter.store.connections.writing() as connection:
            connection.execute(sa.delete(tasks).where(tasks.c.id == task_id))
        rest = list(told)

    assert [(event.name, event.data) for event in rest] == [("gone", {"task_id": task_id})]


def test_a_quiet_stream_has_a_heartbeat(idle_client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT", 0.2)
    url = idle_client.post("/tasks/greet", json={"name": "Kitchen"}).headers["Location"]
    with idle_client.stream("GET", f"{url}/events") as answer:
        comments = (line for line in answer.iter_lines() if line.startswith(":"))

        assert [next(comments), next(comments)] == [": heartbeat", ": heartbeat"]


@pytest.fixture
def statements(waiter: Dumbwaiter) -> Iterator[list[str]]:
    """What the process asks its database from here on."""
    heard: list[str] = []

    def hear(_connection, _cursor, statement, _parameters, _context, _many):
        heard.append(statement)

    engine = waiter.store.connections.engine
    sa.event.listen(engine, "before_cursor_execute", hear)
    yield heard
    sa.event.remove(engine, "before_cursor_execute", hear)


def test_one_reader_feeds_all_streams_and_rests_when_nobody_watches(
    statements: list[str], idle_client: httpx.Client, waiter: Dumbwaiter
) -> None:
    ids = [waiter.enqueue("greet", {"name": str(number)}).id for number in range(20)]
    streams = [httpx.Client(base_url=idle_client.base_url) for _ in ids]
    answers = [
        client.send(client.build_request("GET", f"/tasks/{task_id}/events"), stream=True)
        for client, task_id in zip(streams, ids, strict=True)
    ]
    told = [events(answer.iter_lines()) for answer in answers]  # held, or they would be closed
    assert [next(one).name for one in told] == ["task"] * len(ids)
    statements.clear()
    time.sleep(2)  # the time is what is measured
    while_watched = len([one for one in statements if "version" in one])
    for client in streams:
        client.close()
    until(lambda: not [one for one in threading.enumerate() if one.name == "dumbwaiter-feed"])
    statements.clear()
    time.sleep(1)

    assert 3 <= while_watched <= 6
    assert statements == []
