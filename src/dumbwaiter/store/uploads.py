"""Uploads: files that somebody sends as input, from their announcement until no task needs them any more.

An upload is found by nobody once its `expires_at` has passed, so nothing can bring it back while it is being removed. The
tasks that use it keep it: then it has no such time, until the last of their records is pruned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dumbwaiter.errors import UnknownUpload, UploadConflict, UploadTooLarge
from dumbwaiter.store.dialects import Instant, moved
from dumbwaiter.store.keeping import holds
from dumbwaiter.store.rows import Database
from dumbwaiter.store.steps import lost
from dumbwaiter.task import Fence

if TYPE_CHECKING:
    from dumbwaiter.store.connections import Connections
    from dumbwaiter.store.schema import Schema

# So many pairs of task and upload are looked for at once.
PAIRS = 500


@dataclass(frozen=True, slots=True)
class UploadRow:
    """An upload as it stands. `size` (in bytes) is what was announced, if anything, until it is complete."""

    id: str
    owner: str | None
    filename: str
    content_type: str
    size: int | None
    sha256: str | None
    object_key: str | None
    created_at: datetime
    completed_at: datetime | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an upload, stored under a key of its own. Parts are numbered from 1."""

    number: int
    size: int
    sha256: str
    object_key: str


class UploadTable:
    """The uploads of one database. Each method may be called from any thread; `now` is for tests."""

    def __init__(self, connections: Connections, db: Database, schema: Schema) -> None:
        self._connections = connections
        self._db = db
        self._schema = schema

    def create(
        self,
        upload_id: str,
        *,
        owner: str | None,
        filename: str,
        content_type: str,
        size: int | None = None,
        keep: timedelta,
        now: datetime | None = None,
    ) -> None:
        """Announce an upload, before its first byte comes; it is kept for so long unless something happens to it."""
        self._schema.ensure()
        instant = self._db.now(now)
        row = {
            "id": upload_id,
            "owner": owner,
            "filename": filename,
            "content_type": content_type,
            "size": size,
            "created_at": instant,
            "expires_at": moved(instant, keep, self._db.dialect),
        }
        with self._connections.for_a_request():
            self._connections.again(
                lambda connection: connection.execute(sa.insert(self._db.tables.uploads).values(row)),
                single=True,
            )

    def get(self, upload_id: str, *, now: datetime | None = None) -> UploadRow:
        """The upload. Raises UnknownUpload if there is none, or it has expired."""
        self._schema.ensure()
        with self._connections.for_a_request(), self._connections.reading() as connection:
            return found(self._db, connection, upload_id, self._db.now(now))

    def parts(self, upload_id: str) -> list[Part]:
        """Its parts so far, in their order."""
        self._schema.ensure()
        with self._connections.for_a_request(), self._connections.reading() as connection:
            return parts_of(self._db, connection, upload_id)

    def put_part(
        self, upload_id: str, part: Part, *, limit: int, keep: timedelta, now: datetime | None = None
    ) -> str | None:
        """Let the upload have this part; the key of the object that was the same part before.

        Raises UnknownUpload, UploadConflict (it is complete), UploadTooLarge (its parts have more than `limit` bytes).
        """

        def work(connection: Connection) -> str | None:
            instant = self._db.now(now)
            return put_part(self._db, connection, upload_id, part, limit=limit, keep=keep, now=instant)

        with self._connections.for_a_request():
            return self._connections.again(work)

    def complete(
        self,
        upload_id: str,
        *,
        parts: Sequence[Part],
        size: int,
        sha256: str,
        object_key: str,
        keep: timedelta,
        now: datetime | None = None,
    ) -> UploadRow:
        """Let the upload be this object, which was made of these parts; as it stands then.

        If somebody else has completed it before, it stays as it is: its `object_key` tells. Raises UnknownUpload,
        UploadConflict (it has other parts by now).
        """

        def work(connection: Connection) -> UploadRow:
            instant = self._db.now(now)
            values = {"size": size, "sha256": sha256, "object_key": object_key}
            return complete(self._db, connection, upload_id, parts, values, keep=keep, now=instant)

        with self._connections.for_a_request():
            return self._connections.again(work)

    def used_by(self, fence: Fence, upload_id: str) -> UploadRow:
        """The upload, which a running task was given. Raises UnknownUpload if it was not, LostClaim."""
        with self._connections.reading() as connection:
            return used_by(self._db, connection, fence, upload_id)

    def of_task(self, task_id: str) -> list[str]:
        """The uploads that a task was given."""
        uses = self._db.tables.upload_uses
        statement = sa.select(uses.c.upload_id).where(uses.c.task_id == task_id).order_by(uses.c.upload_id)
        with self._connections.reading() as connection:
            return [str(one) for one in connection.execute(statement).scalars()]

    def expired(self, *, limit: int = 100, now: datetime | None = None) -> list[str]:
        """Uploads whose time is over: never completed, never taken, or of tasks that are no more."""
        self._schema.ensure()
        uploads = self._db.tables.uploads
        over = sa.select(uploads.c.id).where(uploads.c.expires_at <= self._db.now(now))
        with self._connections.reading() as connection:
            rows = connection.execute(over.order_by(uploads.c.expires_at).limit(limit))
            return [str(one) for one in rows.scalars()]

    def forget(self, upload_ids: Sequence[str]) -> None:
        """Remove the rows of uploads that have expired; their objects must be gone before."""
        self._connections.again(lambda connection: forget(self._db, connection, upload_ids))


def found(db: Database, connection: Connection, upload_id: str, now: Instant) -> UploadRow:
    """The upload, if its time is not over. Raises UnknownUpload."""
    row = connection.execute(living(db, [upload_id], now)).mappings().first()
    if row is None:
        raise UnknownUpload(upload_id)
    return to_upload(row)


def locked(db: Database, connection: Connection, upload_id: str, now: Instant) -> UploadRow:
    """The same, kept as it is until this transaction ends."""
    row = connection.execute(living(db, [upload_id], now).with_for_update()).mappings().first()
    if row is None:
        raise UnknownUpload(upload_id)
    return to_upload(row)


def living(db: Database, upload_ids: Sequence[str], now: Instant) -> sa.Select[tuple[object, ...]]:
    """Those of the uploads whose time is not over, in the order in which all lock them."""
    uploads = db.tables.uploads
    return (
        sa.select(uploads)
        .where(
            uploads.c.id.in_(upload_ids), sa.or_(uploads.c.expires_at.is_(None), uploads.c.expires_at > now)
        )
        .order_by(uploads.c.id)
    )


def parts_of(db: Database, connection: Connection, upload_id: str) -> list[Part]:
    parts = db.tables.upload_parts
    columns = (parts.c.number, parts.c.size, parts.c.sha256, parts.c.object_key)
    statement = sa.select(*columns).where(parts.c.upload_id == upload_id).order_by(parts.c.number)
    return [Part(*row) for row in connection.execute(statement)]


def put_part(
    db: Database,
    connection: Connection,
    upload_id: str,
    part: Part,
    *,
    limit: int,
    keep: timedelta,
    now: Instant,
) -> str | None:
    parts = db.tables.upload_parts
    if locked(db, connection, upload_id, now).completed_at is not None:
        raise UploadConflict(upload_id, "it is complete and takes no further part")
    ours = (parts.c.upload_id == upload_id, parts.c.number == part.number)
    others = sa.select(sa.func.coalesce(sa.func.sum(parts.c.size), 0)).where(
        parts.c.upload_id == upload_id, parts.c.number != part.number
    )
    # parts that came at the same time knew nothing of each other
    if int(connection.execute(others).scalar_one()) + part.size > limit:
        raise UploadTooLarge(limit)
    before = connection.execute(sa.select(parts.c.object_key).where(*ours)).scalar()
    row = {"size": part.size, "sha256": part.sha256, "object_key": part.object_key}
    if before is None:
        named = {"upload_id": upload_id, "number": part.number}
        connection.execute(sa.insert(parts).values(named | row))
    else:
        connection.execute(sa.update(parts).where(*ours).values(row))
    prolong(db, connection, upload_id, keep, now)
    return None if before is None else str(before)


def complete(
    db: Database,
    connection: Connection,
    upload_id: str,
    made_of: Sequence[Part],
    values: dict[str, object],
    *,
    keep: timedelta,
    now: Instant,
) -> UploadRow:
    uploads, parts = db.tables.uploads, db.tables.upload_parts
    upload = locked(db, connection, upload_id, now)
    if upload.completed_at is not None:
        return upload
    if parts_of(db, connection, upload_id) != list(made_of):
        raise UploadConflict(
            upload_id, "a part of it was sent anew while it was completed; complete it again"
        )
    connection.execute(
        sa.update(uploads).where(uploads.c.id == upload_id).values(values | {"completed_at": now})
    )
    connection.execute(sa.delete(parts).where(parts.c.upload_id == upload_id))
    prolong(db, connection, upload_id, keep, now)
    return found(db, connection, upload_id, now)


def prolong(db: Database, connection: Connection, upload_id: str, keep: timedelta, now: Instant) -> None:
    uploads = db.tables.uploads
    until = moved(now, keep, db.dialect)
    connection.execute(sa.update(uploads).where(uploads.c.id == upload_id).values(expires_at=until))


# within the transaction that enqueues a task


def take(
    db: Database, connection: Connection, upload_ids: Iterable[str], owner: str | None, now: Instant
) -> None:
    """Hold uploads until this transaction ends. Raises UnknownUpload for one that is not this owner's, UploadConflict.

    It writes nothing, so that in a caller's transaction a refusal leaves nothing behind.
    """
    wanted = sorted(set(upload_ids))
    rows = connection.execute(living(db, wanted, now).with_for_update()).mappings()
    there = {row["id"]: to_upload(row) for row in rows}
    for upload_id in wanted:
        upload = there.get(upload_id)
        if upload is None or upload.owner != owner:
            raise UnknownUpload(upload_id)
        refuse_incomplete(upload)


def refuse_incomplete(upload: UploadRow) -> None:
    if upload.completed_at is None:
        raise UploadConflict(upload.id, "it is not complete, so no task can take it")


def use(db: Database, connection: Connection, pairs: Sequence[tuple[str, str]]) -> None:
    """Let tasks have uploads that `take` holds: pairs of task and upload. They are kept as long as one of the tasks is there."""
    uploads, uses = db.tables.uploads, db.tables.upload_uses
    for start in range(0, len(pairs), PAIRS):
        some = pairs[start : start + PAIRS]
        # an enqueue whose commit nobody heard of is made again under the same id
        known = sa.select(uses.c.task_id, uses.c.upload_id).where(
            uses.c.task_id.in_({task for task, _ in some})
        )
        there = {(str(task), str(upload)) for task, upload in connection.execute(known)}
        rows = [
            {"task_id": task, "upload_id": upload}
            for task, upload in dict.fromkeys(some)
            if (task, upload) not in there
        ]
        if rows:
            connection.execute(sa.insert(uses), rows)
        taken = sorted({upload for _, upload in some})
        connection.execute(sa.update(uploads).where(uploads.c.id.in_(taken)).values(expires_at=None))


# when tasks are gone


def let_go(db: Database, connection: Connection, task_ids: Sequence[str], now: Instant) -> None:
    """These tasks are being removed: uploads that no other task uses are left to the next sweep."""
    uploads, uses = db.tables.uploads, db.tables.upload_uses
    used = sa.select(uses.c.upload_id).where(uses.c.task_id.in_(task_ids)).distinct()
    upload_ids = sorted(str(one) for one in connection.execute(used).scalars())
    if not upload_ids:
        return
    # an enqueue that takes one at this moment is waited for, and then seen
    held = sa.select(uploads.c.id).where(uploads.c.id.in_(upload_ids)).order_by(uploads.c.id)
    connection.execute(held.with_for_update()).all()
    connection.execute(sa.delete(uses).where(uses.c.task_id.in_(task_ids)))
    still = sa.select(uses.c.upload_id).where(uses.c.upload_id.in_(upload_ids)).distinct()
    free = set(upload_ids) - {str(one) for one in connection.execute(still).scalars()}
    if free:
        connection.execute(sa.update(uploads).where(uploads.c.id.in_(sorted(free))).values(expires_at=now))


def forget(db: Database, connection: Connection, upload_ids: Sequence[str]) -> None:
    tables = db.tables
    for column in (tables.upload_parts.c.upload_id, tables.upload_uses.c.upload_id, tables.uploads.c.id):
        connection.execute(sa.delete(column.table).where(column.in_(upload_ids)))


# while a task runs


def used_by(db: Database, connection: Connection, fence: Fence, upload_id: str) -> UploadRow:
    tables = db.tables
    tasks, uses, uploads = tables.tasks, tables.upload_uses, tables.uploads
    given = sa.and_(uses.c.task_id == tasks.c.id, uses.c.upload_id == upload_id)
    row = (
        connection.execute(
            sa.select(uploads)
            .select_from(tasks.outerjoin(uses, given).outerjoin(uploads, uploads.c.id == uses.c.upload_id))
            .where(*holds(db, fence))
        )
        .mappings()
        .first()
    )
    if row is None:
        raise lost(fence)
    if row["id"] is None:
        raise UnknownUpload(upload_id)
    return to_upload(row)


def to_upload(row: sa.RowMapping) -> UploadRow:
    return UploadRow(**row)
