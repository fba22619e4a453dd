"""The proxy itself: a trial that passes because the proxy passes everything on proves nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.store.proxies import Mode, Proxy
from tests.support.waiting import until


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Before a server that answers each message with the same in capitals."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(server: socket.socket) -> None:
        with server:
            try:
                while data := server.recv(100):
                    server.sendall(data.upper())
            except OSError:
                return

    def serve() -> None:
        while True:
            try:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    proxy = Proxy(listener.getsockname())
    yield proxy
    proxy.close()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@contextmanager
def connected(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
        yield client


def asked(client: socket.socket, text: bytes = b"hello", within: float = 10) -> bytes:
    client.settimeout(within)
    client.sendall(text)
    heard = b""
    while len(heard) < len(text):
        if not (piece := client.recv(100)):
            raise ConnectionResetError
        heard += piece
    return heard


def test_what_is_passed_on_is_whole(proxy: Proxy) -> None:
    with connected(proxy) as client:
        assert asked(client) == b"HELLO"


def test_a_delay_is_one_in_each_direction(proxy: Proxy) -> None:
    proxy.mode = Mode.DELAY
    with connected(proxy) as client:
        began = time.monotonic()
        assert asked(client) == b"HELLO"
    assert time.monotonic() - began >= 2 * proxy.late


def test_refused_connections_find_nobody_until_it_is_over(proxy: Proxy) -> None:
    with connected(proxy) as old:
        assert asked(old) == b"HELLO"
        proxy.mode = Mode.REFUSE
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            asked(old)
        with pytest.raises(ConnectionRefusedError):
            connected(proxy).__enter__()
        proxy.mode = Mode.PASS
    with connected(proxy) as client:
        assert asked(client) == b"HELLO"


def test_a_reset_meets_old_connections_and_new_ones(proxy: Proxy) -> None:
    with connected(proxy) as old:
        assert asked(old) == b"HELLO"
        proxy.mode = Mode.RESET
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            asked(old)
        # a new one may be reset before it knows that it is there
        with pytest.raises((ConnectionResetError, BrokenPipeError)), connected(proxy) as new:
            asked(new)


def test_a_connection_that_lost_something_in_the_black_hole_stays_mute_and_an_idle_one_lives_on(
    proxy: Proxy,
) -> None:
    with connected(proxy) as busy, connected(proxy) as idle:
        assert (asked(busy), asked(idle)) == (b"HELLO", b"HELLO")
        proxy.mode = Mode.BLACKHOLE
        with pytest.raises(TimeoutError):
            asked(busy, within=0.3)
        proxy.mode = Mode.PASS
        with pytest.raises(TimeoutError):
            asked(busy, within=0.3)

        assert asked(idle) == b"HELLO"


def test_a_byte_a_second_comes_through_and_the_rest_at_once_when_it_is_over(proxy: Proxy) -> None:
    with connected(proxy) as client:
        assert asked(client) == b"HELLO"
        proxy.mode = Mode.DRIP
        began = time.monotonic()
        assert asked(client, b"ab") == b"AB"
        assert time.monotonic() - began > 0.9
        client.sendall(b"c" * 90)
        proxy.mode = Mode.PASS
        heard = b""
        while len(heard) < 90:
            heard += client.recv(100)


def test_a_swallowed_answer_is_that_of_something_done(proxy: Proxy) -> None:
    with connected(proxy) as client:
        proxy.swallow = b"commit"
        assert asked(client, b"select") == b"SELECT"
        with pytest.raises(ConnectionResetError):
            asked(client, b"commit")
        assert proxy.swallowed.wait(5)
        until(lambda: not proxy.links)


def test_requests_pass_while_answers_are_swallowed(proxy: Proxy) -> None:
    with connected(proxy) as client:
        proxy.mode = Mode.SWALLOW
        with pytest.raises(TimeoutError):
            asked(client, within=0.3)
