"""What can be told of a task beyond its row: its steps, its place in the queue, when it is likely to start. Pure.

The expected start is what list scheduling gives (Graham, 1966): whatever becomes free first takes the first that waits. What runs
takes as long as its own estimate says, what waits as long as tasks of its type took lately.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dumbwaiter.course import StepView
from dumbwaiter.eta import History, by_duration
from dumbwaiter.task import Task

# More than these are not looked at: "more than 1,000 ahead".
MOST_AHEAD = 1_000


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a waiting task in its queue: 1 is the next. `lower_bound`: it may be further back, for counting has its end.

    `expected_start_at` is None while nobody can tell: no worker lives that serves the queue, or nothing of the types ahead has
    ended yet. `served` is False while no worker lives that serves the queue at all.
    """

    position: int
    lower_bound: bool = False
    expected_start_at: datetime | None = None
    served: bool = True


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known: nothing, unless somebody looked."""

    steps: Sequence[StepView] = ()
    place: Place | None = None


UNKNOWN = Outlook()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A task that waits in a queue."""

    id: str
    task_type: str


@dataclass(frozen=True, slots=True)
class AtWork:
    """A task that runs: what it is, where, since when, and when it says that it will be over."""

    task_type: str
    worker: str
    started_at: datetime
    estimated_finish_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A worker that claims: how many tasks of each queue it runs at once (`""`: of any queue), and its capacities."""

    name: str
    queues: Mapping[str, int]
    capacity: Mapping[str, float] = field(default_factory=dict)

    def slots(self, queue: str, need: Mapping[str, float]) -> int:
        """How many tasks of the queue that need so much it runs at once."""
        slots = self.queues.get(queue, self.queues.get("", 0))
        fitting = (int(self.capacity.get(name, 0) / amount + 1e-9) for name, amount in need.items())
        return min([slots, *fitting])


@dataclass(frozen=True, slots=True)
class Line:
    """A queue as it stands: the first that wait, in the order in which they will run, and what runs.

    If more wait than were counted, `end` is where counting ended: what is to run after that lies behind.
    """

    queue: str
    waiting: Sequence[Waiting]
    running: Sequence[AtWork] = ()
    end: tuple[int, datetime, str] | None = None
    paused: bool = False

    def behind(self, task: Task) -> bool:
        """It waits, as far as anybody knows, behind all that were counted."""
        return self.end is not None and order(task) > self.end


@dataclass(frozen=True, slots=True)
class Lines:
    """The queues of some tasks, who serves them, and how long tasks of each type take."""

    lines: Mapping[str, Line]
    servers: Sequence[Server] = ()
    histories: Mapping[str, History] = field(default_factory=dict)


def order(task: Task) -> tuple[int, datetime, str]:
    """What comes first in a queue, as the claim has it."""
    return -task.priority, task.run_at, task.id


def places(lines: Lines, needs: Mapping[str, Mapping[str, float]], now: datetime) -> dict[str, Place]:
    """The place of each task that is in the lines, by its id. `needs` names for task types how much of what one needs."""
    found: dict[str, Place] = {}
    for line in lines.lines.values():
        waits = starts(line, lines, needs, now)
        served = is_served(line.queue, lines)
        for number, (task, wait) in enumerate(zip(line.waiting, waits, strict=True), 1):
            start = None if wait is None else now + timedelta(seconds=round(wait))
            found[task.id] = Place(number, expected_start_at=start, served=served)
    return found


def is_served(queue: str, lines: Lines) -> bool:
    """A worker lives that takes tasks of the queue, whatever they need."""
    return any(server.slots(queue, {}) > 0 for server in lines.servers)


def starts(
    line: Line, lines: Lines, needs: Mapping[str, Mapping[str, float]], now: datetime
) -> list[float | None]:
    """In how many seconds each of the waiting tasks is likely to start; None where nobody can tell."""
    # the queue is taken for one of its commonest type: which of a worker's capacities bounds it depends on that
    [(common, _)] = Counter(one.task_type for one in line.waiting).most_common(1) or [("", 0)]
    need = needs.get(common, {})
    busy: dict[str, list[float]] = {server.name: [] for server in lines.servers}
    for task in line.running:
        if task.worker in busy:
            busy[task.worker].append(left_of(task, lines.histories, now))
    free: list[float] = []
    for server in lines.servers:
        slots = server.slots(line.queue, need)
        running = sorted(busy[server.name])[:slots]
        free += [*running, *[0.0] * (slots - len(running))]
    if not free or line.paused:
        return [None] * len(line.waiting)
    return scheduled(free, durations(line, lines.histories))


def scheduled(free: Sequence[float], lengths: Sequence[float]) -> list[float | None]:
    """When each begins, one after the other, each in the slot that is free first."""
    heap = list(free)
    heapq.heapify(heap)
    begins: list[float | None] = []
    for length in lengths:
        begin = heap[0]
        begins.append(None if math.isinf(begin) else begin)
        heapq.heapreplace(heap, begin + length)
    return begins


def durations(line: Line, histories: Mapping[str, History]) -> list[float]:
    """How long each of the waiting takes; of an unknown type as long as the others here on average, and for ever if none is known."""
    known = {
        one.task_type: histories[one.task_type].mean_seconds
        for one in line.waiting
        if one.task_type in histories
    }
    lengths = [known.get(one.task_type) for one in line.waiting]
    given = [length for length in lengths if length is not None]
    average = sum(given) / len(given) if given else math.inf
    return [average if length is None else length for length in lengths]


def left_of(task: AtWork, histories: Mapping[str, History], now: datetime) -> float:
    """How many seconds a running task will still take: it said so, or others of its type did; for ever if nobody did."""
    if task.estimated_finish_at is not None:
        return max((task.estimated_finish_at - now).total_seconds(), 0.0)
    guess = by_duration(max((now - task.started_at).total_seconds(), 0.0), histories.get(task.task_type))
    return math.inf if guess is None else math.exp(guess.log)
