from __future__ import annotations

import hashlib
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbwaiter import Dumbwaiter
from dumbwaiter.api.downloads import Unsatisfiable, asked_range
from tests.api.conftest import BYTES, ended
from tests.support.waiting import until


def made(client: httpx.Client, **arguments: object) -> str:
    """The address of a published file."""
    task = ended(client, client.post("/tasks/report", json=arguments).headers["Location"])
    assert task["status"] == "success", task
    return str(task["files"][0]["url"])


def test_a_file_is_downloaded_whole_and_under_its_name(client: httpx.Client) -> None:
    answer = client.get(made(client))

    assert (answer.status_code, answer.content) == (200, BYTES)
    assert answer.headers["Content-Length"] == str(len(BYTES))
    assert answer.headers["Content-Disposition"].startswith('attachment; filename="report.bin"')
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["ETag"] == f'"{hashlib.sha256(BYTES).hexdigest()}"'


def test_any_name_survives_the_way(client: httpx.Client) -> None:
    name = 'Café "灯笼" 100% ;.bin'
    url = made(client, name=name)
    answer = client.get(url)

    assert (answer.status_code, answer.content) == (200, BYTES)
    assert f"filename*=UTF-8''{quote(name, safe='')}" in answer.headers["Content-Disposition"]
    assert client.get(url.rpartition("/")[0] + "/other.bin").status_code == 404


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-99", 0, 100),
        ("bytes=100-", 100, len(BYTES)),
        ("bytes=-100", len(BYTES) - 100, len(BYTES)),
        ("bytes=5-999999", 5, len(BYTES)),
    ],
)
def test_a_part_of_a_file_is_206(client: httpx.Client, asked: str, start: int, end: int) -> None:
    answer = client.get(made(client), headers={"Range": asked})

    assert (answer.status_code, answer.content) == (206, BYTES[start:end])
    assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{len(BYTES)}"
    assert answer.headers["Content-Length"] == str(end - start)


def test_a_part_beyond_the_end_is_416_and_tells_the_size(client: httpx.Client) -> None:
    answer = client.get(made(client), headers={"Range": f"bytes={len(BYTES)}-"})

    assert (answer.status_code, answer.headers["Content-Range"]) == (416, f"bytes */{len(BYTES)}")


def test_a_part_of_another_version_is_answered_with_the_whole_file(client: httpx.Client) -> None:
    headers = {"Range": "bytes=0-9", "If-Range": '"another"'}

    assert client.get(made(client), headers=headers).status_code == 200


def test_a_file_that_the_client_has_is_304(client: httpx.Client) -> None:
    url = made(client)
    tag = client.get(url).headers["ETag"]

    assert client.get(url, headers={"If-None-Match": tag}).status_code == 304


def test_head_tells_the_size_without_the_bytes(client: httpx.Client) -> None:
    answer = client.head(made(client))

    assert (answer.status_code, answer.content, answer.headers["Content-Length"]) == (
        200,
        b"",
        str(len(BYTES)),
    )


def test_a_file_of_an_unknown_task_and_an_unknown_file_are_404(client: httpx.Client) -> None:
    url = made(client)
    unknown = url.replace(url.split("/")[2], "0190a6c8-0000-7000-8000-000000000000")

    assert (client.get(url + "x").status_code, client.get(unknown).status_code) == (404, 404)


def test_an_expired_file_is_410_and_the_page_is_told_to_offer_it_again(client: httpx.Client) -> None:
    url = made(client, expires=0.5)
    gone = until(lambda: answer if (answer := client.get(url)).status_code != 200 else None)

    assert gone.status_code == 410
    task = client.get("/".join(url.split("/")[:3])).json()
    assert (task["display"], task["files"]) == ("retry", [])


def test_a_file_whose_object_is_gone_is_410_and_not_half_an_answer(
    client: httpx.Client, waiter: Dumbwaiter
) -> None:
    url = made(client)
    waiter.files.delete(file.object_key for file in waiter.get(url.split("/")[2]).files)

    assert client.get(url).status_code == 410


def test_nothing_in_a_file_can_run_as_ours(client: httpx.Client) -> None:
    answer = client.get(made(client, name="page.html"))

    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["Content-Security-Policy"]


@given(
    header=st.from_regex(r"bytes=\d{0,5}-\d{0,5}", fullmatch=True) | st.text(max_size=20),
    size=st.integers(0, 5000),
)
def test_a_range_is_inside_the_file_or_refused_or_ignored(header: str, size: int) -> None:
    try:
        part = asked_range(header, size)
    except Unsatisfiable:
        return
    assert part is None or 0 <= part[0] < part[1] <= size
