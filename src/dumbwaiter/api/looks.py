"""A task as it stood at one moment, for whoever shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dumbwaiter.api.models import TaskView, task_view
from dumbwaiter.api.unserved import warn_of_unserved
from dumbwaiter.app import Dumbwaiter
from dumbwaiter.outlook import UNKNOWN, Outlook, Place
from dumbwaiter.task import Task

# Seconds by which an expected start must move to be news.
COARSE = 30


@dataclass(frozen=True, slots=True)
class Look:
    """A task as it stood at one moment, with what is known beside its row. Its text is made once for all who ask for it."""

    task: Task
    now: datetime
    outlook: Outlook = UNKNOWN
    _texts: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def mark(self) -> str:
        """Two looks with one mark have nothing to tell each other.

        The phase and the files are in it, since both change when a time passes; and so is the place in the queue, with the
        expected start as coarsely as it is known: it is told anew with each look, some seconds earlier or later.
        """
        files = sum(file.available(self.now) for file in self.task.files)
        place = "" if self.outlook.place is None else f".{place_mark(self.outlook.place)}"
        return f"{self.task.version}.{self.task.phase(self.now)}.{files}{place}"

    @property
    def tag(self) -> str:
        """An ETag; weak, since the estimate moves with time."""
        return f'W/"{self.task.id}.{self.mark}"'

    @property
    def final(self) -> bool:
        return self.task.status.final

    def view(self, base: str) -> TaskView:
        """What a client sees of it, by routes that stand under `base`."""
        return task_view(self.task, self.now, base, self.outlook)

    def text(self, base: str) -> str:
        """The view as JSON."""
        if base not in self._texts:
            self._texts[base] = self.view(base).model_dump_json()
        return self._texts[base]


def place_mark(place: Place) -> str:
    start = place.expected_start_at
    when = "" if start is None else f"@{start.timestamp() // COARSE:.0f}"
    return f"{place.position}{'+' if place.lower_bound else ''}{when}"


def looks(
    waiter: Dumbwaiter, tasks: Sequence[Task], now: datetime | None = None, *, placed: bool = True
) -> list[Look]:
    """Looks at these tasks at this moment. Whatever is to be known beside the rows is read here, once for all.

    `placed` asks for the places of those that wait, too.
    """
    if not tasks:
        return []
    at = waiter.store.now() if now is None else now
    outlooks = waiter.outlooks(tasks, now=at, placed=placed)
    warn_of_unserved(waiter, tasks, outlooks, at)
    return [Look(task, at, outlook) for task, outlook in zip(tasks, outlooks, strict=True)]


def looks_at(waiter: Dumbwaiter, ids: Iterable[str], owner: str | None) -> dict[str, Look | None]:
    """The owner's tasks among these; None for what is not theirs, or not there."""
    wanted = list(ids)
    tasks = [task for task in waiter.store.several(wanted) if task.owner == owner]
    found = {look.task.id: look for look in looks(waiter, tasks)}
    return {task_id: found.get(task_id) for task_id in wanted}
