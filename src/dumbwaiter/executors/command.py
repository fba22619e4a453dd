"""Commands: those that a task runs by `ctx.run`, and task types that are nothing but a command."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from io import FileIO
from typing import Any

from dumbwaiter.errors import CommandFailed, ConfigurationError, LostClaim, TaskCancelled
from dumbwaiter.executors.base import Ended, Running
from dumbwaiter.executors.context import Command, CommandResult, Stop
from dumbwaiter.executors.guardian import LINUX
from dumbwaiter.executors.printed import told
from dumbwaiter.executors.tree import CannotStartProcess, Lines, Tree, start_thread
from dumbwaiter.retry import storable

log = logging.getLogger("dumbwaiter")

# How soon a stop is passed on to a command (cancel is promised to be seen within a second).
LOOK_SECONDS = 0.1
# How long output may still come after a command has ended: what it left behind can hold the pipe open for ever.
REST_SECONDS = 0.2


class GuardedCommands:
    """`Commands` of a task that runs inside the worker: each command under a guardian of its own.

    The command and whatever it started end with the command itself, with the attempt, and with the worker, whichever is
    first. When the attempt should stop, the command gets TERM, and KILL after the grace time. Except on Linux, processes
    that left the command's process group are out of reach.
    """

    def __init__(self, running: Running, worker: str, grace: timedelta) -> None:
        self._running = running
        self._tag = tag_of(running, worker)
        self._grace = grace

    def run(self, command: Command) -> CommandResult:
        """Run it to its end. Raises TaskCancelled or LostClaim without starting it if the attempt was told to stop."""
        refuse_if_stopped(self._running)
        lines = Lines()
        with (
            piped() as (output, printed),
            fed(command.stdin) as given,
            planted(
                command.argv,
                cwd=str(command.cwd),
                tag=self._tag,
                output=printed,
                env=command.env,
                stdin=given,
            ) as tree,
            watched(self._running, tree.terminate, tree.kill, self._grace),
        ):
            for line in printed_by(tree, output, lines):
                command.on_line(line)
        # a command that was ended for the attempt's sake has not failed
        refuse_if_stopped(self._running)
        return CommandResult(status_of(tree), storable(lines.tail))


class PlainCommands:
    """`Commands` of a task in an isolated process, whose guardian ends whatever these leave behind.

    What a command leaves running may go on for the rest of the task.
    """

    def __init__(self, running: Running, grace: timedelta) -> None:
        self._running = running
        self._grace = grace

    def run(self, command: Command) -> CommandResult:
        """As `GuardedCommands.run`."""
        refuse_if_stopped(self._running)
        lines = Lines()
        with piped() as (output, printed), fed(command.stdin) as given:
            process = subprocess.Popen(
                command.argv,
                cwd=command.cwd,
                env={**os.environ, **command.env},
                stdin=given,
                stdout=printed.fileno(),
                stderr=printed.fileno(),
                # a group of its own gets the TERM whole; elsewhere it must stay in the group that is ended at last
                process_group=0 if LINUX else None,
            )
            printed.close()

            def terminate() -> None:
                signal_group(process, signal.SIGTERM)

            def kill() -> None:
                signal_group(process, signal.SIGKILL)

            with reaped(process), watched(self._running, terminate, kill, self._grace):
                for line in until_exit(output, process, lines):
                    command.on_line(line)
        return CommandResult(process.returncode, storable(lines.tail))


class CommandExecutor:
    """Runs task types whose work is a command: `argv` with its placeholders filled, in the work directory.

    The result is `{"status": 0, "output": …}` with the last 64 KiB of what it printed; files named in `publishes` are
    published after success. Another exit status is CommandFailed.
    """

    def __init__(self, worker: str, *, grace: timedelta) -> None:
        self._worker = worker
        self._grace = grace
        self._trees: dict[Running, Tree] = {}
        self._killed: weakref.WeakSet[Running] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    def start(self, running: Running) -> None:
        """Returns at once; a thread of its own waits for the command."""
        start_thread(self._serve, running, name=f"dumbwaiter-command-{running.task.id}")

    def _serve(self, running: Running) -> None:
        try:
            ended = Ended(self._run(running))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the task's failure and not the worker's
            ended = Ended(error=error)
        running.complete(ended)

    def _run(self, running: Running) -> Mapping[str, Any]:
        entry = running.entry
        assert entry.argv is not None
        context = running.context()
        workdir = context.workdir
        argv = filled(entry.argv, entry.arguments(running.task) | {"workdir": str(workdir)})
        refuse_if_stopped(running)
        lines = Lines()
        with (
            piped() as (output, printed),
            planted(argv, cwd=str(workdir), tag=tag_of(running, self._worker), output=printed) as tree,
            self._known(running, tree),
        ):
            for line in printed_by(tree, output, lines):
                log.info("%s: %s", entry.name, line)
                if (
                    entry.prints is not None
                    and (progress := told(entry.prints, line, entry.course)) is not None
                ):
                    running.report(progress)
        refuse_if_stopped(running)
        if tree.status != 0:
            raise CommandFailed(
                argv[0], -9 if tree.status is None else tree.status, storable(lines.tail)[-500:].strip()
            )
        for name in entry.publishes:
            context.publish(name)
        return {"status": 0, "output": storable(lines.tail)}

    @contextlib.contextmanager
    def _known(self, running: Running, tree: Tree) -> Iterator[None]:
        """Within this, `ask` and `kill` reach the tree; those that came too early are made up for."""
        with self._lock:
            self._trees[running] = tree
            stop = running.stopped() is not None
            kill = self._closed or running in self._killed
        try:
            if kill:
                tree.kill()
            elif stop:
                tree.terminate()
            yield
        finally:
            with self._lock:
                self._trees.pop(running, None)

    def ask(self, running: Running) -> None:
        """TERM to the command's process group."""
        with self._lock:
            tree = self._trees.get(running)
        if tree is not None:
            tree.terminate()

    def kill(self, running: Running) -> bool:
        """End the whole tree; `running.complete` follows from the thread that waits for it."""
        with self._lock:
            self._killed.add(running)
            tree = self._trees.get(running)
        if tree is not None:
            tree.kill()
        return True

    def close(self) -> None:
        with self._lock:
            self._closed = True
            trees = list(self._trees.values())
        for tree in trees:
            tree.kill()


def tag_of(running: Running, worker: str) -> str:
    """What every process of this attempt has in its environment."""
    return f"{worker}:{running.task.id}:{running.task.attempt}"


def refuse_if_stopped(running: Running) -> None:
    """Raise TaskCancelled or LostClaim if the attempt should end."""
    stop = running.stopped()
    if stop is Stop.LOST:
        raise LostClaim(f"attempt {running.task.attempt} no longer owns task {running.task.id}")
    if stop is not None or running.ended:
        raise TaskCancelled(f"task {running.task.id} was asked to stop: {stop or 'its attempt has ended'}")


def filled(argv: Sequence[str], arguments: Mapping[str, Any]) -> list[str]:
    """The words of a command with the arguments in place of `{name}`; `{{` and `}}` are plain braces.

    A word that is nothing but one placeholder becomes one word for each entry of a list. Truth values are "true" and
    "false", None is empty, lists and objects elsewhere are JSON. No shell is involved, so no value needs quoting.

    Raises ConfigurationError for a placeholder without an argument, ValueError for a NUL character.
    """
    words: list[str] = []
    values = {name: word_of(value) for name, value in arguments.items()}
    for pattern in argv:
        alone = arguments.get(pattern[1:-1]) if pattern.startswith("{") and pattern.endswith("}") else None
        if isinstance(alone, list | tuple):
            words.extend(map(word_of, alone))
            continue
        try:
            words.append(pattern.format_map(values))
        except (KeyError, IndexError) as error:
            raise ConfigurationError(
                f"the command's word {pattern!r} needs an argument {error} that is not given"
            ) from None
    for word in words:
        if "\0" in word:
            raise ValueError(f"a NUL character cannot be handed to a command: {word[:100]!r}")
    return words


def word_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool | dict | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


@contextlib.contextmanager
def piped() -> Iterator[tuple[int, FileIO]]:
    """A pipe for a command's output: the descriptor to read, and the end for the command, which may be closed earlier."""
    try:
        output, printed = os.pipe()
    except OSError as error:
        raise CannotStartProcess(f"no process can be started: {error}") from error
    with FileIO(printed, "wb") as file:
        try:
            yield output, file
        finally:
            os.close(output)


@contextlib.contextmanager
def planted(argv: Sequence[str], *, output: FileIO, **how: Any) -> Iterator[Tree]:
    """A tree that ends with the block."""
    tree = Tree(argv, output=output.fileno(), **how)
    # ours would keep the pipe open after everybody else has closed it
    output.close()
    try:
        yield tree
    finally:
        if not tree.close():
            log.error("%s could not be ended (pid %d); its guardian goes on trying", argv[0], tree.pid)


@contextlib.contextmanager
def fed(data: bytes | None) -> Iterator[int]:
    """A descriptor from which a command reads these bytes, written by a thread while it reads (or doesn't)."""
    if data is None:
        yield subprocess.DEVNULL
        return
    theirs, ours = os.pipe()
    threading.Thread(target=write_all, args=(ours, data), name="dumbwaiter-stdin", daemon=True).start()
    try:
        yield theirs
    finally:
        os.close(theirs)


def write_all(descriptor: int, data: bytes) -> None:
    # a command may end without having read everything
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


@contextlib.contextmanager
def watched(
    running: Running, terminate: Callable[[], None], kill: Callable[[], None], grace: timedelta
) -> Iterator[None]:
    """Within this, a thread ends the command when the attempt should stop, even while `on_line` is busy."""
    finished = threading.Event()

    def watch() -> None:
        until = math.inf
        while not running.ended and time.monotonic() < until:
            if finished.wait(LOOK_SECONDS):
                return
            if running.stopped() is not None and until == math.inf:
                terminate()
                until = time.monotonic() + grace.total_seconds()
        kill()

    watcher = threading.Thread(target=watch, name="dumbwaiter-command-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join(1)


def printed_by(tree: Tree, output: int, lines: Lines) -> Iterator[str]:
    """The lines that a tree prints, as they come, until it has ended."""
    poll = select.poll()
    poll.register(tree, select.POLLIN)
    poll.register(output, select.POLLIN)
    while not tree.ended and not tree.overdue:
        ready = dict(poll.poll(1000))
        if output in ready:
            data = os.read(output, 64 * 1024)
            yield from lines.feed(data)
            if not data:
                poll.unregister(output)
        if tree.fileno() in ready:
            tree.listen()
    yield from rest(output, lines, until=time.monotonic())


def status_of(tree: Tree) -> int:
    """The exit status; that of a killed process for one whose end nobody saw."""
    return -signal.SIGKILL if tree.status is None else tree.status


def rest(output: int, lines: Lines, until: float) -> Iterator[str]:
    """What is still in the pipe, until its end or that moment, whichever is first."""
    poll = select.poll()
    poll.register(output, select.POLLIN)
    while poll.poll(max(0.0, until - time.monotonic()) * 1000):
        data = os.read(output, 64 * 1024)
        if not data:
            break
        yield from lines.feed(data)
    yield from lines.finish()


def until_exit(output: int, process: subprocess.Popen[bytes], lines: Lines) -> Iterator[str]:
    """The lines that a command prints, as they come, until it has ended."""
    poll = select.poll()
    poll.register(output, select.POLLIN)
    while process.poll() is None:
        if poll.poll(LOOK_SECONDS * 1000):
            data = os.read(output, 64 * 1024)
            yield from lines.feed(data)
            if not data:
                process.wait()
    yield from rest(output, lines, until=time.monotonic() + REST_SECONDS)


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Signal the command's group, where it has one of its own."""
    with contextlib.suppress(OSError):
        if process.poll() is not None:
            return
        if LINUX:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


@contextlib.contextmanager
def reaped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The command ends with the block, whatever is raised in it."""
    try:
        yield
    finally:
        if process.poll() is None:
            signal_group(process, signal.SIGKILL)
            process.wait()
