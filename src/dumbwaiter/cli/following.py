"""Watching a task until it has ended: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from dumbwaiter.cli.show import attempt_words, place_words, rounded, spoken
from dumbwaiter.outlook import Place
from dumbwaiter.task import Status, Task

if TYPE_CHECKING:
    from dumbwaiter.app import Dumbwaiter

# Often enough for a bar that moves, seldom enough not to be seen in the database's load.
LOOK_EVERY = 0.3


class Shown(Protocol):
    """Something that shows how far work has come."""

    def __call__(self, fraction: float | None, step: str, left: str) -> None: ...


def followed(waiter: Dumbwaiter, task_id: str, label: str) -> Task:
    """Show the task's progress until it has ended, and return it as it ended."""
    with bar(label) as show:
        while True:
            task = waiter.get(task_id)
            now = waiter.store.now()
            [outlook] = waiter.outlooks([task], now=now)
            show(fraction_of(task), step_of(task, now, outlook.place), left_of(task, now))
            if task.status.final:
                return task
            time.sleep(LOOK_EVERY)


def fraction_of(task: Task) -> float | None:
    if task.status is Status.SUCCESS:
        return 1.0
    return task.progress if task.status is Status.RUNNING else None


def step_of(task: Task, now: datetime, place: Place | None = None) -> str:
    phase = task.phase(now)
    if phase == "retrying":
        return f"failed, next attempt in {spoken(task.run_at - now)}: {task.error_message or ''}"[:100]
    if phase == "queued":
        return "queued" if place is None else f"queued, {place_words(place, now)}"
    step = task.current_step if phase == "running" and task.current_step else phase
    return f"{step} (attempt {attempt_words(task)})" if phase == "running" and task.attempt > 1 else step


def left_of(task: Task, now: datetime) -> str:
    """The time left, as the person who waits may be told."""
    left = task.remaining(now)
    return "" if left is None else f"{spoken(rounded(left))} left"


@contextmanager
def bar(label: str) -> Iterator[Shown]:
    """A function that shows progress, on stderr, for as long as the block runs."""
    if not sys.stderr.isatty():
        yield plain_lines(label)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[percent]:>5}", markup=False),
        TextColumn("{task.fields[step]}", markup=False),
        TextColumn("{task.fields[left]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), expand=True, transient=False) as progress:
        row = progress.add_task(label, total=None, percent="", step="", left="")

        def show(fraction: float | None, step: str, left: str) -> None:
            progress.update(
                row,
                total=None if fraction is None else 1.0,
                completed=fraction or 0,
                percent="" if fraction is None else f"{int(fraction * 100)} %",
                step=step,
                left=left,
            )

        yield show


def plain_lines(label: str) -> Shown:
    """A line at each new step, and at each tenth of the way."""
    last: tuple[str, int] | None = None

    def show(fraction: float | None, step: str, left: str) -> None:
        nonlocal last
        tenth = -1 if fraction is None else int(fraction * 10)
        bare = step.partition(", next attempt in")[0].partition(", starts")[0]
        if (bare, tenth) == last:
            return
        last = (bare, tenth)
        how_far = "" if fraction is None else f" {int(fraction * 100)} %"
        left_words = f", {left}" if left else ""
        print(f"{label}:{how_far} {step}{left_words}", file=sys.stderr, flush=True)

    return show
