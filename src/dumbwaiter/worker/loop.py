"""The worker: its duties, how it starts, and how it stops."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from dumbwaiter.errors import ConfigurationError, DatabaseUnavailable, StoreError
from dumbwaiter.executors import orphans, workdirs
from dumbwaiter.executors.base import Executor, Running
from dumbwaiter.executors.command import CommandExecutor, GuardedCommands
from dumbwaiter.executors.context import Stop
from dumbwaiter.executors.function import LoopExecutor, ThreadExecutor
from dumbwaiter.executors.inputs import StoredInputs
from dumbwaiter.executors.process import ProcessExecutor
from dumbwaiter.executors.registry import PROCESS, Registry
from dumbwaiter.executors.remembering import StoredMemory
from dumbwaiter.executors.tree import CannotStartThread, start_thread
from dumbwaiter.run import Runner
from dumbwaiter.settings import Reserve, Settings
from dumbwaiter.store.rows import Finish, WorkerRow
from dumbwaiter.store.store import LARGEST_CLOCK_OFFSET, Store
from dumbwaiter.task import Fence, Kind, Outcome, Status, Task
from dumbwaiter.worker.buffer import LATE, Buffer
from dumbwaiter.worker.claimer import Claimer
from dumbwaiter.worker.disk import Disk
from dumbwaiter.worker.durations import Durations
from dumbwaiter.worker.duty import Duty
from dumbwaiter.worker.finisher import Finisher
from dumbwaiter.worker.forecaster import Forecaster
from dumbwaiter.worker.heartbeat import Heartbeat
from dumbwaiter.worker.housekeeper import Housekeeper
from dumbwaiter.worker.listener import Listener
from dumbwaiter.worker.rescuer import Rescuer
from dumbwaiter.worker.slots import Slots
from dumbwaiter.worker.stager import BACKSTOP, REST, Stager
from dumbwaiter.worker.watcher import Watcher

if TYPE_CHECKING:
    from dumbwaiter.files import FileStore

log = logging.getLogger("dumbwaiter")

LOOK = 0.05
# How long a task that was told of the shutdown at the end of the grace time may take to tidy up before it is ended.
LAST_WORDS = 1.0
# A stop takes at most so much after its grace time, whatever ignores it: tasks, processes, a silent database. Of that what
# was killed may take until ENDED to be gone, and what is to be written until WRITTEN.
AFTER_GRACE, ENDED, WRITTEN = 3.0, 1.8, 2.3
# A database that answers, if slowly, is given more time for the last ends: what is not written costs those tasks a crash.
FLUSH = 10.0
# A round of the finisher that takes so long means that the database does not answer.
SILENT = 1.0
# How long a stop waits for the answer to a claim that is under way, or for a start that is.
BRIEFLY = 2.0
WAIT_FOR_DATABASE, WAIT_FOR_SCHEMA = 1.0, 5.0
# A worker that slept for less, on a laptop say, finds its row when it wakes.
FORGET_AFTER = timedelta(hours=12)


def worker_name() -> str:
    """Host, process and chance: new at each start, so that a restarted worker is never taken for its predecessor."""
    host = "".join(sign if sign.isalnum() or sign in ".-" else "-" for sign in socket.gethostname())[:60]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def collect_seldom() -> None:
    """Spare this process's collector of cycles: with the settings as they are a third of a drain's time is its.

    What has been imported stays to the end, so it need not be looked through again; and a task leaves hundreds of objects
    behind, hardly any in a cycle.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def share_promptly() -> None:
    """Let the duties of this process have the interpreter's lock sooner than after its 5 ms.

    A duty whose statement was answered waits for the lock that the event loop holds, and at each system call of a task the system wakes it
    in vain. With 1 ms a drain of no-ops that write a record each is 5 % faster.
    """
    sys.setswitchinterval(0.001)


class Worker:
    """Runs tasks of some queues, within some slots and capacities.

    `queues` gives slots by queue; by default every queue is served, each with `settings.slots`. `capacity` is added to
    `chromium=1` and one isolated process for each core. User code cannot hold up the duties: each has a thread of its own.

        worker = waiter.worker({"exports": 2}, capacity={"chromium": 2})
        worker.run()
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        store: Store,
        files: Callable[[], FileStore],
        *,
        queues: Mapping[str, int] | None = None,
        capacity: Mapping[str, float] | None = None,
        in_app: bool = False,
    ) -> None:
        self.name = worker_name()
        self.settings = settings
        self.store = store
        self._registry = registry
        self._files = files
        self._grace = settings.shutdown_grace_in_app if in_app else settings.shutdown_grace
        cores = float(os.cpu_count() or 1)
        self.slots = Slots(queues, settings.slots, {"chromium": 1, PROCESS: cores, **(capacity or {})})
        self._workdirs = workdirs.Workdirs(settings.workdir_path, self.name)
        self._executors: dict[str, Executor] = {
            "coroutine": LoopExecutor(),
            "thread": ThreadExecutor(),
            "process": ProcessExecutor(self.name, grace=settings.grace, warm=int(cores)),
            "command": CommandExecutor(self.name, grace=settings.grace),
        }
        self._running: dict[Fence, Running] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._hurry = threading.Event()
        self._ended = threading.Event()
        # between the start of the duties and a stop that does not wait for it any longer
        self._threshold = threading.Lock()
        self._too_late = False
        self._over_by = 0.0
        self._failure: Exception | None = None
        self._registered = False
        self._assemble()

    def _assemble(self) -> None:
        settings, store = self.settings, self.store
        self._runner = Runner(
            self._registry,
            self._executors,
            files=self._files,
            workdir=self._workdirs.path,
            clean=self._workdirs.remove,
            commands=lambda running: GuardedCommands(running, self.name, settings.grace),
            memory=lambda running: StoredMemory(store, self._files, running, limit=settings.max_result),
            inputs=lambda running: StoredInputs(store, self._files, running),
            clock=store.now,
            over=self._over,
            succeeding=store.succeeding,
            max_result=settings.max_result,
            max_interruptions=settings.max_interruptions,
        )
        self._heartbeat = Heartbeat(
            store,
            self.name,
            settings.heartbeat,
            lease=settings.lease,
            fallen=lambda: self._heart_duty.wake(),
        )
        self._finisher = Finisher(store, self._settled)
        self._durations = Durations(store)
        self._watcher = Watcher(
            store, self._runner, lambda: self.running, settings.grace, Forecaster(self._durations)
        )
        self._buffer = Buffer(
            self.slots,
            self._registry,
            launch=self._launch,
            announce=store.begin,
            give_back=self._give_back,
            late=min(LATE, settings.lease.total_seconds() / 4),
        )
        disk = Disk(self._places(), Reserve.of(settings.disk_reserve), told=self._tell_of_the_disk)
        self._claimer = Claimer(
            store,
            self._registry,
            self.slots,
            self._buffer,
            self.name,
            launch=self._launch,
            running=self._known,
            # at its own pace only if somebody wants one that the stager does not keep
            poll=settings.poll
            if settings.poll.total_seconds() < REST
            else max(settings.poll, timedelta(seconds=BACKSTOP)),
            grace=settings.grace,
            lease=settings.lease,
            short_of_disk=lambda: disk.short,
        )
        self._rescuer = Rescuer(
            store,
            self.name,
            settings.lease,
            settings.sweep,
            took=self._took_back,
            settle=settings.heartbeat * 1.5,
        )
        self._stager = Stager(
            store,
            lambda: self._claimer.concern,
            suspects=self._hear_of_suspects,
            ready=self._wake_claimer,
            poll=settings.poll.total_seconds(),
        )
        self._listener = Listener(store, self._heard)
        self._housekeeper = Housekeeper(store, self._files, tidy=self._tidy)
        moved = self._heartbeat.moved
        self._claim_duty = Duty("claimer", self._claimer.round, alive=moved)
        self._finish_duty = Duty("finisher", self._finisher.round, alive=moved)
        self._watch_duty = Duty("watcher", self._watcher.round, alive=moved)
        self._time_duty = Duty("timekeeper", self._watcher.keep_time)
        self._stage_duty = Duty("stager", self._stager.round)
        self._clean_duty = Duty("housekeeper", self._housekeeper.round)
        self._heart_duty = Duty("heartbeat", self._heartbeat.round)
        self._housekeeping = [
            Duty("listener", self._listener.round),
            self._stage_duty,
            Duty("rescuer", self._rescuer.round),
            self._clean_duty,
            self._heart_duty,
            Duty("clerk", self._durations.round),
        ]
        self._begin = threading.Thread(target=self._start_when_ready, name="dumbwaiter-start", daemon=True)

    # what others may see

    @property
    def running(self) -> tuple[Running, ...]:
        """What runs at this moment."""
        with self._lock:
            return tuple(self._running.values())

    @property
    def claiming(self) -> bool:
        """New tasks are being claimed: it has started, and nobody asked it to stop."""
        return self._claim_duty.started and self._claimer.open

    @property
    def abandoned(self) -> int:
        """How many tasks did not stop when asked and could not be ended."""
        return self._watcher.abandoned

    # starting

    def start(self) -> None:
        """Start all duties; returns at once. A database that is away, or not migrated, is waited for."""
        self._begin.start()

    def _start_when_ready(self) -> None:
        try:
            if self._wait_for_database():
                self._start_duties()
        except Exception as error:
            # nothing that waiting would mend: a work directory that cannot be made, no more processes
            log.exception("worker %s cannot start", self.name)
            self._failure = error
            self.stop(hurry=True)

    def _start_duties(self) -> None:
        with self._threshold:
            if self._too_late:
                return
            self._heartbeat.start()
            for duty in self._duties:
                duty.start()
        log.info("worker %s started", self.name)

    @property
    def _duties(self) -> list[Duty]:
        return [self._finish_duty, self._watch_duty, self._time_duty, self._claim_duty, *self._housekeeping]

    def _wait_for_database(self) -> bool:
        """Wait until all is ready, and say once what is being waited for. False if stopped meanwhile."""
        told = ""
        while not self._stopping.is_set():
            try:
                self._make_ready()
            except StoreError as error:
                if str(error) != told:
                    log.warning("worker %s waits: %s", self.name, error)
                told = str(error)
                away = isinstance(error, DatabaseUnavailable)
                self._stopping.wait(WAIT_FOR_DATABASE if away else WAIT_FOR_SCHEMA)
            else:
                return True
        return False

    def _make_ready(self) -> None:
        """Everything that comes before the duties. The database may go away at any step of it: then it is done once more."""
        self.store.schema.ensure()
        self._register()
        self._refuse_split_files()
        self._workdirs.open()
        self._clean_up_after_the_dead()
        self._tell_of_the_clock()

    def _register(self) -> None:
        from dumbwaiter import __version__

        now = self.store.now()
        self._rescuer.begin(now)
        self.store.register(
            WorkerRow(
                name=self.name,
                host=socket.gethostname(),
                pid=os.getpid(),
                version=__version__,
                queues=self.slots.queues,
                capacity=self.slots.capacity,
                started_at=now,
                heartbeat_at=now,
                stopping=False,
                slots=self.slots.each,
            )
        )
        self._registered = True

    def _refuse_split_files(self) -> None:
        """Raises ConfigurationError if result files would lie on the disks of two hosts: a download would find half."""
        if self.settings.shared_files or not self._files().local:
            return
        heard = self.store.now() - self.settings.lease
        others = {
            worker.host
            for worker in self.store.workers()
            if worker.heartbeat_at > heard and worker.host != socket.gethostname()
        }
        if others:
            raise ConfigurationError(
                f"workers on {socket.gethostname()} and {', '.join(sorted(others))} would each keep result files on a disk of "
                f"their own ({self.settings.files_url}); set DUMBWAITER_FILES to an object store, "
                "or DUMBWAITER_SHARED_FILES=1 if that is one shared mount"
            )

    def _places(self) -> list[Path]:
        """Where tasks write on this host."""
        place = self.settings.workdir_path
        url = self.settings.files_url
        return [place, Path(url)] if "://" not in url else [place]

    def _tell_of_the_disk(self, short: str | None) -> None:
        """Others see it in `dumbwaiter workers`."""
        self._aside(lambda: self._mark_short(short))

    def _mark_short(self, short: str | None) -> None:
        try:
            self.store.mark_short(self.name, short)
        except StoreError as error:
            log.warning("that worker %s is short of disk could not be written: %s", self.name, error)

    def _tell_of_the_clock(self) -> None:
        """Only the database's clock counts, so nothing here goes wrong; but whoever compares the logs of two hosts will."""
        offset = self.store.clock_offset()
        if abs(offset) > LARGEST_CLOCK_OFFSET:
            log.warning(
                "the clock of this host is %.0f s %s the database's, by which tasks are timed; set it right (systemd-timesyncd, "
                "chrony)",
                abs(offset.total_seconds()),
                "behind" if offset > timedelta(0) else "ahead of",
            )

    def _clean_up_after_the_dead(self) -> None:
        """Processes first: they may still write into the directories."""
        root = self.settings.workdir_path
        if ended := orphans.sweep(root):
            log.warning("%d processes of dead workers were ended", ended)
        if names := workdirs.sweep(root):
            log.warning("work directories of dead workers were removed: %s", ", ".join(names))
        self.store.forget_silent_workers(max(self.settings.lease * 3, FORGET_AFTER))

    def _tidy(self) -> None:
        """What others, or we, could not remove at the time."""
        self._clean_up_after_the_dead()
        name = self._workdirs.name
        if left := self._workdirs.sweep(lambda: {name(running.task) for running in self.running}):
            log.warning("%d work directories of attempts that had ended were removed", left)

    # a task's way through

    def _launch(self, task: Task) -> None:
        running = self._runner.prepare(task)
        with self._lock:
            self._running[task.fence] = running
        self._runner.start(running)
        self._stager.stir()
        if not self._watcher.looking:
            self._watch_duty.wake()
        if self._watcher.may_miss(running):
            self._time_duty.wake()

    def _over(self, running: Running, end: Finish | None) -> None:
        """The code of an attempt has ended. Its slot is free; the task stays ours until its end is written."""
        if running.unstarted is not None:
            self.slots.cannot_start(running.entry, running.unstarted)
        else:
            self.slots.started(running.entry)
        queue = running.task.queue
        self.slots.give_back(queue, running.entry)
        now = time.monotonic()
        self._buffer.ended(queue, now - running.started)
        if running.committed if end is None else end.outcome.kind is Kind.SUCCEED:
            self._durations.succeeded(running, now)
        if end is None:
            self._forget(running.task)
            if running.committed and (running.remembers or running.task.attempt > 1):
                self._forget_steps(running.task)
        else:
            self._put(end)
        self._buffer.feed(queue)
        if self._buffer.calls(queue):
            self._wake_claimer()

    def _give_back(self, task: Task) -> None:
        """It was claimed ahead and is not to begin here."""
        self._put(Finish(task, Outcome.given_back()))

    def _put(self, end: Finish) -> None:
        self._finisher.put(end)
        self._finish_duty.wake()

    def _settled(self, written: Sequence[tuple[Finish, Status | None]]) -> None:
        """The store has heard of these ends."""
        with self._lock:
            ran = [self._running.pop(end.task.fence, None) for end, _ in written]
        self._claim_for_the_empty()
        for (end, status), running in zip(written, ran, strict=True):
            try:
                self._follow(end, status, running)
            except Exception:
                log.exception("after the end of task %s", end.task.id)

    def _follow(self, end: Finish, status: Status | None, running: Running | None) -> None:
        """What is to be done once an end is written."""
        if status is Status.PENDING:
            self._stager.hurry()
            self._stage_duty.wake()
        if running is None:
            self._buffer.returned(end.task.fence)
        elif status is None:
            self._runner.disowned(running)
        if end.published and status is not None and status is not Status.SUCCESS:
            self._sweep_leftovers()
        if (end.remembers or end.task.attempt > 1) and status is not None and status.final:
            self._forget_steps(end.task)

    def _forget_steps(self, task: Task) -> None:
        """The task has ended: what its attempts remembered for later ones goes."""
        self._housekeeper.ended(task.id)
        self._clean_duty.wake()

    def _sweep_leftovers(self) -> None:
        """An attempt may have stored files that were never visible; the store knows which."""
        self._housekeeper.hurry()
        self._clean_duty.wake()

    def _forget(self, task: Task) -> None:
        with self._lock:
            self._running.pop(task.fence, None)
        self._claim_for_the_empty()

    def _claim_for_the_empty(self) -> None:
        """The claimer may have waited for what is over now."""
        if self._claimer.minds_ends:
            self._wake_claimer()

    def _known(self) -> tuple[Fence, ...]:
        # in this order: what leaves the buffer in between is in both
        waiting = self._buffer.fences
        with self._lock:
            return (*waiting, *self._running)

    def _took_back(self, task: Task, outcome: Outcome) -> None:
        """A dead worker's task is ours to look after."""
        if outcome.status.final:
            self._forget_steps(task)
        elif self._claimer.concern.includes(task):
            # before the stager's next look
            self._hear_of_suspects(True)
        self._sweep_leftovers()

    def _hear_of_suspects(self, waits: bool) -> None:
        self._claimer.hear_of_suspects(waits)
        if waits:
            self._wake_claimer()

    def _heard(self) -> None:
        """Something may be due, now or later."""
        self._wake_claimer()
        self._stage_duty.wake()

    def _wake_claimer(self) -> None:
        self._claim_duty.wake()

    # stopping

    def stop(self, *, hurry: bool = False) -> None:
        """Claim nothing from now on, and end when what runs has ended or the grace time is over. `hurry`: end it now.

        Safe in a signal handler. Returns at once; `join` waits.
        """
        if hurry:
            self._hurry.set()
        if not self._stopping.is_set():
            self._stopping.set()
            self._claimer.close()
            try:
                start_thread(self._wind_down, name="dumbwaiter-stop")
            except CannotStartThread:
                # then here, if need be in a signal handler, where the next signal can still hurry it
                self._wind_down()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until everything has ended and been written. False if that took longer than `timeout` seconds."""
        return self._ended.wait(timeout)

    def _wind_down(self) -> None:
        self._over_by = time.monotonic() + AFTER_GRACE
        try:
            if not self._has_started():
                return
            self._claim_duty.stop()
            self._aside(self._mark_stopping)
            self._end_claims()
            self._buffer.close()
            self._wait_for_tasks()
            self._over_by = time.monotonic() + AFTER_GRACE
            self._release_the_rest()
            self._flush()
        except Exception:
            log.exception("worker %s did not stop as it should", self.name)
        finally:
            self._let_go()
            self._ended.set()

    def _has_started(self) -> bool:
        """Whether there are duties to stop. A start that still waits for the database finds out that it is too late."""
        if self._begin.ident is not None:
            self._begin.join(BRIEFLY)
        with self._threshold:
            self._too_late = True
            return self._claim_duty.started

    def _end_claims(self) -> None:
        """A claim that is under way may still give tasks, but is not waited for as long as the database likes."""
        self._wait(lambda: self._claim_duty.join(0) or self._hurry.is_set(), BRIEFLY)
        if not self._claim_duty.join(BRIEFLY / 4):
            self._claimer.disown()

    def _mark_stopping(self) -> None:
        try:
            self.store.mark_stopping(self.name)
        except StoreError as error:
            log.warning("that worker %s is stopping could not be written: %s", self.name, error)

    def _at_work(self) -> list[Running]:
        return [running for running in self.running if not running.ended]

    def _wait_for_tasks(self) -> None:
        """Let what runs go on for the grace time, unless somebody is in a hurry."""
        until = time.monotonic() + self._grace.total_seconds()
        if busy := len(self._at_work()):
            log.info(
                "worker %s stops; %d tasks have %.0f s to end (signal again to hurry)",
                self.name,
                busy,
                self._grace.total_seconds(),
            )
        while self._at_work() and time.monotonic() < until and not self._hurry.is_set():
            time.sleep(LOOK)

    def _release_the_rest(self) -> None:
        """Tell what still runs, then end it; its task goes back into the queue without costing a retry."""
        for running in self._at_work():
            self._watcher.ask(running, Stop.SHUTDOWN)
        self._wait(lambda: not self._at_work(), LAST_WORDS)
        for running in self._at_work():
            self._watcher.end(running)
        self._wait(lambda: not self._at_work(), self._until(ENDED))
        for running in self._at_work():
            self._watcher.abandon(running)

    def _until(self, seconds: float) -> float:
        """How long it is until so many seconds after the grace time."""
        return max(self._over_by - AFTER_GRACE + seconds - time.monotonic(), 0.0)

    def _flush(self) -> None:
        """Write the last ends. The heartbeat goes on until then."""
        self._finish_duty.wake()

        # An attempt has ended before its end is here to be written: its work directory is removed in between.
        def written() -> bool:
            return not self.running and self._finisher.empty

        def silent() -> bool:
            return self._finish_duty.failing or self._finish_duty.busy_for() > SILENT

        if not self._wait(written, self._until(WRITTEN)) and not silent():
            self._wait(lambda: written() or silent(), FLUSH)
        if not written():
            log.warning("the last ends could not be written; those tasks will be taken back and run again")

    def _let_go(self) -> None:
        self._listener.stop()
        for duty in self._duties:
            duty.stop()
        last = [self._aside(duty.join) for duty in self._duties if duty.started]
        if self._registered:
            last.append(self._aside(self._unregister))
            last.append(self._aside(self._write_durations))
        until = time.monotonic() + max(self._until(AFTER_GRACE - 0.3), 0.3)
        for thread in filter(None, last):
            thread.join(max(until - time.monotonic(), 0.0))
        for executor in self._executors.values():
            executor.close()
        self._heartbeat.stop()
        self._workdirs.close()
        log.info("worker %s ended", self.name)

    def _write_durations(self) -> None:
        try:
            self._durations.round()
        except StoreError as error:
            log.warning("how long the last tasks took could not be written: %s", error)

    def _unregister(self) -> None:
        try:
            self.store.unregister(self.name)
        except StoreError as error:
            log.warning("worker %s could not be taken off the list: %s", self.name, error)

    @staticmethod
    def _aside(work: Callable[[], object]) -> threading.Thread | None:
        """Do it on a thread of its own: a database that does not answer must not hold up the stop."""
        try:
            return start_thread(work, name="dumbwaiter-aside")
        except CannotStartThread:
            work()
            return None

    @staticmethod
    def _wait(over: Callable[[], bool], seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not over():
            if time.monotonic() > until:
                return False
            time.sleep(LOOK / 5)
        return True

    # standalone

    def run(self) -> int:
        """Start, work until TERM or INT, stop gracefully. A second signal hurries. Returns the exit status.

        Raises what kept it from starting.
        """
        before = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)
        }
        collect_seldom()
        share_promptly()
        try:
            self.start()
            # a wait without a time limit would hold up signals on some platforms
            while not self.join(1.0):
                pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._failure is not None:
            raise self._failure
        return 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stop(hurry=self._stopping.is_set())
