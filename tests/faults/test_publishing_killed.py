"""A worker is killed while it publishes: nobody ever sees half a file, and one round of housekeeping leaves nothing behind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import Status, Task
from tests.support import pantry
from tests.support.databases import Database
from tests.support.moto import Moto, moto
from tests.support.swift import KEY, SECRET, Swift, swift
from tests.support.waiting import until
from tests.support.workers import Place, place

SHORT = {"heartbeat": "300ms", "lease": "2s", "sweep": "500ms", "poll": "200ms", "grace": "1s"}
APP = "tests.support.pantry:waiter"
MIB = 1024 * 1024
WHOLE = b"whole" * 1_000


@pytest.fixture(scope="module")
def server() -> Iterator[Moto]:
    with moto() as running:
        yield running


@pytest.fixture(scope="module")
def swift_server() -> Iterator[Swift]:
    with swift() as running:
        yield running


ON_SWIFT = pytest.param(
    "swift", marks=(pytest.mark.swift, pytest.mark.service("swift"), pytest.mark.timeout(150))
)


@pytest.fixture(params=["disk", "moto", ON_SWIFT])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    if request.param == "disk":
        return Disk(tmp_path / "files")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    if request.param == "swift":
        return Bucket(request.getfixturevalue("swift_server"))
    return Bucket(request.getfixturevalue("server"))


class Disk:
    """Files in a directory."""

    # enough to be killed in the middle of it
    large = 512 * MIB

    def __init__(self, root: Path) -> None:
        self._root = root
        self.url = str(root)

    def stored(self) -> list[str]:
        return sorted(str(path.relative_to(self._root)) for path in self._root.rglob("*") if path.is_file())

    def storing(self) -> bool:
        """Half of a file is there."""
        return any(key.endswith(".part") for key in self.stored())


class Bucket:
    """Objects on moto."""

    large = 128 * MIB

    def __init__(self, server: Moto | Swift) -> None:
        self._server = server
        self.url = server.url
        self.stored = server.keys

    def storing(self) -> bool:
        return self._server.uploads() > 0


Store = Disk | Bucket


@pytest.fixture
def here(make_database: Callable[[str], Database], tmp_path: Path, store: Store) -> Iterator[Place]:
    with place(make_database("sqlite"), tmp_path, **SHORT) as found:
        found.settings["DUMBWAITER_FILES"] = store.url
        yield found


@pytest.fixture
def waiter(here: Place, store: Store) -> Iterator[Dumbwaiter]:
    waiter = Dumbwaiter(
        here.database.url, files=store.url, workdir=str(here.home / "work"), lease="2s", heartbeat="300ms"
    )
    for entry in pantry.waiter.registry:
        waiter.registry.add(entry)
    yield waiter
    waiter.close()


def killed(here: Place, waiter: Dumbwaiter, task: Task, moment: Callable[[], object]) -> None:
    """A worker runs the task and is killed at that moment."""
    worker = here.start_worker(app=APP)
    until(moment, 60, every=0.002)
    worker.kill()
    worker.wait(10)
    seen = waiter.get(task.id)
    assert (seen.status, seen.files) == (Status.RUNNING, ())


def made_whole(here: Place, waiter: Dumbwaiter, task: Task) -> Task:
    """Another worker takes it back and ends it; every file that is ever to be seen is whole."""
    worker = here.start_worker(app=APP)

    def ended() -> bool:
        seen = waiter.get(task.id)
        for file in seen.files:
            data = b"".join(waiter.files.stream(file.object_key))
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256)
            assert data == WHOLE
        return seen.status.final

    until(ended, 60)
    worker.kill()
    worker.wait(10)
    return waiter.get(task.id)


@pytest.mark.parametrize("when", ["in mid-file", "before the success"])
def test_a_worker_that_is_killed_while_it_publishes_leaves_no_half_file_and_after_housekeeping_nothing(
    here: Place, waiter: Dumbwaiter, store: Store, when: str
) -> None:
    waiter.migrate()
    task = waiter.enqueue("barrel", {"size": store.large if when == "in mid-file" else 0})
    middle = store.storing if when == "in mid-file" else lambda: len(store.stored()) == 2
    killed(here, waiter, task, middle)
    if when == "in mid-file":
        # half of it is a file of no name, or parts that belong to no object
        assert not [key for key in store.stored() if key.endswith("barrel.bin")]
    task = made_whole(here, waiter, task)
    assert (task.status, task.attempt, task.crash_count) == (Status.SUCCESS, 2, 1)

    waiter.prune()

    assert store.stored() == sorted(file.object_key for file in task.files)
    assert len(task.files) == 2
    work = here.home / "work"
    assert [path for path in work.rglob("*") if path.is_file() and path.suffix != ".lock"] == []
    waiter.files.delete([file.object_key for file in task.files])
