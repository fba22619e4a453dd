"""Uploads that are stored in a bucket, on moto: in parts of its own, aborted when they break off, and swept."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.uploads import sweep_uploads
from tests.support.moto import Moto, moto
from tests.support.programs import Program, program, python
from tests.support.waiting import until

MIB = 1024 * 1024
LIMIT = 32 * MIB
SITE = """
import os
from fastapi import FastAPI
from dumbwaiter import Dumbwaiter
from dumbwaiter.integrations.fastapi import lifespan, router

waiter = Dumbwaiter("sqlite:///tasks.db", files=os.environ["BUCKET"], max_upload=32 * 1024**2)
app = FastAPI(lifespan=lifespan(waiter, worker=False))
app.include_router(router(waiter, public=True))
"""


@pytest.fixture(scope="module")
def bucket() -> Iterator[Moto]:
    with moto() as server:
        yield server


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, bucket: Moto) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "anybody")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("BUCKET", bucket.url)


@pytest.fixture
def server(tmp_path: Path, credentials: None) -> Iterator[Program]:
    (tmp_path / "shop.py").write_text(SITE)
    with program(*python("-m", "uvicorn", "shop:app", "--port", "0"), cwd=tmp_path) as one:
        one.says("Application startup complete")
        yield one


@pytest.fixture
def client(server: Program) -> Iterator[httpx.Client]:
    address = server.says(r"running on (http://127\.0\.0\.1:\d+)")[1]
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client


@pytest.fixture
def waiter(tmp_path: Path, bucket: Moto) -> Iterator[Dumbwaiter]:
    """The same application, in this process."""
    waiter = Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db", files=bucket.url)
    yield waiter
    waiter.close()


@pytest.fixture
def begun(bucket: Moto) -> Callable[[], int]:
    """How many uploads in parts have begun and not ended, since the test began."""
    before = bucket.uploads()
    return lambda: bucket.uploads() - before


def day_later(waiter: Dumbwaiter) -> int:
    return sweep_uploads(waiter.store, waiter.files, now=waiter.store.now() + timedelta(days=1, seconds=5))


def resident(server: Program) -> int:
    return int(psutil.Process(server.process.pid).memory_info().rss)


@pytest.mark.timeout(120)
def test_an_upload_in_parts_is_one_object_and_the_servers_memory_stays_bounded(
    client: httpx.Client, server: Program, waiter: Dumbwaiter, bucket: Moto, begun: Callable[[], int]
) -> None:
    parts = [os.urandom(12 * MIB), os.urandom(5 * MIB), os.urandom(7)]
    client.put("/uploads", content=b"x").raise_for_status()
    before, highest = resident(server), 0
    new = client.post("/uploads", json={}).json()

    def watched(data: bytes) -> Iterator[bytes]:
        nonlocal highest
        for start in range(0, len(data), MIB):
            highest = max(highest, resident(server))
            yield data[start : start + MIB]

    for number, data in enumerate(parts, 1):
        client.put(f"{new['links']['self']}/{number}", content=watched(data)).raise_for_status()
    whole = client.post(new["links"]["complete"]).raise_for_status().json()
    highest = max(highest, resident(server))

    key = waiter.uploads.of(new["id"], None).object_key or ""
    read = hashlib.sha256(b"".join(waiter.files.stream(key))).hexdigest()
    assert whole["sha256"] == read == hashlib.sha256(b"".join(parts)).hexdigest()
    assert len(bucket.keys()) == 2
    print(f"the server grew by {(highest - before) / MIB:.0f} MiB")
    assert highest - before < 96 * MIB
    assert day_later(waiter) == 2
    assert (bucket.keys(), begun()) == ([], 0)


@pytest.mark.timeout(120)
def test_what_breaks_off_or_is_too_long_is_aborted(
    client: httpx.Client, waiter: Dumbwaiter, bucket: Moto, begun: Callable[[], int]
) -> None:
    url = urlsplit(str(client.base_url))
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        head = f"PUT /uploads HTTP/1.1\r\nHost: x\r\nContent-Length: {30 * MIB}\r\n\r\n"
        connection.sendall(head.encode() + b"x" * (20 * MIB))
        until(lambda: begun() == 1, 30)
    until(lambda: begun() == 0, 30)

    too_long = client.put("/uploads", content=(b"x" * MIB for _ in range(LIMIT // MIB + 1)))

    assert too_long.status_code == 413
    assert (bucket.keys(), begun(), day_later(waiter)) == ([], 0, 0)


@pytest.mark.timeout(120)
def test_a_server_killed_in_mid_upload_leaves_no_object_after_one_sweep(
    client: httpx.Client, server: Program, waiter: Dumbwaiter, bucket: Moto, begun: Callable[[], int]
) -> None:
    new = client.post("/uploads", json={}).json()
    client.put(f"{new['links']['self']}/1", content=b"x" * MIB).raise_for_status()
    url = urlsplit(str(client.base_url))
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        head = f"PUT {new['links']['self']}/2 HTTP/1.1\r\nHost: x\r\nContent-Length: {30 * MIB}\r\n\r\n"
        connection.sendall(head.encode() + b"x" * (20 * MIB))
        until(lambda: begun() == 1, 30)
        server.process.kill()
        server.process.wait()
    assert len(bucket.keys()) == 1

    assert day_later(waiter) == 1

    assert bucket.keys() == []
    # parts that belong to no object are seen by nobody, and go by the bucket's rule
    assert begun() == 1
