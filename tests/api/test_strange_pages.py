"""A page of another site, in the browser of somebody who is logged in, can change nothing."""

from __future__ import annotations

import httpx
import pytest

from dumbwaiter import Dumbwaiter

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    "sent",
    [
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "same-site", "Origin": "https://blog.shop.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
def test_a_form_of_another_site_can_neither_cancel_nor_retry_nor_enqueue(
    idle_client: httpx.Client, waiter: Dumbwaiter, sent: dict[str, str]
) -> None:
    task = waiter.enqueue("greet", {"name": "Kitchen"})
    ended = waiter.cancel(waiter.enqueue("greet", {"name": "Hall"}).id)

    answers = [
        idle_client.post(f"/tasks/{task.id}/cancel", headers=FORM | sent),
        idle_client.post(f"/tasks/{ended.id}/retry", headers=FORM | sent),
        idle_client.post(
            "/tasks/greet", headers={"Content-Type": "text/plain"} | sent, content=b'{"name":"x"}'
        ),
    ]

    assert [answer.status_code for answer in answers] == [403, 403, 415]
    assert answers[0].json()["type"] == "urn:dumbwaiter:cross-site"
    assert waiter.get(task.id).status == "pending"
    assert len(waiter.find()) == 2


def test_the_sites_own_pages_and_programs_can(idle_client: httpx.Client, waiter: Dumbwaiter) -> None:
    own = str(idle_client.base_url).rstrip("/")
    for sent in (
        {},
        {"Origin": own},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://behind-a-proxy.example"},
        # what a browser sends for a page of another site only after we allowed it
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://app.example", "Content-Type": "application/json"},
    ):
        task = waiter.enqueue("greet", {"name": "Kitchen"})
        assert idle_client.post(f"/tasks/{task.id}/cancel", headers=sent).status_code == 200, sent
