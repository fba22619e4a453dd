"""Uploads over HTTP: sent by their owner or by whoever has the token, cut at the limit, taken by tasks."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from fastapi import FastAPI, HTTPException, Request

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import ConfigurationError
from dumbwaiter.integrations.fastapi import lifespan, router
from dumbwaiter.uploads import sweep_uploads
from tests.api.conftest import ended
from tests.support import letterbox
from tests.support.programs import Program, program, python
from tests.support.serving import serving
from tests.support.waiting import until

ADA, EVE = {"X-User": "ada"}, {"X-User": "eve"}
MIB = 1024 * 1024
NOBODYS = "0190a6c8-0000-7000-8000-000000000000"


@contextmanager
def served(
    directory: Path, *, worker: bool = False, **settings: Any
) -> Iterator[tuple[httpx.Client, Dumbwaiter]]:
    """A client of an application in which the header X-User says whose request it is, under /app."""

    def user(request: Request) -> str:
        if (name := request.headers.get("X-User")) is None:
            raise HTTPException(401, "Say who you are.")
        return name

    places = {"files": str(directory / "files"), "workdir": str(directory / "work")}
    waiter = Dumbwaiter(f"sqlite:///{directory}/tasks.db", **(places | {"max_upload": 100_000} | settings))
    for entry in letterbox.waiter.registry:
        waiter.registry.add(entry)
    app = FastAPI(lifespan=lifespan(waiter, worker=worker))
    app.include_router(router(waiter, authorize=user), prefix="/app")
    with serving(app) as client:
        yield client, waiter


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[httpx.Client, Dumbwaiter]]:
    with served(tmp_path) as both:
        yield both


@pytest.fixture
def client(site: tuple[httpx.Client, Dumbwaiter]) -> httpx.Client:
    return site[0]


@pytest.fixture
def waiter(site: tuple[httpx.Client, Dumbwaiter]) -> Dumbwaiter:
    return site[1]


def announced(client: httpx.Client, who: dict[str, str] = ADA, **about: Any) -> dict[str, Any]:
    answer = client.post("/app/uploads", json={"filename": "shop.json"} | about, headers=who)
    assert answer.status_code == 201, answer.text
    new: dict[str, Any] = answer.json()
    assert answer.headers["Location"] == new["links"]["self"] == f"/app/uploads/{new['id']}"
    return new


def whole(client: httpx.Client, data: bytes = b"whole", who: dict[str, str] = ADA) -> str:
    answer = client.put("/app/uploads", params={"filename": "whole.txt"}, content=data, headers=who)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def stored(directory: Path) -> list[Path]:
    # os.walk does not mind directories that go meanwhile
    return [Path(place) / name for place, _, names in os.walk(directory / "files") for name in names]


def day_later(waiter: Dumbwaiter) -> int:
    """One sweep, a day later; how many uploads it removed."""
    return sweep_uploads(waiter.store, waiter.files, now=waiter.store.now() + timedelta(days=1, seconds=5))


def test_a_file_is_sent_in_parts_and_a_task_reads_it(tmp_path: Path) -> None:
    with served(tmp_path, worker=True) as (client, _):
        new = announced(client, size=11)
        parts = [
            client.put(f"{new['links']['self']}/{number}", content=data, headers=ADA).json()
            for number, data in ((2, b"two "), (1, b"one "), (3, b"oops"), (3, b"333"))
        ]
        seen = client.get(new["links"]["self"], headers=ADA).json()
        done = client.post(new["links"]["complete"], headers=ADA)
        again = client.post(
            new["links"]["complete"],
            json={"sha256": hashlib.sha256(b"one two 333").hexdigest()},
            headers=ADA,
        )
        asked = client.post("/app/tasks/read-all", json={"letters": [{"upload": new["id"]}]}, headers=ADA)
        task = ended(client, asked.headers["Location"], **ADA)

    assert [part["part"] for part in parts] == [2, 1, 3, 3]
    assert parts[0] == {"part": 2, "size": 4, "sha256": hashlib.sha256(b"two ").hexdigest()}
    assert ([part["part"] for part in seen["parts"]], seen["complete"]) == ([1, 2, 3], False)
    assert (done.status_code, done.json()["size"], done.json()["complete"]) == (200, 11, True)
    assert again.json() == done.json()
    assert task["result"] == ["one two 333"]


def test_a_file_is_sent_in_one_go_under_any_name(client: httpx.Client, waiter: Dumbwaiter) -> None:
    answer = client.put(
        "/app/uploads",
        params={"filename": "报告 7.csv"},
        content=b"a,b",
        headers=ADA | {"Content-Type": "text/csv; charset=utf-8"},
    )

    seen = answer.json()
    assert answer.status_code == 201
    assert (seen["filename"], seen["content_type"], seen["size"]) == (
        "报告 7.csv",
        "text/csv; charset=utf-8",
        3,
    )
    assert waiter.uploads.of(seen["id"], "ada").sha256 == hashlib.sha256(b"a,b").hexdigest()


def test_an_empty_file_is_a_file(client: httpx.Client) -> None:
    new = announced(client)
    assert client.put(f"{new['links']['self']}/1", content=b"", headers=ADA).json()["size"] == 0
    assert client.post(new["links"]["complete"], headers=ADA).json()["size"] == 0


def test_a_form_is_no_file_and_what_curl_says_of_all_files_is_not_believed(client: httpx.Client) -> None:
    new = announced(client)
    forms = [
        client.request("PUT", url, files={"file": b"x"}, headers=ADA)
        for url in ("/app/uploads", f"{new['links']['self']}/1")
    ]
    curl = ADA | {"Content-Type": "application/x-www-form-urlencoded"}
    named = client.put("/app/uploads", params={"filename": "a.pdf"}, content=b"x", headers=curl)

    assert [answer.status_code for answer in forms] == [415, 415]
    assert named.json()["content_type"] == "application/pdf"


# whose it is


def test_another_owners_upload_is_as_if_it_were_not_there(client: httpx.Client, waiter: Dumbwaiter) -> None:
    new, complete = announced(client), whole(client)
    client.put(f"{new['links']['self']}/1", content=b"hers", headers=ADA)

    def tried(upload_id: str) -> list[httpx.Response]:
        url = f"/app/uploads/{upload_id}"
        return [
            client.get(url, headers=EVE),
            client.put(f"{url}/1", content=b"x", headers=EVE),
            client.post(f"{url}/complete", headers=EVE),
            client.post("/app/tasks/read-on-thread", json={"letter": {"upload": upload_id}}, headers=EVE),
        ]

    answers = tried(new["id"]) + tried(complete) + tried(NOBODYS) + tried("../../etc/passwd")[3:]

    assert [answer.status_code for answer in answers[:12]] == [404] * 12
    assert len({answer.text for answer in answers[:12]}) == 1
    assert answers[12].status_code == 422
    assert waiter.find() == []
    assert client.get(new["links"]["self"], headers=ADA).json()["parts"][0]["size"] == 4


def test_who_is_nobody_sends_nothing(client: httpx.Client) -> None:
    new = announced(client)
    answers = [
        client.post("/app/uploads", json={}),
        client.put("/app/uploads", content=b"x"),
        client.put(f"{new['links']['self']}/1", content=b"x"),
        client.post(new["links"]["complete"]),
        client.get(new["links"]["self"]),
    ]

    assert [answer.status_code for answer in answers] == [401] * 5


def test_a_token_is_good_for_its_upload_only(client: httpx.Client) -> None:
    one, other = announced(client), announced(client, EVE)
    good = {"Upload-Token": one["token"]}
    body, _, signature = one["token"].rpartition(".")
    forged = [
        other["token"],
        "x",
        "",
        f"{body}.{signature[::-1]}",
        f"{other['token'].split('.')[0]}.{signature}",
    ]

    assert client.put(f"{one['links']['self']}/1", content=b"one", headers=good).status_code == 200
    for token in forged:
        bad = {"Upload-Token": token}
        assert client.put(f"{one['links']['self']}/1", content=b"x", headers=bad).status_code == 404, token
    assert client.put(f"{other['links']['self']}/1", content=b"x", headers=good).status_code == 404
    assert client.get(other["links"]["self"], headers=good | EVE).status_code == 404
    assert client.put("/app/uploads", content=b"x", headers=good).status_code == 401
    task = {"letter": {"upload": one["id"]}}
    assert client.post("/app/tasks/read-on-thread", json=task, headers=good).status_code == 401
    assert client.post(one["links"]["complete"], headers=good).json()["size"] == 3


def test_a_token_of_one_server_is_good_on_another_with_the_same_database(tmp_path: Path) -> None:
    with served(tmp_path) as (one, _), served(tmp_path) as (other, _):
        new = announced(one)
        answer = other.put(f"{new['links']['self']}/1", content=b"x", headers={"Upload-Token": new["token"]})

    assert answer.status_code == 200


def test_a_page_of_another_site_completes_nothing_with_somebodys_cookies(client: httpx.Client) -> None:
    new = announced(client)
    client.put(f"{new['links']['self']}/1", content=b"x", headers=ADA)

    strange = ADA | {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert client.post(new["links"]["complete"], headers=strange).status_code == 403
    assert client.post("/app/uploads", content=b"{}", headers=strange).status_code == 415
    assert not client.get(new["links"]["self"], headers=ADA).json()["complete"]


def test_pages_of_the_sites_that_are_named_may_send_from_there(tmp_path: Path) -> None:
    shop, evil = "https://shop.example", "https://evil.example"
    with served(tmp_path, upload_origins=f"{shop}, http://localhost:3000") as (client, _):
        new = announced(client)
        url = f"{new['links']['self']}/1"
        asking = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "upload-token"}
        preflights = [client.options(url, headers=asking | {"Origin": origin}) for origin in (shop, evil)]
        good = {"Upload-Token": new["token"], "Sec-Fetch-Site": "cross-site"}
        put = client.put(url, content=b"x", headers=good | {"Origin": shop})
        refused = client.put(f"{new['links']['self']}/0", content=b"x", headers=good | {"Origin": shop})
        strange = client.put(url, content=b"x", headers=good | {"Origin": evil})
        tasks = client.options("/app/tasks/read-all", headers=asking | {"Origin": shop})

    assert preflights[0].status_code == 200
    assert preflights[0].headers["Access-Control-Allow-Origin"] == shop
    assert preflights[0].headers["Access-Control-Allow-Methods"] == "GET, POST, PUT"
    assert "Access-Control-Allow-Credentials" not in preflights[0].headers
    assert preflights[1].status_code == 400
    assert (put.status_code, put.headers["Access-Control-Allow-Origin"]) == (200, shop)
    assert (refused.status_code, refused.headers["Access-Control-Allow-Origin"]) == (422, shop)
    assert "Access-Control-Allow-Origin" not in strange.headers
    assert (tasks.status_code, tasks.headers.get("Access-Control-Allow-Origin")) == (405, None)


def test_without_the_setting_no_other_site_is_let_in(client: httpx.Client) -> None:
    asking = {"Access-Control-Request-Method": "PUT", "Origin": "https://shop.example"}
    answer = client.options("/app/uploads", headers=asking)

    assert (answer.status_code, answer.headers.get("Access-Control-Allow-Origin")) == (405, None)


def test_an_origin_that_is_none_is_told_at_the_start(tmp_path: Path) -> None:
    waiter = Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db", upload_origins="shop.example/page")

    with pytest.raises(ConfigurationError, match="no origin"):
        router(waiter, public=True)


# what is refused


@pytest.mark.parametrize(
    ("about", "status"),
    [
        ({"filename": "../../etc/passwd"}, 400),
        ({"filename": "a\r\nSet-Cookie: x=1"}, 400),
        ({"filename": ".."}, 400),
        ({"filename": "C:\\x.txt"}, 400),
        ({"filename": "x" * 201}, 400),
        ({"content_type": "text/html\r\nX: y"}, 400),
        ({"size": -1}, 422),
        ({"size": "7"}, 422),
        ({"size": 100_001}, 413),
        ({"path": "/etc/passwd"}, 422),
        ({"filename": None}, 422),
    ],
    ids=str,
)
def test_an_announcement_that_cannot_be_is_refused(
    client: httpx.Client, waiter: Dumbwaiter, about: dict[str, Any], status: int
) -> None:
    answer = client.post("/app/uploads", json=about, headers=ADA)

    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert day_later(waiter) == 0


def test_path_tricks_in_the_name_of_a_file_that_is_sent_in_one_go_store_nothing(
    client: httpx.Client, waiter: Dumbwaiter, tmp_path: Path
) -> None:
    for name in ("../../x", "/etc/passwd", "..", "a\0b", "a\nb"):
        answer = client.put("/app/uploads", params={"filename": name}, content=b"x", headers=ADA)
        assert answer.status_code == 400, name
    assert (stored(tmp_path), day_later(waiter)) == ([], 0)


def test_the_number_of_a_part_is_one_of_ten_thousand(client: httpx.Client) -> None:
    url = announced(client)["links"]["self"]

    statuses = [
        client.put(f"{url}/{number}", content=b"x", headers=ADA).status_code
        for number in (0, 10_001, -1, "x", 10_000)
    ]
    assert statuses == [422, 422, 422, 422, 200]


def test_what_is_not_whole_or_not_as_announced_is_not_completed(client: httpx.Client) -> None:
    new = announced(client, size=5)
    complete, url = new["links"]["complete"], new["links"]["self"]

    def refusal(**sent: Any) -> tuple[int, str]:
        answer = client.post(complete, headers=ADA, **sent)
        return answer.status_code, answer.json().get("detail", "")

    assert refusal() == (409, "This upload: no part of it has come yet.")
    client.put(f"{url}/2", content=b"two", headers=ADA)
    assert refusal() == (409, "This upload: its part 1 is missing.")
    client.put(f"{url}/1", content=b"one", headers=ADA)
    assert refusal() == (409, "This upload: its parts have 6 bytes, and 5 were announced.")
    client.put(f"{url}/2", content=b"22", headers=ADA)
    assert refusal(json={"sha256": "0" * 64})[0] == 409
    assert refusal(json={"sha256": "0"})[0] == 422
    assert refusal(json={"parts": [1]})[0] == 422
    task = {"letter": {"upload": new["id"]}}
    assert client.post("/app/tasks/read-on-thread", json=task, headers=ADA).status_code == 409
    assert refusal()[0] == 200
    assert client.put(f"{url}/3", content=b"x", headers=ADA).status_code == 409
    assert client.post("/app/tasks/read-on-thread", json=task, headers=ADA).status_code == 202


@pytest.mark.parametrize(
    "given", ["/etc/passwd", {"upload": "x"}, {"upload": 7}, {"path": "/etc/passwd"}, [], 7]
)
def test_only_ids_stand_for_files_over_http(client: httpx.Client, waiter: Dumbwaiter, given: Any) -> None:
    answer = client.post("/app/tasks/read-on-thread", json={"letter": given}, headers=ADA)

    assert answer.status_code == 422
    assert waiter.find() == []


def test_a_client_says_nothing_of_an_upload_but_its_id(client: httpx.Client, waiter: Dumbwaiter) -> None:
    told = {"upload": whole(client), "size": 7, "filename": "../../x"}

    assert client.post("/app/tasks/read-on-thread", json={"letter": told}, headers=ADA).status_code == 422
    assert waiter.find() == []


# how much


def endless(piece: bytes = b"x" * 65_536) -> Iterator[bytes]:
    while True:
        yield piece


def sent_raw(client: httpx.Client, request: str, pieces: Iterator[bytes], *, most: int) -> tuple[bytes, int]:
    """What a server answers to a stream that does not end by itself, and how many bytes it had taken by then."""
    url = urlsplit(str(client.base_url))
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        connection.sendall(request.encode())
        said, taken = bytearray(), 0

        def listen() -> None:
            try:
                while data := connection.recv(65_536):
                    said.extend(data)
            except OSError:
                pass  # it was hung up on us in the middle of a piece

        listening = threading.Thread(target=listen)
        listening.start()
        try:
            while taken < most and listening.is_alive():
                piece = next(pieces)
                connection.sendall(piece)
                taken += len(piece)
        except OSError:
            pass
        listening.join(20)
        assert not listening.is_alive(), "the server went on listening"
        return bytes(said), taken


def test_what_says_that_it_is_too_long_is_refused_before_a_byte_of_it_is_read(
    client: httpx.Client, waiter: Dumbwaiter, tmp_path: Path
) -> None:
    new = announced(client)
    for path in ("/app/uploads", f"{new['links']['self']}/1"):
        head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nX-User: ada\r\nContent-Length: {10 * 1024**3}\r\n\r\n"
        said, taken = sent_raw(client, head, iter([]), most=0)

        assert said.startswith(b"HTTP/1.1 413")
        assert (taken, stored(tmp_path)) == (0, [])
    assert day_later(waiter) == 1  # what was announced


@pytest.mark.parametrize("room", ["one go", "a part", "a part beside others"])
def test_what_does_not_say_how_long_it_is_is_cut_at_the_limit(
    client: httpx.Client, tmp_path: Path, room: str
) -> None:
    new = announced(client)
    path = "/app/uploads" if room == "one go" else f"{new['links']['self']}/2"
    if room == "a part beside others":
        client.put(f"{new['links']['self']}/1", content=b"x" * 60_000, headers=ADA)
    before = stored(tmp_path)
    head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nX-User: ada\r\nTransfer-Encoding: chunked\r\n\r\n"

    said, taken = sent_raw(
        client, head, (b"a000\r\n" + b"x" * 0xA000 + b"\r\n" for _ in endless()), most=10 * 1024**3
    )

    assert said.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in said.lower()
    # what the sockets on both sides hold, and no more
    assert taken < 30 * MIB
    assert stored(tmp_path) == before


def test_less_than_was_said_is_not_stored(client: httpx.Client, waiter: Dumbwaiter, tmp_path: Path) -> None:
    new = announced(client)
    url = urlsplit(str(client.base_url))
    for path in ("/app/uploads", f"{new['links']['self']}/1"):
        with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
            head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nX-User: ada\r\nContent-Length: 90000\r\n\r\n"
            connection.sendall(head.encode() + b"x" * 70_000)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(65_536)

    until(lambda: not stored(tmp_path))
    until(lambda: len(waiter.store.uploads.expired(now=waiter.store.now() + timedelta(days=2))) == 1)
    assert client.get(new["links"]["self"], headers=ADA).json()["parts"] == []


def test_an_upload_goes_on_where_it_was_broken_off(client: httpx.Client) -> None:
    new = announced(client)
    client.put(f"{new['links']['self']}/1", content=b"one ", headers=ADA)

    there = {part["part"] for part in client.get(new["links"]["self"], headers=ADA).json()["parts"]}
    for number, data in ((1, b"one "), (2, b"two")):
        if number not in there:
            client.put(f"{new['links']['self']}/{number}", content=data, headers=ADA)

    assert client.post(new["links"]["complete"], headers=ADA).json()["size"] == 7


# a server of its own

SITE = """
from fastapi import FastAPI
from pathlib import Path
from dumbwaiter import Dumbwaiter
from dumbwaiter.integrations.fastapi import lifespan, router

HERE = Path(__file__).parent
waiter = Dumbwaiter(f"sqlite:///{HERE / 'tasks.db'}", files=str(HERE / "files"), max_upload=128 * 1024**2)
app = FastAPI(lifespan=lifespan(waiter, worker=False))
app.include_router(router(waiter, public=True))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[[], Program]]:
    (tmp_path / "shop.py").write_text(SITE)
    running: list[Program] = []

    with program(*python("-m", "uvicorn", "shop:app", "--port", "0"), cwd=tmp_path) as one:
        running.append(one)
        yield lambda: running[0]


def address(one: Program) -> str:
    one.says("Application startup complete")
    return str(one.says(r"running on (http://127\.0\.0\.1:\d+)")[1])


def resident(one: Program) -> int:
    return int(psutil.Process(one.process.pid).memory_info().rss)


@pytest.mark.timeout(120)
def test_the_servers_memory_stays_flat_while_it_takes_100_mb_and_cuts_what_is_too_long(
    server: Callable[[], Program], tmp_path: Path
) -> None:
    block = os.urandom(MIB)
    with httpx.Client(base_url=address(server()), timeout=60) as client:
        client.put("/uploads", content=block).raise_for_status()
        before, highest = resident(server()), 0

        def watched(blocks: int) -> Iterator[bytes]:
            nonlocal highest
            for number in range(blocks):
                yield block
                if number % 16 == 0:
                    highest = max(highest, resident(server()))

        taken = client.put("/uploads", content=watched(100))
        head = "PUT /uploads HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks = (b"100000\r\n" + one + b"\r\n" for one in watched(10_000))
        said, sent = sent_raw(client, head, chunks, most=10 * 1024**3)

    assert (taken.status_code, taken.json()["size"]) == (201, 100 * MIB)
    assert said.startswith(b"HTTP/1.1 413")
    assert sent < 160 * MIB
    print(f"the server grew by {(highest - before) / MIB:.1f} MiB")
    assert highest - before < 24 * MIB
    assert len(stored(tmp_path)) == 2


@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", ["/uploads", "/uploads/{id}/2"])
def test_a_server_killed_in_mid_upload_leaves_nothing_after_one_sweep(
    server: Callable[[], Program], tmp_path: Path, path: str
) -> None:
    url = address(server())
    new = httpx.post(f"{url}/uploads", json={}, timeout=60).json()
    httpx.put(f"{url}/uploads/{new['id']}/1", content=b"x" * MIB, timeout=60).raise_for_status()
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
        path = path.format(id=new["id"])
        head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {20 * MIB}\r\n\r\n"
        connection.sendall(head.encode() + b"x" * (10 * MIB))
        until(lambda: any(one.suffix == ".part" and one.stat().st_size > 4 * MIB for one in stored(tmp_path)))
        server().process.kill()
        server().process.wait()
    assert len(stored(tmp_path)) == 2

    waiter = Dumbwaiter(f"sqlite:///{tmp_path}/tasks.db", files=str(tmp_path / "files"))
    try:
        assert sweep_uploads(waiter.store, waiter.files) == 0
        assert day_later(waiter) == (2 if path == "/uploads" else 1)
        assert list((tmp_path / "files").iterdir()) == []
        assert day_later(waiter) == 0
    finally:
        waiter.close()


@pytest.mark.timeout(60)
def test_a_server_that_is_stopped_in_mid_upload_ends_and_leaves_no_half_file(
    server: Callable[[], Program], tmp_path: Path
) -> None:
    place = urlsplit(address(server()))
    with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
        head = f"PUT /uploads HTTP/1.1\r\nHost: x\r\nContent-Length: {20 * MIB}\r\n\r\n"
        connection.sendall(head.encode() + b"x" * (6 * MIB))
        until(lambda: any(one.stat().st_size > MIB for one in stored(tmp_path)))
        for _ in range(2):
            server().process.terminate()
            until(lambda: "Shutting down" in server().said or server().process.poll() is not None)
    server().wait()

    assert stored(tmp_path) == []
