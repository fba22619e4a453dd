"""The uploads of a running task: found under its fence, opened as a file that is read bit by bit, or downloaded whole."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from dumbwaiter.errors import ConfigurationError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from dumbwaiter.executors.base import Running
    from dumbwaiter.files import FileStore
    from dumbwaiter.store.store import Store
    from dumbwaiter.store.uploads import UploadRow

# What is asked of an object store, or of the worker, at once.
READ = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """An upload that the task was given: its name, its size in bytes, and where it lies if that is this machine's disk."""

    filename: str
    size: int
    path: str | None = None


class Inputs(Protocol):
    """Where a running task finds its uploads. Each call may block, and raises LostClaim; all but `read` UnknownUpload."""

    def find(self, upload_id: str) -> Found: ...

    def read(self, upload_id: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to and without `end`, of an upload that was found before."""
        ...

    def fetch(self, upload_id: str, into: Path) -> None:
        """Write the whole upload to that path, or nothing if it is not what was uploaded."""
        ...


class NoInputs:
    """A function that was called by hand, without a worker."""

    def find(self, upload_id: str) -> Found:
        raise ConfigurationError(
            "this task does not run in a worker, so there is nothing that finds its uploads"
        )

    def read(self, upload_id: str, start: int, end: int) -> bytes:
        raise NotImplementedError

    def fetch(self, upload_id: str, into: Path) -> None:
        raise NotImplementedError


class StoredInputs:
    """The uploads of one attempt that runs in this worker."""

    def __init__(self, store: Store, files: Callable[[], FileStore], running: Running) -> None:
        self._store = store
        self._files = files
        self._running = running
        self._rows: dict[str, UploadRow] = {}

    def find(self, upload_id: str) -> Found:
        row = self._row(upload_id)
        path = self._files().local_path(row.object_key or "")
        return Found(row.filename, row.size or 0, None if path is None else str(path))

    def read(self, upload_id: str, start: int, end: int) -> bytes:
        return self._files().piece(self._row(upload_id).object_key or "", start, end)

    def fetch(self, upload_id: str, into: Path) -> None:
        row = self._row(upload_id)
        self._files().fetch(row.object_key or "", into, size=row.size or 0, sha256=row.sha256 or "")

    def _row(self, upload_id: str) -> UploadRow:
        """It stays what it is for as long as the task is there, so one look is enough."""
        row = self._rows.get(upload_id)
        if row is None:
            fence = self._running.task.fence
            row = self._rows[upload_id] = self._store.uploads.used_by(fence, upload_id)
        return row


class RemoteFile(io.RawIOBase):
    """An upload that lies elsewhere, as a file: what is read of it is fetched then."""

    def __init__(self, inputs: Inputs, upload_id: str, size: int) -> None:
        self._inputs = inputs
        self._upload_id = upload_id
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"there is nothing before the beginning of the file: {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        end = min(self._at + min(len(view), READ), self._size)
        if end <= self._at:
            return 0
        piece = self._inputs.read(self._upload_id, self._at, end)
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def opened(inputs: Inputs, upload_id: str) -> BinaryIO:
    """The upload as a file to read. Raises UnknownUpload, LostClaim, FileNotFoundError if it was removed by hand."""
    found = inputs.find(upload_id)
    if found.path is not None:
        return Path(found.path).open("rb")
    return io.BufferedReader(RemoteFile(inputs, upload_id, found.size), READ)


def downloaded(inputs: Inputs, upload_id: str, workdir: Path, into: str | Path | None) -> Path:
    """The upload as a file in the work directory, or where `into` says; the path of it."""
    name = inputs.find(upload_id).filename
    target = workdir / (name if into is None else into)
    if target.is_dir():
        target /= name
    elif into is None and target.exists():
        raise FileExistsError(f"there is a file {name} in the work directory already: say where to, into=…")
    target = target.absolute()
    inputs.fetch(upload_id, target)
    return target
