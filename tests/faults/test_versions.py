"""Two versions of an application at work on one table, as during a deploy and after one that was taken back."""

from __future__ import annotations

import signal
import subprocess

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import Status, Task
from tests.support.waiting import until
from tests.support.workers import ROOT, Place, ended

FIRST = """
from dumbwaiter import Dumbwaiter, TaskContext
from tests.support.kitchen import note
waiter = Dumbwaiter()

@waiter.task("send")
def send(ctx: TaskContext, to: str) -> None:
    note("start", ctx, version=1)
"""
SECOND = """
from dumbwaiter import Dumbwaiter, TaskContext
from tests.support.kitchen import note
waiter = Dumbwaiter()

@waiter.task("send")
def send(ctx: TaskContext, to: str, subject: str = "Hello") -> None:
    note("start", ctx, version=2)

@waiter.task("remind")
def remind(ctx: TaskContext, to: str) -> None:
    note("start", ctx, version=2)
"""
POLL = {"DUMBWAITER_POLL": "100ms"}

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"])


@pytest.fixture
def versions(here: Place) -> Place:
    here.settings |= POLL
    (here.home / "first.py").write_text(FIRST)
    (here.home / "second.py").write_text(SECOND)
    return here


@pytest.fixture
def producer(waiter: Dumbwaiter) -> Dumbwaiter:
    """The newest application, and what it enqueued before a task type was taken out of the code."""

    @waiter.task("send")
    def send(to: str) -> None: ...

    @waiter.task("remind")
    def remind(to: str) -> None: ...

    @waiter.task("fax")
    def fax(to: str) -> None: ...

    return waiter


def start(here: Place, version: str) -> subprocess.Popen[bytes]:
    paths = {"PYTHONPATH": f"{here.home}:{ROOT}"}
    return here.start_worker(app=f"{version}:waiter", environment=paths)


def asked(waiter: Dumbwaiter, name: str, number: int = 10) -> list[Task]:
    return [waiter.enqueue(name, {"to": "ann"}) for _ in range(number)]


def untouched(waiter: Dumbwaiter, tasks: list[Task]) -> bool:
    return all(waiter.get(task.id) == task for task in tasks)


def by_version(here: Place, tasks: list[Task]) -> set[str]:
    return {here.starts(task.id)[0].more["version"] for task in tasks}


def test_what_an_old_version_does_not_know_waits_untouched_for_a_new_one_and_again_after_a_roll_back(
    versions: Place, producer: Dumbwaiter
) -> None:
    start(versions, "first")
    new, gone, old = asked(producer, "remind"), asked(producer, "fax"), asked(producer, "send")
    ended(producer, old)
    until(lambda: "due tasks of type remind" in versions.log())

    assert by_version(versions, old) == {"1"}
    assert untouched(producer, new + gone)
    assert "leaves them: that type is not registered in its application" in versions.log()

    second = start(versions, "second")
    done = ended(producer, new)

    assert {(task.status, task.attempt) for task in done} == {(Status.SUCCESS, 1)}
    assert by_version(versions, new) == {"2"}

    second.send_signal(signal.SIGTERM)
    second.wait(20)
    again, behind = asked(producer, "remind"), asked(producer, "send")
    done = ended(producer, behind)

    assert {(task.status, task.attempt) for task in done} == {(Status.SUCCESS, 1)}
    assert untouched(producer, again + gone)
