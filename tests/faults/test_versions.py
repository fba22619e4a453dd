"""Two versions of an application at work on one table, as during a deploy and after one that was taken back."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

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
# new parameters without a default, in every place where code may run
THIRD = """
from dumbwaiter import Dumbwaiter, TaskContext
from tests.support.kitchen import note
waiter = Dumbwaiter()

def newer(arguments, version):
    name = arguments.pop("to")
    return {**arguments, "name": name, "address": f"{name}@example.org (from version {version})"}

@waiter.task("send", version=2, upgrade=newer)
def send(ctx: TaskContext, name: str, address: str) -> str:
    note("start", ctx, version=3)
    return address

@waiter.task("fax", version=3, upgrade=newer, isolate=True)
def fax(ctx: TaskContext, name: str, address: str) -> str:
    note("start", ctx, version=3)
    return address

remind = waiter.command("remind", ["echo", "{name}: {address}"], version=2, upgrade=newer)
"""
POLL = {"DUMBWAITER_POLL": "100ms"}
FAST: dict[str, Any] = {"poll": "100ms"}

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"])


@pytest.fixture
def versions(here: Place) -> Place:
    here.settings |= POLL
    (here.home / "first.py").write_text(FIRST)
    (here.home / "second.py").write_text(SECOND)
    (here.home / "third.py").write_text(THIRD)
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


def test_arguments_of_another_version_wait_for_a_worker_that_reads_them_or_are_made_new(
    versions: Place, producer: Dumbwaiter, tmp_path: Path
) -> None:
    names = ("send", "fax", "remind")
    before = [producer.enqueue(name, {"to": "ann"}) for name in names]
    newest = Dumbwaiter(versions.database.url, files=str(tmp_path), workdir=str(tmp_path))

    @newest.task("send", version=2)
    def send(name: str, address: str) -> None: ...

    after = [send.enqueue(name="bob", address="b@example.org") for _ in range(3)]
    start(versions, "first")
    ended(producer, before[:1])
    until(lambda: "arguments are of version 2, and its application knows version 1" in versions.log())
    assert untouched(producer, after)

    start(versions, "third")
    done = ended(producer, [*before, *after])
    newest.close()

    assert {(task.status, task.attempt, task.error_message) for task in done} == {(Status.SUCCESS, 1, None)}
    assert [task.result for task in done[3:]] == ["b@example.org"] * 3
    assert done[1].result == "ann@example.org (from version 1)"
    assert done[2].result["output"] == "ann: ann@example.org (from version 1)\n"


def test_an_upgrade_that_fails_is_the_tasks_failure(here: Place, tmp_path: Path) -> None:
    url = here.database.url
    waiter = Dumbwaiter(url, files=str(tmp_path), workdir=str(tmp_path), **FAST)

    def newer(arguments: dict[str, Any], version: int) -> dict[str, Any]:
        raise LookupError(f"nothing is known of version {version}")

    old = waiter.task("send")(lambda to: None).enqueue(to="ann")
    again = Dumbwaiter(url, files=str(tmp_path), workdir=str(tmp_path), **FAST)
    again.task("send", version=2, upgrade=newer)(lambda name: None)
    worker = again.worker()
    worker.start()
    [found] = ended(waiter, [old])
    worker.stop()
    assert worker.join(20)

    assert (Status.FAILED, "nothing is known of version 1") == (found.status, found.error_message)
    waiter.close()
    again.close()
