"""What a running task is given: the `TaskContext`, and the link by which it speaks to whoever runs it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Concatenate, ParamSpec, Protocol, TypeVar

from dumbwaiter.course import Course
from dumbwaiter.errors import CommandFailed, InvalidStep, LostClaim, NoTransaction, TaskCancelled
from dumbwaiter.executors.inputs import Inputs, NoInputs, downloaded, opened
from dumbwaiter.executors.steps import Memory, Steps, checked_file
from dumbwaiter.executors.tracking import atracked, counted, fraction_given, tracked
from dumbwaiter.retry import storable
from dumbwaiter.settings import LONGEST_KEPT, is_keepable
from dumbwaiter.task import Progress, Task, clamped

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sqlalchemy.engine import Connection

    from dumbwaiter.executors.upload import Upload

P = ParamSpec("P")
T = TypeVar("T")


# It becomes a header of the download: type/subtype and parameters (RFC 9110, 8.3.1), in ASCII, on one line.
CONTENT_TYPE = re.compile(r"(?=.{1,200}\Z)[\w.+!#$&^-]+/[\w.+!#$&^-]+(\s*;[ -~]*)?", re.ASCII)


# More is not a few words for the person who waits.
LONGEST_MESSAGE = 500


def silence(_line: str) -> None:
    """For a command whose lines nobody wants to see."""


class Unsaid(Enum):
    """Nobody said how long a file is kept; `ctx.publish(expires=None)` says: for ever."""

    UNSAID = "unsaid"


UNSAID = Unsaid.UNSAID


class Stop(StrEnum):
    """Why a running attempt is asked to end."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Publication:
    """A file on its way to the result files of a task."""

    path: Path
    name: str
    content_type: str | None = None
    expires: timedelta | Unsaid | None = UNSAID


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run for a task: its words (no shell), its directory, what is added to the environment, what it reads.

    `on_line` sees each line that it prints, as it comes.
    """

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | None = None
    on_line: Callable[[str], None] = silence


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended: its exit status and the last 64 KiB of what it printed (both streams, as they came)."""

    status: int
    output: str


class Link(Protocol):
    """What a task may say to, and hear from, whoever runs it: the worker itself, or the far end of a pipe."""

    def report(self, progress: Progress) -> None:
        """Remember how far the task has come; never blocks on the database."""
        ...

    def publish(self, publication: Publication) -> None:
        """Store the file under this attempt; blocks until it is stored. Raises LostClaim if the attempt was fenced."""
        ...

    def transaction(self, result: Callable[[], Any]) -> AbstractContextManager[Connection]:
        """A transaction that ends with the task's success and this result. Raises NoTransaction where there is none."""
        ...

    def stopped(self) -> Stop | None:
        """Why the attempt should end, or None while it may go on."""
        ...

    def wait(self, seconds: float) -> Stop | None:
        """Wait until the attempt should end, at most so long."""
        ...

    def run(self, command: Command) -> CommandResult:
        """Run a command whose whole process tree ends with the attempt."""
        ...


class TaskContext:
    """What a running task is given: its place in the queue, its work directory, and its way to report.

    @waiter.task("report")
    def report(ctx: TaskContext, month: str) -> None:
        for number, page in enumerate(pages := find_pages(month)):
            ctx.progress(number / len(pages), step="drawing")
            draw(page, into=ctx.workdir)
        ctx.publish(ctx.workdir / "report.pdf", filename=f"report-{month}.pdf")
    """

    def __init__(
        self,
        task: Task,
        link: Link,
        workdir: Path,
        memory: Memory | None = None,
        course: Course | None = None,
        *,
        inputs: Inputs | None = None,
    ) -> None:
        self._task = task
        self._link = link
        self._workdir = workdir
        self._scope: Any = None
        self._steps = Steps(memory, link.report)
        self._course = course
        self._inputs = inputs or NoInputs()
        self._step: str | None = None
        self._result: Any = None
        self._in_transaction = False

    @property
    def task(self) -> Task:
        """The task as it stood when it was claimed: `id`, `attempt`, `business_key`, `owner`, `meta` and so on."""
        return self._task

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt of this task, different for every other task: for payment providers and the like."""
        return self._task.idempotency_key

    @property
    def scope(self) -> Any:
        """What the application's `scope=` context manager gave for this attempt; None without one."""
        return self._scope

    @property
    def workdir(self) -> Path:
        """A directory of this attempt's own, made at first use and gone at every end of the attempt."""
        self._workdir.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self._workdir

    @property
    def cancelled(self) -> bool:
        """True once the attempt should end, for whatever reason (cancel, timeout, shutdown, a lost claim). Poll it."""
        return self._link.stopped() is not None

    def check(self) -> None:
        """Raise TaskCancelled (or LostClaim) if the attempt should end; call it between two pieces of work."""
        stop = self._link.stopped()
        if stop is Stop.LOST:
            raise LostClaim(f"attempt {self._task.attempt} no longer owns task {self._task.id}")
        if stop is not None:
            raise TaskCancelled(f"task {self._task.id} was asked to stop: {stop}")

    def sleep(self, seconds: float) -> None:
        """Wait, but raise TaskCancelled as soon as the attempt should end."""
        self._link.wait(seconds)
        self.check()

    def progress(
        self, fraction: float | None = None, *, step: str | None = None, message: str | None = None
    ) -> None:
        """Report how far the task has come. Cheap: call it as often as you like, the worker writes twice a second.

        `fraction` runs from 0 to 1, never goes back within an attempt, is clamped, and NaN is ignored; 1.0 is shown only
        when the task has succeeded. `step` names the part of the work that it is at; `message` is a few words more for the
        person who waits (at most 500 characters), until the next step begins, or another message takes its place.

        If the task type declares its `steps=`, `step` is one of them and `fraction` the part of that step; without `step` it
        is of the step that was named last (the first one, until one is named).

        Raises InvalidStep for a step that is not declared, TypeError for a fraction that is no number.

            ctx.progress(0.5, step="rendering", message="picture 20 of 40")
        """
        shown = None if fraction is None else fraction_given(fraction)
        if self._course is not None and (shown is not None or step is not None):
            step = self._step = self._step_given(self._course, step)
            shown = self._course.whole(step, 0.0 if shown is None else shown)
        if shown is not None:
            shown = clamped(shown)
        if shown is not None or step is not None or message is not None:
            self._link.report(
                Progress(
                    shown,
                    None if step is None else str(step)[:200],
                    None if message is None else str(message)[:LONGEST_MESSAGE],
                )
            )

    def _step_given(self, course: Course, step: str | None) -> str:
        if step is None:
            return course.first if self._step is None else self._step
        return course.names[course.number(step)]

    def step(self, name: str) -> None:
        """Say which step the task is at, in the words of the person who waits. Raises InvalidStep as `progress` does."""
        self.progress(step=name)

    def track(
        self, items: Iterable[T], total: int | None = None, *, start: int = 0, step: str | None = None
    ) -> Iterator[T]:
        """The items, one after the other, with progress reported as they go, and a stop heeded between two of them.

        `total` is how many there are, by default `len(items)`; `start` how many of those were done before (by an earlier
        attempt). With `step` the items are that step, and with declared steps that much of the whole; without, all of the
        work or of the step named last.

        Raises TypeError if nobody knows how many there are, ValueError for numbers below 0, InvalidStep; and, between two
        items, TaskCancelled or LostClaim when the attempt should end.

            for page in ctx.track(pages, step="rendering"):
                draw(page, into=ctx.workdir)
        """
        number = counted(items, total, start)
        if step is not None:
            self.step(step)
        return tracked(self, items, number, start)

    def atrack(
        self, items: AsyncIterable[T], total: int, *, start: int = 0, step: str | None = None
    ) -> AsyncIterator[T]:
        """`track` for what is iterated by `async for`; `total` must be given.

        async for row in ctx.atrack(rows, total=count):
            await copy(row)
        """
        number = counted(items, total, start)
        if step is not None:
            self.step(step)
        return atracked(self, items, number, start)

    def publish(
        self,
        path: str | Path,
        *,
        filename: str | None = None,
        content_type: str | None = None,
        expires: timedelta | Unsaid | None = UNSAID,
    ) -> None:
        """Make a file a result of this task. Nobody sees it before the task has succeeded.

        Of two with one name the last wins. `path` is relative to the work directory unless absolute. `filename` (default: the path's last part) has at most
        200 bytes and no `/`. `expires` is how long the file is kept after it was published, None for ever; by default what the
        task type says, and else the setting `file_expiry` (24 hours). The task's record stays as long as its files do.

        Raises ValueError for an impossible filename, content type or expiry, FileNotFoundError, LostClaim if the attempt was superseded.
        """
        source = self.workdir / path
        name = filename if filename is not None else source.name
        if (
            not name
            or "/" in name
            or name in {".", ".."}
            or storable(name) != name
            or len(name.encode()) > 200
        ):
            raise ValueError(f"filename {name!r}: give 1 to 200 bytes of UTF-8 without a slash or a NUL")
        if content_type is not None and not CONTENT_TYPE.fullmatch(content_type):
            raise ValueError(
                f"content_type {content_type!r}: give one such as text/csv, at most 200 characters"
            )
        if not isinstance(expires, Unsaid) and not is_keepable(expires):
            raise ValueError(
                f"expires={expires!r}: give a timedelta of at most {LONGEST_KEPT.days} days, or None to keep the file for ever"
            )
        if not source.is_file():
            raise FileNotFoundError(f"there is no file to publish at {source}")
        self._link.publish(Publication(source, name, content_type, expires))

    async def apublish(self, path: str | Path, **how: Any) -> None:
        """`publish` for coroutines: the upload does not hold up the event loop."""
        await asyncio.to_thread(self.publish, path, **how)

    def checkpoint(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step of the task once: later attempts get its stored result instead.

        The result must be JSON, at most `max_result` bytes of it, and comes back as JSON has it (a tuple as a list), in
        the first attempt too. `name` has at most 200 bytes and is the step's own within the task. A function that raises
        has not run: it runs again in the next attempt. So does one whose machine died between its end and the write.
        Steps go when the task ends, however it ends; a task made again by hand starts without them.

        Raises InvalidStep for a name or a result that cannot be kept, LostClaim if the attempt was superseded,
        TaskCancelled instead of starting the function when the attempt should end.

            invoice = ctx.checkpoint("invoice", create_invoice, customer_id)
            ctx.checkpoint("mail", send_mail, invoice["number"])
        """
        if inspect.iscoroutinefunction(function):
            raise InvalidStep(f"step {name!r} is a coroutine function: write await ctx.acheckpoint(…)")
        with self._steps.once(name):
            if not self._steps.done(name):
                self.check()
                return self._steps.remember(name, function(*args, **kwargs))  # type: ignore[no-any-return]
            return self._steps.result(name)  # type: ignore[no-any-return]

    async def acheckpoint(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """`checkpoint` for coroutine functions; a plain function runs on a thread.

        pages = await ctx.acheckpoint("pages", count_pages, url)
        """
        with self._steps.once(name):
            if await asyncio.to_thread(self._steps.done, name):
                return await asyncio.to_thread(self._steps.result, name)
            self.check()
            if inspect.iscoroutinefunction(function):
                value = await function(*args, **kwargs)
            else:
                value = await asyncio.to_thread(function, *args, **kwargs)
            return await asyncio.to_thread(self._steps.remember, name, value)

    @property
    def cursor(self) -> Any:
        """Where the task is in its work: any JSON value, which a later attempt starts from; None at first.

        Set it as often as you like. It is written together with the progress, twice a second, and with the attempt's end;
        a worker that is killed loses what was set within its last second or so. What must never be done twice
        is a `checkpoint`. In a coroutine of a later attempt read it once by `await ctx.acursor()`: that look asks the database.

        Setting raises InvalidStep for what is not JSON or is too large; reading raises LostClaim.

            for page in range(ctx.cursor or 0, pages):
                copy(page)
                ctx.progress((page + 1) / pages)
                ctx.cursor = page + 1
        """
        return self._steps.cursor

    @cursor.setter
    def cursor(self, value: Any) -> None:
        self._steps.cursor = value

    async def acursor(self) -> Any:
        """`cursor` for coroutines: reading it does not hold up the event loop."""
        return await asyncio.to_thread(lambda: self._steps.cursor)

    def keep(self, name: str, path: str | Path) -> None:
        """Keep a file for later attempts of this task, on whatever host they run.

        `path` is relative to the work directory unless absolute. Keeping another file under the name replaces it, whole or
        not at all. It is no result: nobody else sees it, and it goes when the task ends, however it ends.

        Raises InvalidStep for a name that is empty, longer than 200 bytes or has a slash, FileNotFoundError,
        FileStoreError, LostClaim if the attempt was superseded.

            ctx.keep("model.bin", "model.bin")
        """
        source = self.workdir / path
        checked_file(name)
        if not source.is_file():
            raise FileNotFoundError(f"there is no file to keep at {source}")
        self._steps.memory.keep(name, source.absolute())

    async def akeep(self, name: str, path: str | Path) -> None:
        """`keep` for coroutines."""
        await asyncio.to_thread(self.keep, name, path)

    def restore(self, name: str, into: str | Path | None = None) -> Path | None:
        """Get back the file that this or an earlier attempt kept; None if there is none. Returns where it lies now.

        `into` is the path to write, or a directory; by default the name itself in the work directory. The file there is
        whole: its size and checksum are those that were kept.

        Raises InvalidStep for an impossible name, FileStoreError, LostClaim if the attempt was superseded.

            model = ctx.restore("model.bin") or train(ctx.workdir / "model.bin")
        """
        target = self.workdir / (checked_file(name) if into is None else into)
        if target.is_dir():
            target /= checked_file(name)
        target = target.absolute()
        return target if self._steps.memory.restore(checked_file(name), target) else None

    async def arestore(self, name: str, into: str | Path | None = None) -> Path | None:
        """`restore` for coroutines."""
        return await asyncio.to_thread(self.restore, name, into)

    def open(self, upload: Upload) -> BinaryIO:
        """One of the task's uploads as a binary file to read; it can be sought in. Close it, or use it in a `with`.

        Nothing is copied to this machine first: what is read is fetched then, a mebibyte at a time.

        Raises UnknownUpload for one that the task was not given, LostClaim, FileStoreError.

            with ctx.open(table) as file:
                for row in csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline="")):
                    copy(row)
        """
        return opened(self._inputs, upload.id)

    async def aopen(self, upload: Upload) -> BinaryIO:
        """`open` for coroutines; read it on a thread too (`await asyncio.to_thread(file.read)`)."""
        return await asyncio.to_thread(self.open, upload)

    def download(self, upload: Upload, into: str | Path | None = None) -> Path:
        """One of the task's uploads as a file of this machine, for programs that want a path. Returns where it lies.

        `into` is the path to write, or a directory; by default its own name in the work directory. The file there is whole: its
        size and checksum are those of what was uploaded.

        Raises UnknownUpload for one that the task was not given, FileExistsError if the work directory has a file of its name,
        FileStoreError, LostClaim.

            ctx.run(["pdftotext", ctx.download(letter, "letter.pdf"), "letter.txt"])
        """
        return downloaded(self._inputs, upload.id, self.workdir, into)

    async def adownload(self, upload: Upload, into: str | Path | None = None) -> Path:
        """`download` for coroutines."""
        return await asyncio.to_thread(self.download, upload, into)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction on the task's database that commits this task's own writes and its success together, or neither.

        Gives a SQLAlchemy connection. The block's end writes the success, with the files that were published until then and
        with `ctx.result` (None unless it is set in the block), and commits. After that the task has succeeded, whatever the
        function returns or raises; before that, whatever ends the block early leaves nothing of it.

        Keep the block short: it holds its locks, on SQLite everybody's. The connection reads what is committed, and a lock is
        waited for 5 s. Commit nothing in it yourself.

        Raises TaskCancelled or LostClaim, at the block's beginning or end, if the attempt was asked to end or does not own its
        task any more; NoTransaction in isolated processes, and in a task that has committed one; Fail for a result that cannot
        be stored.

            with ctx.transaction() as connection:
                connection.execute(sa.text("UPDATE accounts SET balance = balance - 5 WHERE id = 7"))
                ctx.result = {"paid": 5}
        """
        self.check()
        with self._link.transaction(lambda: self._result) as connection:
            self._in_transaction = True
            try:
                yield connection
                # what stops because it was asked to has not done all of its work
                self.check()
            finally:
                self._in_transaction = False

    async def atransaction(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`transaction` for coroutines: the block is a plain function, which gets the connection and runs on a thread.

        What it returns is the task's result, and what this returns.

            def pay(connection: sa.Connection, account: int) -> dict[str, int]:
                connection.execute(sa.text("UPDATE accounts SET balance = balance - 5 WHERE id = :id"), {"id": account})
                return {"paid": 5}

            await ctx.atransaction(pay, 7)
        """

        def block() -> T:
            with self.transaction() as connection:
                self.result = returned = function(connection, *args, **kwargs)
            return returned

        at_work = asyncio.ensure_future(asyncio.to_thread(block))
        try:
            return await asyncio.shield(at_work)
        except asyncio.CancelledError:
            # the thread goes on to its end, which knows of the stop; only then is it known what became of the task
            await asyncio.gather(at_work, return_exceptions=True)
            raise

    @property
    def result(self) -> Any:
        """The result that the transaction writes; set it inside `ctx.transaction()`. Elsewhere a task returns its result."""
        return self._result

    @result.setter
    def result(self, value: Any) -> None:
        if not self._in_transaction:
            raise NoTransaction("ctx.result is set inside ctx.transaction(); elsewhere return the value")
        self._result = value

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        on_line: Callable[[str], None] | None = None,
        check: bool = True,
    ) -> CommandResult:
        """Run a command (no shell) in the work directory; its whole process tree ends with the attempt at the latest.

        Its output is drained whatever its size; `on_line` sees each line as it comes, for progress. `env` is added to the
        worker's environment. Raises CommandFailed for an exit status other than 0 (unless `check=False`), TaskCancelled
        when the attempt was asked to stop meanwhile, FileNotFoundError if there is no such program.
        """
        words = [str(word) for word in argv]
        place = self.workdir if cwd is None else self.workdir / cwd
        result = self._link.run(Command(words, place, env or {}, stdin, on_line or silence))
        self.check()
        if check and result.status != 0:
            raise CommandFailed(words[0], result.status, result.output[-500:].strip())
        return result

    async def arun(self, argv: Sequence[str | Path], **how: Any) -> CommandResult:
        """`run` for coroutines."""
        return await asyncio.to_thread(self.run, argv, **how)
