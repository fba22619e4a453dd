"""Runs task functions in processes of their own, each under a guardian, kept warm between tasks."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from dumbwaiter.errors import (
    ConfigurationError,
    DumbwaiterError,
    LostClaim,
    MemoryExceeded,
    TaskCancelled,
)
from dumbwaiter.executors.base import Ended, Running
from dumbwaiter.executors.child import expires_heard, judged, task_to
from dumbwaiter.executors.command import tag_of
from dumbwaiter.executors.context import Publication, Stop
from dumbwaiter.executors.guardian import LINUX, Channel
from dumbwaiter.executors.memory import excess
from dumbwaiter.executors.registry import TaskType
from dumbwaiter.executors.tree import (
    KILL_SECONDS,
    CannotStartProcess,
    CannotStartThread,
    Lines,
    Tree,
    interpreter,
    start_thread,
)
from dumbwaiter.retry import RemoteError, described
from dumbwaiter.task import Mark, Progress

__all__ = ["CannotStartProcess", "ProcessDied", "ProcessExecutor"]

log = logging.getLogger("dumbwaiter")

# A warm child spares its task the import of the module (some 700 ms with SQLAlchemy and pydantic); a new one now and then
# bounds what leaks.
MAX_TASKS = 50
IDLE_SECONDS = 60.0
GROWTH = 256 * 1024 * 1024
# How soon a stop is passed on to the child.
LOOK_MILLISECONDS = 200
NOTE = 2_000

# `-c` rather than a path or `-m`: neither this package's folder nor the current directory gets onto sys.path, and the
# parent's own path comes before the first import.
BOOT = """\
import json, socket, struct, sys
wire = socket.socket(fileno=int(sys.argv[1]))
order = json.loads(wire.recv(struct.unpack("!I", wire.recv(4, socket.MSG_WAITALL))[0], socket.MSG_WAITALL))
sys.path[:] = order["path"]
from dumbwaiter.executors.child import serve
serve(wire, order)
"""


class ProcessDied(DumbwaiterError):
    """The task's process ended before its function did: a crash, a signal, `os._exit`."""

    transient = True

    def __init__(self, status: int, printed: str = "") -> None:
        super().__init__(f"the task's process {how_ended(status)}")
        self.status = status
        if printed:
            self.add_note(f"its last output:\n{printed}")


class ProcessExecutor:
    """Runs isolated task functions. `warm` is how many idle children are kept at most (0: none, as except on Linux).

    A child serves tasks of one function only. It is given up after 50 tasks, when it was idle for a minute, when it has
    grown by 256 MiB, when a task left threads behind, and whenever it had to be killed. What a task leaves running beside
    its child is ended before the task's end is reported.
    """

    def __init__(self, worker: str, *, grace: timedelta, warm: int) -> None:
        self._worker = worker
        self._grace = grace
        self._warm = warm if LINUX else 0
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._at_work: dict[Running, Child | None] = {}
        self._killed: set[Running] = set()
        self._closed = False

    def start(self, running: Running) -> None:
        """Returns at once; a thread of its own holds the dialog with the child."""
        with self._lock:
            self._at_work[running] = None
        try:
            start_thread(self._serve, running, name=f"dumbwaiter-child-{running.task.id}")
        except CannotStartThread:
            self._forget(running)
            raise

    def ask(self, running: Running) -> None:
        """Nothing to do: the dialog looks every 200 ms whether the attempt should stop, and tells the child."""

    def kill(self, running: Running) -> bool:
        """End the whole tree now; never blocks. `running.complete` follows from the dialog's thread."""
        with self._lock:
            if running not in self._at_work:
                return True
            self._killed.add(running)
            child = self._at_work[running]
            if child is not None:
                # under the lock: a moment later the child may serve another task
                child.tree.kill()
        return True

    def close(self) -> None:
        """End every child, idle or not, and wait until they are gone (at most 10 s)."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            at_work = list(self._at_work)
        for child in idle:
            child.close()
        for running in at_work:
            self.kill(running)
        until = time.monotonic() + KILL_SECONDS
        while self._at_work and time.monotonic() < until:
            time.sleep(0.01)

    def _serve(self, running: Running) -> None:
        try:
            ended = self._run(running)
        except BaseException as error:  # noqa: BLE001 - a fault in the dialog must end the attempt, not hang it
            ended = Ended(error=error)
        self._forget(running)
        running.complete(ended)

    def _run(self, running: Running) -> Ended:
        """The dialog with one child about one task; a warm child that died unnoticed is replaced once."""
        for warm in (self._take(running.entry), None):
            child = warm or Child(running.entry.reference, tag_of(running, self._worker), self._grace)
            self._seat(running, child)
            reusable = False
            try:
                dialog = Dialog(child, running, self._killed)
                ended = dialog.hold(tag_of(running, self._worker))
                reusable = dialog.reusable and child.fit(running.entry.max_memory) and child.tree.sweep()
            finally:
                reusable = self._rise(running) and reusable
                self._put_back(child) if reusable else child.close()
            if dialog.began or child.served == 1 or running.stopped() is not None:
                return ended
        raise AssertionError("a fresh child has always served one task")

    def _seat(self, running: Running, child: Child) -> None:
        with self._lock:
            self._at_work[running] = child
            late = running in self._killed
        if late:
            child.tree.kill()

    def _rise(self, running: Running) -> bool:
        """Its child serves it no more. False if that was killed, be it in this moment: then it serves nobody."""
        with self._lock:
            self._at_work[running] = None
            return running not in self._killed

    def _forget(self, running: Running) -> None:
        with self._lock:
            self._at_work.pop(running, None)
            self._killed.discard(running)

    def _take(self, entry: TaskType) -> Child | None:
        """The warm child of this function that was used last, if there is one."""
        with self._lock:
            for child in reversed(self._idle):
                if child.reference == entry.reference:
                    self._idle.remove(child)
                    child.retire.cancel()
                    return child
        return None

    def _put_back(self, child: Child) -> None:
        """Keep the child warm for a minute; the one idle for longest goes if there are too many."""
        with self._lock:
            self._idle.append(child)
            surplus = len(self._idle) - (0 if self._closed else self._warm)
            over, self._idle = self._idle[: max(0, surplus)], self._idle[max(0, surplus) :]
            if child in self._idle:
                child.retire = threading.Timer(IDLE_SECONDS, self._retire, (child,))
                child.retire.daemon = True
                try:
                    child.retire.start()
                except RuntimeError:
                    # no more threads: nobody would end it when it was idle for long, and its task has ended well
                    self._idle.remove(child)
                    over = [*over, child]
        for one in over:
            one.close()

    def _retire(self, child: Child) -> None:
        with self._lock:
            if child not in self._idle:
                return
            self._idle.remove(child)
        child.close()


class Child:
    """A Python process that runs tasks of one function, its guardian, its pipe, and the thread that reads its prints."""

    def __init__(self, reference: str, tag: str, grace: timedelta) -> None:
        self.reference = reference
        self.served = 0
        self.rss = 0
        self.first_rss = 0
        self.retire = threading.Timer(IDLE_SECONDS, lambda: None)
        self.label = reference
        ours, theirs, output, printed = plumbing()
        try:
            argv = [interpreter(), "-P", "-c", BOOT, str(theirs.fileno())]
            self.tree = Tree(argv, cwd=working_directory(), tag=tag, output=printed, keep=(theirs.fileno(),))
        except BaseException as error:
            ours.close()
            os.close(output)
            if isinstance(error, OSError):
                raise CannotStartProcess(f"no Python can be started: {error}") from error
            raise
        finally:
            theirs.close()
            os.close(printed)
        self.channel = Channel(ours)
        self.lines = Lines()
        try:
            self._printing = start_thread(self._print, output, name="dumbwaiter-prints")
        except CannotStartThread:
            self.tree.close()
            ours.close()
            os.close(output)
            raise
        with contextlib.suppress(OSError):
            order = {
                "path": [str(place) for place in sys.path],
                "reference": reference,
                "grace": grace.total_seconds(),
            }
            self.channel.send(order)

    def _print(self, output: int) -> None:
        """Pass on what the process prints, to its end, so that it never waits for a reader."""
        with os.fdopen(output, "rb", buffering=0) as file:
            while data := file.read(64 * 1024):
                for line in self.lines.feed(data):
                    pass_on(self.label, line)
            for line in self.lines.finish():
                pass_on(self.label, line)

    def measured(self, rss: int) -> None:
        """What it had in use after a task; the first figure, with everything imported, is what growth is counted from."""
        self.rss = rss
        self.first_rss = self.first_rss or rss

    def fit(self, limit: int | None) -> bool:
        """Whether it may serve another task, which is not to pay for what earlier ones left in memory."""
        growth = GROWTH if limit is None else min(GROWTH, limit // 8)
        return self.served < MAX_TASKS and self.rss - self.first_rss < growth

    def printed(self) -> str:
        """The last it printed, once it has ended."""
        self._printing.join(1)
        return self.lines.tail[-NOTE:].strip()

    def close(self) -> None:
        """End it with all that it started, and wait for that."""
        self.retire.cancel()
        if not self.tree.close():
            log.error(
                "the process %d of %s could not be ended; its guardian goes on trying",
                self.tree.pid,
                self.label,
            )
        self.channel.close()


class Dialog:
    """What worker and child say to each other about one task."""

    def __init__(self, child: Child, running: Running, killed: Collection[Running]) -> None:
        self.began = False
        self.reusable = False
        self._child = child
        self._running = running
        self._killed = killed
        self._told: Stop | None = None
        self._ended: Ended | None = None
        self._exceeded: MemoryExceeded | None = None
        self._look_at = 0.0

    def hold(self, tag: str) -> Ended:
        """Hand over the task, serve what the child asks for, and return how it ended."""
        child = self._child
        child.served += 1
        child.label = f"{self._running.entry.name} {self._running.task.id}"
        child.tree.retag(tag)
        self._hand_over(tag)
        poll = select.poll()
        poll.register(child.tree, select.POLLIN)
        poll.register(child.channel, select.POLLIN)
        while self._ended is None and not child.tree.ended and not child.tree.overdue:
            ready = dict(poll.poll(LOOK_MILLISECONDS))
            if child.channel.fileno() in ready and not self._listen():
                # it closed our pipe, so it cannot go on; its guardian tells how it ended
                poll.unregister(child.channel)
                self._pause()
                child.tree.kill()
            if child.tree.fileno() in ready:
                child.tree.listen()
            self._pass_on_stop()
            self._look_at_memory()
        if self._ended is None:
            self._listen_to_the_last()
        return self._ended or self._unanswered()

    def _hand_over(self, tag: str) -> None:
        order = {
            "task": task_to(self._running.entry.current(self._running.task)),
            "workdir": str(self._running.workdir),
            "tag": tag,
            "scope": importable(self._running.entry),
            "steps": self._running.entry.steps,
            "limit": None if self._running.memory is None else self._running.memory.limit,
        }
        # a child that is dead by now is found out by its silence
        with contextlib.suppress(OSError):
            self._child.channel.send({"run": order})

    def _listen(self) -> bool:
        """Take in what the child says. False if its end of the pipe is closed."""
        try:
            messages = self._child.channel.receive()
        except (EOFError, OSError):
            return False
        for message in messages:
            self._take(message)
        return True

    def _take(self, message: Mapping[str, Any]) -> None:
        if "began" in message:
            self.began = True
        elif "progress" in message:
            self._running.report(Progress(*message["progress"]))
        elif "mark" in message:
            value, fraction = message["mark"]
            # an attempt that lost its task is being ended anyway
            with contextlib.suppress(LostClaim):
                self._running.mark(Mark(value, fraction))
        elif "publish" in message:
            self._serve(message["publish"], lambda: self._publish(message))
        elif "step" in message:
            self._serve(message["step"], lambda: self._step(message))
        elif "input" in message:
            self._serve(message["input"], lambda: self._input(message))
        elif "ended" in message:
            self._child.measured(message["rss"])
            self.reusable = message["reusable"]
            ended = message["ended"]
            if "error" in ended:
                told = judged(ended["error"], self._running.entry.retry)
                self._ended = Ended(error=RemoteError(told))
            else:
                self._ended = Ended(ended["result"])

    def _serve(self, number: int, work: Callable[[], Any]) -> None:
        """Do what the child asked for, on a thread of its own: an upload of minutes must not hold up a kill."""
        threading.Thread(
            target=self._answer, args=(number, work), name="dumbwaiter-publish", daemon=True
        ).start()

    def _answer(self, number: int, work: Callable[[], Any]) -> None:
        # the child may have been killed meanwhile
        with contextlib.suppress(OSError):
            try:
                self._child.channel.send({"answer": number, "error": None, "value": work()})
            except BaseException as raised:  # noqa: BLE001 - the child waits for an answer, whatever it is
                error = described(raised, self._running.entry.retry)
                self._child.channel.send({"answer": number, "error": error})

    def _step(self, message: Mapping[str, Any]) -> Any:
        """What the child has to remember, or wants to be told."""
        memory = self._running.memory
        assert memory is not None, "a child asks for steps only if it was told their limit"
        match message["ask"], message["of"]:
            case "recall", []:
                return dataclasses.asdict(memory.recall())
            case "result", [name]:
                return memory.result(name)
            case "remember", [name, value]:
                return memory.remember(name, value)
            case "keep", [name, path]:
                return memory.keep(name, Path(path))
            case "restore", [name, path]:
                return memory.restore(name, Path(path))
        raise ValueError(f"the child asked for {message['ask']!r}, which is nothing")

    def _input(self, message: Mapping[str, Any]) -> Any:
        """What the child wants to know, or to have, of its uploads."""
        inputs = self._running.inputs
        assert inputs is not None, "whoever runs tasks in children finds their uploads"
        match message["ask"], message["of"]:
            case "find", [upload_id]:
                return dataclasses.asdict(inputs.find(upload_id))
            case "read", [upload_id, start, end]:
                return base64.b64encode(inputs.read(upload_id, start, end)).decode()
            case "fetch", [upload_id, path]:
                return inputs.fetch(upload_id, Path(path))
        raise ValueError(f"the child asked for {message['ask']!r}, which is nothing")

    def _publish(self, message: Mapping[str, Any]) -> None:
        publication = Publication(
            Path(message["path"]),
            message["name"],
            message["content_type"],
            expires_heard(message["expires"]),
        )
        self._running.publish(publication)

    def _pass_on_stop(self) -> None:
        stop = self._running.stopped()
        if stop is not None and stop is not self._told:
            self._told = stop
            with contextlib.suppress(OSError):
                self._child.channel.send(
                    {"stop": stop, "of": [self._running.task.id, self._running.task.attempt]}
                )

    def _look_at_memory(self) -> None:
        """End the tree if it uses more than its task type allows; looked at every 200 ms, however much the child says."""
        limit, now = self._running.entry.max_memory, time.monotonic()
        if limit is None or self._exceeded is not None or self._ended is not None or now < self._look_at:
            return
        self._look_at = now + LOOK_MILLISECONDS / 1000
        used = excess(self._child.tree.guardian, limit)
        if used is not None:
            self._exceeded = MemoryExceeded(used.size, limit, used.processes)
            log.warning("task %s: %s", self._running.task.id, self._exceeded)
            self._child.tree.kill()

    def _pause(self) -> None:
        """A process that ends closes its pipe a moment before its status is known, which tells more than our kill would."""
        self._child.tree.wait(0.5)

    def _listen_to_the_last(self) -> None:
        """The answer may have been sent just before the process ended."""
        poll = select.poll()
        poll.register(self._child.channel, select.POLLIN)
        while self._ended is None and poll.poll(0) and self._listen():
            pass

    def _unanswered(self) -> Ended:
        stop = self._running.stopped()
        if self._exceeded is not None:
            return Ended(error=self._exceeded)
        if self._running in self._killed or stop is not None:
            return Ended(
                error=TaskCancelled(f"the task's processes were ended: {stop or 'the worker stops'}")
            )
        return Ended(error=ProcessDied(self._child.tree.status or 0, self._child.printed()))


def importable(entry: TaskType) -> str | None:
    """Where another process finds the scope of a task type. Raises ConfigurationError if it cannot."""
    if entry.scope is None:
        return None
    name = getattr(entry.scope, "__qualname__", "<>")
    if "<" in name or entry.scope.__module__ == "__main__":
        raise ConfigurationError(
            f"task {entry.name!r}: isolate=True needs a scope= that another process can import; "
            "make it a function at the top of a module"
        )
    return f"{entry.scope.__module__}:{name}"


def how_ended(status: int) -> str:
    """In words, after "the task's process"."""
    if status >= 0:
        return f"ended with status {status} before the task had returned (os._exit, or a library that ends the process)"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-status).name
        hint = "; the system does that when memory runs out" if name == "SIGKILL" else ""
        return f"was killed by signal {-status} ({name}){hint}"
    return f"was killed by signal {-status}"


def plumbing() -> tuple[socket.socket, socket.socket, int, int]:
    """A socket pair for the dialog and a pipe for prints. Raises CannotStartProcess."""
    try:
        ours, theirs = socket.socketpair()
        try:
            output, printed = os.pipe()
        except OSError:
            ours.close()
            theirs.close()
            raise
    except OSError as error:
        raise CannotStartProcess(f"no process can be started: {error}") from error
    return ours, theirs, output, printed


def working_directory() -> str:
    """The worker's own directory, or the root if it was removed under it."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "/"


def pass_on(label: str, line: str) -> None:
    """A line that a task printed: to the log where INFO is shown, else to stderr as if it had been printed here."""
    if log.isEnabledFor(logging.INFO):
        log.info("%s: %s", label, line)
    elif sys.stderr is not None:
        # closed, or full; a line is not worth the task
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
