"""A running attempt, and what an executor must be able to do with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dumbwaiter.errors import LostClaim, NoTransaction
from dumbwaiter.eta import Estimate, History, Pace
from dumbwaiter.executors.context import Command, CommandResult, Publication, Stop, TaskContext
from dumbwaiter.executors.inputs import Inputs
from dumbwaiter.executors.steps import Memory
from dumbwaiter.task import Fence, Mark, Progress, ResultFile, Task

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sqlalchemy.engine import Connection

    from dumbwaiter.executors.registry import TaskType

NO_PROGRESS = Progress()


@dataclass(slots=True)  # not frozen: to make one of those takes three times as long
class Ended:
    """How the code of an attempt ended: it returned a value, or raised."""

    result: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What attempts ask of whoever runs them, for all of them together. What is None they cannot have."""

    workdir: Callable[[Task], Path]
    publish: Callable[[Running, Publication], None]
    commands: Callable[[Running], Commands]
    done: Callable[[Running, Ended], None]
    memory: Callable[[Running], Memory] | None = None
    inputs: Callable[[Running], Inputs] | None = None
    transact: Callable[[Running, Callable[[], Any]], AbstractContextManager[Connection]] | None = None


class Running:
    """One attempt that runs in this worker: what its executor, its context and the worker's duties share.

    It is the `Link` of tasks that run inside the worker process. `done` is called exactly once, whoever is first: the
    code that ended, or the worker that gave up on it.

    There are tens of thousands a second of them, so what most attempts never ask for is made when it is asked for.
    """

    # what most attempts never touch, so it is theirs only once it is set
    stop_asked: float | None = None
    stop_reason: Stop | None = None
    abandoned = False
    unstarted: str | None = None
    # its success is being written, or was, or perhaps was, by its own transaction: the row is then rightly nobody's
    committing = False
    committed = False
    handle: Any = None
    remembers = False
    # what it has published so far, whether it began to; and after its end that what comes later is not part of it
    files: Sequence[ResultFile] = ()
    publishes = False
    closed = False
    # the forecaster's own notes, in seconds since the start: not before this, and the end that it told last
    forecast_after = 2.0
    told_end: float | None = None
    _workdir: Path | None = None
    _inputs: Inputs | None = None
    _memory: Memory | None = None
    _stop: threading.Event | None = None
    _ended = False
    _progress = NO_PROGRESS
    _reported = NO_PROGRESS
    _mark: Mark | None = None
    _written: Mark | None = None
    _pace: Pace | None = None

    def __init__(self, task: Task, entry: TaskType, around: Surroundings) -> None:
        self.task = task
        self.entry = entry
        self.started = time.monotonic()
        # the table says that it runs, not only that it was claimed
        self.begun = not task.ahead
        self._around = around
        self._lock = threading.Lock()

    @property
    def deadline(self) -> float | None:
        """When the attempt runs out of time, on the monotonic clock."""
        return None if self.task.timeout is None else self.started + self.task.timeout.total_seconds()

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def workdir(self) -> Path:
        """The directory of the attempt, which is made by whoever needs it first."""
        if self._workdir is None:
            self._workdir = self._around.workdir(self.task)
        return self._workdir

    @property
    def has_workdir(self) -> bool:
        """Somebody asked where it is, so there may be one."""
        return self._workdir is not None

    @property
    def memory(self) -> Memory | None:
        if self._memory is None and self._around.memory is not None:
            self._memory = self._around.memory(self)
        return self._memory

    @property
    def inputs(self) -> Inputs | None:
        if self._inputs is None and self._around.inputs is not None:
            self._inputs = self._around.inputs(self)
        return self._inputs

    def context(self) -> TaskContext:
        return TaskContext(self.task, self, self.workdir, self.memory, self.entry.course, inputs=self.inputs)

    def ask_stop(self, reason: Stop) -> bool:
        """Ask the attempt to end; the first reason stands, except that a lost claim overrides. True if it is new."""
        with self._lock:
            if self._ended or (self.stop_reason is not None and reason is not Stop.LOST):
                return False
            if self.stop_reason is reason:
                return False
            self.stop_reason = reason
            if self.stop_asked is None:
                self.stop_asked = time.monotonic()
            if self._stop is not None:
                self._stop.set()
        return True

    def complete(self, ended: Ended) -> bool:
        """The attempt has ended: tell the worker, unless somebody already did. True for the first call."""
        with self._lock:
            if self._ended:
                return False
            self._ended = True
        self._around.done(self, ended)
        return True

    def fresh_progress(self) -> Progress | None:
        """What was reported since the last call, or None."""
        if self._progress is self._reported:
            return None
        with self._lock:
            if self._progress == self._reported:
                return None
            self._reported = self._progress
            return self._progress

    # steps
    @property
    def fraction(self) -> float | None:
        """How far the attempt has come."""
        return self._progress.fraction

    def _paced(self) -> Pace:
        if self._pace is None:
            self._pace = Pace(resumes=self.task.attempt > 1)
        return self._pace

    def forecast(self, seconds: float, history: History | None) -> Estimate | None:
        """How much longer it will take, so many seconds after its start."""
        with self._lock:
            return self._paced().forecast(seconds, history)

    def history(self, seconds: float) -> History:
        """What it adds to the history of its type, if it succeeded after so many seconds."""
        with self._lock:
            return History.of(seconds) if self._pace is None else self._pace.history(seconds)

    def remembering(self) -> Fence:
        """The fence to remember something under. Raises LostClaim if the attempt has ended or lost its task."""
        with self._lock:
            if self._ended or self.stop_reason is Stop.LOST:
                raise LostClaim(f"attempt {self.task.attempt} no longer owns task {self.task.id}")
            self.remembers = True
        return self.task.fence

    def mark(self, mark: Mark) -> None:
        """Remember where the attempt is in its work; never blocks on the database. Raises LostClaim."""
        self.remembering()
        with self._lock:
            self._mark = mark

    def fresh_mark(self) -> Mark | None:
        """Where it is, if that is not written yet."""
        if self._mark is None:
            return None
        with self._lock:
            return None if self._mark is self._written else self._mark

    def mark_written(self, mark: Mark) -> None:
        with self._lock:
            self._written = mark

    def add(self, file: ResultFile) -> bool:
        """It has published this. False if that comes too late."""
        if not self.closed:
            self.files = (*self.files, file)
        return not self.closed

    # Link
    def report(self, progress: Progress) -> None:
        with self._lock:
            self._progress = self._progress.after(progress)
            if progress.fraction is not None:
                self._paced().note(time.monotonic() - self.started, progress.fraction)

    def publish(self, publication: Publication) -> None:
        if self._ended or self.stop_reason is Stop.LOST:
            raise LostClaim(f"attempt {self.task.attempt} no longer owns task {self.task.id}")
        if self.committed:
            raise LostClaim(f"task {self.task.id} has ended with ctx.transaction(): publish before its end")
        self._around.publish(self, publication)

    def transaction(self, result: Callable[[], Any]) -> AbstractContextManager[Connection]:
        if self._around.transact is None:
            raise NoTransaction(
                f"task {self.task.task_type!r}: an isolated process has no connection to the database, and so no "
                "ctx.transaction(); register the task without isolate=True, or let it return what is to be written and write "
                "that in a task of its own"
            )
        return self._around.transact(self, result)

    def stopped(self) -> Stop | None:
        return self.stop_reason

    def wait(self, seconds: float) -> Stop | None:
        with self._lock:
            if self._stop is None:
                self._stop = threading.Event()
                if self.stop_reason is not None:
                    self._stop.set()
        self._stop.wait(seconds)
        return self.stop_reason

    def run(self, command: Command) -> CommandResult:
        return self._around.commands(self).run(command)


class Commands(Protocol):
    """Runs commands for one attempt."""

    def run(self, command: Command) -> CommandResult: ...


class Executor(Protocol):
    """Runs attempts of the task types it is made for.

    `start` returns at once; `running.complete(...)` is called exactly once, from any thread. `ask` is called when a stop
    was asked (see `Running.stop_reason`); `kill` when the grace time is over: afterwards nothing of the attempt may be
    left running that can be ended, and `complete` is called (for what cannot be ended, a thread, by the caller).
    """

    def start(self, running: Running) -> None: ...

    def ask(self, running: Running) -> None: ...

    def kill(self, running: Running) -> bool:
        """End it now. False if that cannot be done (a thread that does not listen): it is abandoned then."""
        ...

    def close(self) -> None:
        """The worker ends: let go of threads, loops and warm children."""
        ...
