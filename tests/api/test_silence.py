"""Clients that begin a request and then say nothing."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from dumbwaiter.api import receiving


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "SILENCE", 0.3)


@pytest.mark.parametrize("sent", [b"", b'{"na'], ids=["nothing", "a little"])
@pytest.mark.parametrize(
    "route",
    ["POST /tasks/greet", "POST /uploads", "POST {upload}/complete", "PUT /uploads", "PUT {upload}/1"],
)
def test_a_body_of_which_nothing_more_comes_is_given_up_with_408_on_every_route_that_takes_one(
    client: httpx.Client, tmp_path: Path, route: str, sent: bytes
) -> None:
    upload = client.post("/uploads", json={}).json()["links"]["self"]
    kind = "application/json" if route.startswith("POST") else "text/plain"
    head = f"{route.format(upload=upload)} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: 90\r\n\r\n"
    url = urlsplit(str(client.base_url))
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        connection.sendall(head.encode() + sent)
        # the server closes it, for what comes later is no request
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))

    problem = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (problem["status"], problem["type"]) == (408, "urn:dumbwaiter:silence")
    assert [path for path in (tmp_path / "files").rglob("*") if path.is_file()] == []
    assert client.get("/tasks").json() == {"tasks": []}


def test_every_route_that_takes_a_body_says_that_it_may_give_up(client: httpx.Client) -> None:
    described: dict[str, Any] = client.get("/openapi.json").json()["paths"]
    silent = [
        f"{method} {path}"
        for path, methods in described.items()
        for method, operation in methods.items()
        if "requestBody" in operation and "408" not in operation["responses"]
    ]

    assert silent == []
