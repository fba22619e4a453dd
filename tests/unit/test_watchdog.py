"""The watchdog cuts what waits for too long, nothing else, and rests while there is nothing to watch."""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from dumbwaiter.store.watchdog import LOOK, Watchdog


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(10)
        yield here, there


def test_who_waits_beyond_the_limit_hears_that_the_other_end_is_gone(line) -> None:
    watchdog = Watchdog()
    assert watchdog.awake
    began = time.monotonic()
    with watchdog.over(line[0].fileno(), began + 0.1) as watch:
        heard = line[0].recv(1)

    assert (heard, watch.bit) == (b"", True)
    assert time.monotonic() - began >= 0.1


def test_an_answer_in_time_is_left_alone_and_so_is_the_socket_afterwards(line) -> None:
    watchdog = Watchdog()
    assert watchdog.awake
    with watchdog.over(line[0].fileno(), time.monotonic() + 0.1) as watch:
        line[1].send(b"a")
        assert line[0].recv(1) == b"a"
    other, end = socket.socketpair()
    with other, end, watchdog.over(other.fileno(), time.monotonic() + 0.2) as later:
        # it has looked after both limits
        assert other.recv(1) == b""
    line[1].send(b"b")

    assert line[0].recv(1) == b"b"
    assert (watch.bit, later.bit) == (False, True)


def test_of_several_only_the_late_one_is_cut(line) -> None:
    watchdog = Watchdog()
    assert watchdog.awake
    others = socket.socketpair()
    with (
        others[0],
        others[1],
        watchdog.over(others[0].fileno(), time.monotonic() + 60) as patient,
        watchdog.over(line[0].fileno(), time.monotonic() + 0.1) as late,
    ):
        assert line[0].recv(1) == b""
        others[1].send(b"a")
        assert others[0].recv(1) == b"a"

    assert (patient.bit, late.bit) == (False, True)


def test_where_no_thread_can_be_started_it_says_so_and_starts_one_once_it_can(monkeypatch) -> None:
    watchdog = Watchdog()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert not watchdog.awake

    assert watchdog.awake


def test_in_a_child_it_has_a_thread_of_its_own() -> None:
    watchdog = Watchdog()
    assert watchdog.awake

    def cut_in_a_child(told) -> None:
        here, there = socket.socketpair()
        with here, there:
            assert watchdog.awake
            with watchdog.over(here.fileno(), time.monotonic()) as watch:
                here.settimeout(10)
                here.recv(1)
            told.put(watch.bit)

    forked = multiprocessing.get_context("fork")
    told = forked.Queue()
    # held, as if another thread of the parent were at it while it forks
    with watchdog._lock:
        child = forked.Process(target=cut_in_a_child, args=(told,))
        child.start()
    try:
        assert told.get(timeout=20)
    finally:
        child.join(20)


def test_it_rests_while_there_is_nothing_to_watch(line) -> None:
    watchdog = Watchdog()
    assert watchdog.awake
    with watchdog.over(line[0].fileno(), time.monotonic() + 60):
        assert watchdog._something.is_set()
    deadline = time.monotonic() + 20
    while watchdog._something.is_set() and time.monotonic() < deadline:
        time.sleep(LOOK / 5)

    assert not watchdog._something.is_set()
