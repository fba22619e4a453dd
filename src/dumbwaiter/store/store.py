"""The task table as the rest of the program sees it."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.errors import DatabaseUnavailable, InvalidOption, KeyContended, OutcomeUnknown, UnknownTask
from dumbwaiter.eta import History
from dumbwaiter.outlook import Lines
from dumbwaiter.retry import crashed, storable
from dumbwaiter.settings import Settings
from dumbwaiter.store import (
    batches,
    claiming,
    durations,
    ending,
    enqueueing,
    keeping,
    looking,
    patience,
    positions,
    pruning,
    steps,
    waking,
)
from dumbwaiter.store.callers import Callers, explained
from dumbwaiter.store.claiming import Concern, Want
from dumbwaiter.store.connections import (
    TRIES,
    Connections,
    Undone,
    all_rows,
    broke,
    dropped,
    first_row,
    repeated,
    row_count,
)
from dumbwaiter.store.dialects import DUPLICATE, Instant, mysql_error
from dumbwaiter.store.foreign import Statement, driver_form, statement
from dumbwaiter.store.fronts import Fronts, Place
from dumbwaiter.store.hints import Hints, NoHints
from dumbwaiter.store.prepared import Alone
from dumbwaiter.store.pruning import Belongings, Prunable, StoredFile
from dumbwaiter.store.rows import (
    Ahead,
    Around,
    Database,
    Finish,
    NewTask,
    Report,
    Standing,
    WorkerRow,
    to_attempt,
    to_claimed,
    to_file,
    to_task,
)
from dumbwaiter.store.schema import Schema
from dumbwaiter.store.tables import Tables
from dumbwaiter.store.types import as_text
from dumbwaiter.store.uploads import UploadTable, take, use
from dumbwaiter.task import (
    Attempt,
    Fence,
    KeptFile,
    Mark,
    Outcome,
    Recalled,
    ResultFile,
    Retention,
    Status,
    Task,
)

log = logging.getLogger("dumbwaiter")

ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)

# The work goes by the database's clock alone. The host's matters to logs, and to S3, which refuses 15 minutes.
LARGEST_CLOCK_OFFSET = timedelta(seconds=5)

LOWEST = "00000000-0000-0000-0000-000000000000"
HIGHEST = LOWEST.replace("0", "f")
# Thousands of tasks in one transaction take their time, of a server that has answered by then.
BATCH_SECONDS = 60.0

P = ParamSpec("P")
R = TypeVar("R")


def for_a_request(method: Callable[Concatenate[Store, P], R]) -> Callable[Concatenate[Store, P], R]:
    """A method that somebody behind a request waits for: it has its answer, or an error, within `request_timeout`."""

    @functools.wraps(method)
    def answered(self: Store, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.connections.for_a_request():
            return method(self, *args, **kwargs)

    return answered  # type: ignore[return-value] # its `self` may not be given by name


class Store:
    """The task table of one database.

    Methods may be called from any thread. `now` is for tests; by default every instant is the database's own. Each raises
    DatabaseUnavailable if the database cannot be reached, SchemaMismatch if its tables are not those of this version, and
    WrongEnvironment if it was installed for another environment.
    """

    def __init__(self, settings: Settings, retention: Callable[[str], Retention] | None = None) -> None:
        self.settings = settings
        kept = Retention(settings.success_retention, settings.failed_retention, settings.cancelled_retention)
        self.connections = Connections(
            settings.database,
            pgbouncer=settings.pgbouncer,
            request=settings.request_timeout.total_seconds(),
        )
        self.tables = Tables(settings.table_prefix, settings.schema, self.connections.dialect.name)
        self.db = Database(self.tables, self.connections.dialect, retention or (lambda _: kept))
        self.schema = Schema(self.connections, self.tables, settings)
        self.uploads = UploadTable(self.connections, self.db, self.schema)
        self._callers = Callers(self.connections, self.tables)
        self._listeners: list[Callable[[str], None]] = []
        self._watchers: list[Callable[[Sequence[str]], None]] = []
        self.fronts = Fronts()
        self.hints = Hints(self._tell) if self.kind == "postgresql" else NoHints()

    @property
    def kind(self) -> str:
        """Which database it is: "sqlite", "postgresql" or "mysql"."""
        return self.connections.dialect.name

    @for_a_request
    def now(self) -> datetime:
        """What the database's clock says."""
        now = self.db.dialect.now()
        if isinstance(now, datetime):
            return now
        with self.connections.reading() as connection:
            return connection.execute(sa.select(now)).scalar_one()  # type: ignore[no-any-return]

    def clock_offset(self) -> timedelta:
        """How far the database's clock is ahead of this host's, to within the time that an answer takes. On SQLite: zero."""
        before = datetime.now(UTC)
        theirs = self.now()
        return theirs - (before + (datetime.now(UTC) - before) / 2)

    # waking up

    def on_ready(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call the listener with a queue's name whenever this process made a task of it ready. Returns how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def on_change(self, listener: Callable[[Sequence[str]], None]) -> Callable[[], None]:
        """Call the listener with the ids of tasks that this process ended or cancelled. Returns how to stop that."""
        self._watchers.append(listener)
        return lambda: self._watchers.remove(listener)

    @property
    def hinted(self) -> bool:
        """Whether a listener hears of what other processes enqueue, here and now and for later."""
        if self.kind == "postgresql":
            return bool(self.settings.listen_database) or not self.settings.pgbouncer
        return self.kind == "sqlite"

    def listen(self, heard: Callable[[], None], stopped: threading.Event) -> None:
        """Call `heard` whenever another process may have made something ready, until stopped."""

        def hint() -> None:
            self.fronts.hurry()
            heard()

        waking.listen(self.connections, self.settings.listen_database, self.tables.channel, hint, stopped)

    def _announce(self, connection: Connection, queues: Sequence[str]) -> None:
        """Wake workers elsewhere once this transaction commits: a hint, which may be lost."""
        for queue in queues:
            self.db.dialect.notify(connection, self.tables.channel, queue)

    def _tell(self, queues: Sequence[str]) -> None:
        """Wake workers elsewhere, for what has been committed."""
        with self.connections.for_a_request(), self.connections.single() as connection:
            self._announce(connection, queues)

    def _changed(self, task_ids: Sequence[str]) -> None:
        for watcher in list(self._watchers):
            watcher(task_ids)

    def _woken(self, queues: Sequence[str]) -> None:
        for queue in queues:
            self.fronts.hurry(queue)
            for listener in list(self._listeners):
                listener(queue)

    # producing

    @for_a_request
    def enqueue(
        self, new: NewTask, *, connection: Any = None, now: datetime | None = None
    ) -> tuple[Task, bool]:
        """Insert a task, or find the one that its key stands for. The task, and whether it is new.

        On the caller's `connection` (`callers.py` tells its kinds) it commits and rolls back with the caller's own writes. What
        that connection raises comes as it is: a deadlock or a serialization failure has undone the caller's transaction, which
        only the caller can repeat.

        Raises InvalidOption, DuplicateTask, RequestKeyReused, TooManyActive, KeyContended.
        """
        enqueueing.refuse_unstorable(new)
        self.schema.ensure()
        if connection is not None:
            with self._callers.borrowed(connection) as theirs, explained():
                return self._enqueue(theirs, new, now, own=False)
        told = self.hints.take()
        task, created = self._enqueue_alone(new, now, telling=told)
        if created and startable(task):
            self._woken([task.queue])
        if created and task.waits_for is None and not (told and startable(task)):
            self.hints.give_later(task.queue)
        return task, created

    def _enqueue_alone(self, new: NewTask, now: datetime | None, *, telling: bool) -> tuple[Task, bool]:
        """Enqueue in a transaction of our own; once more if the connection was lost.

        Its commit may have come through all the same: under its id the task cannot be inserted twice.
        """
        begun = False

        def work(own: Connection) -> tuple[Task, bool]:
            nonlocal begun
            begun = True
            return self._enqueue(own, new, now, own=True, telling=telling)

        lost: list[DatabaseUnavailable] = []
        plain = enqueueing.is_plain(new)
        while True:
            try:
                if plain and (task := self._enqueue_plain(new, now, telling=telling)) is not None:
                    return task, True
                # or it is there already: the commit of the first try came through
                return self.connections.again(work, key=new.turn)
            except DatabaseUnavailable as error:
                lost.append(error)
                if len(lost) == 1 and dropped(error):
                    continue
                if (begun or plain) and any(broke(one) for one in lost):
                    raise OutcomeUnknown(new.id, str(lost[0])) from error
                raise

    def _enqueue_plain(self, new: NewTask, given: datetime | None, *, telling: bool) -> Task | None:
        """Enqueue by one statement that commits by itself. None if the task is there already."""
        now, row = self.db.now(given), enqueueing.plain_row(new)

        def statements(driver: sa.Dialect) -> Sequence[sa.Executable]:
            return enqueueing.inserting_one(self.db, driver, row, now, telling=telling)

        alone = Alone(("plain", *row, type(now), telling), statements, row | {"now": now})

        try:
            found = repeated(lambda: self.connections.execute_alone(alone, first_row))
        except sa.exc.IntegrityError as error:
            if mysql_error(error) != DUPLICATE:
                raise
            return None
        if found is None:
            return None
        return enqueueing.plain_task(self.db, row, self.connections.instant(found[0]))

    def _enqueue(
        self, connection: Connection, new: NewTask, given: datetime | None, *, own: bool, telling: bool = True
    ) -> tuple[Task, bool]:
        task_id, created = enqueueing.enqueue(self.db, connection, new, self.db.now(given), own=own)
        task = self._read(connection, task_id)
        if task is None:
            # the caller's snapshot on MySQL is older than the task that holds the key
            task = ending.locked(self.db, connection, task_id, shared=True)
        if task is None:
            raise KeyContended("the task that held the key was removed just now; try again")
        if telling and created and (startable(task) or (not own and task.waits_for is None)):
            self._announce(connection, [new.queue])
        return task, created

    @for_a_request
    def enqueue_many(
        self,
        new: NewTask,
        bodies: Sequence[tuple[str, str]],
        *,
        uses: Sequence[tuple[str, str]] = (),
        connection: Any = None,
        now: datetime | None = None,
    ) -> None:
        """Insert tasks of one kind, all of them or none: `new` with each of these ids and arguments (as JSON text).

        `uses` are pairs of a task and an upload that it is to have. Raises InvalidOption, UnknownUpload, UploadConflict.
        """
        enqueueing.refuse_unstorable(new)
        self.schema.ensure()
        if connection is not None:
            with self._callers.borrowed(connection) as theirs, explained():
                self._enqueue_many(theirs, new, bodies, uses, now)
            return
        told = self.hints.take()
        try:
            self.connections.again(
                lambda own: self._enqueue_many(own, new, bodies, uses, now, telling=told), key=new.turn
            )
        except DatabaseUnavailable as error:
            # the commit may have come through all the same, and then all of them are there
            if not broke(error) or not self._exists(bodies[0][0], lost=error):
                raise
        if new.at_once:
            self._woken([new.queue])
        if not told:
            self.hints.give_later(new.queue)

    def _enqueue_many(
        self,
        connection: Connection,
        new: NewTask,
        bodies: Sequence[tuple[str, str]],
        uses: Sequence[tuple[str, str]],
        given: datetime | None,
        *,
        telling: bool = True,
    ) -> None:
        with patience.allowing(BATCH_SECONDS):
            if uses:
                take(self.db, connection, [one for _, one in uses], new.owner, self.db.now(given))
            enqueueing.insert_many(self.db, connection, new, bodies, self.db.now(given))
            if uses:
                use(self.db, connection, uses)
        if telling:
            self._announce(connection, [new.queue])

    def _exists(self, task_id: str, *, lost: DatabaseUnavailable) -> bool:
        try:
            with self.connections.reading() as connection:
                return self._read(connection, task_id) is not None
        except DatabaseUnavailable as error:
            raise OutcomeUnknown(task_id, str(lost)) from error

    @for_a_request
    def statement(self, new: NewTask, driver: str) -> Statement:
        """The same as one statement for a driver that we do not drive. Raises InvalidOption."""
        enqueueing.refuse_unstorable(new)
        self.schema.ensure()
        return statement(self.db, new, driver)

    @for_a_request
    def cancel(self, task_id: str, *, why: str = "cancelled on request", now: datetime | None = None) -> Task:
        """Cancel a task that waits; ask the worker of one that runs. Raises UnknownTask, IllegalMove (it has ended)."""
        if not is_id(task_id):
            raise UnknownTask(task_id)
        self.schema.ensure()
        task = self.connections.again(
            lambda connection: ending.cancel(self.db, connection, task_id, self.db.now(now), why)
        )
        if task is None:
            raise UnknownTask(task_id)
        self._woken([task.queue])
        self._changed([task_id])
        return task

    @for_a_request
    def note_retry(self, old: Task, new: Task) -> None:
        """Let a finished task name the one that was made from it."""
        tasks = self.tables.tasks
        with self.connections.single() as connection:
            connection.execute(
                sa.update(tasks)
                .where(tasks.c.id == old.id, tasks.c.retried_as.is_(None))
                .values(retried_as=new.id)
            )

    # reading

    def _read(self, connection: Connection, task_id: str) -> Task | None:
        tasks = self.tables.tasks
        row = connection.execute(sa.select(tasks).where(tasks.c.id == task_id)).mappings().first()
        if row is None:
            return None
        files = self._files(connection, task_id) if row["status"] == Status.SUCCESS.value else ()
        return to_task(row, files)

    def _files(self, connection: Connection, task_id: str) -> Sequence[ResultFile]:
        files = self.tables.files
        statement = sa.select(files).where(files.c.task_id == task_id).order_by(files.c.name)
        return tuple(to_file(row) for row in connection.execute(statement).mappings())

    @for_a_request
    def get(self, task_id: str) -> Task:
        """The task with its files. Raises UnknownTask."""
        if not is_id(task_id):
            raise UnknownTask(task_id)
        self.schema.ensure()
        with self.connections.reading() as connection:
            task = self._read(connection, task_id)
        if task is None:
            raise UnknownTask(task_id)
        return task

    @for_a_request
    def find(
        self,
        *,
        status: str | None = None,
        task_type: str | None = None,
        queue: str | None = None,
        owner: str | None = None,
        key: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Task]:
        """Tasks, the newest first, without their files. `before` is the id after which the last page ended."""
        self.schema.ensure()
        tasks = self.tables.tasks
        statement = sa.select(tasks).order_by(tasks.c.id.desc()).limit(limit)
        wanted = {
            tasks.c.status: status,
            tasks.c.task_type: task_type,
            tasks.c.queue: queue,
            tasks.c.owner: owner,
            tasks.c.business_key: key,
        }
        given = {column: value for column, value in wanted.items() if value is not None}
        if any(storable(value) != value for value in given.values()):
            return []  # no task can have it, and not every database takes the question
        for column, value in given.items():
            statement = statement.where(column == value)
        if before is not None:
            if not is_id(before):
                raise InvalidOption(f"before: {before!r} is not the id of a task")
            statement = statement.where(tasks.c.id < before)
        with self.connections.reading() as connection:
            return [to_task(row) for row in connection.execute(statement).mappings()]

    @for_a_request
    def several(self, task_ids: Sequence[str]) -> list[Task]:
        """Those of the tasks that there are, with their files, in no order."""
        self.schema.ensure()
        with self.connections.reading() as connection:
            return looking.several(self.db, connection, [one for one in task_ids if is_id(one)])

    @for_a_request
    def latest(self, task_type: str, key: str, owner: str | None) -> Task | None:
        """The owner's newest task of that type under that business key, with its files."""
        self.schema.ensure()
        with self.connections.reading() as connection:
            return looking.latest(self.db, connection, task_type, key, owner)

    @for_a_request
    def recent(self, owner: str | None, *, task_type: str | None = None, limit: int = 20) -> list[Task]:
        """The owner's newest tasks, with their files, the newest first."""
        self.schema.ensure()
        with self.connections.reading() as connection:
            return looking.recent(self.db, connection, owner, task_type=task_type, limit=limit)

    @for_a_request
    def versions(
        self, task_ids: Sequence[str], *, now: datetime | None = None
    ) -> tuple[Mapping[str, int], datetime | None]:
        """The versions of those of the tasks that there are, and when that was so; one cheap look at all of them."""
        with self.connections.reading() as connection:
            return looking.versions(self.db, connection, task_ids, self.db.now(now))

    @for_a_request
    def ids_from(self, beginning: str, *, limit: int = 5) -> list[str]:
        """The ids that begin so, the newest first; none for what cannot be the beginning of one."""
        lowest, highest = (beginning + padding[len(beginning) :] for padding in (LOWEST, HIGHEST))
        if not beginning or not is_id(lowest):
            return []
        self.schema.ensure()
        id_ = self.tables.tasks.c.id
        statement = sa.select(id_).where(id_.between(lowest, highest)).order_by(id_.desc()).limit(limit)
        with self.connections.reading() as connection:
            return [str(found) for found in connection.execute(statement).scalars()]

    @for_a_request
    def attempts(self, task_id: str) -> list[Attempt]:
        """The attempts of a task that ended, the first one first."""
        if not is_id(task_id):
            return []
        self.schema.ensure()
        attempts = self.tables.attempts
        statement = sa.select(attempts).where(attempts.c.task_id == task_id).order_by(attempts.c.number)
        with self.connections.reading() as connection:
            return [to_attempt(row) for row in connection.execute(statement).mappings()]

    @for_a_request
    def workers(self) -> list[WorkerRow]:
        self.schema.ensure()
        workers = self.tables.workers
        with self.connections.reading() as connection:
            rows = connection.execute(sa.select(workers).order_by(workers.c.name)).mappings()
            return [keeping.to_worker(row) for row in rows]

    # working

    def claim(self, want: Want, worker: str, *, now: datetime | None = None) -> list[Task]:
        """Make due tasks this worker's: at most `want.slots`, the highest priority first. Charged one attempt each."""
        types = claiming.startable(want.types, want.needs, want.free)
        if not types or want.slots <= 0:
            return []
        want = replace(want, types=types)
        # an instant that is handed in stands still: there nothing has been before, and nothing is late
        if now is not None or not claiming.has_front(self.db, want):
            return self.claim_from((), want, worker, now=now)
        front = self.fronts.of(worker, want.queue, want.types)

        def look(places: Sequence[Place], slots: int) -> list[Task]:
            return self.claim_from(places, replace(want, slots=slots), worker, now=now)

        return claiming.in_order(front.claim(want.slots, look))

    def claim_from(
        self, places: Sequence[Place], want: Want, worker: str, *, now: datetime | None = None
    ) -> list[Task]:
        """The same of types that can all start; with places only what is not behind them."""
        if not claiming.at_once(self.db, want):
            return claiming.in_order(
                self.connections.again(
                    lambda connection: claiming.claim_in_steps(
                        self.db, connection, want, worker, self.db.now(now)
                    )
                )
            )
        alone = claiming.claim_alone(self.db, want, worker, self.db.now(now), places=places)
        rows = repeated(lambda: self.connections.execute_alone(alone, all_rows))
        claimed = to_claimed(rows, self._readers, queue=want.queue, worker_id=worker, ahead=want.ahead)
        return claiming.in_order(claimed)

    @functools.cached_property
    def _readers(self) -> Mapping[str, Callable[[Any], Any]]:
        """How a claim makes values of what the bare driver gives."""
        driver, columns = self.connections.engine.dialect, claiming.read(self.db)
        ours = {column.name: column.type for column in columns if isinstance(column.type, sa.TypeDecorator)}
        readers = {name: kind.result_processor(driver, None) for name, kind in ours.items()}
        # ids our connections give as text already
        return {name: reader for name, reader in readers.items() if reader not in (None, as_text)}

    def claim_one(self, task_id: str, worker: str, want: Want, *, now: datetime | None = None) -> Task | None:
        """Make one given task this worker's, or None if it is not due, somebody else's, or of none of `want.types`."""
        if not is_id(task_id):
            return None
        return self.connections.again(
            lambda connection: claiming.claim_one(
                self.db, connection, want, worker, self.db.now(now), task_id=task_id
            )
        )

    def reserve(
        self, concern: Concern, worker: str, lease: timedelta, *, now: datetime | None = None
    ) -> str | None:
        """Write down that this worker claims nothing more until it can run a suspect alone: that one's id.

        None if there is none of this concern, or another worker that lives does so for one of its queues.
        """
        return self.connections.again(
            lambda connection: claiming.reserve(
                self.db, connection, concern, worker, self.db.now(now), lease=lease
            )
        )

    def reserved(self, task_id: str, worker: str) -> bool:
        """Whether the task still waits for this worker to be empty."""
        with self.connections.reading() as connection:
            return claiming.reserved(self.db, connection, task_id, worker)

    def queues_with_work(self) -> list[str]:
        with self.connections.reading() as connection:
            return claiming.queues_with_work(self.db, connection)

    def ready_types(self, queue: str) -> list[tuple[str, int]]:
        """The types of the first hundred tasks that are due in a queue, with the versions of their arguments."""
        with self.connections.reading() as connection:
            return claiming.ready_types(self.db, connection, queue)

    def held(self, worker: str) -> list[Task]:
        """What the table says that this worker runs."""
        tasks = self.tables.tasks
        statement = sa.select(tasks).where(tasks.c.heartbeat_at.is_not(None), tasks.c.worker_id == worker)
        with self.connections.reading() as connection:
            return [to_task(row) for row in connection.execute(statement).mappings()]

    def finish(self, ends: Sequence[Finish], *, now: datetime | None = None) -> list[Status | None]:
        """Write ends of attempts: for each the status that its task got, None if the attempt had lost it.

        All in one transaction; if somebody else's lock is in the way of one of them, each in its own. It may be called
        again with the same ends when it failed: what was written is not written twice.
        """
        written = self._written(ends, now)
        if self._watchers:
            self._changed([end.task.id for end in ends])
        return written

    def _written(self, ends: Sequence[Finish], now: datetime | None) -> list[Status | None]:
        if len(ends) < 2:
            return self._finish(ends, now)
        try:
            return self._finish(ends, now, tries=1)
        except Undone:
            return self._finish_singly(ends, now)

    def _finish_singly(self, ends: Sequence[Finish], now: datetime | None) -> list[Status | None]:
        """One that cannot be written must not keep the others back; it is told of after them."""
        written: list[Status | None] = []
        undone: Undone | None = None
        for end in ends:
            try:
                written += self._finish([end], now)
            except Undone as error:
                undone = error
        if undone is not None:
            raise undone
        return written

    def _finish(
        self, ends: Sequence[Finish], now: datetime | None, *, tries: int = TRIES
    ) -> list[Status | None]:
        def work(connection: Connection) -> list[Status | None]:
            instant = self.db.now(now)
            # by id, as the heartbeat comes upon its rows: two that lock the same rows in one order cannot deadlock
            others = sorted((end for end in ends if end.task.id not in done), key=lambda end: end.task.id)
            status = {id(end): ending.finish(self.db, connection, end, instant) for end in others}
            written = [status.get(id(end), Status.SUCCESS) for end in ends]
            self._announce(connection, queues_to_wake(ends, written))
            return written

        done = self._succeed(ends, now, tries) if batches.several(ends) else set()
        if len(done) == len(ends):
            return [Status.SUCCESS] * len(ends)
        written = self.connections.again(work, tries=tries)
        self._woken(queues_to_wake(ends, written))
        return written

    def _succeed(self, ends: Sequence[Finish], now: datetime | None, tries: int) -> set[str]:
        """Write the plain successes among these ends in one statement; the ids of those that stand in the table now."""
        alone, ids = batches.succeed(self.db, ends, self.db.now(now))
        if len(ids) < 2:
            return set()
        written = repeated(lambda: self.connections.execute_alone(alone, row_count), tries)
        if written == len(ids):
            return set(ids)
        with self.connections.reading() as connection:
            return batches.standing(self.db, connection, ids)

    @contextlib.contextmanager
    def succeeding(
        self, task: Task, end: Callable[[], Finish], *, now: datetime | None = None
    ) -> Iterator[Connection]:
        """A transaction for the task's own writes, which ends with the task's success, or leaves nothing.

        `end` is asked at the end of the block for the success that is to be written. Nothing is locked before that: a lock
        held through the block would hold up the task's heartbeat and its cancel.

        Raises TaskCancelled if a cancel was faster, LostClaim if the attempt does not own its task any more, and
        DatabaseUnavailable; if that came with the commit, nobody knows whether it passed until the database can be asked.
        """
        made: Finish | None = None
        wake: list[str] = []
        try:
            with self._own_writes() as connection:
                ending.refuse_unowned(self.db, connection, task)
                yield connection
                made = end()
                wake = queues_to_wake([made], [Status.SUCCESS])
                ending.succeed(self.db, connection, made, self.db.now(now))
                self._announce(connection, wake)
        except DatabaseUnavailable as error:
            if made is None or not broke(error) or not self._has_succeeded(task):
                raise
        self._woken(wake)
        self._changed([task.id])

    @contextlib.contextmanager
    def _own_writes(self) -> Iterator[Connection]:
        connections = self.connections
        with connections.writing(engine=connections.unhurried_engine) as connection, connections.occupied():
            yield connection

    def _has_succeeded(self, task: Task) -> bool:
        """Whether this attempt's success stands. It waits for the row: the server may still be carrying out the commit."""
        row = self.connections.again(lambda connection: ending.locked(self.db, connection, task.id))
        return row is not None and row.status is Status.SUCCESS and row.attempt == task.attempt

    def report(self, reports: Sequence[Report], *, now: datetime | None = None) -> None:
        """Write progress; that of attempts which lost their task changes nothing."""
        self.connections.again(
            lambda connection: keeping.report(self.db, connection, reports, self.db.now(now)),
            single=len(reports) == 1,
        )

    def durations(self, task_types: Collection[str] | None = None) -> dict[str, History]:
        """How long tasks of these types, or of all, took lately."""
        with self.connections.reading() as connection:
            return durations.known(self.db, connection, task_types)

    def add_durations(
        self, fresh: Mapping[str, History], *, now: datetime | None = None
    ) -> dict[str, History]:
        """Add what was seen to what is known: that, by type. A type that is missing is to be given again."""
        return self.connections.again(
            lambda connection: durations.add(self.db, connection, fresh, self.db.now(now))
        )

    @for_a_request
    def lines(self, tasks: Sequence[Task], *, now: datetime | None = None) -> Lines:
        """The queues in which these tasks wait, down to the last of them, who serves them, and how long their types take."""
        instant = self.now() if now is None else now
        with self.connections.reading() as connection:
            return positions.lines(self.db, connection, tasks, lease=self.settings.lease, now=instant)

    def begin(self, fences: Sequence[Fence]) -> set[Fence]:
        """Note that attempts of one worker, claimed ahead, have begun; those that still own their tasks."""
        self.connections.again(lambda connection: keeping.begin(self.db, connection, fences), single=True)
        return {fence for fence, standing in self.standing(fences).items() if standing.owned}

    def standing(self, fences: Sequence[Fence]) -> dict[Fence, Standing]:
        """For each attempt: does it still own its task, and was it asked to end?"""
        with self.connections.reading() as connection:
            return keeping.standing(self.db, connection, fences)

    # what an attempt remembers for later ones; each raises LostClaim if the attempt does not own its task any more

    def recall(self, fence: Fence) -> Recalled:
        """What earlier attempts left: the names of results, the cursor, the progress at that moment."""
        with self.connections.reading() as connection:
            return steps.recall(self.db, connection, fence)

    def step_result(self, fence: Fence, name: str) -> Any:
        """The stored result of a step that `recall` named."""
        with self.connections.reading() as connection:
            return steps.result(self.db, connection, fence, name)

    def remember(
        self,
        fence: Fence,
        name: str,
        value: Any,
        *,
        fraction: float | None = None,
        now: datetime | None = None,
    ) -> None:
        """Write the result of a step, and how far the task had come by then."""
        self.connections.again(
            lambda connection: steps.remember(
                self.db, connection, fence, name, value, fraction=fraction, now=self.db.now(now)
            )
        )

    def mark(self, marks: Sequence[tuple[Fence, Mark]], *, now: datetime | None = None) -> list[Fence]:
        """Write the cursors of attempts; which of them still own their tasks. Those of the others change nothing."""
        return self.connections.again(
            lambda connection: steps.mark(self.db, connection, marks, self.db.now(now))
        )

    def promise_file(self, fence: Fence, name: str, *, now: datetime | None = None) -> None:
        """Say that a file is about to be kept under that name."""
        self.connections.again(
            lambda connection: steps.promise(self.db, connection, fence, name, self.db.now(now))
        )

    def keep_file(
        self,
        fence: Fence,
        name: str,
        file: KeptFile,
        *,
        fraction: float | None = None,
        now: datetime | None = None,
    ) -> str | None:
        """Let the name stand for this file; the key of the one that it stood for before."""
        return self.connections.again(
            lambda connection: steps.keep(
                self.db, connection, fence, name, file, fraction=fraction, now=self.db.now(now)
            )
        )

    def kept_file(self, fence: Fence, name: str) -> KeptFile | None:
        """The file that was kept under that name."""
        with self.connections.reading() as connection:
            return steps.kept(self.db, connection, fence, name)

    def heartbeat(self, worker: str, *, now: datetime | None = None) -> int:
        """Prove that a worker lives; the number of tasks it holds."""

        def work(connection: Connection) -> int:
            instant = self.db.now(now)
            connection.execute(keeping.worker_beating(self.db, worker, instant))
            return connection.execute(keeping.beating(self.db, worker, instant)).rowcount

        return self.connections.again(work)

    def heartbeat_statements(self, worker: str) -> list[tuple[str, Any]]:
        """The heartbeat as SQL text and parameters of the bare driver, for a process that imports nothing else.

        On SQLite the instants are parameters; they are given as the text "$now", to be replaced at each beat.
        """
        instant: Instant = self.db.dialect.now()
        if isinstance(instant, datetime):
            instant = sa.literal_column(
                "'$now'", keeping.beating(self.db, worker, instant).table.c.heartbeat_at.type
            )
        dialect = self.connections.engine.dialect
        statements = keeping.beat_at_once(self.db, worker, instant)
        return [plain_form(one.compile(dialect=dialect)) for one in statements]

    # housekeeping: any worker does it, without an election

    def stage(self, *, now: datetime | None = None, limit: int = 500) -> int:
        """Make ready what has become due; how many."""

        def work(connection: Connection) -> tuple[int, list[str]]:
            number, queues = keeping.stage(self.db, connection, self.db.now(now), limit)
            self._announce(connection, queues)
            return number, queues

        number, queues = self.connections.again(work)
        self._woken(queues)
        return number

    def ahead(self, concern: Concern, *, now: datetime | None = None) -> Ahead:
        """How long until the next task that waits for its time is due, and whether a suspect of these waits, or anything."""
        with self.connections.reading() as connection:
            return keeping.ahead(self.db, connection, concern, self.db.now(now))

    def around(self, lease: timedelta, *, now: datetime | None = None) -> Around:
        """What the database's clock says, and whether `expire` or `rescue` would find anything: one cheap look for both."""
        with self.connections.reading() as connection:
            return keeping.around(self.db, connection, self.db.now(now), lease)

    def rescue(
        self,
        lease: timedelta,
        *,
        decide: Callable[[Task, str], Outcome] = crashed,
        now: datetime | None = None,
        limit: int = 100,
    ) -> list[tuple[Task, Outcome]]:
        """Take back the tasks of workers that have been silent for a lease: each with what became of it."""

        def work(connection: Connection) -> list[tuple[Task, Outcome]]:
            rescued = ending.rescue(
                self.db, connection, self.db.now(now), lease=lease, decide=decide, limit=limit
            )
            self._announce(connection, sorted({task.queue for task, _ in rescued}))
            return rescued

        rescued = self.connections.again(work)
        self._woken(sorted({task.queue for task, _ in rescued}))
        return rescued

    def expire(self, *, now: datetime | None = None, limit: int = 500) -> int:
        """Cancel what was to start before an instant that has passed; how many."""
        return len(
            self.connections.again(
                lambda connection: ending.expire(self.db, connection, self.db.now(now), limit)
            )
        )

    def ended_with_steps(self, *, limit: int = 100) -> list[str]:
        """Tasks that have ended, or are no more, and whose steps are still there."""
        with self.connections.reading() as connection:
            return steps.of_ended(self.db, connection, limit)

    def with_kept_files(self, task_ids: Sequence[str]) -> set[str]:
        """Those of the tasks that kept files, or began to."""
        with self.connections.reading() as connection:
            return steps.with_files(self.db, connection, task_ids)

    def forget_steps(self, task_ids: Sequence[str]) -> None:
        """Remove the steps of tasks that have ended; their kept files must be gone before."""
        self.connections.again(lambda connection: steps.forget(self.db, connection, task_ids), single=True)

    # pruning: see `pruning.py`

    def prunable(self, *, now: datetime | None = None) -> Prunable:
        """Whether anything is to be removed: one cheap look."""
        with self.connections.reading() as connection:
            return pruning.prunable(self.db, connection, self.db.now(now))

    def expired_files(
        self, *, limit: int = 100, skip: int = 0, now: datetime | None = None
    ) -> list[StoredFile]:
        """Files that have expired and are not known to be deleted, the earliest first."""
        with self.connections.reading() as connection:
            return pruning.expired_files(self.db, connection, self.db.now(now), limit, skip)

    def mark_deleted(self, files: Sequence[StoredFile], *, now: datetime | None = None) -> None:
        """Write down that files are no more."""
        self.connections.again(
            lambda connection: pruning.mark_deleted(self.db, connection, files, self.db.now(now)),
            single=True,
        )

    def leftovers(
        self, *, limit: int = 100, skip: int = 0, now: datetime | None = None
    ) -> list[tuple[str, int]]:
        """Attempts (task and number) that may have left files which nobody is to see, the earliest first."""
        with self.connections.reading() as connection:
            return pruning.leftovers(self.db, connection, self.db.now(now), limit, skip)

    def swept(self, attempts: Sequence[tuple[str, int]], *, now: datetime | None = None) -> None:
        """Write down that what these attempts left is no more."""
        self.connections.again(
            lambda connection: pruning.swept(self.db, connection, attempts, self.db.now(now)), single=True
        )

    def old_records(self, *, limit: int = 100, skip: int = 0, now: datetime | None = None) -> list[str]:
        """Tasks that ended so long ago that their records are to go, the earliest first."""
        with self.connections.reading() as connection:
            return pruning.old_records(self.db, connection, self.db.now(now), limit, skip)

    def belongings(self, task_ids: Sequence[str]) -> Mapping[str, Belongings]:
        """What lies in the file store of these tasks; those of which nothing does are not named."""
        with self.connections.reading() as connection:
            return pruning.belongings(self.db, connection, task_ids)

    def prune(self, task_ids: Sequence[str], *, now: datetime | None = None) -> int:
        """Remove old records with their attempts, steps and files; how many. What lies in the file store must be gone before."""
        return self.connections.again(
            lambda connection: pruning.prune(self.db, connection, task_ids, self.db.now(now))
        )

    def mind_jump(self, worker: str, by: timedelta, *, now: datetime | None = None) -> None:
        """The clock jumped: what counts for a while from some instant on counts as long as before. `by` may be negative.

        The tasks of this worker keep their heartbeats, and no heartbeat is left that lies ahead of the clock.
        """
        with self.connections.writing() as connection:
            if by > timedelta(0):
                keeping.move_time(self.db, connection, worker, by)
            else:
                keeping.forget_the_future(self.db, connection, self.db.now(now))

    def register(self, worker: WorkerRow, *, now: datetime | None = None) -> None:
        with self.connections.writing() as connection:
            keeping.register(self.db, connection, worker, self.db.now(now))

    def mark_stopping(self, worker: str) -> None:
        workers = self.tables.workers
        with self.connections.single() as connection:
            connection.execute(sa.update(workers).where(workers.c.name == worker).values(stopping=True))

    def mark_short(self, worker: str, short: str | None) -> None:
        """Write down what a worker is short of, as a sentence; None once it is not any more."""
        workers = self.tables.workers
        with self.connections.single() as connection:
            said = None if short is None else storable(short)[:200]
            connection.execute(sa.update(workers).where(workers.c.name == worker).values(short_of=said))

    def unregister(self, worker: str) -> None:
        workers = self.tables.workers
        with self.connections.single() as connection:
            connection.execute(sa.delete(workers).where(workers.c.name == worker))

    def forget_silent_workers(self, after: timedelta, *, now: datetime | None = None) -> None:
        with self.connections.single() as connection:
            keeping.forget_silent(self.db, connection, self.db.now(now), after)

    def close(self) -> None:
        self.hints.close()
        self.connections.close()


def startable(task: Task) -> bool:
    """A new task that a worker may start at once."""
    return task.status is Status.PENDING and task.waits_for is None and task.run_at <= task.created_at


def is_id(text: str) -> bool:
    """Only a UUID in its canonical form, in lower case, is the id of a task; others PostgreSQL would refuse or rewrite."""
    return ID.fullmatch(text) is not None


def queues_to_wake(ends: Sequence[Finish], written: Sequence[Status | None]) -> list[str]:
    """The queues in which the ends may have made something ready: a release, or a follower that got its key."""
    woken = {
        end.task.queue
        for end, status in zip(ends, written, strict=True)
        if status is not None and (not status.final or end.task.active_key is not None)
    }
    return sorted(woken)


def plain_form(compiled: Any) -> tuple[str, Any]:
    """A compiled statement as its driver takes it, with values that JSON can carry."""
    text, parameters = driver_form(compiled)
    if isinstance(parameters, Mapping):
        return text, {name: plain(value) for name, value in parameters.items()}
    return text, [plain(value) for value in parameters]


def plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
