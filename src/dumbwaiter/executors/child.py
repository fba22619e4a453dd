"""The inside of an isolated process: takes tasks from its socket, runs them one at a time, and answers in JSON.

The worker says `{"run": …}`, `{"stop": reason, "of": [task id, attempt]}` and `{"answer": number, "error": … | null, "value": …}`.
The child says `{"began": true}`, `{"progress": [fraction, step, message]}`, `{"mark": [cursor, fraction]}`, `{"publish": number, …}`,
`{"step": number, "ask": …, "of": […]}`, `{"input": number, "ask": …, "of": […]}` and, once for each run, `{"ended": {"result": …} | {"error": …}, "reusable": …, "rss": …}`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import faulthandler
import functools
import importlib
import itertools
import os
import queue
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dumbwaiter.errors import ConfigurationError, Fail, LostClaim
from dumbwaiter.executors.base import Ended, Running, Surroundings
from dumbwaiter.executors.command import PlainCommands
from dumbwaiter.executors.context import UNSAID, Publication, Stop, Unsaid
from dumbwaiter.executors.function import ascoped, call_arguments, cancelled, scoped
from dumbwaiter.executors.guardian import LINUX, TAG, Channel
from dumbwaiter.executors.inputs import Found
from dumbwaiter.executors.registry import TaskType
from dumbwaiter.executors.signature import Signature
from dumbwaiter.retry import RemoteError, Retry, described, type_name
from dumbwaiter.strict_json import dumps
from dumbwaiter.task import Mark, Recalled, Status, Task

# How often progress is passed on; the worker itself writes it a few times a second.
REPORT_SECONDS = 0.1
# What the pipe takes; how much may be stored is a setting (1 MiB) that the worker checks. A character has up to 6 bytes.
LARGEST_RESULT = 8 * 1024 * 1024


def serve(wire: socket.socket, order: Mapping[str, Any]) -> None:
    """Run what comes through the socket until the worker closes it."""
    os.set_inheritable(wire.fileno(), False)
    sys.argv = [str(order["reference"])]
    # what a crash in C was doing goes to the worker's log
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    desk = Desk(Channel(wire), str(order["reference"]), timedelta(seconds=order["grace"]))
    threading.Thread(target=desk.listen, name="dumbwaiter-pipe", daemon=True).start()
    desk.work()


class Desk:
    """Where tasks arrive and answers leave: tasks run on the main thread, another one listens."""

    def __init__(self, channel: Channel, reference: str, grace: timedelta) -> None:
        self._channel = channel
        self._reference = reference
        self._grace = grace
        self._orders: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._running: Running | None = None
        self._stop: Mapping[str, Any] | None = None
        self._cancel: functools.partial[Any] | None = None
        self._numbers = itertools.count(1)
        self._reporting = threading.Lock()
        self._answers: dict[int, queue.SimpleQueue[Any]] = {}
        self._place = Path.cwd()
        self._idle = True

    # on the main thread
    def work(self) -> None:
        threads = set(threading.enumerate())
        while True:
            order = self._orders.get()
            os.environ[TAG] = order["tag"]
            environ = dict(os.environ)
            ended = self._run(order)
            reusable = self._restore(environ) and not left_running(threads)
            self._idle = True
            self._channel.send({"ended": ended, "reusable": reusable, "rss": resident()})

    def _run(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """One task, from its import to what it means in JSON. Nothing that it raises gets out."""
        try:
            entry = imported(self._reference, order["task"]["task_type"], order["scope"], order["steps"])
            around = Surroundings(
                workdir=lambda _: Path(order["workdir"]),
                publish=self._publish,
                commands=lambda running: PlainCommands(running, self._grace),
                done=lambda *_: None,
                memory=None if order["limit"] is None else functools.partial(self._memory, order["limit"]),
                inputs=lambda _: AskedInputs(self._input),
            )
            self._running = running = Running(task_from(order["task"]), entry, around)
            self._heed()
            return {"result": storable(entry.name, self._call(running))}
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task is its failure, not the end of this process
            return {"error": told(error)}
        finally:
            self._end()

    def _call(self, running: Running) -> Any:
        context = running.context()
        args, kwargs = call_arguments(running, context)
        if running.entry.coroutine:
            return asyncio.run(self._await(running, context, args, kwargs))
        with scoped(running, context):
            return running.entry.function(*args, **kwargs)

    async def _await(self, running: Running, context: Any, args: Any, kwargs: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._cancel = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        if running.stopped() is not None:
            task.cancel()
        try:
            async with ascoped(running, context):
                return await running.entry.function(*args, **kwargs)
        except asyncio.CancelledError:
            raise cancelled(running) from None
        finally:
            self._cancel = None

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            self._report(running)
            running.complete(Ended())

    def _restore(self, environ: Mapping[str, str]) -> bool:
        """The next task finds what this one found: printed lines out, directory and environment as they were.

        False if that cannot be: the task closed its streams, or removed the directory.
        """
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            if dict(os.environ) != environ:
                os.environ.clear()
                os.environ.update(environ)
            os.chdir(self._place)
            reap()
        except Exception:  # noqa: BLE001 - a stream may be anything by now; the task's result is not to be lost for it
            return False
        return True

    def _publish(self, running: Running, publication: Publication) -> None:
        """Have the worker store a file, and wait for its word."""
        self._ask(
            "publish",
            {
                "path": str(publication.path.absolute()),
                "name": publication.name,
                "content_type": publication.content_type,
                "expires": expires_said(publication.expires),
            },
        )

    def _memory(self, limit: int, running: Running) -> AskedMemory:
        return AskedMemory(self._step, running, limit=min(limit, LARGEST_RESULT))

    def _step(self, ask: str, *of: Any) -> Any:
        """Have the worker remember something, or tell what it knows; it must know the progress by then."""
        self._report(self._running)
        return self._ask("step", {"ask": ask, "of": of})

    def _input(self, ask: str, *of: Any) -> Any:
        """Have the worker tell of an upload, or give some of it."""
        return self._ask("input", {"ask": ask, "of": of})

    def _ask(self, what: str, message: Mapping[str, Any]) -> Any:
        """Ask the worker, and wait for its answer."""
        number = next(self._numbers)
        answer = self._answers[number] = queue.SimpleQueue()
        self._channel.send({what: number, **message})
        told = answer.get()
        error = told["error"]
        if error is not None:
            raise LostClaim(error["message"]) if error["error_type"] == LOST else RemoteError(error)
        return told.get("value")

    # on the listening thread
    def listen(self) -> None:
        """Take in what the worker says; when it is gone, end this process with its group."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        try:
            while True:
                if poll.poll(self._patience()):
                    for message in self._channel.receive():
                        self._take(message)
                else:
                    self._report(self._running)
        except (EOFError, OSError):
            os.killpg(0, signal.SIGKILL)

    def _patience(self) -> float | None:
        """Milliseconds until progress is to be passed on; an idle child sleeps."""
        return None if self._idle else REPORT_SECONDS * 1000

    def _take(self, message: Mapping[str, Any]) -> None:
        if "run" in message:
            self._channel.send({"began": True})
            self._idle = False
            self._orders.put(message["run"])
        elif "stop" in message:
            self._stop = message
            self._heed()
            if (cancel := self._cancel) is not None:
                # the loop may have been closed meanwhile
                with contextlib.suppress(RuntimeError):
                    cancel()
        elif "answer" in message:
            self._answers.pop(message["answer"]).put(message)

    def _heed(self) -> None:
        """Ask the running task to stop if it is the one that was meant; it may come while the task is being imported."""
        running, stop = self._running, self._stop
        if running is not None and stop is not None and [running.task.id, running.task.attempt] == stop["of"]:
            running.ask_stop(Stop(stop["stop"]))

    def _report(self, running: Running | None) -> None:
        if running is None:
            return
        # both threads report, and an older cursor must not come after a newer one
        with self._reporting:
            if (progress := running.fresh_progress()) is not None:
                self._channel.send({"progress": [progress.fraction, progress.step, progress.message]})
            if (mark := running.fresh_mark()) is not None:
                running.mark_written(mark)
                self._channel.send({"mark": [mark.value, mark.fraction]})


class AskedMemory:
    """The steps of an isolated task: its worker keeps them."""

    def __init__(self, ask: Callable[..., Any], running: Running, *, limit: int) -> None:
        self.limit = limit
        self._ask = ask
        self._running = running

    def recall(self) -> Recalled:
        return Recalled(**self._ask("recall"))

    def result(self, name: str) -> Any:
        return self._ask("result", name)

    def remember(self, name: str, value: Any) -> None:
        self._ask("remember", name, value)

    def mark(self, value: Any) -> None:
        self._running.mark(Mark(value, self._running.fraction))

    def keep(self, name: str, path: Path) -> None:
        self._ask("keep", name, str(path))

    def restore(self, name: str, into: Path) -> bool:
        return bool(self._ask("restore", name, str(into)))


class AskedInputs:
    """The uploads of an isolated task: its worker finds them, and reads what is not on this machine's disk."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def find(self, upload_id: str) -> Found:
        return Found(**self._ask("find", upload_id))

    def read(self, upload_id: str, start: int, end: int) -> bytes:
        return base64.b64decode(self._ask("read", upload_id, start, end))

    def fetch(self, upload_id: str, into: Path) -> None:
        self._ask("fetch", upload_id, str(into))


LOST = type_name(LostClaim())


def imported(
    reference: str, task_type: str, scope: str | None, steps: Mapping[str, float] | None = None
) -> TaskType:
    """The task type whose function stands at `module:qualname`: as it was registered there, or made of a plain function.

    `scope` is where the worker's application has its scope, and `steps` what it declared, for functions that were
    not registered where they stand.
    Raises what the import raises, ConfigurationError for a thing that is no function.
    """
    found = at(reference)
    entry = found if isinstance(found, TaskType) else getattr(found, "entry", None)
    if isinstance(entry, TaskType) and entry.name == task_type:
        return entry
    function = entry.function if isinstance(entry, TaskType) else found
    if not callable(function):
        raise ConfigurationError(f"{reference} is a {type(function).__name__}, not a task function")
    return TaskType(
        task_type,
        function,
        Signature(task_type, function),
        isolate=True,
        reference=reference,
        scope=None if scope is None else at(scope),
        steps=steps,
    )


def at(reference: str) -> Any:
    """What stands at `module:qualname`."""
    module, _, name = reference.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def storable(task_type: str, result: Any) -> Any:
    """The result as it may be sent. Raises TypeError, with the place and what to return instead, if it is not JSON."""
    try:
        size = len(dumps(result))
    except (ValueError, RecursionError) as error:
        raise TypeError(f"what task {task_type!r} returned cannot be stored as JSON: {error}") from None
    if size > LARGEST_RESULT:
        raise TypeError(
            f"task {task_type!r} returned {size} characters of JSON; write them to a file and publish that"
        )
    return result


def told(error: BaseException) -> Mapping[str, Any]:
    """An error in JSON, with the names of its classes, by which the worker applies the policy that it knows."""
    facts = described(error, Retry())
    facts["kinds"] = [class_name(kind) for kind in type(error).__mro__]
    if isinstance(error, SystemExit):
        facts["message"] = (
            f"the task called sys.exit({error.code!r}); a task ends by returning, or by raising an error"
        )
    elif isinstance(error, KeyboardInterrupt):
        facts["message"] = "the task was interrupted by a signal (SIGINT)"
    return facts


def class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def expires_said(expires: timedelta | Unsaid | None) -> float | str | None:
    """How long a file is to be kept, as JSON: seconds, null for ever, a word if nobody said."""
    if isinstance(expires, Unsaid):
        return expires.value
    return None if expires is None else expires.total_seconds()


def expires_heard(said: float | str | None) -> timedelta | Unsaid | None:
    """The same as it was meant."""
    if isinstance(said, str):
        return UNSAID
    return None if said is None else timedelta(seconds=said)


def judged(facts: Mapping[str, Any], policy: Retry) -> dict[str, Any]:
    """What `told` told, under this policy: `never` and `on` name classes that only the child had."""
    kinds = set(facts["kinds"])
    worth = facts["worth"]
    if kinds & {class_name(kind) for kind in (*policy.never, Fail)}:
        worth = False
    elif kinds & {class_name(kind) for kind in policy.on}:
        worth = True
    return {**facts, "worth": worth}


def task_to(task: Task) -> dict[str, Any]:
    """A task as it goes through the pipe: times as text, durations in seconds; files are not known while it runs."""
    told: dict[str, Any] = {}
    for field in dataclasses.fields(task):
        value = getattr(task, field.name)
        if isinstance(value, datetime):
            value = value.isoformat()
        elif isinstance(value, timedelta):
            value = value.total_seconds()
        elif isinstance(value, Mapping):
            value = dict(value)
        told[field.name] = value
    del told["files"]
    return told


def task_from(told: Mapping[str, Any]) -> Task:
    """The task that `task_to` told of."""
    values = dict(told)
    for field in dataclasses.fields(Task):
        value = values.get(field.name)
        if value is not None and str(field.type).startswith("datetime"):
            values[field.name] = datetime.fromisoformat(value)
        elif value is not None and str(field.type).startswith("timedelta"):
            values[field.name] = timedelta(seconds=value)
    values["status"] = Status(values["status"])
    return Task(**values)


def left_running(before: Collection[threading.Thread]) -> list[threading.Thread]:
    """Threads that a task started and left; ours end by themselves."""
    return [
        thread
        for thread in threading.enumerate()
        if thread not in before and not thread.name.startswith("dumbwaiter-")
    ]


def resident() -> int:
    """The memory that this process has in use, in bytes; 0 where that is not known."""
    if not LINUX:
        return 0
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def reap() -> None:
    """Take the status of children that the task did not wait for."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
