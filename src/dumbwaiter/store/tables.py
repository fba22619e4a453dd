"""The tables, their constraints and their indexes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from dumbwaiter.store.types import Hash, Id, Json, LongText, Name, Timestamp

MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_row_format": "DYNAMIC",
}
# Each task's life leaves two dead rows, and as many entries in each index. PostgreSQL would let them be until they are a fifth of
# the table: 200,000 beside a million tasks that have ended. A round costs what has changed, not what is there: 8,000 dead rows
# among 600,000 took 0.03 s of processor time and 0.2 s with its default pauses, which therefore stay.
# No fillfactor: an update that changes the status moves the row in an index, so room beside it in its page would gain nothing.
VACUUM: dict[str, Any] = {"autovacuum_vacuum_scale_factor": 0.02, "autovacuum_vacuum_threshold": 1000}
# The status as part of the statement's text: a partial index serves `status = 'pending'`, but not `status = $1` once the
# statement is prepared with a generic plan.
PENDING: sa.ColumnElement[str] = sa.literal_column("'pending'")
RUNNING: sa.ColumnElement[str] = sa.literal_column("'running'")
# Likewise for `crash_count > 0`.
ZERO: sa.ColumnElement[int] = sa.literal_column("0")


def has_partial_indexes(*_: Any, dialect: Dialect, **__: Any) -> bool:
    return dialect.name in ("postgresql", "sqlite")


def has_full_indexes_only(*_: Any, dialect: Dialect, **__: Any) -> bool:
    return dialect.name in ("mysql", "mariadb")


class Tables:
    """All tables under one prefix (and, on PostgreSQL, one schema), for one `kind` of database, or without it for any."""

    def __init__(self, prefix: str = "dumbwaiter_", schema: str = "", kind: str = "") -> None:
        self.prefix = prefix
        self._kind = kind
        self.schema = schema or None
        self.metadata = sa.MetaData(schema=self.schema)
        self.tasks = self._tasks()
        self.attempts = self._attempts()
        self.files = self._files()
        self.uploads = self._uploads()
        self.upload_parts = self._upload_parts()
        self.upload_uses = self._upload_uses()
        self.steps = self._steps()
        self.workers = self._workers()
        self.queues = self._queues()
        self.schedules = self._schedules()
        self.durations = self._durations()
        self.installation = self._installation()

    @property
    def version_table(self) -> str:
        return f"{self.prefix}alembic_version"

    @cached_property
    def channel(self) -> str:
        """The PostgreSQL channel that says: there may be something due. Its payload is the queue."""
        return f"{self.prefix}wake" if self.schema is None else f"{self.schema}_{self.prefix}wake"[:63]

    @cached_property
    def blank_task(self) -> dict[str, Any]:
        """A row of the tasks in which nothing is said."""
        return dict.fromkeys(self.tasks.c.keys())

    def _table(self, name: str, *parts: sa.schema.SchemaItem, **options: Any) -> sa.Table:
        return sa.Table(self.prefix + name, self.metadata, *parts, **self._own(**MYSQL, **options))

    def _own(self, **options: Any) -> dict[str, Any]:
        """The options that belong to this kind: SQLAlchemy imports a whole database's module to read the name of another's."""
        return {name: value for name, value in options.items() if name.startswith(self._kind)}

    def _tasks(self) -> sa.Table:
        table = self._table(
            "tasks",
            sa.Column("id", Id, primary_key=True),
            sa.Column("task_type", Name(100), nullable=False),
            sa.Column("queue", Name(100), nullable=False),
            sa.Column("priority", sa.SmallInteger, nullable=False),
            sa.Column("business_key", Name(200)),
            sa.Column("owner", Name(200)),
            sa.Column("active_key", Hash, unique=True),
            sa.Column("request_key", Hash),
            sa.Column("request_hash", Hash),
            sa.Column("payload", Json, nullable=False),
            sa.Column("payload_version", sa.SmallInteger, nullable=False),
            sa.Column("result", Json),
            sa.Column("status", sa.String(10), nullable=False),
            sa.Column("ready", sa.Boolean, nullable=False),
            sa.Column("attempt", sa.Integer, nullable=False),
            sa.Column("retry_count", sa.Integer, nullable=False),
            sa.Column("max_retry_count", sa.Integer, nullable=False),
            sa.Column("crash_count", sa.Integer, nullable=False),
            sa.Column("max_crash_count", sa.Integer, nullable=False),
            sa.Column("interruption_count", sa.Integer, nullable=False),
            # claimed before a slot was free, and not known to have begun
            sa.Column("ahead", sa.Boolean, nullable=False),
            sa.Column("worker_id", Name(150)),
            sa.Column("reserved_by", Name(150)),
            sa.Column("version", sa.Integer, nullable=False),
            sa.Column("progress", sa.Double, nullable=False),
            sa.Column("current_step", Name(200)),
            sa.Column("message", Name(500)),
            sa.Column("progress_at", Timestamp),
            sa.Column("estimated_finish_at", Timestamp),
            # what is left is likely to be between so many times less and so many times more
            sa.Column("estimate_spread", sa.Double),
            sa.Column("error_type", Name(200)),
            sa.Column("error_message", LongText),
            sa.Column("user_message", LongText),
            sa.Column("timeout_seconds", sa.Double),
            sa.Column("beat_until", Timestamp),
            sa.Column("run_at", Timestamp, nullable=False),
            sa.Column("start_before", Timestamp),
            sa.Column("created_at", Timestamp, nullable=False),
            sa.Column("started_at", Timestamp),
            sa.Column("heartbeat_at", Timestamp),
            sa.Column("finished_at", Timestamp),
            sa.Column("updated_at", Timestamp, nullable=False),
            sa.Column("cancel_requested_at", Timestamp),
            sa.Column("waits_for", Id),
            sa.Column("retry_of", Id),
            sa.Column("retried_as", Id),
            sa.Column("meta", Json),
            # when its record goes; null for ever, and as long as it has not ended
            sa.Column("prune_at", Timestamp),
            sa.CheckConstraint(
                "status in ('pending', 'running', 'success', 'failed', 'cancelled')",
                name=f"{self.prefix}status",
            ),
            sa.CheckConstraint(
                "(status = 'running') = (heartbeat_at is not null) and (status = 'running') = (worker_id is not null)",
                name=f"{self.prefix}running",
            ),
            sa.CheckConstraint(
                "(status in ('success', 'failed', 'cancelled')) = (finished_at is not null)",
                name=f"{self.prefix}final",
            ),
            sa.CheckConstraint(
                "status in ('pending', 'running') or active_key is null", name=f"{self.prefix}active"
            ),
            sa.CheckConstraint("status = 'pending' or ready = false", name=f"{self.prefix}ready"),
            postgresql_with=VACUUM,
        )
        c = table.c
        # SQLite uses a partial index only if the query has the predicate's own words, so every claim says both of these
        ready = sa.and_(c.ready, c.status == PENDING)
        waiting = sa.and_(c.status == PENDING, sa.not_(c.ready), c.waits_for.is_(None))
        suspect = sa.and_(c.ready, c.status == PENDING, c.crash_count > ZERO)
        partial: list[tuple[str, list[sa.ColumnElement[Any]], sa.ColumnElement[bool]]] = [
            # the claim: what is ready, in the order in which it is to run
            ("ready", [c.queue, c.priority.desc(), c.run_at, c.id], ready),
            # of these, what has crashed a worker: next to nothing
            ("suspect", [c.queue, c.priority.desc(), c.run_at, c.id], suspect),
            # the stager: what is not due yet, by the time it is
            ("due", [c.run_at], waiting),
            # rescue. Not "where status = 'running'": the finish implies that predicate, and the planner, whose statistics
            # say that nothing runs, would then drive the finish through this index instead of the primary key
            ("beat", [c.heartbeat_at], c.heartbeat_at.is_not(None)),
            ("expiry", [c.start_before], sa.and_(c.status == PENDING, c.start_before.is_not(None))),
            ("key", [c.task_type, c.business_key, c.owner, c.id], c.business_key.is_not(None)),
            # what a page shows of an owner: the newest
            ("owner", [c.owner, c.id], c.owner.is_not(None)),
            # how many an owner has under way
            ("active", [c.owner, c.task_type], sa.and_(c.owner.is_not(None), c.finished_at.is_(None))),
            ("prune", [c.prune_at], c.prune_at.is_not(None)),
        ]
        for name, columns, predicate in partial:
            only = self._own(postgresql_where=predicate, sqlite_where=predicate)
            index = sa.Index(f"{self.prefix}tasks_{name}", *columns, **only)
            index.ddl_if(callable_=has_partial_indexes)
        # Few tasks have one, and the others cost this index nothing. Not so the active key: who looks at it locks its row FOR
        # KEY SHARE, and PostgreSQL lets an end that clears the key wait for that only if a whole index makes the key unique.
        given = c.request_key.is_not(None)
        partly = self._own(postgresql_where=given, sqlite_where=given)
        sa.Index(f"{self.prefix}tasks_request_key", c.request_key, unique=True, **partly)
        full: list[tuple[str, list[sa.ColumnElement[Any]]]] = [
            ("ready", [c.status, c.ready, c.queue, c.priority.desc(), c.run_at, c.id]),
            ("suspect", [c.status, c.ready, c.crash_count]),
            ("due", [c.status, c.ready, c.run_at]),
            ("beat", [c.heartbeat_at]),
            # the heartbeat: InnoDB locks what it scans, so it must find its own rows alone
            ("worker", [c.worker_id]),
            ("expiry", [c.status, c.start_before]),
            ("key", [c.task_type, c.business_key, c.owner, c.id]),
            ("owner", [c.owner, c.id]),
            ("active", [c.owner, c.finished_at, c.task_type]),
            ("prune", [c.prune_at]),
        ]
        for name, columns in full:
            sa.Index(f"{self.prefix}tasks_{name}_full", *columns).ddl_if(callable_=has_full_indexes_only)
        return table

    def _attempts(self) -> sa.Table:
        table = self._table(
            "attempts",
            sa.Column("task_id", Id, primary_key=True),
            sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("worker_id", Name(150), nullable=False),
            sa.Column("started_at", Timestamp, nullable=False),
            sa.Column("ended_at", Timestamp, nullable=False),
            sa.Column("outcome", sa.String(12), nullable=False),
            sa.Column("error_type", Name(200)),
            sa.Column("error", LongText),
            sa.Column("traceback", LongText),
            # when to look whether it left files that nobody will see; null if it cannot have
            sa.Column("sweep_at", Timestamp),
        )
        self._index("attempts_sweep", table.c.sweep_at, only=table.c.sweep_at.is_not(None))
        return table

    def _files(self) -> sa.Table:
        table = self._table(
            "files",
            sa.Column("task_id", Id, primary_key=True),
            sa.Column("name", Name(200), primary_key=True),
            sa.Column("attempt", sa.Integer, nullable=False),
            sa.Column("content_type", Name(200), nullable=False),
            sa.Column("size", sa.BigInteger, nullable=False),
            sa.Column("sha256", Hash, nullable=False),
            sa.Column("object_key", Name(700), nullable=False),
            sa.Column("created_at", Timestamp, nullable=False),
            sa.Column("expires_at", Timestamp),
            sa.Column("deleted_at", Timestamp),
        )
        # not those that are deleted already: they stay as long as their task's record does
        there = sa.and_(table.c.deleted_at.is_(None), table.c.expires_at.is_not(None))
        self._index(
            "files_expiry", table.c.expires_at, only=there, full=[table.c.deleted_at, table.c.expires_at]
        )
        return table

    def _index(
        self,
        name: str,
        column: sa.Column[Any],
        *,
        only: sa.ColumnElement[bool],
        full: Sequence[sa.Column[Any]] = (),
    ) -> None:
        """An index of the rows for which the predicate holds; where there is no such thing, of all by these columns."""
        some = self._own(postgresql_where=only, sqlite_where=only)
        sa.Index(f"{self.prefix}{name}", column, **some).ddl_if(callable_=has_partial_indexes)
        sa.Index(f"{self.prefix}{name}_full", *(full or [column])).ddl_if(callable_=has_full_indexes_only)

    def _uploads(self) -> sa.Table:
        table = self._table(
            "uploads",
            sa.Column("id", Id, primary_key=True),
            sa.Column("owner", Name(200)),
            sa.Column("filename", Name(200), nullable=False),
            sa.Column("content_type", Name(200), nullable=False),
            # as announced; once it is complete: as it is
            sa.Column("size", sa.BigInteger),
            sa.Column("sha256", Hash),
            sa.Column("object_key", Name(700)),
            sa.Column("created_at", Timestamp, nullable=False),
            sa.Column("completed_at", Timestamp),
            # null while a task has it
            sa.Column("expires_at", Timestamp),
        )
        sa.Index(f"{self.prefix}uploads_expiry", table.c.expires_at)
        return table

    def _upload_parts(self) -> sa.Table:
        return self._table(
            "upload_parts",
            sa.Column("upload_id", Id, primary_key=True),
            sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("size", sa.BigInteger, nullable=False),
            sa.Column("sha256", Hash, nullable=False),
            sa.Column("object_key", Name(700), nullable=False),
        )

    def _upload_uses(self) -> sa.Table:
        table = self._table(
            "upload_uses",
            sa.Column("task_id", Id, primary_key=True),
            sa.Column("upload_id", Id, primary_key=True),
        )
        sa.Index(f"{self.prefix}upload_uses_upload", table.c.upload_id)
        return table

    def _steps(self) -> sa.Table:
        return self._table(
            "steps",
            sa.Column("task_id", Id, primary_key=True),
            sa.Column("kind", sa.String(10), primary_key=True),
            sa.Column("name", Name(200), primary_key=True),
            sa.Column("attempt", sa.Integer, nullable=False),
            sa.Column("result", Json),
            sa.Column("object_key", Name(700)),
            sa.Column("progress", sa.Double),
            sa.Column("created_at", Timestamp, nullable=False),
        )

    def _workers(self) -> sa.Table:
        return self._table(
            "workers",
            sa.Column("name", Name(150), primary_key=True),
            sa.Column("host", Name(200), nullable=False),
            sa.Column("pid", sa.Integer, nullable=False),
            sa.Column("version", sa.String(40), nullable=False),
            sa.Column("queues", Json, nullable=False),
            # of each queue, for a worker that names none
            sa.Column("slots", sa.Integer, nullable=False),
            sa.Column("capacity", Json, nullable=False),
            sa.Column("started_at", Timestamp, nullable=False),
            sa.Column("heartbeat_at", Timestamp, nullable=False),
            sa.Column("stopping", sa.Boolean, nullable=False),
            sa.Column("short_of", Name(200)),
        )

    def _queues(self) -> sa.Table:
        return self._table(
            "queues",
            sa.Column("name", Name(100), primary_key=True),
            sa.Column("paused", sa.Boolean, nullable=False),
            sa.Column("limits", Json),
        )

    def _schedules(self) -> sa.Table:
        return self._table(
            "schedules",
            sa.Column("name", Name(100), primary_key=True),
            sa.Column("task_type", Name(100), nullable=False),
            sa.Column("payload", Json, nullable=False),
            sa.Column("spec", sa.String(200), nullable=False),
            sa.Column("time_zone", sa.String(64), nullable=False),
            sa.Column("misfire", sa.String(20), nullable=False),
            sa.Column("overlap", sa.String(20), nullable=False),
            sa.Column("next_at", Timestamp),
            sa.Column("last_at", Timestamp),
            sa.Column("paused", sa.Boolean, nullable=False),
        )

    def _durations(self) -> sa.Table:
        return self._table(
            "durations",
            sa.Column("task_type", Name(100), primary_key=True),
            sa.Column("history", Json, nullable=False),
            sa.Column("updated_at", Timestamp, nullable=False),
        )

    def _installation(self) -> sa.Table:
        return self._table(
            "installation",
            sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("environment", Name(100), nullable=False),
            # signs links and tokens where the settings name no other
            sa.Column("secret", sa.String(64), nullable=False),
            sa.Column("installed_at", Timestamp, nullable=False),
        )
