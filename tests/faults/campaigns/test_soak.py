"""Minutes of steady work with a fault every few seconds; one worker is never touched, and must not grow."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.store.proxies import Mode
from tests.support.databases import KINDS, Database, Kind, end_sessions
from tests.support.trials import Silence, Trial, all_is_well, memory_of, through_proxy, trial

SETTINGS = {"lease": "5s", "heartbeat": "1s", "sweep": "1s", "poll": "500ms"}
EVERY = 5.0
STOPPED = 7.0
OUTAGE = 3.0
# A worker's pool for its duties, and the connections of its listener and its heartbeat.
POOLED = 5
# After a stopped worker goes on it may still be found silent, until its next beat is written.
SETTLED = 3.0


class Soak:
    """A trial that deals out faults by the clock."""

    def __init__(self, here: Trial) -> None:
        self.here = here
        self.undoing: list[threading.Timer] = []
        self.steady = here.start_worker()
        here.start_worker()
        here.start_worker()
        self.samples: list[tuple[int, int, int]] = []
        faults = {"kill": self.kill, "restart": self.restart, "stop": self.stop, "cancel": here.cancel}
        if here.place.database.kind == "sqlite":
            faults["foreign lock"] = self.lock
        else:
            faults |= {"sessions": self.sessions, "outage": self.outage}
        self.faults = faults

    def work(self, seconds: float) -> None:
        """Ask for tasks all the time, and let a fault happen every few seconds."""
        over = time.monotonic() + seconds
        fault = time.monotonic() + EVERY
        while time.monotonic() < over:
            if time.monotonic() >= fault:
                fault += EVERY
                name = self.here.chance.choice(list(self.faults))
                self.here.tally[name] += 1
                self.faults[name]()
            self.here.enqueue_any(1)
            self.here.look()
            self.samples.append(memory_of(self.steady.pid))
            time.sleep(0.5)  # the pace of the people who ask for tasks
        for undoing in self.undoing:
            undoing.join()

    def after(self, seconds: float, undo: Callable[[], None]) -> None:
        """On a thread of its own: who was stopped may hold the lock that the trial itself waits for."""
        self.undoing.append(threading.Timer(seconds, undo))
        self.undoing[-1].start()

    def others(self) -> list[int]:
        stopped = {one.pid for one in self.here.silences if one.over == float("inf")}
        return [one.pid for one in self.here.workers if one is not self.steady and one.pid not in stopped]

    def kill(self) -> None:
        if others := self.others():
            pid = self.here.chance.choice(others)
            victim = next(one for one in self.here.workers if one.pid == pid)
            self.here.kill(victim, whole_group=self.here.chance.random() < 0.5)
            self.here.start_worker()

    def restart(self) -> None:
        """As a deploy does: the new one starts when the old one has ended."""
        if others := self.others():
            pid = self.here.chance.choice(others)
            victim = next(one for one in self.here.workers if one.pid == pid)
            victim.terminate()
            victim.wait(60)
            self.here.workers.remove(victim)
            self.here.start_worker()

    def stop(self) -> None:
        """A machine that sleeps for longer than the lease, and wakes up."""
        if not (others := self.others()):
            return
        pid = self.here.chance.choice(others)
        silence = Silence(pid, time.time())
        self.here.silences.append(silence)
        os.killpg(pid, signal.SIGSTOP)

        def go_on() -> None:
            os.killpg(pid, signal.SIGCONT)
            self.here.silences.append(Silence(pid, silence.begun, time.time() + SETTLED))
            self.here.silences.remove(silence)

        self.after(STOPPED, go_on)

    def sessions(self) -> None:
        end_sessions(self.here.place.database)

    def outage(self) -> None:
        """Shorter than the lease, and told of: a silent one is noticed only after a lease of this length is over."""
        proxy = self.here.proxy
        assert proxy is not None
        proxy.mode = self.here.chance.choice([Mode.REFUSE, Mode.RESET])

        def back() -> None:
            proxy.mode = Mode.PASS

        self.after(OUTAGE, back)

    def lock(self) -> None:
        """Another program holds the file's one write lock."""
        path = self.here.place.database.url.removeprefix("sqlite:///")
        foreign = sqlite3.connect(path, isolation_level=None, timeout=30)
        foreign.execute("BEGIN IMMEDIATE")
        time.sleep(OUTAGE)  # the fault itself; whoever would ask for tasks meanwhile would wait for it
        foreign.execute("ROLLBACK")
        foreign.close()


def soaked(database: Database, home: Path, chance: random.Random, seconds: float) -> str:
    with ExitStack() as stack:
        here = stack.enter_context(trial(database, home, chance, **SETTINGS))
        if database.kind != "sqlite":
            stack.enter_context(through_proxy(here))
        soak = Soak(here)
        soak.work(seconds)
        here.drain(180)
        all_is_well(here)
    third = len(soak.samples) // 3
    second, last = soak.samples[third : 2 * third], soak.samples[2 * third :]
    before, after = (statistics.median(rss for rss, _, _ in some) for some in (second, last))
    # at rest: what work takes comes and goes, what is lost stays
    lowest = [tuple(min(one[index] for one in some) for index in (1, 2)) for some in (second, last)]
    assert after <= 1.1 * before, f"resident memory went from {before:.0f} to {after:.0f} bytes"
    # a pool may have its connections at the one minimum and not at the other; what each of the faults lost would be twenty
    assert all(now <= then + POOLED for then, now in zip(*lowest, strict=True)), f"fds, threads: {lowest}"
    dealt = ", ".join(f"{name} {count}" for name, count in sorted(here.tally.items()))
    return (
        f"{database.kind}, {seconds:.0f} s: {here.tally.total()} faults ({dealt}), {len(here.accepted)} tasks, "
        f"{len(here.cancelled)} cancelled; the steady worker's memory {before / 2**20:.1f} then {after / 2**20:.1f} MiB, "
        f"descriptors and threads at rest {lowest[0]} then {lowest[1]}"
    )


@pytest.mark.timeout(2_400)
@pytest.mark.service("postgresql")
@pytest.mark.service("mysql")
@pytest.mark.parametrize(
    "seconds", [pytest.param(300, marks=pytest.mark.long), pytest.param(600, marks=pytest.mark.overnight)]
)
def test_counts_ledger_and_files_agree_after_minutes_of_faults_and_a_worker_does_not_grow(
    make_database: Callable[[Kind], Database],
    tmp_path: Path,
    chance: random.Random,
    tell: Callable[[str], None],
    seconds: float,
) -> None:
    databases = [make_database(kind.values[0]) for kind in KINDS]  # type: ignore[arg-type]
    with ThreadPoolExecutor(len(databases)) as pool:
        told = [
            pool.submit(soaked, one, tmp_path / one.kind, random.Random(chance.random()), seconds)
            for one in databases
        ]
    for one in told:
        if one.exception() is None:
            tell(one.result())
    for one in told:
        one.result()
