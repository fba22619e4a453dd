"""Inputs that somebody sends: received in parts or in one go, completed, and removed when nobody needs them.

The row is there before the first byte, so that the sweep finds whatever a crash leaves.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from uuid_utils import uuid7

from dumbwaiter.arrivals import Arrivals
from dumbwaiter.errors import (
    FileGone,
    FileStoreError,
    InvalidOption,
    UnknownUpload,
    UploadConflict,
    UploadTooLarge,
)
from dumbwaiter.executors.context import CONTENT_TYPE
from dumbwaiter.executors.upload import ID, Upload
from dumbwaiter.retry import storable
from dumbwaiter.store.uploads import Part, UploadRow, refuse_incomplete

if TYPE_CHECKING:
    from dumbwaiter.files import FileStore
    from dumbwaiter.settings import Settings
    from dumbwaiter.store.store import Store

log = logging.getLogger("dumbwaiter")

MOST_PARTS = 10_000
READ = 1024 * 1024
# No text that a name of a file cannot be, on any system that a task may write it to, and no line break for a header.
BAD_IN_NAMES = re.compile(r"[/\\\x00-\x1f\x7f]")
UNNAMED = "upload"


class Uploads:
    """The uploads of an application. An upload of another owner does not exist: every method raises UnknownUpload for it."""

    def __init__(self, settings: Settings, store: Store, files: Callable[[], FileStore]) -> None:
        self.limit = settings.max_upload
        self._keep = settings.upload_expiry
        self._table = store.uploads
        self._files = files
        self._coming = Arrivals(settings.max_upload)

    def announce(
        self, owner: str | None, *, filename: str = UNNAMED, content_type: str = "", size: int | None = None
    ) -> UploadRow:
        """A new upload that has no parts yet. `size` is what all of it will have, in bytes, if that is known.

        Raises InvalidOption for a name or a content type that cannot be, UploadTooLarge.
        """
        from dumbwaiter.files import content_type_of

        refuse_names(filename, content_type)
        if size is not None and size > self.limit:
            raise UploadTooLarge(self.limit)
        upload_id = str(uuid7())
        kind = content_type or content_type_of(filename)
        self._table.create(
            upload_id, owner=owner, filename=filename, content_type=kind, size=size, keep=self._keep
        )
        return self._table.get(upload_id)

    def of(self, upload_id: str, owner: str | None) -> UploadRow:
        """The upload, if it is this owner's. Raises UnknownUpload."""
        upload = self.get(upload_id)
        if upload.owner != owner:
            raise UnknownUpload(upload_id)
        return upload

    def get(self, upload_id: str) -> UploadRow:
        """The upload, whosever it is. Raises UnknownUpload."""
        if not ID.fullmatch(upload_id):
            raise UnknownUpload(upload_id[:100])
        return self._table.get(upload_id)

    def parts(self, upload: UploadRow) -> list[Part]:
        """What has come of it so far."""
        return self._table.parts(upload.id)

    def room(self, upload: UploadRow, number: int) -> int:
        """How many bytes its part of that number may have beside the others. Raises UploadConflict if it is complete."""
        refuse_complete(upload)
        return self.limit - sum(part.size for part in self.parts(upload) if part.number != number)

    def receive_part(self, upload: UploadRow, number: int, pieces: Iterable[bytes]) -> Part:
        """Store one part; one that is sent again takes the place of the one before.

        Raises UploadTooLarge as soon as a byte too many has come, UploadConflict, FileStoreError, and what `pieces` raises.
        """
        from dumbwaiter.files import upload_key

        key = upload_key(upload.id, f"part-{number}")
        with self._coming.part(upload.id, number) as coming:
            refuse_complete(upload)
            coming.know({part.number: part.size for part in self.parts(upload)})
            pieces = coming.counted(pieces)
            stored = self._files().put_pieces(pieces, key, filename=upload.filename)
            part = Part(number, stored.size, stored.sha256, key)
            try:
                before = self._table.put_part(upload.id, part, limit=self.limit, keep=self._keep)
            except BaseException:
                self._remove([key])
                raise
            coming.stored(part.size)
        if before is not None:
            self._remove([before])
        return part

    def complete(self, upload: UploadRow, *, sha256: str | None = None) -> UploadRow:
        """Make one object of its parts, in the order of their numbers. Completing it again changes nothing.

        Raises UploadConflict if a part is missing, if the whole has another size than was announced or another SHA-256 than is
        given, or if a part was sent anew meanwhile.
        """
        if upload.completed_at is None:
            try:
                return self._complete_parts(upload, sha256)
            except UploadConflict:
                # somebody else may have been faster, and have taken the parts from under our hands
                upload = self._table.get(upload.id)
                if upload.completed_at is None:
                    raise
        if sha256 is not None and upload.sha256 != sha256:
            raise other_checksum(upload.id, upload.sha256)
        return upload

    def _complete_parts(self, upload: UploadRow, sha256: str | None) -> UploadRow:
        parts = self.parts(upload)
        refuse_gaps(upload, parts)
        whole = parts[0] if len(parts) == 1 else self._joined(upload, parts)
        ours = [] if whole in parts else [whole.object_key]
        try:
            if sha256 is not None and whole.sha256 != sha256:
                raise other_checksum(upload.id, whole.sha256)
            row = self._complete(upload, whole, parts)
        except BaseException:
            self._remove(ours)
            raise
        if row.object_key != whole.object_key:  # somebody else was faster
            self._remove(ours)
        elif ours:
            self._remove([part.object_key for part in parts])
        return row

    def receive(
        self,
        owner: str | None,
        pieces: Iterable[bytes],
        *,
        filename: str = UNNAMED,
        content_type: str = "",
        size: int | None = None,
    ) -> UploadRow:
        """An upload in one go. Raises what `announce` and `receive_part` raise; nothing is left of it then."""
        from dumbwaiter.files import upload_key

        upload = self.announce(owner, filename=filename, content_type=content_type, size=size)
        try:
            key = upload_key(upload.id, filename)
            stored = self._files().put_pieces(
                self._cut(pieces, self.limit), key, filename=filename, content_type=upload.content_type
            )
            if size is not None and stored.size != size:
                raise UploadConflict(upload.id, f"it has {stored.size:,} bytes, and {size:,} were announced")
            return self._complete(upload, Part(1, stored.size, stored.sha256, key), ())
        except BaseException:
            self._drop(upload.id)
            raise

    def put(
        self,
        source: Path | bytes,
        owner: str | None,
        *,
        filename: str | None = None,
        content_type: str = "",
    ) -> Upload:
        """Upload a file of this machine, or bytes. Raises what `receive` raises, and OSError if it cannot be read."""
        name = filename or (UNNAMED if isinstance(source, bytes) else source.name)
        if isinstance(source, bytes):
            return as_upload(self.receive(owner, [source], filename=name, content_type=content_type))
        with source.open("rb") as file:
            pieces = iter(lambda: file.read(READ), b"")
            return as_upload(self.receive(owner, pieces, filename=name, content_type=content_type))

    def settle(self, uploads: Sequence[Upload], owner: str | None) -> None:
        """Complete what is known of the uploads among a task's arguments: those that are none yet are uploaded now.

        Raises UnknownUpload, UploadConflict (one is not complete), and what `put` raises.
        """
        for upload in uploads:
            if upload.source is not None:
                upload.know(self.put(upload.source, owner))
            else:
                row = self.of(upload.id, owner)
                refuse_incomplete(row)
                upload.know(as_upload(row))

    def _cut(self, pieces: Iterable[bytes], room: int) -> Iterator[bytes]:
        """The pieces, until there are too many bytes."""
        for piece in pieces:
            room -= len(piece)
            if room < 0:
                raise UploadTooLarge(self.limit)
            yield piece

    def _joined(self, upload: UploadRow, parts: Sequence[Part]) -> Part:
        from dumbwaiter.files import upload_key

        key = upload_key(upload.id, upload.filename)
        keys = [part.object_key for part in parts]
        try:
            stored = self._files().join(keys, key, filename=upload.filename, content_type=upload.content_type)
        except FileGone:
            raise UploadConflict(
                upload.id, "a part of it was sent anew while it was completed; complete it again"
            ) from None
        return Part(0, stored.size, stored.sha256, key)

    def _complete(self, upload: UploadRow, whole: Part, parts: Sequence[Part]) -> UploadRow:
        return self._table.complete(
            upload.id,
            parts=parts,
            size=whole.size,
            sha256=whole.sha256,
            object_key=whole.object_key,
            keep=self._keep,
        )

    def _remove(self, keys: Sequence[str]) -> None:
        """What is in nobody's way stays until the sweep, if it cannot be removed now."""
        try:
            self._files().delete(keys)
        except FileStoreError as error:
            log.warning("what an upload does not need any more stays for a while: %s", error)

    def _drop(self, upload_id: str) -> None:
        with suppress(Exception):  # the sweep does it
            self._files().delete_upload(upload_id)
            self._table.forget([upload_id])


def sweep_uploads(store: Store, files: FileStore, limit: int = 100, *, now: datetime | None = None) -> int:
    """Remove uploads whose time is over, at most so many: what is stored of them, then their rows. How many it were.

    Any process may do it at any time, and two may meet. One whose objects cannot be removed keeps its row, and the others go all
    the same. Raises FileStoreError if none can.
    """
    gone, fault = [], None
    for upload_id in store.uploads.expired(limit=limit, now=now):
        try:
            files.delete_upload(upload_id)
        except FileStoreError as error:
            log.warning("an upload that nobody needs stays for a while: %s", error)
            fault = error
        else:
            gone.append(upload_id)
    if gone:
        store.uploads.forget(gone)
    elif fault is not None:
        raise fault
    return len(gone)


def as_upload(row: UploadRow) -> Upload:
    """A complete upload as a task gets it."""
    return Upload(row.id, row.filename, row.content_type, row.size or 0, row.sha256 or "")


def refuse_names(filename: str, content_type: str) -> None:
    """Raise InvalidOption for what cannot be the name or the content type of a file."""
    bad = BAD_IN_NAMES.search(filename) or filename in {"", ".", ".."}
    if bad or storable(filename) != filename or len(filename.encode()) > 200:
        raise InvalidOption(
            f"filename {filename[:80]!r}: give 1 to 200 bytes of UTF-8, without slashes and control characters"
        )
    if content_type and not CONTENT_TYPE.fullmatch(content_type):
        raise InvalidOption(f"content_type {content_type[:80]!r}: give one such as text/csv")


def refuse_complete(upload: UploadRow) -> None:
    """Raise UploadConflict if it takes no further part."""
    if upload.completed_at is not None:
        raise UploadConflict(upload.id, "it is complete and takes no further part")


def refuse_gaps(upload: UploadRow, parts: Sequence[Part]) -> None:
    """Raise UploadConflict unless the parts are all there."""
    if not parts:
        raise UploadConflict(upload.id, "no part of it has come yet")
    missing = next((number for number, part in enumerate(parts, 1) if part.number != number), None)
    if missing is not None:
        raise UploadConflict(upload.id, f"its part {missing} is missing")
    size = sum(part.size for part in parts)
    if upload.size is not None and upload.size != size:
        raise UploadConflict(upload.id, f"its parts have {size:,} bytes, and {upload.size:,} were announced")


def other_checksum(upload_id: str, sha256: str | None) -> UploadConflict:
    return UploadConflict(upload_id, f"its SHA-256 is {sha256}, and another one was given")
