"""How tasks are shown: as words for people, as JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dumbwaiter.outlook import Place
from dumbwaiter.task import Attempt, Status, Task

if TYPE_CHECKING:
    from dumbwaiter.store.rows import WorkerRow

# What a table on a narrow terminal goes without, in this order; and the space between its columns.
DISPENSABLE = ("REMARKS", "LAST PROGRESS", "UP SINCE", "CAPACITY", "QUEUE", "RUN TIME", "CREATED")
LEAST_OF_LAST = 30
BETWEEN = 3


def as_json(task: Task, now: datetime) -> dict[str, Any]:
    """Everything that an operator may want of a task, under stable names; times as ISO text, durations in seconds."""
    return {
        "id": task.id,
        "type": task.task_type,
        "queue": task.queue,
        "status": task.status.value,
        "phase": task.phase(now),
        "progress": task.progress,
        "step": task.current_step,
        "message": task.message,
        "attempt": task.counted_attempt,
        "max_attempts": task.max_attempts,
        "run": task.attempt,
        "owner": task.owner,
        "key": task.business_key,
        "priority": task.priority,
        "arguments": dict(task.payload),
        "result": task.result,
        "error_type": task.error_type,
        "error_message": task.error_message,
        "user_message": task.user_message,
        "created_at": iso(task.created_at),
        "run_at": iso(task.run_at),
        "started_at": iso(task.started_at),
        "finished_at": iso(task.finished_at),
        "run_seconds": in_seconds(task.run_time(now)),
        "seconds_since_progress": in_seconds(since_progress(task, now)),
        "remaining_seconds": in_seconds(task.remaining(now)),
        "remaining_range": [in_seconds(end) for end in task.remaining_range(now) or ()] or None,
        "worker": task.worker_id,
        "retry_of": task.retry_of,
        "retried_as": task.retried_as,
        "files": [
            {
                "name": file.name,
                "size": file.size,
                "content_type": file.content_type,
                "sha256": file.sha256,
                "expires_at": iso(file.expires_at),
            }
            for file in task.files
        ],
    }


def attempt_as_json(attempt: Attempt) -> dict[str, Any]:
    """An attempt that ended, with its traceback."""
    return {
        "number": attempt.number,
        "outcome": attempt.outcome.value,
        "worker": attempt.worker_id,
        "started_at": iso(attempt.started_at),
        "ended_at": iso(attempt.ended_at),
        "run_seconds": in_seconds(attempt.ended_at - attempt.started_at),
        "error_type": attempt.error_type,
        "error_message": attempt.error,
        "traceback": attempt.traceback,
    }


def history(attempts: Sequence[Attempt]) -> list[tuple[str, str]]:
    """The attempts that ended, a line each by the number of the run: (label, value)."""
    return [(f"run {attempt.number}", ended(attempt)) for attempt in attempts]


def ended(attempt: Attempt) -> str:
    how = attempt.outcome.value.replace("_", " ")
    where = f"{how} after {spoken(attempt.ended_at - attempt.started_at)} on {attempt.worker_id}"
    why = error_words(attempt.error_type, attempt.error)
    return f"{where}: {first_line(why)}" if why else where


def print_tracebacks(attempts: Sequence[Attempt]) -> None:
    """What each failed attempt left for whoever mends it."""
    for attempt in attempts:
        if attempt.traceback:
            print(f"\nrun {attempt.number}, {ended(attempt)}\n{attempt.traceback.rstrip()}")


def worker_as_json(
    worker: WorkerRow, held: Sequence[Task], now: datetime, lease: timedelta
) -> dict[str, Any]:
    """A worker, and what it runs."""
    return {
        "name": worker.name,
        "state": worker_state(worker, now, lease),
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "queues": dict(worker.queues),
        "capacity": dict(worker.capacity),
        "started_at": iso(worker.started_at),
        "heartbeat_at": iso(worker.heartbeat_at),
        "tasks": [
            {"id": task.id, "type": task.task_type, "attempt": task.counted_attempt, "run": task.attempt}
            for task in held
        ],
    }


WORKER_COLUMNS = ("WORKER", "STATE", "LAST HEARD", "UP SINCE", "QUEUES", "CAPACITY", "RUNS")


def worker_row(worker: WorkerRow, held: Sequence[Task], now: datetime, lease: timedelta) -> tuple[str, ...]:
    """One line of `dumbwaiter workers`."""
    return (
        worker.name,
        worker_state(worker, now, lease),
        ago(max(now - worker.heartbeat_at, timedelta(0))),
        ago(max(now - worker.started_at, timedelta(0))),
        ", ".join(f"{name}={slots}" for name, slots in worker.queues.items()) or "all",
        ", ".join(f"{name}={amount:g}" for name, amount in worker.capacity.items()),
        ", ".join(f"{task.task_type} {task.id}" for task in held) or "nothing",
    )


def worker_state(worker: WorkerRow, now: datetime, lease: timedelta) -> str:
    """A worker that has been silent for a lease is taken for dead, and loses its tasks."""
    if now - worker.heartbeat_at > lease:
        return "silent"
    if worker.stopping:
        return "stopping"
    return "working" if worker.short_of is None else "short of disk"


def details(task: Task, now: datetime, place: Place | None = None) -> list[tuple[str, str]]:
    """What `dumbwaiter status` says: (label, value), what is not known left out."""
    running = task.status is Status.RUNNING
    rows: list[tuple[str, object]] = [
        ("task", task.id),
        ("type", task.task_type),
        ("queue", task.queue),
        ("status", standing(task, now)),
        ("place", None if place is None else place_words(place, now)),
        ("progress", percent(task) if running else None),
        ("step", task.current_step if running else None),
        ("message", task.message if running else None),
        ("time left", time_left(task, now)),
        ("run time", spoken(task.run_time(now))),
        ("last progress", ago(since_progress(task, now))),
        ("attempt", attempt_words(task) if task.attempt else None),
        ("key", task.business_key),
        ("owner", task.owner),
        ("created", iso(task.created_at)),
        ("due", iso(task.run_at) if task.status is Status.PENDING and task.run_at > now else None),
        ("finished", iso(task.finished_at)),
        ("arguments", json.dumps(dict(task.payload), ensure_ascii=False) if task.payload else None),
        ("result", None if task.result is None else json.dumps(task.result, ensure_ascii=False)),
        ("error", error_of(task)),
        ("told to the user", task.user_message),
        ("retry of", task.retry_of),
        ("retried as", task.retried_as),
        *(("file", f"{file.name} ({file.size:,} bytes, {file.content_type})") for file in task.files),
    ]
    return [(label, str(value)) for label, value in rows if value]


COLUMNS = ("ID", "TYPE", "QUEUE", "STATUS", "PROGRESS", "RUN TIME", "LAST PROGRESS", "CREATED", "REMARKS")


def row(task: Task, now: datetime) -> tuple[str, ...]:
    """One line of `dumbwaiter list`."""
    return (
        task.id,
        task.task_type,
        task.queue,
        task.phase(now),
        percent(task),
        spoken(task.run_time(now)),
        ago(since_progress(task, now)),
        ago(now - task.created_at),
        remarks(task),
    )


def remarks(task: Task) -> str:
    """Which attempt it is, unless it is the first; and its step while it runs, else its error."""
    attempt = f"attempt {attempt_words(task)}" if task.attempt > 1 else ""
    what = task.current_step if task.status is Status.RUNNING else error_of(task)
    return "; ".join(part for part in (attempt, first_line(what or "")) if part)


def attempt_words(task: Task) -> str:
    """Which attempt of how many; and the number of the run, if interruptions and crashes made it another one."""
    words = f"{task.counted_attempt} of {task.max_attempts}"
    return words if task.attempt <= task.counted_attempt else f"{words} (run {task.attempt})"


def print_rows(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> None:
    """Columns of text: a table on a terminal, plain lines elsewhere (never cut, so that other programs can read them)."""
    if sys.stdout.isatty() and header:
        from rich import box
        from rich.console import Console
        from rich.table import Table

        console = Console(markup=False)
        shown = fitting(header, rows, console.width)
        others = sum(max(len(line[index]) for line in (header, *rows)) + BETWEEN for index in shown[:-1])
        room = max(LEAST_OF_LAST, console.width - others - BETWEEN - 1)
        table = Table(box=box.SIMPLE_HEAD)
        for index in shown:
            # an id that was cut is of no use to any command; what a worker runs has ids in it
            name = header[index]
            table.add_column(name, no_wrap=name != "RUNS", max_width=room if name == "REMARKS" else None)
        for cells in rows:
            table.add_row(*(cells[index] for index in shown))
        console.print(table)
        return
    lines = [tuple(header), *rows] if header else list(rows)
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))] if lines else []
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def fitting(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that a terminal has room for, by their numbers. The last one may be cut, down to LEAST_OF_LAST."""
    widths = [max(len(line[index]) for line in (header, *rows)) for index in range(len(header))]
    widths[-1] = min(widths[-1], LEAST_OF_LAST)
    shown = list(range(len(header)))
    for name in DISPENSABLE:
        if sum(widths[index] + BETWEEN for index in shown) + 1 <= width:
            break
        shown = [index for index in shown if header[index] != name]
    return shown


def print_json(value: Iterable[Mapping[str, Any]] | Mapping[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=sys.stdout.encoding.lower() != "utf-8", indent=2))


def standing(task: Task, now: datetime) -> str:
    phase = task.phase(now)
    if phase == "retrying":
        return f"retrying, next attempt in {spoken(task.run_at - now)}"
    if phase == "scheduled":
        return f"scheduled, due in {spoken(task.run_at - now)}"
    return phase


def error_of(task: Task) -> str | None:
    return error_words(task.error_type, task.error_message)


def error_words(kind: str | None, message: str | None) -> str | None:
    if message is None:
        return None
    return f"{kind}: {message}" if kind else message


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def since_progress(task: Task, now: datetime) -> timedelta | None:
    """How long a running task has not moved."""
    moved_at = task.progress_at or task.started_at
    if task.status is not Status.RUNNING or moved_at is None:
        return None
    return max(now - moved_at, timedelta(0))


def percent(task: Task) -> str:
    if task.status is Status.SUCCESS:
        return "100 %"
    return f"{int(task.progress * 100)} %" if task.attempt else ""


def place_words(place: Place, now: datetime) -> str:
    """The place in the queue, and when it is likely to start: 3 ahead, starts in about 2 min."""
    ahead = place.position - 1
    words = f"more than {ahead:,} ahead" if place.lower_bound else f"{ahead:,} ahead" if ahead else "the next"
    if not place.served:
        return f"{words}; no worker is at work on this queue, start one with: dumbwaiter worker"
    if place.expected_start_at is None:
        return words
    wait = place.expected_start_at - now
    return f"{words}, starts " + (
        "soon" if wait < timedelta(seconds=2) else f"in about {spoken(rounded(wait))}"
    )


def rounded(left: timedelta) -> timedelta:
    """An estimate is not good to a tenth of a second."""
    return timedelta(seconds=max(1, round(left.total_seconds())))


def time_left(task: Task, now: datetime) -> str:
    """The estimate, with its range once there is a history: 40 s (25 s to 1 min 4 s)."""
    between = task.remaining_range(now)
    within = "" if between is None else f" ({spoken(between[0])} to {spoken(between[1])})"
    return f"{spoken(task.remaining(now))}{within}"


def spoken(duration: timedelta | None) -> str:
    """A duration as people write it: 4.2 s, 3 min 20 s, 2 h 5 min."""
    if duration is None:
        return ""
    total = duration.total_seconds()
    if total < 10:
        return f"{total:.0f} s" if total == int(total) else f"{total:.1f} s"
    minutes, rest = divmod(round(total), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((index for index, (amount, _) in enumerate(parts) if amount), 3)
    return " ".join(f"{amount} {unit}" for amount, unit in parts[first : first + 2] if amount) or "0 s"


def ago(duration: timedelta | None) -> str:
    return "" if duration is None else f"{spoken(duration)} ago"


def iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def in_seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else round(duration.total_seconds(), 3)
