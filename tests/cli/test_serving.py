from __future__ import annotations

import signal
import socket
from pathlib import Path

import httpx
import pytest

from dumbwaiter.cli.serving import read_capacity, read_queue
from dumbwaiter.errors import InvalidOption
from tests.cli.conftest import Cli
from tests.support.programs import program, python

SERVE = python("-m", "dumbwaiter", "serve")


def test_serve_shows_the_page_on_the_next_free_port_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with program(*SERVE, "--port", str(port), cwd=tmp_path) as server:
            address = server.says(r"serving (http://127\.0\.0\.1:\d+)")[1]
            server.says("startup complete")
            page = httpx.get(address)
            strange = httpx.get(address, headers={"Host": "evil.example"})
            server.signal(signal.SIGINT)
            status = server.wait()

    assert f"port {port} is taken" in server.said
    assert (page.status_code, "<h1>Dumbwaiter</h1>" in page.text) == (200, True)
    assert strange.status_code == 400
    assert status == 0
    assert "Traceback" not in server.said


def test_serve_stays_on_loopback_unless_somebody_says_who_is_who(cli: Cli) -> None:
    answer = cli("serve", "--host", "0.0.0.0")

    assert answer.returncode == 1
    assert "--authorize module:function" in answer.stderr


def test_serve_with_authorize_asks_it(shop: Path) -> None:
    with (shop / "shop.py").open("a") as text:
        text.write("\n\ndef who(request):\n    return request.headers.get('X-User', 'nobody')\n")
    argv = python(
        "-m", "dumbwaiter", "--app", "shop:waiter", "serve", "--port", "0", "--authorize", "shop:who"
    )
    with program(*argv, "--no-worker", cwd=shop) as server:
        address = server.says(r"serving (http://127\.0\.0\.1:\d+)")[1]
        server.says("startup complete")
        page = httpx.get(address)

    # no videos here: what may be asked for, and where
    assert "Tasks that may be asked for" in page.text
    assert '<a href="docs">' in page.text
    assert "recorded session" not in page.text


@pytest.mark.parametrize("word", ["=2", "exports=", "exports=0", "exports=-1", "exports=x"])
def test_slots_that_cannot_be_are_refused(word: str) -> None:
    with pytest.raises(InvalidOption, match="QUEUE=SLOTS"):
        read_queue(word, 10)


def test_slots_and_capacities_are_read() -> None:
    assert read_queue("exports=2", 10) == ("exports", 2)
    assert read_queue("exports", 10) == ("exports", 10)
    assert read_capacity("chromium=1, gpu_memory=24.5") == {"chromium": 1.0, "gpu_memory": 24.5}


@pytest.mark.parametrize("text", ["chromium", "=1", "chromium=x", "chromium=-1", "chromium=inf", "a=1,,b=2"])
def test_capacities_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="NAME=AMOUNT"):
        read_capacity(text)
