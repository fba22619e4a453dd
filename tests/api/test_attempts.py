"""Which attempt of how many a client is told: what counts is failures, not workers that were stopped."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

from dumbwaiter import Dumbwaiter, Retry, TaskContext
from dumbwaiter.api.looks import looks
from tests.support.waiting import until


def test_workers_that_are_stopped_in_mid_task_do_not_count_as_attempts(tmp_path: Path) -> None:
    waiter = Dumbwaiter(f"sqlite:///{tmp_path / 'tasks.db'}", env="test", shutdown_grace=0.1, poll=0.05)
    begun = threading.Semaphore(0)

    @waiter.task("stew", retry=Retry(max_retries=1, base=timedelta(0)))
    def stew(ctx: TaskContext) -> None:
        begun.release()
        if ctx.task.attempt <= 2:
            ctx.sleep(60)
        raise OSError("it burnt")

    def shown() -> tuple[str, int, int]:
        [look] = looks(waiter, [waiter.get(task.id)])
        view = look.view("")
        return view.phase, view.attempt, view.max_attempts

    task = stew.enqueue()
    assert shown() == ("queued", 1, 2)
    for _ in range(2):
        worker = waiter.worker()
        worker.start()
        assert begun.acquire(timeout=30)
        worker.stop(hurry=True)
        worker.join()
        assert shown() == ("queued", 1, 2)
    worker = waiter.worker()
    worker.start()
    until(lambda: waiter.get(task.id).status.final)
    worker.stop()
    worker.join()

    assert shown() == ("failed", 2, 2)
    assert waiter.get(task.id).attempt == 4
    waiter.close()
