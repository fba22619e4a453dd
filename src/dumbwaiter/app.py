"""The application object: builds the parts from the settings; no logic of its own."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from dumbwaiter.course import StepView
from dumbwaiter.errors import ConfigurationError, IllegalMove, InvalidArguments, InvalidOption, UnknownTask
from dumbwaiter.executors.context import TaskContext
from dumbwaiter.executors.printed import pattern_of
from dumbwaiter.executors.registry import Registry, TaskType, placeholders, reference_of
from dumbwaiter.executors.signature import Signature
from dumbwaiter.executors.upload import Upload
from dumbwaiter.outlook import MOST_AHEAD, Outlook, Place, is_served, places
from dumbwaiter.retry import Retry, storable
from dumbwaiter.settings import LONGEST_KEPT, Settings, duration, duration_or_never, is_keepable
from dumbwaiter.strict_json import dumps, encoded
from dumbwaiter.task import Attempt, Retention, Status, Task

if TYPE_CHECKING:
    from pathlib import Path

    from dumbwaiter.files import FileStore
    from dumbwaiter.store.foreign import Statement
    from dumbwaiter.store.rows import Limit, NewTask, OnDuplicate
    from dumbwaiter.store.store import Store
    from dumbwaiter.uploads import Uploads
    from dumbwaiter.worker.chores import Removed
    from dumbwaiter.worker.loop import Worker

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

ADDRESS = re.compile(r"(sqlite|postgresql|postgres|mysql|mariadb)(\+\w+)?:")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Unset:
    """The type of `UNSET`: an option that was not given, where None means something."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


# More is no limit, and less than what every database can add to an instant.
LONGEST = timedelta(days=3650)
OPTION_KINDS: Mapping[str, tuple[type, str]] = {
    "priority": (int, "a whole number"),
    "delay": (timedelta, "a timedelta"),
    "reuse_for": (timedelta, "a timedelta"),
    "timeout": (timedelta, "a timedelta"),
    "run_at": (datetime, "a datetime"),
    "start_before": (datetime, "a datetime"),
    "meta": (Mapping, "a mapping"),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What can be said for one call; see `TaskHandle.using`."""

    key: str | None = None
    on_duplicate: OnDuplicate = "return"
    reuse_for: timedelta | None = None
    owner: str | None = None
    request_key: str | None = None
    queue: str | None = None
    priority: int | None = None
    delay: timedelta | None = None
    run_at: datetime | None = None
    start_before: datetime | None = None
    timeout: timedelta | Unset | None = UNSET
    connection: Any = None
    meta: Mapping[str, Any] | None = None

    def check(self) -> None:
        """Raises InvalidOption for values that cannot be."""
        self._check_kinds()
        self._check_texts()
        if self.priority is not None and not -100 <= self.priority <= 100:
            raise InvalidOption(f"priority={self.priority} is not within -100…100")
        if self.on_duplicate not in ("return", "reject", "after", "replace"):
            raise InvalidOption(f"on_duplicate={self.on_duplicate!r}: return, reject, after or replace")
        if self.delay is not None and self.run_at is not None:
            raise InvalidOption("give delay= or run_at=, not both")
        if self.delay is not None and self.delay < timedelta(0):
            raise InvalidOption(f"delay={self.delay} lies in the past")
        for name in ("run_at", "start_before"):
            instant = getattr(self, name)
            if instant is not None and instant.tzinfo is None:
                raise InvalidOption(
                    f"{name}={instant} has no time zone; use an aware datetime, such as datetime.now(UTC)"
                )
            if instant is not None and not 1 < instant.year < 9999:
                raise InvalidOption(f"{name}={instant} is no year that every database knows")
        if isinstance(self.timeout, timedelta) and self.timeout <= timedelta(0):
            raise InvalidOption(f"timeout={self.timeout} is not more than nothing")
        if isinstance(self.timeout, timedelta) and self.timeout > LONGEST:
            raise InvalidOption(f"timeout={self.timeout}: at most {LONGEST.days} days, or None for no limit")
        if self.reuse_for is not None and self.key is None:
            raise InvalidOption("reuse_for= needs a key= to find the earlier task by")

    def refuse_for_many(self) -> None:
        """Raises InvalidOption for what settles one task at a time."""
        given = [name for name in ("key", "request_key", "reuse_for") if getattr(self, name) is not None] + [
            "on_duplicate"
        ] * (self.on_duplicate != "return")
        if given:
            raise InvalidOption(
                f"{', '.join(given)}: enqueue_many has no business keys; enqueue one by one what needs them"
            )

    def _check_texts(self) -> None:
        for name in ("key", "owner", "request_key", "queue"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, str) or not 0 < len(value) <= 200:
                raise InvalidOption(f"{name}={value!r}: give a text of 1 to 200 characters")
            if storable(value) != value:
                raise InvalidOption(f"{name}={value!r}: a NUL or a lone surrogate cannot be stored")
        if self.queue is not None and len(self.queue) > 100:
            raise InvalidOption(f"queue={self.queue!r} has more than 100 characters")

    def _check_kinds(self) -> None:
        for name, (kind, words) in OPTION_KINDS.items():
            value = getattr(self, name)
            if value is None or value is UNSET or (isinstance(value, kind) and not isinstance(value, bool)):
                continue
            raise InvalidOption(f"{name}={value!r}: give {words}")
        try:
            dumps(dict(self.meta or {}))
        except (ValueError, RecursionError) as error:
            raise InvalidOption(f"meta={self.meta!r}: {error}") from None


# Most calls say nothing.
SILENT = Options()


def said(before: Options = SILENT, **options: Any) -> Options:
    """The options with these instead of what was said before. Raises InvalidOption."""
    if not options:
        return before
    if unknown := options.keys() - Options.__dataclass_fields__.keys():
        known = ", ".join(Options.__dataclass_fields__)
        raise InvalidOption(f"there is no option {', '.join(sorted(unknown))}; the options are: {known}")
    changed = replace(before, **options)
    changed.check()
    return changed


def numbered(error: InvalidArguments, number: int) -> InvalidArguments:
    """Faults among many calls say which call it was."""
    faults = [(f"[{number}].{path}" if path else f"[{number}]", fault) for path, fault in error.errors]
    return InvalidArguments(error.task_type, faults)


class TaskHandle(Generic[P, R]):
    """A registered task type. Calling it calls the function here and now; `enqueue` has a worker do it."""

    def __init__(self, waiter: Dumbwaiter, entry: TaskType, options: Options | None = None) -> None:
        self._waiter = waiter
        self._options = options or SILENT
        self.entry = entry
        functools.update_wrapper(self, entry.function)

    @property
    def name(self) -> str:
        return self.entry.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.entry.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        """Store the call as a task and return it at once.

        The arguments are checked against the function's signature here, in the producer.

        Raises InvalidArguments (every fault by name), DuplicateTask, StoreError.

            task = export_orders.enqueue(customer_id=7, month="2026-11")
        """
        arguments = self.entry.signature.bind(args, kwargs, options=Options.__dataclass_fields__)
        return self._waiter._enqueue(self.entry, arguments, self._options)[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        """`enqueue` for coroutines."""
        arguments = self.entry.signature.bind(args, kwargs, options=Options.__dataclass_fields__)
        return await self._waiter._aenqueue(self.entry, arguments, self._options)

    def enqueue_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[str]:
        """Store many calls at once, all of them or none; the ids of their tasks, in the order given.

        Each entry names the arguments of one call. The options of `using` are the same for all, without `key`,
        `request_key`, `on_duplicate` and `reuse_for`, which settle one task at a time.

        Raises InvalidArguments (whose faults begin with the number of the call, from 0), InvalidOption, StoreError.

            ids = thumbnail.using(queue="pictures").enqueue_many({"picture": number} for number in range(10_000))
        """
        return self._waiter._enqueue_many(self.entry, arguments, self._options)

    async def aenqueue_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[str]:
        """`enqueue_many` for coroutines."""
        return await self._waiter._aenqueue_many(self.entry, arguments, self._options)

    def using(self, **options: Any) -> TaskHandle[P, R]:
        """The same task type with options for the next call.

        `key` (the producer's own name for the work; one active task for each), `on_duplicate` ("return", "reject",
        "after", "replace"), `reuse_for` (give out a finished success this young again), `owner`, `request_key`, `queue`,
        `priority` (-100…100, higher first), `delay` or `run_at`, `start_before`, `timeout`, `connection` (enqueue in the
        caller's own transaction: SQLAlchemy's, psycopg's, PyMySQL's or sqlite3's), `meta`.

        Raises InvalidOption.

            export_orders.using(key="order-42", delay=timedelta(minutes=5)).enqueue(customer_id=7, month="2026-11")
        """
        return TaskHandle(self._waiter, self.entry, said(self._options, **options))


class Registration(Protocol):
    """What `waiter.task(...)` returns: a decorator that knows the function's parameters, with or without a context."""

    @overload
    def __call__(self, function: Callable[Concatenate[TaskContext, P], R], /) -> TaskHandle[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskHandle[P, R]: ...


class Dumbwaiter:
    """The application object: built once, imported everywhere. Connects to nothing until it is used.

    `database` is an address (`sqlite:///path/tasks.db`, `postgresql://…`, `mysql://…`), `files` a directory or the address
    of an object store (`s3://bucket/prefix`). Without them: a SQLite file in `.dumbwaiter/`, and files beside it. `scope` is
    a context manager, entered for each attempt with its context and left at every end. Every other setting can be given by
    name; see `Settings`.

    Raises ConfigurationError.

        waiter = Dumbwaiter("postgresql://localhost/shop", files="s3://exports/shop")

        @waiter.task("orders-export", queue="exports", timeout=timedelta(minutes=20))
        def export_orders(ctx: TaskContext, customer_id: int, month: str) -> None: ...
    """

    def __init__(
        self,
        database: str | None = None,
        *,
        files: str | None = None,
        scope: Callable[[TaskContext], Any] | None = None,
        env: str | None = None,
        **settings: Any,
    ) -> None:
        self.settings = Settings.load({"database": database, "files": files, "env": env, **settings})
        check_address(self.settings.database)
        self.registry = Registry()
        self._scope = scope
        self._lock = threading.RLock()

    @cached_property
    def store(self) -> Store:
        """The task table."""
        from dumbwaiter.store.store import Store

        with self._lock:
            store: Store = self.__dict__.setdefault("store", Store(self.settings, self._retention_of))
            return store

    @cached_property
    def files(self) -> FileStore:
        """Where result files lie."""
        from dumbwaiter.files import FileStore

        with self._lock:
            files: FileStore = self.__dict__.setdefault("files", FileStore(self.settings.files_url))
            return files

    @cached_property
    def uploads(self) -> Uploads:
        """Files that people send as input."""
        from dumbwaiter.uploads import Uploads

        return Uploads(self.settings, self.store, lambda: self.files)

    @cached_property
    def _retention(self) -> Retention:
        """How long records are kept unless their task type says otherwise."""
        settings = self.settings
        return Retention(settings.success_retention, settings.failed_retention, settings.cancelled_retention)

    def _retention_of(self, task_type: str) -> Retention:
        entry = self.registry.get(task_type)
        return self._retention if entry is None else entry.retention

    # registering

    def task(self, name: str, **terms: Any) -> Registration:
        """Register a function under a name. A first parameter annotated TaskContext is given the attempt's context.

        `queue` ("default"), `priority` (0), `retry` (a `Retry`), `timeout` (one hour; None must be written), `isolate`
        (run in a process of its own, which can be killed), `max_memory` (bytes that an isolated task and what it starts may
        use together; more ends it as failed), `needs` (such as `{"chromium": 1}`), `max_crashes` (3; 0 for work
        that must not be repeated), `http` (callable over HTTP), `max_active_per_owner` (more at once of this type an owner may not have; TooManyActive), `version` (1; of its parameters: a worker leaves tasks of a newer
        one to workers that know it), `upgrade` (makes arguments of an older version new: it is given them by name, and that
        version), `expires` (how long published files are kept; by default `settings.file_expiry`; None for ever),
        `retention` (how long its records are kept once they have ended, one duration or one by status, such as
        `{"failed": timedelta(days=90)}`; by default `settings.success_retention` and so on; None for ever), `disk` (True: not started where the disk is nearly full, see `settings.disk_reserve`; by
        default so for commands and `isolate=True`) and `steps`
        (their names in order, each with its share of the time, such as `{"loading": 1, "rendering": 8}`; see
        `TaskContext.progress`).

        Raises ConfigurationError if it cannot run as declared.

            @waiter.task("thumbnail", needs={"gpu_memory": 4}, isolate=True)
            def thumbnail(ctx: TaskContext, picture: int) -> None: ...
        """
        if callable(name):
            raise ConfigurationError(
                f'write @waiter.task("{getattr(name, "__name__", "name")}"): a task type has a name of its own'
            )
        self._check_terms(name, terms)
        made = self._terms(name, terms)

        def register(function: Callable[..., Any]) -> TaskHandle[Any, Any]:
            signature = Signature(name, function)
            entry = TaskType(name, function, signature, reference=reference_of(function), **made)
            return TaskHandle(self, self.registry.add(entry))

        return register

    def command(
        self,
        name: str,
        argv: Sequence[str],
        *,
        publishes: Sequence[str] = (),
        progress: str | re.Pattern[str] | None = None,
        **terms: Any,
    ) -> TaskHandle[Any, dict[str, Any]]:
        """Register a command. `{name}` in its words becomes a text parameter, `{workdir}` the attempt's directory.

        Files named in `publishes` (relative to the work directory) become result files. An exit status other than 0 is a
        failure. `progress` is a regular expression that finds in the lines that it prints how far it is, by named groups:
        `percent`, `fraction`, or `done` and `total`; `step`; `message`. The other terms are those of `task`.

        Raises ConfigurationError if it cannot run as declared.

            still = waiter.command("still", ["ffmpeg", "-i", "{video}", "-frames:v", "1", "still.png"], publishes=["still.png"])
            still.enqueue(video="/media/holiday.mp4")
            copy = waiter.command("copy", ["rsync", "--info=progress2", "{source}", "{target}"], progress="(?P<percent>[0-9]+)%")
        """
        self._check_terms(name, terms)
        signature = Signature.of_command(name, placeholders(name, argv))
        entry = TaskType(
            name,
            signature.function,
            signature,
            argv=tuple(str(word) for word in argv),
            publishes=tuple(publishes),
            prints=None if progress is None else pattern_of(name, progress),
            **self._terms(name, terms),
        )
        return TaskHandle(self, self.registry.add(entry))

    TERMS = (
        "queue",
        "priority",
        "retry",
        "timeout",
        "isolate",
        "max_memory",
        "needs",
        "max_crashes",
        "http",
        "max_active_per_owner",
        "version",
        "upgrade",
        "expires",
        "steps",
        "retention",
        "disk",
    )

    def _check_terms(self, name: str, terms: Mapping[str, Any]) -> None:
        unknown = terms.keys() - set(self.TERMS)
        if unknown:
            raise ConfigurationError(
                f"task {name!r}: there is no term {', '.join(sorted(unknown))}; the terms are: {', '.join(self.TERMS)}"
            )

        if terms.get("disk") not in (None, True, False):
            raise ConfigurationError(f"task {name!r}: disk={terms['disk']!r}: True or False")
        retry = terms.get("retry", Retry())
        if not isinstance(retry, Retry):
            raise ConfigurationError(
                f"task {name!r}: retry={retry!r}; write retry=Retry(max_retries={retry!r}), or the like"
            )

    def _terms(self, name: str, terms: Mapping[str, Any]) -> dict[str, Any]:
        settings = self.settings
        given = {"timeout": settings.timeout, "retry": Retry(), "scope": self._scope} | dict(terms)
        if given["timeout"] is not None:
            given["timeout"] = as_duration(f"task {name!r}: timeout", given["timeout"])
        given["expires"] = as_kept(f"task {name!r}: expires", given.get("expires", settings.file_expiry))
        given["retention"] = as_retention(
            f"task {name!r}: retention", given.get("retention", {}), self._retention
        )
        return given

    # producing

    def enqueue(
        self,
        task_type: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        strict: bool = False,
        **options: Any,
    ) -> Task:
        """Store a task of the type with that name; `options` are those of `TaskHandle.using`.

        `strict` refuses what JSON clients get wrong: a text where a number belongs.

        Raises UnknownTaskType, InvalidArguments, InvalidOption, DuplicateTask, RequestKeyReused, TooManyActive, StoreError.
        """
        return self.enqueue_or_get(task_type, arguments, strict=strict, **options)[0]

    def enqueue_or_get(
        self,
        task_type: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        strict: bool = False,
        **options: Any,
    ) -> tuple[Task, bool]:
        """`enqueue`, which also tells whether the task is new: False if a key, or the same request before, stood for it."""
        return self._enqueue(self.registry[task_type], arguments or {}, said(**options), strict=strict)

    async def aenqueue(
        self,
        task_type: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        strict: bool = False,
        **options: Any,
    ) -> Task:
        """`enqueue` for coroutines."""
        return await self._aenqueue(self.registry[task_type], arguments or {}, said(**options), strict=strict)

    def enqueue_many(
        self, task_type: str, arguments: Iterable[Mapping[str, Any]], **options: Any
    ) -> list[str]:
        """Store many tasks of the type with that name, all of them or none; see `TaskHandle.enqueue_many`.

        Raises UnknownTaskType, InvalidArguments, InvalidOption, StoreError.

            ids = waiter.enqueue_many("thumbnail", [{"picture": 1}, {"picture": 2}], queue="pictures")
        """
        handle: TaskHandle[..., Any] = TaskHandle(self, self.registry[task_type]).using(**options)
        return handle.enqueue_many(arguments)

    async def aenqueue_many(
        self, task_type: str, arguments: Iterable[Mapping[str, Any]], **options: Any
    ) -> list[str]:
        """`enqueue_many` for coroutines."""
        handle: TaskHandle[..., Any] = TaskHandle(self, self.registry[task_type]).using(**options)
        return await handle.aenqueue_many(arguments)

    def _enqueue(
        self, entry: TaskType, arguments: Mapping[str, Any], options: Options, *, strict: bool = False
    ) -> tuple[Task, bool]:
        payload, body, uploads = self._payload(entry, arguments, options, strict=strict)
        new = self._new_task(entry, payload, options, body, uploads)
        return self.store.enqueue(new, connection=options.connection)

    async def _aenqueue(
        self, entry: TaskType, arguments: Mapping[str, Any], options: Options, *, strict: bool = False
    ) -> Task:
        return await self._on_connection(
            options, lambda chosen: self._enqueue(entry, arguments, chosen, strict=strict)[0]
        )

    async def _on_connection(self, options: Options, core: Callable[[Options], T]) -> T:
        """The same core for coroutines: on a thread, or inside the caller's transaction whatever drives it."""
        given = options.connection
        if given is None:
            return await asyncio.to_thread(core, options)
        from dumbwaiter.store.callers import bridged, is_asynchronous

        def inside(inner: Any) -> T:
            return core(replace(options, connection=inner))

        if hasattr(given, "run_sync"):  # an async session or connection of SQLAlchemy
            return await given.run_sync(inside)  # type: ignore[no-any-return]
        if is_asynchronous(given):
            return await bridged(given, inside)
        # a connection that blocks stays on the caller's own thread: SQLite's may be used on no other
        return inside(given)

    def _enqueue_many(
        self, entry: TaskType, arguments: Iterable[Mapping[str, Any]], options: Options
    ) -> list[str]:
        from uuid_utils import uuid7

        options.refuse_for_many()
        new = self._new_task(entry, {}, options)
        bodies: list[tuple[str, str]] = []
        uses: list[tuple[str, str]] = []
        try:
            for one in arguments:
                _, body, uploads = self._payload(entry, one, options)
                task_id = str(uuid7())
                bodies.append((task_id, body))
                uses += [(task_id, upload) for upload in uploads]
        except InvalidArguments as error:
            raise numbered(error, len(bodies)) from None
        if bodies:
            self.store.enqueue_many(new, bodies, uses=uses, connection=options.connection)
        return [task_id for task_id, _ in bodies]

    async def _aenqueue_many(
        self, entry: TaskType, arguments: Iterable[Mapping[str, Any]], options: Options
    ) -> list[str]:
        return await self._on_connection(options, lambda chosen: self._enqueue_many(entry, arguments, chosen))

    def upload(
        self,
        source: Path | bytes,
        *,
        filename: str | None = None,
        content_type: str | None = None,
        owner: str | None = None,
    ) -> Upload:
        """Upload a file of this machine, or bytes, to be given to tasks of the same owner: several, or later.

        A task that is enqueued with a `pathlib.Path` or bytes where it takes an `Upload` does this by itself. What no task
        takes goes after `upload_expiry` (a day).

        Raises OSError if the file cannot be read, InvalidOption for an impossible name, UploadTooLarge, FileStoreError, StoreError.

            recording = waiter.upload(Path("visit.json"))
            for fps in (5, 25):
                video_export.enqueue(recording=recording, fps=fps)
        """
        return self.uploads.put(source, owner, filename=filename, content_type=content_type or "")

    def statement(
        self, task_type: str, arguments: Mapping[str, Any] | None = None, *, driver: str, **options: Any
    ) -> Statement:
        """A task as one SQL statement, for a transaction on a connection that `connection=` does not take.

        `driver` is "asyncpg", "aiosqlite", "django", "psycopg", "pymysql" or "sqlite3"; `options` are those of
        `TaskHandle.using`, without `connection`, `on_duplicate` and `reuse_for`. With a `key` that an active task holds (or a
        `request_key` that was used before) the statement inserts no row; on MySQL it raises the duplicate (error 1062), which
        leaves the transaction alive. `max_active_per_owner` is not looked at. PostgreSQL returns a row for the task that it inserted, and wakes the workers at the commit.

        Raises UnknownTaskType, InvalidArguments, InvalidOption, StoreError.

            statement = waiter.statement("invoice", {"order_id": 7}, driver="asyncpg")
            async with connection.transaction():
                await connection.execute("INSERT INTO orders VALUES (7)")
                await connection.execute(statement.sql, *statement.parameters)
        """
        handle: TaskHandle[..., Any] = TaskHandle(self, self.registry[task_type]).using(**options)
        if handle._options.connection is not None:
            raise InvalidOption(
                "connection= and waiter.statement(…) exclude each other: you execute the statement"
            )
        payload, _, uploads = self._payload(handle.entry, arguments or {}, handle._options)
        if uploads:
            raise InvalidOption(
                "a task that takes uploads needs more than one statement; enqueue it with connection= where you can"
            )
        new = self._new_task(handle.entry, payload, handle._options)
        return self.store.statement(new, driver)

    def _payload(
        self, entry: TaskType, arguments: Mapping[str, Any], options: Options, *, strict: bool = False
    ) -> tuple[dict[str, Any], str, Sequence[str]]:
        """The arguments as they are stored, as a value and as JSON, and the ids of the uploads among them.

        Raises InvalidArguments, UnknownUpload, UploadConflict.
        """
        uploads: list[str] = []

        def settle(found: Sequence[Upload]) -> None:
            if options.connection is not None and any(upload.source is not None for upload in found):
                # it would take its time within the caller's transaction, and on SQLite wait for its end
                raise InvalidOption(
                    "with connection= give an upload that is there already: waiter.upload(…) before your transaction"
                )
            self.uploads.settle(found, options.owner)
            uploads.extend(upload.id for upload in found)

        payload = entry.signature.payload(arguments, strict=strict, settle=settle)
        body = encoded(payload)
        # no character has more than four bytes
        if len(body) * 4 > self.settings.max_payload and len(body.encode()) > self.settings.max_payload:
            fault = (
                f"the arguments are {len(body.encode()):,} bytes of JSON, more than the {self.settings.max_payload:,} allowed; "
                "store large values as a file or a row and pass its id"
            )
            raise InvalidArguments(entry.name, [("", fault)])
        return payload, body, uploads

    def _new_task(
        self,
        entry: TaskType,
        payload: Mapping[str, Any],
        options: Options,
        body: str | None = None,
        uploads: Sequence[str] = (),
    ) -> NewTask:
        from uuid_utils import uuid7

        from dumbwaiter.store.rows import NewTask, request_key

        requested = options.request_key
        return NewTask(
            id=str(uuid7()),
            task_type=entry.name,
            payload=payload,
            payload_version=entry.version,
            queue=options.queue or entry.queue,
            priority=entry.priority if options.priority is None else options.priority,
            business_key=options.key,
            owner=options.owner,
            on_duplicate=options.on_duplicate,
            reuse_for=options.reuse_for,
            request_key=None if requested is None else request_key(options.owner, requested),
            request_hash=None if requested is None else request_hash(entry.name, payload),
            delay=options.delay or timedelta(0),
            run_at=None if options.run_at is None else options.run_at.astimezone(UTC),
            start_before=options.start_before,
            timeout=entry.timeout if isinstance(options.timeout, Unset) else options.timeout,
            max_retry_count=entry.retry.max_retries,
            max_crash_count=entry.max_crashes,
            meta=dict(options.meta or {}),
            limits=self._limits(entry.name, options.owner),
            uploads=uploads,
            body=body,
        )

    def _limits(self, task_type: str, owner: str | None) -> Sequence[Limit]:
        """How many active tasks the owner may have; what belongs to nobody is not counted."""
        from dumbwaiter.store.rows import Limit

        if owner is None:
            return ()
        entry = self.registry.get(task_type)
        of_all, of_type = self.settings.max_active_per_owner, entry and entry.max_active_per_owner
        found = [Limit(of_all)] if of_all else []
        return [*found, Limit(of_type, task_type)] if of_type else found

    # looking and acting by hand

    def get(self, task_id: str) -> Task:
        """The task as it stands, with its files if it has succeeded. Raises UnknownTask."""
        return self.store.get(checked_id(task_id))

    def find(
        self,
        *,
        status: Status | str | None = None,
        task_type: str | None = None,
        queue: str | None = None,
        owner: str | None = None,
        key: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Task]:
        """Tasks, the newest first, without their files. For the next page, `before` is the last id of this one."""
        return self.store.find(
            status=None if status is None else str(status),
            task_type=task_type,
            queue=queue,
            owner=owner,
            key=key,
            limit=limit,
            before=before,
        )

    def latest(self, task_type: str, key: str, *, owner: str | None = None) -> Task | None:
        """The owner's newest task of that type under that business key, with its files; None if there is none.

        task = waiter.latest("video-export", "order-42", owner="ada")
        """
        return self.store.latest(task_type, key, owner)

    def recent(
        self, *, owner: str | None = None, task_type: str | None = None, limit: int = 20
    ) -> list[Task]:
        """The owner's newest tasks with their files, the newest first. Without an owner: those that belong to nobody."""
        return self.store.recent(owner, task_type=task_type, limit=limit)

    def link(
        self,
        task_id: str,
        *,
        base: str = "",
        file: str | None = None,
        expires: timedelta = timedelta(days=1),
    ) -> str:
        """An address that opens the task for whoever has it, without a login: for an e-mail, say.

        `base` is where the routes of `router(waiter)` stand. It tells how the task stands, with its files; with `file`, a name, it
        is the download of that file, which a task that has ended must have. After `expires`, at most ten years, it is `410 Gone`; a file
        that goes earlier is so earlier: publish it with `expires=` as long as the link's.

        Raises UnknownTask, InvalidOption, StoreError, MissingExtra without `dumbwaiter[api]`.

            waiter.link(task.id, base="https://shop.example/jobs", file="report.pdf", expires=timedelta(days=7))
        """
        from dumbwaiter.links import Grant, Links

        if not timedelta(seconds=1) <= expires <= LONGEST:
            raise InvalidOption(f"expires={expires}: from a second to {LONGEST.days} days")
        task = self.get(task_id)
        names = [one.name for one in task.files]
        if file is not None and task.status.final and file not in names:
            has = f"its files are: {', '.join(names)}" if names else "it has none"
            raise InvalidOption(f"file={file!r}: task {task.id} {task.in_words} without such a file; {has}")
        grant = Grant(task.id, self.store.now() + expires, file)
        return f"{base.rstrip('/')}/links/{Links(self.store.schema.secret).token(grant)}"

    def attempts(self, task_id: str) -> list[Attempt]:
        """The history: every attempt that ended otherwise than in success, and the success that followed one."""
        return self.store.attempts(checked_id(task_id))

    def outlooks(
        self, tasks: Sequence[Task], *, now: datetime | None = None, placed: bool = True
    ) -> list[Outlook]:
        """What is known of each task beside its row: its declared steps and, while it waits, its place in the queue.

        For what shows tasks to people. However many tasks are given, the database is asked a few times, and not at all if none
        of them waits, or with `placed=False`. A task that is not due yet, or waits for another one, has no place.
        """
        waiting = [task for task in tasks if task.status is Status.PENDING and task.waits_for is None]
        found = self._places(waiting, now or self.store.now()) if waiting and placed else {}
        return [Outlook(self._step_views(task), found.get(task.id)) for task in tasks]

    def _places(self, waiting: Sequence[Task], now: datetime) -> dict[str, Place]:
        due = [task for task in waiting if task.run_at <= now]
        if not due:
            return {}
        lines = self.store.lines(due, now=now)
        found = places(lines, {entry.name: entry.all_needs for entry in self.registry}, now)
        behind = {
            task.id: Place(MOST_AHEAD + 1, lower_bound=True, served=is_served(task.queue, lines))
            for task in due
            if lines.lines[task.queue].behind(task)
        }
        return behind | found

    def _step_views(self, task: Task) -> Sequence[StepView]:
        entry = self.registry.get(task.task_type)
        return () if entry is None or entry.course is None else entry.course.states(task)

    def cancel(self, task_id: str) -> Task:
        """Cancel a task: at once while it waits; while it runs, its worker ends it within a second and the grace time.

        A second cancel changes nothing. Raises UnknownTask, IllegalMove (it has ended; the error carries the task).
        """
        return self.store.cancel(checked_id(task_id))

    def retry(self, task_id: str, *, force: bool = False, request_key: str | None = None) -> Task:
        """Make a finished task again: a new one with the same arguments, key and owner. The old one names it.

        A success whose files are all still there needs `force`. Asked again with the same `request_key`, it gives the task that
        was made before. Raises UnknownTask, IllegalMove, RequestKeyReused, TooManyActive.
        """
        return self.retry_or_get(task_id, force=force, request_key=request_key)[0]

    def retry_or_get(
        self, task_id: str, *, force: bool = False, request_key: str | None = None
    ) -> tuple[Task, bool]:
        """The same, and whether the task is new: under its business key, or of this request, there may be one already."""
        from uuid_utils import uuid7

        from dumbwaiter.store import rows

        old = self.get(task_id)
        if not old.status.final:
            raise IllegalMove(old, "retry", way="cancel it first, or wait for its end")
        if not force and old.display(self.store.now()) == "ready":
            raise IllegalMove(
                old, "retry", way="its result is still good, and force=True makes it again all the same"
            )
        new = rows.NewTask(
            id=str(uuid7()),
            task_type=old.task_type,
            payload=old.payload,
            payload_version=old.payload_version,
            queue=old.queue,
            priority=old.priority,
            business_key=old.business_key,
            owner=old.owner,
            timeout=old.timeout,
            max_retry_count=old.max_retry_count,
            max_crash_count=old.max_crash_count,
            retry_of=old.id,
            request_key=None if request_key is None else rows.request_key(old.owner, request_key),
            request_hash=None if request_key is None else rows.digest("retry", old.id),
            limits=self._limits(old.task_type, old.owner),
            uploads=self.store.uploads.of_task(old.id),
            meta=old.meta,
        )
        task, created = self.store.enqueue(new)
        if created:
            self.store.note_retry(old, task)
        return task, created

    def prune(self) -> Removed:
        """Remove now what nobody needs any more: expired files, what dead attempts left, records that are old enough.

        Workers do the same, a little every minute. What was removed, in numbers. Raises StoreError, FileStoreError.

            removed = waiter.prune()
            print(removed.files, removed.records)
        """
        from dumbwaiter.executors import workdirs
        from dumbwaiter.worker.chores import Chores

        self.store.schema.ensure()
        removed = Chores(self.store, lambda: self.files).run()
        removed.work_directories = len(workdirs.sweep(self.settings.workdir_path))
        return removed

    def migrate(self) -> list[str]:
        """Create the tables, or bring them up to date. The revisions that were applied."""
        return self.store.schema.migrate()

    def worker(
        self,
        queues: Mapping[str, int] | None = None,
        *,
        capacity: Mapping[str, float] | None = None,
        in_app: bool = False,
    ) -> Worker:
        """A worker for these queues (slots by name), not started yet. Without `queues` it serves all there are."""
        from dumbwaiter.worker.loop import Worker

        return Worker(
            self.settings,
            self.registry,
            self.store,
            lambda: self.files,
            queues=queues,
            capacity=capacity,
            in_app=in_app,
        )

    def close(self) -> None:
        """Close the connections to the database. They open again when needed."""
        if "store" in self.__dict__:
            self.store.close()


def as_duration(what: str, given: Any) -> timedelta:
    """A duration from a timedelta, a number of seconds or text such as "5m". Raises ConfigurationError."""
    try:
        return duration(given)
    except ValueError as error:
        raise ConfigurationError(f"{what}: {error}") from None


def as_kept(what: str, given: Any) -> timedelta | None:
    """How long something is kept; None, or "never", is for ever. Raises ConfigurationError."""
    try:
        kept = duration_or_never(given)
    except ValueError as error:
        raise ConfigurationError(f"{what}: {error}") from None
    if not is_keepable(kept):
        raise ConfigurationError(
            f"{what}={given!r}: give more than nothing and at most {LONGEST_KEPT.days} days, or None to keep it for ever"
        )
    return kept


def as_retention(what: str, given: Any, otherwise: Retention) -> Retention:
    """How long records are kept: one duration for all, or by status. Raises ConfigurationError."""
    statuses = tuple(status.value for status in Status if status.final)
    by_status = given if isinstance(given, Mapping) else dict.fromkeys(statuses, given)
    if unknown := [name for name in by_status if name not in statuses]:
        raise ConfigurationError(
            f"{what}: {unknown[0]!r} is no end of a task; there are {', '.join(statuses)}"
        )
    kept = {str(name): as_kept(f"{what}[{str(name)!r}]", value) for name, value in by_status.items()}
    return replace(otherwise, **kept)


def check_address(database: str) -> None:
    """Raises ConfigurationError for an address that can be none of ours; what is wrong with it otherwise is said at use.

    By its look only: SQLAlchemy, which knows better, takes half a second to import.
    """
    if not ADDRESS.match(database):
        raise ConfigurationError(
            f"database={database.split('@')[-1]!r}: write sqlite:///path/to/tasks.db, postgresql://user@host/name "
            "or mysql://user@host/name"
        )


def checked_id(task_id: str) -> str:
    """Ids are lower-case UUIDs; anything else is nobody's."""
    if not UUID.fullmatch(str(task_id)):
        raise UnknownTask(str(task_id)[:100])
    return task_id


def request_hash(task_type: str, payload: Mapping[str, Any]) -> str:
    """What two requests with one Idempotency-Key must have in common."""
    import json

    text = json.dumps(payload, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(f"{task_type}\0{text}".encode()).hexdigest()
