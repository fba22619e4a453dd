"""What is measured: each function does one thing to a trial and gives what it saw."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import processes, raw
from bench.contestants import Contestant
from bench.rows import Behind
from bench.servers import PostgreSQL
from bench.sizes import Sizes
from bench.trials import Drain, Failed, Trial

Values = dict[str, float]
# How many tasks each drain takes, found once and kept for all rounds: by contestant and task.
Counts = dict[tuple[str, str], int]


@dataclass(frozen=True)
class Measure:
    """A measurement by its name, and who takes part in it."""

    name: str
    title: str
    take: Callable[[Trial, Sizes, Counts], Values]
    takes_part: Callable[[Contestant], bool]


def enqueue(trial: Trial, sizes: Sizes, _: Counts) -> Values:
    trial.fresh()
    told = trial.hand("one", task="noop", number=sizes.enqueue, seconds=sizes.enqueue_seconds)
    if trial.contestant.left and trial.left() != told["number"]:
        raise Failed(f"{told['number']} were enqueued, and {trial.left()} are there")
    return {"per_s": told["per_s"]}


def many(trial: Trial, sizes: Sizes, _: Counts) -> Values:
    trial.fresh()
    told = trial.hand("many", task="noop", first=0, number=sizes.many)
    if trial.contestant.left and trial.left() != sizes.many:
        raise Failed(f"{sizes.many} were enqueued, and {trial.left()} are there")
    return {"per_s": told["per_s"]}


def drain(trial: Trial, sizes: Sizes, counts: Counts) -> Values:
    return drained("noop", trial, sizes, counts)


def nap(trial: Trial, sizes: Sizes, counts: Counts) -> Values:
    return drained("nap", trial, sizes, counts)


def drained(task: str, trial: Trial, sizes: Sizes, counts: Counts) -> Values:
    number = enough(task, trial, sizes, counts)
    trial.fresh()
    trial.fill(task, number)
    seen = trial.drain(task, number)
    trial.check(range(number), among=number)
    return {
        "per_s": seen.per_s,
        "number": number,
        "startup_s": (seen.first - seen.started) / 1e9,
        "worker_cpu": seen.worker_cpu / number * 1_000,
        "server_cpu": seen.server_cpu / number * 1_000,
        "cpu": (seen.worker_cpu + seen.server_cpu) / number * 1_000,
        "peak_mb": seen.peak_mb,
    }


def enough(task: str, trial: Trial, sizes: Sizes, counts: Counts) -> int:
    """How many tasks the drain takes; a first drain, which is not counted, tells."""
    key = trial.contestant.name, task
    if key not in counts:
        rate = 0.0
        if sizes.probe:
            trial.fresh()
            trial.fill(task, sizes.probe)
            rate = trial.drain(task, sizes.probe).tasks_per_s()
        counts[key] = sizes.for_a_rate(rate)
    return counts[key]


def pickup(trial: Trial, sizes: Sizes, _: Counts) -> Values:
    """From just before the call that enqueues to the task's first line, on a worker that has nothing else to do."""
    trial.fresh()
    with trial.workers("noop"):
        told = trial.hand("pickup", number=sizes.pickups, gap=sizes.gap)
    return waits(trial, told["asked"])


def pickup_inside(trial: Trial, sizes: Sizes, _: Counts) -> Values:
    """The same with the worker in the producer's own process."""
    trial.fresh()
    return waits(trial, trial.hand("pickup", number=sizes.pickups, gap=sizes.gap, inside=True)["asked"])


def waits(trial: Trial, asked: Sequence[int]) -> Values:
    began = {record.number: record.began for record in trial.records.read()}
    lost = [number for number in range(len(asked)) if number not in began]
    if lost:
        raise Failed(f"{len(lost)} of {len(asked)} tasks did not run")
    waited = sorted((began[number] - at) / 1e6 for number, at in enumerate(asked))
    return {"p50_ms": quantile(waited, 0.5), "p99_ms": quantile(waited, 0.99)}


def quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def behind(trial: Trial, sizes: Sizes, _: Counts) -> Values:
    """The rate on an empty table, and with many rows behind the tasks, over the same number of tasks."""
    values: Values = {}
    kinds: dict[Behind, int] = {"nothing": 0, "finished": sizes.finished, "backlog": sizes.backlog}
    if trial.contestant.ours:
        kinds["future"] = sizes.future
    for name, rows in kinds.items():
        trial.fresh()
        trial.fill("noop", sizes.beside, behind=name, many=rows)
        seen = trial.drain("noop", sizes.beside, empty=name != "backlog")
        if name == "backlog":
            # of a backlog some more are done before the worker has stopped
            check_backlog(trial)
        else:
            trial.check(range(sizes.beside), among=sizes.beside + rows)
        values[name] = tasks_until(seen, sizes.beside)
    reference = values.pop("nothing")
    return {"empty": reference, **{name: rate / reference for name, rate in values.items()}}


def check_backlog(trial: Trial) -> None:
    if trial.contestant.ours:  # copies of somebody else's row all bear the same number
        numbers = [record.number for record in trial.records.read()]
        if len(numbers) != len(set(numbers)):
            raise Failed(f"{len(numbers) - len(set(numbers))} tasks ran twice")
        trial.check_rows(len(numbers))


def tasks_until(seen: Drain, number: int) -> float:
    """How fast the first so many tasks ended."""
    ends = sorted(record.ended for record in seen.records)
    return number / max((ends[number - 1] - seen.first) / 1e9, 1e-9)


def workers(trial: Trial, sizes: Sizes, counts: Counts) -> Values:
    """1, 2 and 4 worker processes, measured while all of them work: without the first quarter and the last tenth."""
    number = enough("noop", trial, sizes, counts)
    values: Values = {}
    for count in (1, 2, 4):
        trial.fresh()
        trial.fill("noop", number)
        seen = trial.drain("noop", number, count=count)
        trial.check(range(number), among=number)
        values[str(count)] = seen.tasks_per_s(0.25, 0.9)
    return {"per_s": values["1"], "two": values["2"] / values["1"], "four": values["4"] / values["1"]}


def snapshot(trial: Trial, sizes: Sizes, _: Counts) -> Values:
    """How long a claim takes after many claims while one old transaction is open, and how long without one."""
    server = trial.server
    assert isinstance(server, PostgreSQL)
    fresh = claims(trial, sizes.fresh_claims, contextlib.nullcontext())
    held = claims(trial, sizes.claims, server.old_snapshot())
    # the last tenth: what has piled up by then is what counts
    last = held[-max(1, len(held) // 10) :]
    p99 = quantile(fresh, 0.99), quantile(last, 0.99)
    return {"fresh_p99_ms": p99[0] * 1_000, "held_p99_ms": p99[1] * 1_000, "times": p99[1] / p99[0]}


def claims(trial: Trial, number: int, holding: contextlib.AbstractContextManager[None]) -> list[float]:
    """The seconds that each claim took in a drain."""
    trial.fresh()
    trial.fill("noop", number)
    lines = trial.home / "claims"
    lines.unlink(missing_ok=True)
    with holding:
        trial.drain("noop", number, BENCH_CLAIMS=str(lines), seconds=1_800)
    trial.check(range(number), among=number)
    return [float(json.loads(line)[1]) for line in lines.read_text().splitlines()]


def idle(trial: Trial, sizes: Sizes, _: Counts) -> Values:
    """A worker with nothing to do, some time after its start."""
    trial.fresh()
    server = trial.server
    if isinstance(server, PostgreSQL):
        server.count_statements(True)
    lines = trial.home / "statements"
    lines.unlink(missing_ok=True)
    with trial.workers("noop", BENCH_STATEMENTS=str(lines)) as [worker]:
        # it is at rest some time after it has done something
        trial.hand("one", task="noop", number=1, seconds=0)
        trial.wait(lambda: trial.records.count() == 1, 60)
        time.sleep(sizes.settle_seconds)
        began, cpu, sent = time.monotonic(), processes.cpu(worker.pid), statements(trial, lines)
        time.sleep(sizes.idle_seconds)
        seconds = time.monotonic() - began
        used, more = processes.cpu(worker.pid) - cpu, statements(trial, lines)
        memory = processes.proportional_mb(worker.pid)
    values = {"cpu_percent": used / seconds * 100, "pss_mb": memory}
    return values if sent is None or more is None else {**values, "statements_per_s": (more - sent) / seconds}


def statements(trial: Trial, lines: Path) -> int | None:
    """How many statements were sent so far; looks at SQLite's data_version, which read no table, are none."""
    counted = trial.server.statements()
    if counted is not None or not lines.exists():
        return counted
    return sum("data_version" not in line for line in lines.read_text().splitlines())


def limits(trial: Trial, sizes: Sizes, _: Counts) -> Values:
    """What the database itself takes, through the raw driver, on our own table."""
    trial.fresh()
    inserted = raw.insert(trial.address, sizes.enqueue, sizes.enqueue_seconds)
    trial.fresh()
    trial.fill("noop", sizes.raw)
    trial.server.settle()
    batched = raw.claim_and_finish(trial.address, sizes.raw)
    trial.check_rows(sizes.raw)
    return {"insert_per_s": inserted, "batch_per_s": batched}


def everyone(_: Contestant) -> bool:
    return True


def ours(contestant: Contestant) -> bool:
    return contestant.ours


def on(*servers: str) -> Callable[[Contestant], bool]:
    return lambda contestant: contestant.ours and contestant.server in servers


def has_rows(contestant: Contestant) -> bool:
    return contestant.ours or contestant.copied is not None


MEASURES: Mapping[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("enqueue", "enqueue, one by one", enqueue, everyone),
        Measure("many", "enqueue, a thousand a call", many, everyone),
        Measure("drain", "no-op tasks", drain, everyone),
        Measure("nap", "tasks of 10 ms", nap, everyone),
        Measure("latency", "pick-up by an idle worker", pickup, everyone),
        Measure("inside", "pick-up in the same process", pickup_inside, on("sqlite")),
        Measure("behind", "with many rows behind", behind, has_rows),
        Measure("workers", "1, 2 and 4 worker processes", workers, ours),
        Measure("snapshot", "an old snapshot held open", snapshot, on("postgresql")),
        Measure("idle", "a worker at rest", idle, everyone),
        Measure("raw", "the database's own limits", limits, ours),
    )
}
