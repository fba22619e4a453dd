"""The button's files, and the recorder's, beside the task routes."""

from __future__ import annotations

import httpx

from dumbwaiter import component, recorder


def test_under_its_content_it_may_be_kept_for_good(owned_client: httpx.Client) -> None:
    answer = owned_client.get(f"/jobs/{component.address()}")

    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.content == component.FILES.text("dumbwaiter.js")


def test_under_its_name_it_is_asked_for_anew(owned_client: httpx.Client) -> None:
    answer = owned_client.get("/jobs/dumbwaiter.js", headers={"Accept-Encoding": "identity"})
    again = owned_client.get("/jobs/dumbwaiter.js", headers={"If-None-Match": answer.headers["ETag"]})

    assert (answer.status_code, again.status_code) == (200, 304)
    assert "no-cache" in answer.headers["Cache-Control"]
    assert answer.content == component.FILES.text("dumbwaiter.js")


def test_a_page_from_before_a_deploy_gets_what_there_is_and_does_not_keep_it(
    owned_client: httpx.Client,
) -> None:
    answer = owned_client.get("/jobs/dumbwaiter-000000000000/dumbwaiter.js")

    assert answer.status_code == 200
    assert "no-cache" in answer.headers["Cache-Control"]


def test_what_one_part_of_the_recorder_loads_is_beside_it_and_may_be_kept_too(
    owned_client: httpx.Client,
) -> None:
    address = recorder.address()
    for name in recorder.FILES.media_types:
        answer = owned_client.get(f"/jobs/{address.rpartition('/')[0]}/{name}")
        assert answer.content == recorder.FILES.text(name)
        assert "immutable" in answer.headers["Cache-Control"]
        assert owned_client.get(f"/jobs/{name}").content == answer.content


def test_its_neighbours_are_served_and_nothing_else(owned_client: httpx.Client) -> None:
    for name in component.FILES.media_types:
        assert owned_client.get(f"/jobs/{name}").status_code == 200
    for path in ("__init__.py", "nothing.js", "%2e%2e%2fsettings.py"):
        assert owned_client.get(f"/jobs/dumbwaiter-{component.FILES.digest()}/{path}").status_code == 404
