"""The first tables.

A copy of `tables.py` as it stood then: what that file says later must not change what this migration did.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.engine import Dialect

from dumbwaiter.store.types import Hash, Id, Json, LongText, Name, Timestamp

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    first_tables().create_all(op.get_bind())


def downgrade() -> None:
    first_tables().drop_all(op.get_bind())


def first_tables() -> sa.MetaData:
    installed = context.config.attributes["tables"]
    metadata = sa.MetaData(schema=installed.schema)
    for table in (
        tasks,
        attempts,
        files,
        uploads,
        upload_parts,
        upload_uses,
        steps,
        workers,
        queues,
        schedules,
        durations,
        installation,
    ):
        table(metadata, installed.prefix)
    return metadata


def define(
    metadata: sa.MetaData, prefix: str, name: str, *parts: sa.schema.SchemaItem, **own: Any
) -> sa.Table:
    options: dict[str, Any] = {
        "mysql_engine": "InnoDB",
        "mysql_charset": "utf8mb4",
        "mysql_row_format": "DYNAMIC",
    }
    return sa.Table(prefix + name, metadata, *parts, **options, **own)


def partial_indexes(*_: Any, dialect: Dialect, **__: Any) -> bool:
    return dialect.name in ("postgresql", "sqlite")


def no_partial_indexes(*_: Any, dialect: Dialect, **__: Any) -> bool:
    return dialect.name in ("mysql", "mariadb")


def tasks(metadata: sa.MetaData, prefix: str) -> None:
    table = define(
        metadata,
        prefix,
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
        sa.Column("ahead", sa.Boolean, nullable=False),
        sa.Column("worker_id", Name(150)),
        sa.Column("reserved_by", Name(150)),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("progress", sa.Double, nullable=False),
        sa.Column("current_step", Name(200)),
        sa.Column("message", Name(500)),
        sa.Column("progress_at", Timestamp),
        sa.Column("estimated_finish_at", Timestamp),
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
        sa.Column("prune_at", Timestamp),
        sa.CheckConstraint(
            "status in ('pending', 'running', 'success', 'failed', 'cancelled')",
            name=f"{prefix}status",
        ),
        sa.CheckConstraint(
            "(status = 'running') = (heartbeat_at is not null) and (status = 'running') = (worker_id is not null)",
            name=f"{prefix}running",
        ),
        sa.CheckConstraint(
            "(status in ('success', 'failed', 'cancelled')) = (finished_at is not null)",
            name=f"{prefix}final",
        ),
        sa.CheckConstraint("status in ('pending', 'running') or active_key is null", name=f"{prefix}active"),
        sa.CheckConstraint("status = 'pending' or ready = false", name=f"{prefix}ready"),
        postgresql_with={"autovacuum_vacuum_scale_factor": 0.02, "autovacuum_vacuum_threshold": 1000},
    )
    c = table.c
    pending = c.status == sa.literal_column("'pending'")
    # SQLite uses a partial index only if the query has the predicate's own words, so every claim says both of these
    ready = sa.and_(c.ready, pending)
    waiting = sa.and_(pending, sa.not_(c.ready), c.waits_for.is_(None))
    suspect = sa.and_(c.ready, pending, c.crash_count > sa.literal_column("0"))
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
        (
            "expiry",
            [c.start_before],
            sa.and_(c.status == sa.literal_column("'pending'"), c.start_before.is_not(None)),
        ),
        ("key", [c.task_type, c.business_key, c.owner, c.id], c.business_key.is_not(None)),
        # what a page shows of an owner: the newest
        ("owner", [c.owner, c.id], c.owner.is_not(None)),
        # how many an owner has under way
        ("active", [c.owner, c.task_type], sa.and_(c.owner.is_not(None), c.finished_at.is_(None))),
        ("prune", [c.prune_at], c.prune_at.is_not(None)),
    ]
    for name, columns, predicate in partial:
        index = sa.Index(
            f"{prefix}tasks_{name}", *columns, postgresql_where=predicate, sqlite_where=predicate
        )
        index.ddl_if(callable_=partial_indexes)
    given = c.request_key.is_not(None)
    sa.Index(
        f"{prefix}tasks_request_key", c.request_key, unique=True, postgresql_where=given, sqlite_where=given
    )
    full: list[tuple[str, list[sa.ColumnElement[Any]]]] = [
        ("ready", [c.status, c.ready, c.queue, c.priority.desc(), c.run_at, c.id]),
        ("suspect", [c.status, c.ready, c.crash_count]),
        ("due", [c.status, c.ready, c.run_at]),
        ("beat", [c.heartbeat_at]),
        ("worker", [c.worker_id]),
        ("expiry", [c.status, c.start_before]),
        ("key", [c.task_type, c.business_key, c.owner, c.id]),
        ("owner", [c.owner, c.id]),
        ("active", [c.owner, c.finished_at, c.task_type]),
        ("prune", [c.prune_at]),
    ]
    for name, columns in full:
        sa.Index(f"{prefix}tasks_{name}_full", *columns).ddl_if(callable_=no_partial_indexes)


def attempts(metadata: sa.MetaData, prefix: str) -> None:
    table = define(
        metadata,
        prefix,
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
        sa.Column("sweep_at", Timestamp),
    )
    left = table.c.sweep_at.is_not(None)
    index = sa.Index(f"{prefix}attempts_sweep", table.c.sweep_at, postgresql_where=left, sqlite_where=left)
    index.ddl_if(callable_=partial_indexes)
    sa.Index(f"{prefix}attempts_sweep_full", table.c.sweep_at).ddl_if(callable_=no_partial_indexes)


def files(metadata: sa.MetaData, prefix: str) -> None:
    table = define(
        metadata,
        prefix,
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
    there = sa.and_(table.c.deleted_at.is_(None), table.c.expires_at.is_not(None))
    index = sa.Index(f"{prefix}files_expiry", table.c.expires_at, postgresql_where=there, sqlite_where=there)
    index.ddl_if(callable_=partial_indexes)
    whole = sa.Index(f"{prefix}files_expiry_full", table.c.deleted_at, table.c.expires_at)
    whole.ddl_if(callable_=no_partial_indexes)


def uploads(metadata: sa.MetaData, prefix: str) -> None:
    table = define(
        metadata,
        prefix,
        "uploads",
        sa.Column("id", Id, primary_key=True),
        sa.Column("owner", Name(200)),
        sa.Column("filename", Name(200), nullable=False),
        sa.Column("content_type", Name(200), nullable=False),
        sa.Column("size", sa.BigInteger),
        sa.Column("sha256", Hash),
        sa.Column("object_key", Name(700)),
        sa.Column("created_at", Timestamp, nullable=False),
        sa.Column("completed_at", Timestamp),
        sa.Column("expires_at", Timestamp),
    )
    sa.Index(f"{prefix}uploads_expiry", table.c.expires_at)


def upload_parts(metadata: sa.MetaData, prefix: str) -> None:
    define(
        metadata,
        prefix,
        "upload_parts",
        sa.Column("upload_id", Id, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", Hash, nullable=False),
        sa.Column("object_key", Name(700), nullable=False),
    )


def upload_uses(metadata: sa.MetaData, prefix: str) -> None:
    table = define(
        metadata,
        prefix,
        "upload_uses",
        sa.Column("task_id", Id, primary_key=True),
        sa.Column("upload_id", Id, primary_key=True),
    )
    sa.Index(f"{prefix}upload_uses_upload", table.c.upload_id)


def steps(metadata: sa.MetaData, prefix: str) -> None:
    define(
        metadata,
        prefix,
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


def workers(metadata: sa.MetaData, prefix: str) -> None:
    define(
        metadata,
        prefix,
        "workers",
        sa.Column("name", Name(150), primary_key=True),
        sa.Column("host", Name(200), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("version", sa.String(40), nullable=False),
        sa.Column("queues", Json, nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("capacity", Json, nullable=False),
        sa.Column("started_at", Timestamp, nullable=False),
        sa.Column("heartbeat_at", Timestamp, nullable=False),
        sa.Column("stopping", sa.Boolean, nullable=False),
        sa.Column("short_of", Name(200)),
    )


def queues(metadata: sa.MetaData, prefix: str) -> None:
    define(
        metadata,
        prefix,
        "queues",
        sa.Column("name", Name(100), primary_key=True),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("limits", Json),
    )


def schedules(metadata: sa.MetaData, prefix: str) -> None:
    define(
        metadata,
        prefix,
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


def durations(metadata: sa.MetaData, prefix: str) -> None:
    define(
        metadata,
        prefix,
        "durations",
        sa.Column("task_type", Name(100), primary_key=True),
        sa.Column("history", Json, nullable=False),
        sa.Column("updated_at", Timestamp, nullable=False),
    )


def installation(metadata: sa.MetaData, prefix: str) -> None:
    define(
        metadata,
        prefix,
        "installation",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("environment", Name(100), nullable=False),
        sa.Column("secret", sa.String(64), nullable=False),
        sa.Column("installed_at", Timestamp, nullable=False),
    )
