"""How far a claimer has got in a queue, so that its next look begins there and not among what is done.

A row that was claimed leaves a dead entry in the index of what is ready. While somebody's old transaction is open, on
PostgreSQL and in InnoDB, no dead entry can be removed, and a look from the start steps over all of them: after 500,000 claims
one took 47 ms instead of 0.4.

So a claimer remembers of the priorities at which it claimed last where it was, and passes over what is behind that place.
This is a hint: what becomes visible late lies behind it, and waits for a look from the start. That is a row

- whose transaction committed later than one that began after it,
- that had to wait for another task, or became due and was made ready late,
- that somebody's transaction had locked while we came past.

None waits for long, and a higher priority does not wait at all: only of equals may a younger one go first. If there is no
backlog, a look begins LAG before the place. If there is one, looks from the start are made as often as they can be for one
hundredth of the time (after a tenth of a second, if they take a millisecond), and after LONGEST whatever they take. When this
process makes a row ready or hears that another one did, a tenth of the time is theirs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from dumbwaiter.task import Task

# A stager is late by a second at most, and most transactions are shorter.
LAG = timedelta(seconds=3)
LONGEST = 5.0
SELDOM, OFTEN = 100.0, 10.0
# A look from the start that took so little, the way to the server and back included, has met nothing that is done.
QUICK = 0.003
# Each place makes the statement longer by two parts; few queues have work at more priorities than these at a time.
PLACES = 3
# Of a worker that serves whatever queue there is, names may come and go.
QUEUES = 1_000
FIRST = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a claimer was at one priority: at the last row that it took there."""

    priority: int
    run_at: datetime
    id: str

    @property
    def earlier(self) -> Place:
        return Place(self.priority, self.run_at - LAG, FIRST)


def place_of(task: Task) -> Place:
    return Place(task.priority, task.run_at, task.id)


def furthest(tasks: Sequence[Task]) -> Iterable[Task]:
    """Of each priority the one that is to run last, of tasks in the order in which they should run."""
    return {task.priority: task for task in tasks}.values()


@dataclass(frozen=True, slots=True)
class Band:
    """A part of a queue: what is at a place's priority and after it, or all between the priorities of two places.

    Places are known by their number in the order in which tasks are to run, so that a statement can be made before they are.
    """

    at: int | None = None
    after: int | None = None
    before: int | None = None


def bands(places: int) -> list[Band]:
    """The parts of a queue with so many places, in the order in which tasks are to run. Pure."""
    found: list[Band] = []
    for number in range(places):
        found += [Band(after=number - 1 if number else None, before=number), Band(at=number)]
    return [*found, Band(after=places - 1 if places else None)]


def within(tasks: sa.Table, band: Band) -> Iterator[sa.ColumnElement[bool]]:
    """The conditions of a part, as an index on (priority DESC, run_at, id) serves them."""
    if band.at is not None:
        yield tasks.c.priority == parameter("priority", band.at, tasks)
        passed = [parameter(name, band.at, tasks) for name in ("run_at", "id")]
        yield sa.tuple_(tasks.c.run_at, tasks.c.id) > sa.tuple_(*passed)
    if band.after is not None:
        yield tasks.c.priority < parameter("priority", band.after, tasks)
    if band.before is not None:
        yield tasks.c.priority > parameter("priority", band.before, tasks)


def parameter(column: str, place: int, tasks: sa.Table) -> sa.BindParameter[Any]:
    return sa.bindparam(f"place_{place}_{column}", type_=tasks.c[column].type, required=False)


def parameters(places: Sequence[Place]) -> dict[str, Any]:
    """The values of what a statement with so many places leaves open."""
    values: dict[str, Any] = {}
    for number, place in enumerate(sorted(places, key=lambda place: -place.priority)):
        values |= {
            f"place_{number}_priority": place.priority,
            f"place_{number}_run_at": place.run_at,
            f"place_{number}_id": place.id,
        }
    return values


Look = Callable[[Sequence[Place], int], list[Task]]


class Front:
    """The places of one claimer in one queue."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._places: dict[int, Place] = {}
        self._backlog = False
        self._looked = self._took = 0.0
        self._hurried = False

    def hurry(self) -> None:
        """There may be something behind."""
        self._hurried = True

    def claim(self, slots: int, look: Look) -> list[Task]:
        """Claim so many: `look` claims what is after the given places (from the start, if there are none), in order."""
        if not self._places or self._from_start():
            return self._whole(slots, look)
        if not self._backlog and self._took < QUICK:
            # where nothing is to be stepped over, the plain statement is the quicker one
            return self._whole(slots, look)
        if not self._backlog:
            return self._bounded(slots, look, [place.earlier for place in self._places.values()])
        claimed = self._bounded(slots, look, list(self._places.values()))
        if len(claimed) < slots:
            # the end of the backlog: what was overtaken shortly before is taken now
            earlier = [place.earlier for place in self._places.values()]
            claimed += self._bounded(slots - len(claimed), look, earlier)
        return claimed

    def _from_start(self) -> bool:
        pause = min(self._took * (OFTEN if self._hurried else SELDOM), LONGEST)
        return self._clock() >= self._looked + pause

    def _whole(self, slots: int, look: Look) -> list[Task]:
        self._hurried = False
        began = self._clock()
        claimed = look((), slots)
        self._looked = self._clock()
        self._took = self._looked - began
        for task in furthest(claimed):
            # also if that is further back than we were: the database's clock may have been set back
            self._be_at(place_of(task))
        self._backlog = len(claimed) == slots
        return claimed

    def _bounded(self, slots: int, look: Look, places: Sequence[Place]) -> list[Task]:
        claimed = look(places, slots)
        for task in furthest(claimed):
            place, before = place_of(task), self._places.get(task.priority)
            late = before is not None and (place.run_at, place.id) < (before.run_at, before.id)
            self._be_at(before if late and before is not None else place)
        self._backlog = len(claimed) == slots
        return claimed

    def _be_at(self, place: Place) -> None:
        self._places.pop(place.priority, None)
        self._places[place.priority] = place
        if len(self._places) > PLACES:
            del self._places[next(iter(self._places))]


class Fronts:
    """The fronts of all claimers of a process. Its methods may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._fronts: dict[tuple[str, str, tuple[str, ...]], Front] = {}

    def of(self, worker: str, queue: str, types: Sequence[str]) -> Front:
        """A claimer's front: of other types another one has passed over other rows."""
        key = (worker, queue, tuple(types))
        with self._lock:
            if key not in self._fronts:
                if len(self._fronts) >= QUEUES:
                    self._fronts.clear()
                self._fronts[key] = Front(self._clock)
            return self._fronts[key]

    def hurry(self, queue: str | None = None) -> None:
        """Something has become ready in a queue, or in some queue, perhaps behind its front."""
        with self._lock:
            for (_, name, _), front in self._fronts.items():
                if queue in (None, name):
                    front.hurry()
