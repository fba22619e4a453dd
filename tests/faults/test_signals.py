"""Signals as terminals, containers and service managers send them: to a worker alone, to its group, to process 1."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import Status
from tests.support.waiting import until
from tests.support.workers import Place, ended

CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
# On a quiet machine all of these end in well under two seconds; the grace time that none may wait for is thirty.
SOON = 8.0

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"])
in_container = pytest.mark.service("mounts")
Stop = Callable[[subprocess.Popen[bytes]], None]


def term_to_it(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)


def term_to_its_group(worker: subprocess.Popen[bytes]) -> None:
    os.killpg(worker.pid, signal.SIGTERM)


def first_process(container: subprocess.Popen[bytes]) -> psutil.Process:
    """Process 1 inside, as it is seen from outside."""
    return until(lambda: next(iter(psutil.Process(container.pid).children()), None))


def term_to_process_1(container: subprocess.Popen[bytes]) -> None:
    first_process(container).send_signal(signal.SIGTERM)


@contextlib.contextmanager
def terminal() -> Iterator[tuple[int, dict[str, Any]]]:
    """A terminal, and how a process is started whose own it is."""
    keyboard, screen = pty.openpty()
    try:
        yield (
            keyboard,
            {"stdin": screen, "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)},
        )
    finally:
        os.close(screen)
        os.close(keyboard)


def four_at_work(here: Place, waiter: Dumbwaiter, seconds: float) -> list[Any]:
    tasks = [waiter.enqueue(name, {"seconds": seconds}) for name in ("nap", "doze", "slumber", "doze")]
    until(lambda: len(here.starts()) == 4)
    return tasks


def all_ended_as_if_nothing_had_been(waiter: Dumbwaiter, tasks: list[Any]) -> None:
    found = [waiter.get(task.id) for task in tasks]
    assert [(Status.SUCCESS, 1)] * 4 == [(task.status, task.attempt) for task in found]


@pytest.mark.parametrize(
    ("inside", "stop"),
    [
        pytest.param((), term_to_it, id="to the worker alone", marks=pytest.mark.long),
        pytest.param((), term_to_its_group, id="to its group", marks=pytest.mark.long),
        pytest.param(CONTAINER, term_to_process_1, id="to process 1", marks=in_container),
    ],
)
def test_a_term_lets_what_runs_end_whoever_it_was_sent_to(
    here: Place, waiter: Dumbwaiter, inside: tuple[str, ...], stop: Stop
) -> None:
    worker = here.start_worker(inside=inside)
    tasks = four_at_work(here, waiter, 1.5)
    stop(worker)
    assert worker.wait(20) == 0

    all_ended_as_if_nothing_had_been(waiter, tasks)
    assert [] == waiter.store.workers()


@pytest.mark.long
@pytest.mark.parametrize("inside", [(), pytest.param(CONTAINER, marks=in_container)], ids=["", "container"])
def test_ctrl_c_in_a_terminal_is_one_signal_however_many_processes_hear_it(
    here: Place, waiter: Dumbwaiter, inside: tuple[str, ...]
) -> None:
    with terminal() as (keyboard, its_own):
        worker = here.start_worker(inside=inside, **its_own)
        tasks = four_at_work(here, waiter, 1.5)
        os.write(keyboard, b"\x03")
        assert worker.wait(20) == 0

    all_ended_as_if_nothing_had_been(waiter, tasks)
    assert "ended" in here.log()


@pytest.mark.long
def test_two_terms_hand_back_what_runs_and_it_runs_again(here: Place, waiter: Dumbwaiter) -> None:
    worker = here.start_worker()
    tasks = four_at_work(here, waiter, 5)
    worker.send_signal(signal.SIGTERM)
    time.sleep(1)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    here.start_worker()
    found = ended(waiter, tasks)

    assert [(Status.SUCCESS, 2, 0, 0)] * 4 == [
        (task.status, task.attempt, task.retry_count, task.crash_count) for task in found
    ]


@pytest.mark.long
def test_an_idle_worker_ends_at_once(here: Place, waiter: Dumbwaiter) -> None:
    worker = here.start_worker()
    until(lambda: "started" in here.log())
    asked = time.monotonic()
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(20) == 0
    assert time.monotonic() - asked < SOON


@pytest.mark.long
def test_a_worker_that_is_told_to_end_while_it_starts_does(here: Place, waiter: Dumbwaiter) -> None:
    """At any moment, from before its first line to after it has begun to claim."""
    for tenths in range(1, 16):
        worker = here.start_worker()
        time.sleep(tenths / 10)
        asked = time.monotonic()
        worker.send_signal(signal.SIGTERM)

        # before it has begun nobody is there to make anything of the signal
        assert worker.wait(20) in {0, -signal.SIGTERM}
        assert time.monotonic() - asked < SOON
    assert [] == list((here.home / "work").glob("*"))
    assert [] == waiter.store.workers()


@pytest.mark.long
@in_container
def test_process_1_that_is_told_to_end_while_it_starts_does(here: Place, waiter: Dumbwaiter) -> None:
    """The kernel drops a TERM that process 1 has no handler for."""
    container = here.start_worker(inside=CONTAINER)
    first = first_process(container)
    until(first.children)
    asked = time.monotonic()
    first.send_signal(signal.SIGTERM)

    assert container.wait(20) in {0, 128 + signal.SIGTERM}
    assert time.monotonic() - asked < SOON


@pytest.mark.long
@in_container
def test_process_1_ends_with_the_status_of_what_it_runs(here: Place, waiter: Dumbwaiter) -> None:
    container = here.start_worker("--no-such-option", inside=CONTAINER)
    assert container.wait(20) == 2

    container = here.start_worker(inside=CONTAINER)
    first = first_process(container)
    [child] = until(first.children)
    child.kill()
    assert container.wait(20) == 128 + signal.SIGKILL
