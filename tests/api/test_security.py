"""What a hostile client, or a hostile name, gets: nothing."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from dumbwaiter import Dumbwaiter
from tests.api.conftest import BYTES, ended, running
from tests.support.waiting import until

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def raw(client: httpx.Client, request: bytes) -> tuple[int, bytes]:
    """The status and the whole answer to a request as it is: httpx would make its path and its headers good."""
    with socket.create_connection(
        (str(client.base_url.host), int(client.base_url.port or 80)), timeout=20
    ) as line:
        line.sendall(request)
        answer = b""
        while chunk := line.recv(65_536):
            answer += chunk
    return int(answer.split(b" ", 2)[1]), answer


def asked(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: shop", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


@pytest.fixture
def published(client: httpx.Client) -> str:
    """The path of a task that published `report.bin`."""
    url = client.post("/tasks/report", json={}).headers["Location"]
    assert ended(client, url)["status"] == "success"
    return str(url)


@pytest.mark.parametrize(
    "name",
    [
        "../report.bin",
        "..%2freport.bin",
        "%2e%2e%2f%2e%2e%2ftasks.db",
        "..%5c..%5ctasks.db",
        "%2fetc%2fpasswd",
        "//etc/passwd",
        "report.bin%00",
        "report.bin%00.txt",
        "report.bin/",
        "report.bin/..",
        "./report.bin",
        "%252e%252e%252ftasks.db",
        "..%c0%afreport.bin",
        "REPORT.BIN",
        "report.bin%20",
        "",
    ],
)
def test_a_file_is_served_under_its_own_name_and_no_path_leads_elsewhere(
    client: httpx.Client, published: str, name: str
) -> None:
    status, answer = raw(client, asked(f"{published}/files/{name}"))

    assert status in (307, 404)
    assert BYTES[:100] not in answer
    assert b"SQLite format" not in answer
    assert b"root:" not in answer


@pytest.mark.parametrize(
    "name", ["%2e%2e", "..%2f..%2f", "a%2f%2e%2e%2fb", "%00", "%0d%0aX-Evil:%201", "' OR 1=1 --"]
)
def test_no_task_id_leads_elsewhere(client: httpx.Client, name: str) -> None:
    for path in (
        f"/tasks/{name}",
        f"/tasks/{name}/progress",
        f"/tasks/{name}/events",
        f"/tasks/{name}/files/x",
    ):
        status, answer = raw(client, asked(path.replace(" ", "%20")))

        assert status in (404, 405), path
        assert b"\r\nX-Evil" not in answer


@pytest.mark.parametrize(
    "name",
    [
        "a\r\nX-Evil: 1.txt",
        "a\nX-Evil: 1.txt",
        "a\rb.txt",
        'a"; filename="b.exe',
        "a\u2028b.txt",
        "a\u202etxt.exe",
    ],
)
def test_no_file_name_makes_a_header(client: httpx.Client, name: str) -> None:
    """A name that cannot be is refused when the task publishes; one that can be is one value of one header."""
    url = client.post("/tasks/report", json={"name": name}).headers["Location"]
    task = until(
        lambda: found if (found := client.get(url).json())["phase"] not in ("queued", "running") else None
    )
    if task["status"] != "success":
        assert task["files"] == []
        client.post(f"{url}/cancel")
        return
    answer = client.get(task["files"][0]["url"])

    assert answer.content == BYTES
    assert "X-Evil" not in answer.headers
    assert answer.headers.get_list("Content-Disposition") == [answer.headers["Content-Disposition"]]
    assert answer.headers["Content-Disposition"].count('"') == 2  # around the plain form of the name


def test_no_key_and_no_header_of_a_client_comes_back_as_a_header(client: httpx.Client) -> None:
    body = b'{"name": "x"}'
    key = "%0d%0aX-Evil:%201"
    head = [
        f"POST /tasks/greet?business_key={key} HTTP/1.1",
        "Host: shop",
        "Content-Type: application/json",
        "Idempotency-Key: a\x0bb",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    status, answer = raw(client, "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)

    assert status in (202, 400, 422)
    assert b"\r\nX-Evil" not in answer


def test_html_in_names_results_and_messages_is_text_wherever_it_is_shown(
    client: httpx.Client, waiter: Dumbwaiter
) -> None:
    answers = [
        client.post("/tasks/greet", json={"name": EVIL}),
        client.post("/tasks/greet", json={EVIL: 1, "name": "x"}),
        client.post("/tasks/greet", content=EVIL, headers={"Content-Type": "application/json"}),
        client.get("/tasks", params={"task_type": EVIL, "business_key": EVIL}),
        client.get("/tasks", params={"limit": EVIL}),
        client.get(f"/tasks/{EVIL.replace('/', '')}"),
    ]
    url = answers[0].headers["Location"]
    assert EVIL in ended(client, url)["result"]
    answers += [client.get(url), client.get(f"{url}/events"), client.get(waiter.link(url.rpartition("/")[2]))]

    for answer in answers:
        kind = answer.headers["Content-Type"].partition(";")[0]
        assert kind in ("application/json", "application/problem+json", "text/event-stream"), answer.url
        assert answer.headers["X-Content-Type-Options"] == "nosniff", answer.url


def test_an_html_file_is_a_download_in_a_sandbox(client: httpx.Client) -> None:
    url = client.post("/tasks/report", json={"name": "evil<b>.html"}).headers["Location"]
    answer = client.get(ended(client, url)["files"][0]["url"])

    assert answer.headers["Content-Disposition"].startswith("attachment;")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]


def test_no_answer_tells_what_operators_read(
    client: httpx.Client, waiter: Dumbwaiter, tmp_path: Path
) -> None:
    url = client.post("/tasks/hopeless", json={}).headers["Location"]
    ended(client, url)
    task_id = url.rpartition("/")[2]
    assert "/srv/secret" in (waiter.get(task_id).error_message or "")
    busy = client.post("/tasks/endless", json={}).headers["Location"]
    running(client, busy)
    worker = waiter.get(busy.rpartition("/")[2]).worker_id
    answers = [
        *(client.get(f"{one}{rest}") for one in (url, busy) for rest in ("", "/progress")),
        client.get(f"{url}/events"),
        client.get("/tasks"),
        client.post(f"{url}/cancel"),
        client.get(waiter.link(task_id)),
    ]

    assert worker
    for answer in answers:
        for secret in (
            "/srv/secret",
            "ledger 7",
            "Traceback",
            worker,
            str(tmp_path),
            "payload",
            "error_message",
        ):
            assert secret not in answer.text, (answer.url, secret)
