"""Processes that race for keys: a module of its own, since they import it.

They meet by pipes: the barriers and queues of multiprocessing need /dev/shm, which a small machine may not have.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from dumbwaiter.errors import TooManyActive
from dumbwaiter.store.rows import Finish, Limit
from dumbwaiter.task import Outcome
from tests.store.world import new, store_of, want

PROCESSES = 4
THREADS = 5
RACERS = PROCESSES * THREADS
# Of fifty that wait for one key, or write into one SQLite file, the last may wait for long.
SECONDS = 120


def raced(
    url: str, rounds: int, *, finishing: bool, processes: int = PROCESSES, threads: int = THREADS
) -> list[tuple[int, str, bool]]:
    """What the racers were given, twenty in four processes: (round, id of the task, whether it was made for them)."""
    told = raced_by(racing, [(url, rounds, threads, finishing)] * processes, rounds)
    return [one for told_by_one in told for one in told_by_one]


def raced_by(
    work: Callable[..., None],
    arguments: Sequence[tuple[Any, ...]],
    rounds: int = 1,
    *,
    seconds: float = SECONDS,
) -> list[Any]:
    """Run `work(pipe, *arguments)` in as many processes, let them meet in each round, and give what each sends last.

    None may be silent for longer than `seconds`.
    """
    # spawned processes would each import everything anew: 40 s on two cores
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__, work.__module__])
    pipes = [context.Pipe() for _ in arguments]
    processes = [
        context.Process(target=work, args=(theirs, *given), daemon=True)
        for (_, theirs), given in zip(pipes, arguments, strict=True)
    ]
    for process in processes:
        process.start()
    try:
        for _ in range(rounds):
            for ours, _ in pipes:
                heard(ours, seconds)
            for ours, _ in pipes:
                ours.send("go")
        told = [heard(ours, seconds) for ours, _ in pipes]
        for process in processes:
            process.join(10)
        assert [process.exitcode for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
        for pair in pipes:
            for end in pair:
                end.close()
    return told


def killed(work: Callable[..., None], arguments: tuple[Any, ...], seconds: float) -> None:
    """Run `work(pipe, *arguments)` in a process, let it begin, and kill it so long afterwards."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__, work.__module__])
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, *arguments), daemon=True)
    process.start()
    try:
        heard(ours)
        ours.send("go")
        process.join(seconds)
        assert process.exitcode is None, "it ended by itself"
    finally:
        process.kill()
        process.join(10)
        ours.close()
        theirs.close()


def heard(pipe: Connection, seconds: float = SECONDS) -> Any:
    assert pipe.poll(seconds), f"a process was silent for {seconds} s"
    return pipe.recv()


def meet(pipe: Connection) -> None:
    """Wait for the other processes."""
    pipe.send("here")
    heard(pipe)


def racing(pipe: Connection, url: str, rounds: int, racers: int, finishing: bool) -> None:
    begin = threading.Barrier(racers, action=lambda: meet(pipe), timeout=SECONDS)
    told: list[tuple[int, str, bool]] = []
    threads = [
        threading.Thread(target=racer, args=(url, rounds, begin, finishing and number == 0, told))
        for number in range(racers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send(told)


def racer(
    url: str, rounds: int, begin: threading.Barrier, finishing: bool, told: list[tuple[int, str, bool]]
) -> None:
    """In each round one enqueue of the round's key; some end what they find there."""
    store = store_of(url)
    store.schema.ensure()
    for number in range(rounds):
        begin.wait()
        task, created = store.enqueue(new(business_key=f"k{number}"))
        told.append((number, task.id, created))
        if finishing:
            for claimed in store.claim(want(3), "w1"):
                store.finish([Finish(claimed, Outcome.succeeded())])
    store.close()


def asking(pipe: Connection, url: str, owners: int) -> None:
    """Four threads ask for tasks of each owner, who may have three, some under keys; the ids of what was let in."""
    let_in: list[str] = []
    store = store_of(url)
    store.schema.ensure()

    def ask(thread: int) -> None:
        for number in range(owners * 6):
            key = f"{thread} {number}" if number % 2 else None
            asked = new(owner=f"owner {number % owners}", business_key=key, limits=[Limit(3)])
            with contextlib.suppress(TooManyActive):
                let_in.append(store.enqueue(asked)[0].id)

    threads = [threading.Thread(target=ask, args=(thread,)) for thread in range(4)]
    meet(pipe)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    pipe.send(let_in)
