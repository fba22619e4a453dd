"""Process trees that do not want to end, and browsers with encoders, ended by cancel and timeout."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from dumbwaiter.executors.guardian import TAG, Process, descendants, process, processes
from dumbwaiter.task import Status, Task
from tests.support import hostile, thicket
from tests.support.databases import Database
from tests.support.trials import Trial, environ_of, nothing_left, still, trial
from tests.support.waiting import until

TRAITS = ("deaf", "stopped", "busy", "orphans")
RECORDINGS = Path(__file__).parents[2] / "jobs/video/recordings/own"
FILM = "idle-10min.json"
GROWN = 60
# What the issue promises.
GONE = 5.0
PROGRAMS = ("chrom", "ffmpeg")


@dataclass(frozen=True)
class Ended:
    """How a tree ended: how, whether it was whole by then, and how long after the recorded end its last process was gone."""

    how: str
    whole: bool
    after: float


@pytest.fixture
def here(
    database: Database, tmp_path: Path, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Trial]:
    monkeypatch.setenv("DUMBWAITER_RECORDINGS", str(RECORDINGS))
    with trial(database, tmp_path, chance, heartbeat="1s", lease="5s", poll="200ms") as found:
        for entry in thicket.waiter.registry:
            found.waiter.registry.add(entry)
        yield found


def hostile_tree(here: Trial, number: int, chance: random.Random) -> Ended:
    """One tree with some of the traits, ended by a cancel when it has grown, or by its timeout at any moment."""
    pids, output = here.place.home / f"pids-{number}", here.place.home / f"output-{number}"
    traits = [trait for trait in TRAITS if chance.random() < 0.5]
    how = chance.choice(("cancel", "timeout"))
    timeout = timedelta(seconds=chance.uniform(1.5, 4) if how == "timeout" else 600)
    arguments = {"pids": str(pids), "output": str(output), "traits": " ".join(traits)}
    task = here.waiter.enqueue(chance.choice(thicket.WAYS), arguments, timeout=timeout)
    tree: dict[int, Process] = {}

    def grown() -> bool:
        words = pids.read_text(encoding="ascii").splitlines() if pids.exists() else []
        tree.update({one.pid: one for word in words if (one := process(int(word)))})
        return len(words) >= hostile.SIZE

    if how == "cancel":
        until(grown, GROWN)
        time.sleep(chance.uniform(0, 0.5))  # any moment will do
        here.waiter.cancel(task.id)
    ended = recorded_end(here, task, Status.CANCELLED if how == "cancel" else Status.FAILED, grown)
    after = gone(here, ended, lambda: [one for one in tree.values() if still(one)])
    assert not output.exists() or output.stat().st_mtime <= finished(ended) + GONE
    return Ended(how, grown(), after)


def film(here: Trial, number: int, chance: random.Random) -> Ended:
    """One export, ended by a cancel when browser and encoder are at work, or by its timeout at any moment."""
    how = chance.choice(("cancel", "timeout"))
    timeout = timedelta(seconds=chance.uniform(3, 12) if how == "timeout" else 600)
    task = here.waiter.enqueue("film", {"recording": FILM}, timeout=timeout)
    seen: dict[int, Process] = {}
    kinds: set[str] = set()

    def at_work() -> bool:
        found = programs_of(task)
        seen.update((one.pid, one) for one, _ in found)
        kinds.update(word for word in PROGRAMS for _, name in found if word in name)
        return kinds == {*PROGRAMS}

    if how == "cancel":
        until(at_work, 300, every=0.1)
        time.sleep(chance.uniform(0, 1))  # any moment will do
        here.waiter.cancel(task.id)
    ended = recorded_end(here, task, Status.CANCELLED if how == "cancel" else Status.FAILED, at_work)
    after = gone(here, ended, lambda: [one for one in seen.values() if still(one)])
    return Ended(how, kinds == {*PROGRAMS}, after)


def name_of(pid: int) -> str:
    with suppress(psutil.Error):
        return psutil.Process(pid).name()
    return ""


def programs_of(task: Task) -> list[tuple[Process, str]]:
    """Browsers and encoders that work for the task; processes of a browser overwrite the environment they were given."""
    table = processes()
    tag = f":{task.id}:".encode()
    roots = [
        pid
        for pid in table
        for word in environ_of(pid)
        if word.startswith(f"{TAG}=".encode()) and tag in word
    ]
    named = [(one, name_of(one.pid)) for one in (*(table[pid] for pid in roots), *descendants(roots, table))]
    return [(one, name) for one, name in named if any(word in name for word in PROGRAMS)]


def recorded_end(here: Trial, task: Task, status: Status, look: Callable[[], object]) -> Task:
    """The task once it is final; until then `look` goes on noting what there is of its tree."""

    def final() -> Task | None:
        found = here.waiter.get(task.id)
        if not found.status.final:
            look()
        return found if found.status.final else None

    ended = until(final, 400, every=0.05)
    assert ended.status is status, (ended.status, ended.error_message)
    return ended


def finished(task: Task) -> float:
    assert task.finished_at is not None
    return task.finished_at.timestamp()


def gone(here: Trial, ended: Task, alive: Callable[[], list[Process]]) -> float:
    """How long after the recorded end the last process was there, and its work directory; 0 if neither was."""
    work = here.place.home / "work"
    looked = time.time()
    if not alive() and not list(work.glob(f"*/{ended.id}-*")):
        return 0.0
    until(lambda: not alive() and not list(work.glob(f"*/{ended.id}-*")), GONE)
    return max(looked, time.time()) - finished(ended)


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("database_kind", ["sqlite"])
@pytest.mark.parametrize(
    ("trees", "films"),
    [
        pytest.param(6, 0),
        pytest.param(80, 20, marks=pytest.mark.long),
        pytest.param(400, 100, marks=pytest.mark.overnight),
    ],
)
def test_whatever_a_tree_does_nothing_of_it_is_left_when_its_end_is_recorded(
    here: Trial, chance: random.Random, tell: Callable[[str], None], trees: int, films: int
) -> None:
    began = time.monotonic()
    worker = here.place.start_worker(
        "-q", "default=8", "--capacity", "process=8,chromium=2", app="tests.support.thicket:waiter"
    )
    here.workers.append(worker)
    seeds = [random.Random(chance.random()) for _ in range(trees + films)]
    with ThreadPoolExecutor(6) as hostile_ones, ThreadPoolExecutor(2) as cameras:
        grown = [hostile_ones.submit(hostile_tree, here, n, seeds[n]) for n in range(trees)]
        shot = [cameras.submit(film, here, n, seeds[trees + n]) for n in range(films)]
    told = [one.result() for one in (*grown, *shot)]

    for what, some in (("hostile trees", told[:trees]), ("browsers with encoders", told[trees:])):
        if not some:
            continue
        ways = {how: sum(one.how == how for one in some) for how in ("cancel", "timeout")}
        tell(
            f"{len(some)} {what}, ended by {ways}, {sum(one.whole for one in some)} of them whole; the last process and the "
            f"work directory were gone {max(one.after for one in some):.2f} s after the recorded end at most"
        )
    tell(f"{time.monotonic() - began:.0f} s")
    here.close()
    nothing_left(here)
