"""A task that has crashed a worker runs alone, on a worker that is empty or makes itself empty, and nothing starves."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event, Thread

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.errors import DatabaseUnavailable
from dumbwaiter.store.claiming import Concern, Want
from dumbwaiter.store.rows import WorkerRow
from dumbwaiter.task import Status, Task
from dumbwaiter.worker import solitude
from dumbwaiter.worker.loop import Worker
from tests.support.waiting import until
from tests.support.workers import Entry, Place, ended

Start = Callable[..., Worker]
# What the database has to do with it is tried on all three; what follows from that needs one.
one_database = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solitude, "PATIENCE", 0.3)


def suspect(waiter: Dumbwaiter, name: str = "doze", **arguments: object) -> Task:
    """A task whose worker has died, back in its queue."""
    task, store = waiter.enqueue(name, arguments, priority=100, delay=timedelta(hours=1)), waiter.store
    tasks, silent_since = store.tables.tasks, store.now() - timedelta(hours=1)
    held = {"status": "running", "worker_id": "dead", "attempt": 1, "started_at": silent_since}
    with store.connections.writing() as connection:
        connection.execute(
            tasks.update().where(tasks.c.id == task.id).values(held | {"heartbeat_at": silent_since})
        )
    # or the rescuer of a worker that runs already is faster
    store.rescue(timedelta(minutes=1))
    return until(lambda: found if (found := waiter.get(task.id)).crash_count else None)


def spans(here: Place) -> dict[str, tuple[Entry, float]]:
    """For each task that has ended: its start, and when it ended."""
    begun = {one.task_id: one for one in here.starts()}
    return {one.task_id: (begun[one.task_id], one.at) for one in here.ledger() if one.event == "end"}


def beside(here: Place, task: Task) -> list[str]:
    """What ran on the same worker at the same time."""
    found = spans(here)
    mine, over = found[task.id]
    return [
        task_id
        for task_id, (start, end) in found.items()
        if task_id != task.id
        and start.more["worker"] == mine.more["worker"]
        and start.at < over
        and end > mine.at
    ]


@pytest.fixture
def steady_load(waiter: Dumbwaiter) -> Iterator[Callable[[], list[Task]]]:
    """Keeps a backlog of short tasks in the queue, until the test is over."""
    over, made = Event(), list[Task]()

    def load() -> None:
        while not over.is_set():
            if len(waiter.find(status="pending", limit=40)) < 30:
                made.extend(waiter.enqueue("doze", {"seconds": 0.3}) for _ in range(10))
            over.wait(0.05)

    thread = Thread(target=load)

    def begin() -> list[Task]:
        thread.start()
        until(lambda: len(made) >= 20)
        return made

    yield begin
    over.set()
    thread.join()


@pytest.mark.parametrize("name", ["nap", "doze"])
def test_an_empty_worker_runs_a_suspect_first_and_starts_nothing_beside_it(
    here: Place, waiter: Dumbwaiter, start_worker: Start, name: str
) -> None:
    others = [waiter.enqueue("nap", {"seconds": 0.1}) for _ in range(5)]
    poison = suspect(waiter, name, seconds=0.5)
    start_worker()
    found = ended(waiter, [poison, *others])

    assert {Status.SUCCESS} == {task.status for task in found}
    assert poison.id == here.starts()[0].task_id
    assert [] == beside(here, poison)


def test_a_busy_worker_makes_itself_empty_for_a_suspect_and_the_others_go_on(
    here: Place,
    waiter: Dumbwaiter,
    start_worker: Start,
    steady_load: Callable[[], list[Task]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    workers = {worker.name: worker for worker in (start_worker({"default": 3}) for _ in range(2))}
    steady_load()
    until(lambda: workers.keys() == {one.more["worker"] for one in here.starts()}, 60)
    poison = suspect(waiter, seconds=3600)
    [mine] = until(lambda: here.starts(poison.id), 60)

    def since() -> list[str]:
        """Who has started something since then."""
        return [one.more["worker"] for one in here.starts() if one.at > mine.at]

    # and did not only happen to be empty
    assert f"stops claiming until what runs has ended: task {poison.id}" in caplog.text
    [other] = workers.keys() - {mine.more["worker"]}
    until(lambda: len(since()) >= 6, 60)
    assert {other} == set(since())
    assert [poison.id] == [one.task.id for one in workers[mine.more["worker"]].running]
    waiter.cancel(poison.id)
    until(lambda: mine.more["worker"] in since(), 60)


def test_of_two_suspects_on_one_worker_each_runs_alone_and_the_others_have_their_turn(
    here: Place, waiter: Dumbwaiter, start_worker: Start, steady_load: Callable[[], list[Task]]
) -> None:
    start_worker({"default": 3})
    steady_load()
    until(lambda: len(here.starts()) > 3, 60)
    poisons = [suspect(waiter, seconds=0.5) for _ in range(2)]
    ended(waiter, poisons, 90)

    first, second = sorted((spans(here)[poison.id] for poison in poisons), key=lambda span: span[0].at)
    assert [[], []] == [beside(here, poison) for poison in poisons]
    assert first[1] < second[0].at
    assert [one for one in here.starts() if first[1] < one.at < second[0].at]


@one_database
def test_suspects_with_nobody_else_waiting_run_one_after_another(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    poisons = [suspect(waiter, seconds=0.2) for _ in range(4)]
    start_worker()
    ended(waiter, poisons)

    assert [[]] * 4 == [beside(here, poison) for poison in poisons]


@one_database
def test_an_isolated_task_whose_worker_died_runs_beside_others(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    isolated = suspect(waiter, "slumber", seconds=3600)
    other = waiter.enqueue("doze", {"seconds": 3600})
    worker = start_worker()

    until(lambda: {one.task.id for one in worker.running} == {isolated.id, other.id})


@one_database
def test_a_suspect_that_a_dead_worker_had_reserved_is_reserved_by_another(
    here: Place, waiter: Dumbwaiter, start_worker: Start
) -> None:
    store = waiter.store
    now = store.now()
    store.register(WorkerRow("dead", socket.gethostname(), 1, "0", {}, {}, now, now, stopping=False))
    worker = start_worker({"default": 2})
    waiter.enqueue("doze", {"seconds": 4})
    until(lambda: here.starts())
    poison = suspect(waiter, seconds=0)
    assert poison.id == store.reserve(Concern(("doze",)), "dead", timedelta(seconds=20))
    # the lease of this place is 2 s
    [found] = ended(waiter, [poison])

    assert Status.SUCCESS is found.status
    assert [] == beside(here, poison)
    assert worker.claiming


@one_database
def test_a_worker_leaves_suspects_that_it_could_not_run_and_goes_on(
    waiter: Dumbwaiter, start_worker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = suspect(waiter, seconds=0)
    with waiter.store.connections.writing() as connection:
        tasks = waiter.store.tables.tasks
        connection.execute(tasks.update().where(tasks.c.id == elsewhere.id).values(queue="elsewhere"))
    start_worker({"default": 1})
    # longer than the patience of a busy worker
    ended(waiter, [waiter.enqueue("doze", {"seconds": 0.2}) for _ in range(8)])

    assert Status.PENDING is waiter.get(elsewhere.id).status
    assert "stops claiming" not in caplog.text


@one_database
def test_a_suspect_that_is_cancelled_while_a_worker_drains_for_it_never_starts_and_the_worker_goes_on(
    here: Place, waiter: Dumbwaiter, start_worker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start_worker({"default": 2})
    long = waiter.enqueue("doze", {"seconds": 3600})
    until(lambda: here.starts(long.id))
    poison = suspect(waiter, seconds=0)
    until(lambda: "stops claiming until what runs has ended" in caplog.text)
    waiter.cancel(poison.id)
    [other] = ended(waiter, [waiter.enqueue("nap", {"seconds": 0})])

    assert Status.SUCCESS is other.status
    # before the other one has ended: nothing is waited for any more
    assert Status.RUNNING is waiter.get(long.id).status
    assert [] == here.starts(poison.id)


@one_database
def test_a_worker_that_drains_and_is_told_to_stop_leaves_the_suspect_to_another(
    here: Place, waiter: Dumbwaiter, start_worker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    first = start_worker({"default": 2})
    long = waiter.enqueue("doze", {"seconds": 3})
    until(lambda: here.starts(long.id))
    poison = suspect(waiter, seconds=0)
    until(lambda: "stops claiming until what runs has ended" in caplog.text)
    first.stop()
    second = start_worker({"default": 2})
    [found] = ended(waiter, [poison])
    [start] = here.starts(poison.id)

    assert (Status.SUCCESS, second.name) == (found.status, start.more["worker"])


@one_database
def test_a_claim_of_a_suspect_whose_answer_was_lost_is_taken_up_alone(
    here: Place, waiter: Dumbwaiter, start_worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = suspect(waiter, seconds=0.5)
    others = [waiter.enqueue("nap", {"seconds": 0.1}) for _ in range(5)]
    claim, lost = waiter.store.claim, list[Task]()

    def unheard(want: Want, worker: str) -> list[Task]:
        claimed = claim(want, worker)
        if claimed and not lost:
            lost.extend(claimed)
            raise DatabaseUnavailable("the answer was lost")
        return claimed

    monkeypatch.setattr(waiter.store, "claim", unheard)
    start_worker()
    ended(waiter, [poison, *others])

    assert [poison.id] == [task.id for task in lost]
    assert [] == beside(here, poison)
    assert {1} == set(here.starts_by_task().values())
