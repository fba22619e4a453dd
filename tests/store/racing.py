"""Processes that race for keys: a module of its own, since they import it."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

from dumbwaiter.store.rows import Finish
from dumbwaiter.task import Outcome
from tests.store.world import new, store_of, want

PROCESSES = 4
THREADS = 5
RACERS = PROCESSES * THREADS


def raced(url: str, rounds: int, *, finishing: bool) -> list[tuple[int, str, bool]]:
    """What twenty racers in four processes were given: (round, id of the task, whether it was made for them)."""
    # spawned processes would each import everything anew: 40 s on two cores
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__])
    begin, results = context.Barrier(RACERS, timeout=30), context.Queue()
    arguments = (url, rounds, begin, finishing, results)
    processes = [context.Process(target=racing, args=arguments, daemon=True) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    try:
        told = [results.get(timeout=40) for _ in range(RACERS * rounds)]
        for process in processes:
            process.join(10)
        assert [process.exitcode for process in processes] == [0] * PROCESSES
    finally:
        for process in processes:
            process.kill()
    return told


def racing(url: str, rounds: int, begin: Any, finishing: bool, results: Any) -> None:
    threads = [
        threading.Thread(target=racer, args=(url, rounds, begin, finishing and number == 0, results))
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def racer(url: str, rounds: int, begin: Any, finishing: bool, results: Any) -> None:
    """In each round one enqueue of the round's key; some end what they find there."""
    store = store_of(url)
    store.schema.ensure()
    for number in range(rounds):
        begin.wait()
        task, created = store.enqueue(new(business_key=f"k{number}"))
        results.put((number, task.id, created))
        if finishing:
            for claimed in store.claim(want(3), "w1"):
                store.finish([Finish(claimed, Outcome.succeeded())])
    store.close()
