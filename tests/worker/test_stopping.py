"""How a worker stops: standalone, by signals, on every database."""

from __future__ import annotations

import signal
import time
from datetime import timedelta

from dumbwaiter import Dumbwaiter
from dumbwaiter.store.rows import WorkerRow
from dumbwaiter.task import AttemptOutcome, Status
from tests.support.waiting import until
from tests.support.workers import Place, ended


def test_term_releases_what_runs_and_costs_it_no_retry(here: Place, waiter: Dumbwaiter) -> None:
    here.settings["DUMBWAITER_SHUTDOWN_GRACE"] = "500ms"
    worker = here.start_worker()
    tasks = [waiter.enqueue(name, {"seconds": 60}) for name in ("nap", "doze", "slumber")]
    until(lambda: len(here.starts()) == 3)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(10) == 0

    for task in [waiter.get(task.id) for task in tasks]:
        [attempt] = waiter.attempts(task.id)
        assert (Status.PENDING, 0, 1, 0) == (
            task.status,
            task.retry_count,
            task.interruption_count,
            task.crash_count,
        )
        assert attempt.outcome is AttemptOutcome.INTERRUPTED


def test_a_released_task_is_taken_up_by_the_next_worker_at_once(here: Place, waiter: Dumbwaiter) -> None:
    here.settings["DUMBWAITER_SHUTDOWN_GRACE"] = "100ms"
    first = here.start_worker()
    task = waiter.enqueue("nap", {"seconds": 3})
    until(lambda: here.starts())
    first.send_signal(signal.SIGTERM)
    first.wait(10)
    here.start_worker()
    [found] = ended(waiter, [task])

    assert (Status.SUCCESS, 2, 0) == (found.status, found.attempt, found.retry_count)


def test_what_ends_within_the_grace_time_is_a_success_and_nothing_new_is_claimed(
    here: Place, waiter: Dumbwaiter
) -> None:
    worker = here.start_worker()
    running = waiter.enqueue("nap", {"seconds": 2})
    until(lambda: here.starts())
    worker.send_signal(signal.SIGTERM)
    until(lambda: "stops; 1 tasks" in here.log())
    waiting = waiter.enqueue("nap", {"seconds": 0})
    assert worker.wait(10) == 0

    assert Status.SUCCESS is waiter.get(running.id).status
    assert Status.PENDING is waiter.get(waiting.id).status


def test_a_second_signal_hurries(here: Place, waiter: Dumbwaiter) -> None:
    here.settings["DUMBWAITER_SHUTDOWN_GRACE"] = "50s"
    worker = here.start_worker()
    task = waiter.enqueue("doze", {"seconds": 60})
    until(lambda: here.starts())
    worker.send_signal(signal.SIGTERM)
    until(lambda: "stops; 1 tasks" in here.log())
    began = time.monotonic()
    worker.send_signal(signal.SIGINT)
    assert worker.wait(10) == 0

    assert time.monotonic() - began < 6
    assert Status.PENDING is waiter.get(task.id).status


def test_a_stopped_worker_is_off_the_list_and_leaves_no_directory(here: Place, waiter: Dumbwaiter) -> None:
    worker = here.start_worker()
    until(lambda: waiter.store.workers())
    worker.send_signal(signal.SIGTERM)
    worker.wait(10)

    assert [] == waiter.store.workers()
    assert [] == list((here.home / "work").iterdir())


def test_a_worker_waits_for_tables_that_are_not_there_yet(here: Place, waiter: Dumbwaiter) -> None:
    """Servers are migrated when somebody says so; until then a worker says in one line what it waits for."""
    if waiter.store.kind == "sqlite":
        # a SQLite file is created and upgraded by itself
        return
    tables = waiter.store.tables
    with waiter.store.connections.writing() as connection:
        tables.metadata.drop_all(connection)
        connection.exec_driver_sql(f"drop table {tables.version_table}")
    here.start_worker()
    until(lambda: "run `dumbwaiter migrate`" in here.log())
    assert 1 == here.log().count("run `dumbwaiter migrate`")

    waiter.migrate()
    ended(waiter, [waiter.enqueue("nap", {"seconds": 0})])


def test_a_worker_that_cannot_start_says_why_and_ends(here: Place, waiter: Dumbwaiter) -> None:
    (here.home / "a-file").write_text("", encoding="utf-8")
    here.settings["DUMBWAITER_WORKDIR"] = str(here.home / "a-file")
    worker = here.start_worker()

    assert worker.wait(20) == 1
    assert "set DUMBWAITER_WORKDIR to a place that can" in here.log().splitlines()[-1]
    assert [] == waiter.store.workers()


def test_local_files_with_workers_on_two_hosts_are_refused(here: Place, waiter: Dumbwaiter) -> None:
    # heard of as if just now for the next minute
    now = waiter.store.now() + timedelta(minutes=1)
    waiter.store.register(WorkerRow("elsewhere-1", "elsewhere", 1, "0", {}, {}, now, now, False), now=now)
    worker = here.start_worker()
    assert worker.wait(20) == 1
    assert "elsewhere would each keep result files on a disk of their own" in here.log().splitlines()[-1]

    here.settings["DUMBWAITER_SHARED_FILES"] = "1"
    here.start_worker()
    ended(waiter, [waiter.enqueue("nap", {"seconds": 0})])
