"""Result files, on a directory or on an object store: put, stream, link, delete."""

from __future__ import annotations

import hashlib
import logging
import mimetypes
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from dumbwaiter.errors import ConfigurationError, FileGone, FileStoreError

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

    from dumbwaiter.task import ResultFile

log = logging.getLogger("dumbwaiter")

CHUNK = 1024 * 1024
# S3 takes parts of 5 MiB and more, and 10,000 of them: 8 MiB parts allow files of 78 GiB in 32 MiB of memory.
PART = 8 * CHUNK
PARTS_AT_ONCE = 4
# A request that sends or fetches one part; slower than 140 kB/s counts as a dead connection.
REQUEST_TIMEOUT = timedelta(seconds=60)
# Four retries within 20 s; the task's own retries come after that.
RETRIES = 4
RETRY_TIMEOUT = timedelta(seconds=20)
LONGEST_LINK = timedelta(days=7)  # what S3's signature version 4 allows

# In the address of a link that dies with the credentials that signed it.
TEMPORARY = "X-Amz-Security-Token="
FETCHED_ANEW = timedelta(minutes=5)

PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,119}")
SCHEMES = ("file", "s3", "gs", "az", "memory")
OPTIONS: dict[str, frozenset[str]] = {
    "s3": frozenset({"endpoint", "public_endpoint", "region", "virtual_hosted_style"}),
    "az": frozenset({"account", "endpoint"}),
}

first_user: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What is known about a file once it is stored; `size` in bytes, `sha256` in hexadecimal."""

    size: int
    sha256: str
    content_type: str


def object_key(task_id: str, attempt: int, name: str) -> str:
    """Where a result file of that name lies: `<task>/<attempt>/<name as every store and file system takes it>`.

    Names of lower-case letters, digits, `.`, `_` and `-` stay as they are. Any other name becomes `_`, what is readable
    of it, 16 digits of its SHA-256 and its extension: so two names never meet, on a disk that ignores case either.
    """
    return f"{attempt_prefix(task_id, attempt)}/{stored_name(name)}"


def attempt_prefix(task_id: str, attempt: int) -> str:
    """Where all files of one attempt lie; the attempt is in the key, so a late attempt overwrites nothing."""
    return f"{task_id}/{attempt}"


def kept_prefix(task_id: str) -> str:
    """Where the files lie that attempts of a task keep for later ones (`ctx.keep`)."""
    return f"{task_id}/kept"


def kept_key(task_id: str, attempt: int, name: str) -> str:
    """Where a kept file of that name lies; new at each call, so that the one before stays whole until its row changes."""
    return f"{kept_prefix(task_id)}/{attempt}-{secrets.token_hex(4)}/{stored_name(name)}"


def upload_prefix(upload_id: str) -> str:
    """Where everything of one upload lies. No task's id is "uploads"."""
    return f"uploads/{upload_id}"


def upload_key(upload_id: str, name: str) -> str:
    """Where an upload, or a part of it, lies; new at each call, so that what is sent again overwrites nothing half-way."""
    return f"{upload_prefix(upload_id)}/{secrets.token_hex(4)}/{stored_name(name)}"


def stored_name(name: str) -> str:
    """A file name as a key may hold it; see `object_key`."""
    if PLAIN_NAME.fullmatch(name):
        return name
    stem, _, extension = name.rpartition(".")
    readable = re.sub(r"[^a-z0-9]+", "-", (stem or extension).lower()).strip("-")[:40]
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    suffix = f".{extension.lower()}" if stem and re.fullmatch(r"[A-Za-z0-9]{1,10}", extension) else ""
    return "_" + "-".join(part for part in (readable, digest) if part) + suffix


def content_type_of(name: str) -> str:
    """The content type that a file's name stands for; bytes without a type when nothing is known."""
    kind, encoding = mimetypes.guess_type(name, strict=False)
    return kind if kind and not encoding else "application/octet-stream"


def content_disposition(name: str) -> str:
    """The header that makes a browser save a file under its name, whatever its letters (RFC 6266, RFC 8187)."""
    clean = re.sub(r"[\x00-\x1f\x7f]", "_", name)
    plain = re.sub(r'[^\x20-\x7e]|["\\%]', "_", clean)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(clean, safe='', errors='replace')}"


class FileStore:
    """Where result files lie, by URL; keys are relative to it.

    | URL | where |
    |---|---|
    | a path, `file:///path` | a directory of this machine or a shared mount |
    | `s3://bucket/prefix?endpoint=…&region=…&virtual_hosted_style=true&public_endpoint=…` | Amazon S3 and what speaks like it |
    | `gs://bucket/prefix` | Google Cloud Storage |
    | `az://container/prefix?account=…` | Azure Blob Storage |
    | `memory://` | this process's memory, for tests |

    Credentials come from where each cloud's tools look for them (`AWS_ACCESS_KEY_ID`, …), never from the URL.
    `public_endpoint` is the address that links name, when browsers reach the store under another one than this server.

        files = FileStore("s3://exports/videos?endpoint=http://minio:9000")
        stored = files.put(path, object_key(task.id, task.attempt, "film.mp4"), filename="film.mp4")

    Raises ConfigurationError for a URL that cannot be; every other method raises FileStoreError when the store does not
    do what it was asked (`error.transient` says whether trying again may help), FileGone for a key that is not there.
    """

    def __init__(self, url: str | os.PathLike[str], *, prefix: str = "") -> None:
        self.url = os.fspath(url)
        self._shelf = shelf_at(self.url, prefix)

    @property
    def local(self) -> bool:
        """The files lie in a directory: only processes that see it can serve them."""
        return isinstance(self._shelf, Directory)

    def put(self, path: str | Path, key: str, *, filename: str, content_type: str | None = None) -> Stored:
        """Store a file under a key, in bounded memory; afterwards the whole file is there, before nothing is.

        The file's size and checksum are those of the bytes that were sent. A file that is there already is replaced.
        """
        kind = content_type or content_type_of(filename)
        with Path(path).open("rb") as source:
            counted = Counted(source)
            self._shelf.put(counted, checked(key), kind, content_disposition(filename))
        return Stored(counted.size, counted.sha256, kind)

    def put_pieces(
        self, pieces: Iterable[bytes], key: str, *, filename: str, content_type: str | None = None
    ) -> Stored:
        """Store what comes piece by piece, in bounded memory; afterwards the whole of it is there, before nothing is.

        What the pieces raise comes through, and nothing is stored then.
        """
        kind = content_type or content_type_of(filename)
        flow = Flow(pieces)
        counted = CountedFlow(flow)
        try:
            self._shelf.put(counted, checked(key), kind, content_disposition(filename))
        except FileStoreError:
            if flow.fault is not None:  # obstore tells an error of its own
                raise flow.fault from None
            raise
        return Stored(counted.size, counted.sha256, kind)

    def join(self, keys: Iterable[str], key: str, *, filename: str, content_type: str) -> Stored:
        """Store the files under these keys, one after the other, as one."""
        pieces = (piece for one in keys for piece in self.stream(one))
        # obstore asks for them within its own loop, and cannot be asked for anything from there
        with ThreadPoolExecutor(1, "dumbwaiter-join") as elsewhere:
            ahead = iter(lambda: elsewhere.submit(next, pieces, b"").result(), b"")
            return self.put_pieces(ahead, key, filename=filename, content_type=content_type)

    def piece(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to and without `end`, both within the file."""
        return b"".join(self._shelf.read(checked(key), start, end))

    def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to and without `end`, in pieces of at most 8 MiB.

        Raises FileGone at once, not at the first piece, so that a web server can still answer 404.
        """
        size = self.size(key)
        return self._shelf.read(checked(key), max(start, 0), size if end is None else min(end, size))

    def fetch(self, key: str, path: str | Path, *, size: int, sha256: str) -> None:
        """Write the file under a key to a path: the whole file, or nothing if it is not that size and checksum."""
        target = Path(path)
        with spoken(f"write {target}"):
            half = unfinished(target.parent)
        seen = hashlib.sha256()
        try:
            with half:
                for piece in self.stream(key):
                    seen.update(piece)
                    with spoken(f"write {target}"):
                        half.write(piece)
                length = half.tell()
            if (length, seen.hexdigest()) != (size, sha256):
                raise FileStoreError(f"cannot fetch {key}: it is not the file that was stored")
            with spoken(f"write {target}"):
                Path(half.name).replace(target)
        finally:
            Path(half.name).unlink(missing_ok=True)

    def size(self, key: str) -> int:
        """How many bytes lie under a key."""
        return self._shelf.size(checked(key))

    def delete(self, keys: Iterable[str]) -> None:
        """Remove files; those that are gone already are fine."""
        self._shelf.remove([checked(key) for key in keys])

    def delete_attempt(self, task_id: str, attempt: int) -> None:
        """Remove whatever an attempt stored, known to the tables or not: it failed, was cancelled or was lost."""
        self._shelf.remove_under(checked(attempt_prefix(task_id, attempt)))

    def delete_kept(self, task_id: str) -> None:
        """Remove what the attempts of a task kept for later ones: it has ended."""
        self._shelf.remove_under(checked(kept_prefix(task_id)))

    def delete_upload(self, upload_id: str) -> None:
        """Remove whatever of an upload was stored, half or whole."""
        self._shelf.remove_under(checked(upload_prefix(upload_id)))

    def link(self, file: ResultFile, *, expires: timedelta) -> str | None:
        """An address that serves the file without asking us, for so long, but no longer than the file is kept.

        None where only we can serve it: from a directory, and with temporary credentials that would end before the link does.
        """
        if file.expires_at is not None:
            expires = min(expires, file.expires_at - datetime.now(UTC))
        return self._shelf.link(
            checked(file.object_key), min(max(expires, timedelta(seconds=1)), LONGEST_LINK)
        )

    def local_path(self, key: str) -> Path | None:
        """Where the file lies on this machine, for a web server that sends files itself; None if it does not."""
        return self._shelf.path(checked(key))


class Counted:
    """A file that is being read: how many bytes went by, and their checksum."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def expected(self) -> int:
        """The file's size as it stands now."""
        return os.fstat(self._source.fileno()).st_size

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def read(self, size: int) -> bytes:
        chunk = self._source.read(size)
        self._hash.update(chunk)
        self.size += len(chunk)
        return chunk

    def chunks(self, size: int) -> Iterator[bytes]:
        while chunk := self.read(size):
            yield chunk


class Flow:
    """Pieces of bytes, read as from a file. `fault` is what they raised."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._waiting = bytearray()
        self.fault: Exception | None = None

    def fill(self, size: int) -> int:
        """Have so many bytes ready, if there are as many; how many there are."""
        try:
            while len(self._waiting) < size and (piece := next(self._pieces, b"")):
                self._waiting += piece
        except Exception as error:
            self.fault = error
            raise
        return len(self._waiting)

    def read(self, size: int) -> bytes:
        there = self.fill(sys.maxsize if size < 0 else size)
        taken = bytes(self._waiting[: there if size < 0 else size])
        del self._waiting[: len(taken)]
        return taken


class CountedFlow(Counted):
    """The same of bytes whose number is known only once the last of them has come."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(cast("BinaryIO", flow))
        self._flow = flow

    @property
    def expected(self) -> int:
        """At least so many; more than a part only if there are."""
        return self._flow.fill(PART + 1)


class Shelf(Protocol):
    """What a place for files must be able to do. Keys come in checked."""

    def put(self, source: Counted, key: str, content_type: str, disposition: str) -> None: ...

    def read(self, key: str, start: int, end: int) -> Iterator[bytes]: ...

    def size(self, key: str) -> int: ...

    def remove(self, keys: list[str]) -> None: ...

    def remove_under(self, prefix: str) -> None: ...

    def link(self, key: str, expires: timedelta) -> str | None: ...

    def path(self, key: str) -> Path | None: ...


class Directory:
    """Files in a directory. Plain system calls: obstore's local store neither syncs nor lists what a crash left half."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, source: Counted, key: str, content_type: str, disposition: str) -> None:
        # A directory keeps no headers; whoever serves the file knows them from the task's row.
        target = self._root / key
        with spoken(f"store {target}"):
            with self._half_written(target.parent) as half:
                for chunk in source.chunks(CHUNK):
                    half.write(chunk)
                half.flush()
                os.fsync(half.fileno())
                Path(half.name).replace(target)
            synced(target.parent)

    @contextmanager
    def _half_written(self, directory: Path) -> Iterator[BinaryIO]:
        """A new file in the directory, gone again unless it was renamed."""
        half = unfinished(directory)
        try:
            with half:
                yield half
        finally:
            Path(half.name).unlink(missing_ok=True)

    def read(self, key: str, start: int, end: int) -> Iterator[bytes]:
        with spoken(f"read {key}"), (self._root / key).open("rb") as file:
            file.seek(start)
            while start < end and (chunk := file.read(min(CHUNK, end - start))):
                start += len(chunk)
                yield chunk

    def size(self, key: str) -> int:
        with spoken(f"find {key}"):
            return (self._root / key).stat().st_size

    def remove(self, keys: list[str]) -> None:
        for key in keys:
            with spoken(f"remove {key}"):
                (self._root / key).unlink(missing_ok=True)
            self._prune_empty((self._root / key).parent)

    def remove_under(self, prefix: str) -> None:
        place = self._root / prefix
        with spoken(f"remove {place}"), suppress(FileNotFoundError):
            shutil.rmtree(place)
        self._prune_empty(place.parent)

    def _prune_empty(self, directory: Path) -> None:
        with suppress(OSError):
            while directory != self._root:
                directory.rmdir()
                directory = directory.parent

    def link(self, key: str, expires: timedelta) -> str | None:
        return None

    def path(self, key: str) -> Path | None:
        return self._root / key


class Bucket:
    """Files in an object store, through obstore."""

    def __init__(
        self, store: ObjectStore, prefix: str, signer: AzureStore | GCSStore | S3Store | None
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._signer = signer

    def _at(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix else key

    def put(self, source: Counted, key: str, content_type: str, disposition: str) -> None:
        import obstore

        # Up to one part a single request does, and there is nothing to abort. An upload in parts that fails is aborted
        # by obstore; one that was killed stays invisible until the bucket's lifecycle rule removes it.
        small = source.expected <= PART
        with asked(f"store {key}"):
            obstore.put(
                self._store,
                self._at(key),
                source.read(-1) if small else source.chunks(PART),
                attributes={"Content-Type": content_type, "Content-Disposition": disposition},
                use_multipart=not small,
                chunk_size=PART,
                max_concurrency=PARTS_AT_ONCE,
            )

    def read(self, key: str, start: int, end: int) -> Iterator[bytes]:
        import obstore

        # A request for each piece: a slow reader holds no connection to the store, whose requests end after a minute.
        while start < end:
            upto = min(start + PART, end)
            with asked(f"read {key}"):
                piece = bytes(obstore.get_range(self._store, self._at(key), start=start, end=upto))
            if not piece:
                return
            start += len(piece)
            yield piece

    def size(self, key: str) -> int:
        import obstore

        with asked(f"find {key}"):
            return int(obstore.head(self._store, self._at(key))["size"])

    def remove(self, keys: list[str]) -> None:
        import obstore

        if not keys:
            return
        # S3 takes a thousand in one request, and minds none that is not there; others may
        with asked(f"remove {keys[0]}" + (f" and {len(keys) - 1} more" if keys[1:] else "")):
            try:
                obstore.delete(self._store, [self._at(key) for key in keys])
            except FileNotFoundError:
                for key in keys:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._store, self._at(key))

    def remove_under(self, prefix: str) -> None:
        import obstore

        with asked(f"list {prefix}"):
            found = [entry["path"] for page in obstore.list(self._store, self._at(prefix)) for entry in page]
        self.remove([key.removeprefix(f"{self._prefix}/") if self._prefix else key for key in found])

    def link(self, key: str, expires: timedelta) -> str | None:
        import obstore

        if self._signer is None:
            return None
        with asked(f"sign a link to {key}"):
            link = obstore.sign(self._signer, "GET", self._at(key), expires)
        if TEMPORARY not in link or expires <= (left := credentials_left(os.environ, datetime.now(UTC))):
            return link
        log.warning(
            "the file store's credentials are temporary, and may end in %s: links for %s would die before; such files are sent by "
            "this server instead",
            left,
            expires,
        )
        return None

    def path(self, key: str) -> Path | None:
        return None


def credentials_left(environ: Mapping[str, str], now: datetime) -> timedelta:
    """How long temporary credentials of AWS are certain to last.

    Those that come with a session token in the environment name their end there, if whoever set them was so kind. Those that
    the object store library fetches from the machine it fetches anew five minutes before they end.
    """
    said = environ.get("AWS_CREDENTIAL_EXPIRATION", "")
    try:
        end = datetime.fromisoformat(said)
    except ValueError:
        return FETCHED_ANEW
    return (end if end.tzinfo else end.replace(tzinfo=UTC)) - now


def shelf_at(url: str, prefix: str = "") -> Shelf:
    """The place that a URL names. Raises ConfigurationError for one that names none."""
    if "://" not in url:
        return Directory(rooted(url, prefix))
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ConfigurationError(
            f"files {url!r}: {parts.scheme}:// is not known; use a path, {', '.join(f'{name}://' for name in SCHEMES)}"
        )
    if parts.username or parts.password:
        raise ConfigurationError(
            "files: credentials do not belong in the URL, where logs would show them; "
            "set the environment variables of the store (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, …)"
        )
    options = url_options(parts)
    if parts.scheme == "file":
        if parts.netloc not in {"", "localhost"}:
            raise ConfigurationError(
                f"files {url!r}: write three slashes, file:///{parts.netloc}{parts.path}"
            )
        return Directory(rooted(unquote(parts.path), prefix))
    if parts.scheme == "memory":
        from obstore.store import MemoryStore

        return Bucket(MemoryStore(), joined(prefix), None)
    if not parts.netloc:
        raise ConfigurationError(f"files {url!r}: name the bucket, {parts.scheme}://BUCKET/prefix")
    return bucket_at(parts, options, joined(unquote(parts.path), prefix))


def bucket_at(parts: SplitResult, options: dict[str, str], prefix: str) -> Bucket:
    """The bucket of a cloud that a URL names."""
    from obstore.exceptions import BaseError

    make = MAKERS[parts.scheme]
    try:
        store = make(parts.netloc, options)
        signer = make(
            parts.netloc, {**options, "endpoint": options.get("public_endpoint", options.get("endpoint", ""))}
        )
    except (BaseError, ValueError) as error:
        raise ConfigurationError(f"files {parts.geturl()!r}: {first_line(error)}") from None
    return Bucket(store, prefix, signer)


def s3_store(bucket: str, options: dict[str, str]) -> S3Store:
    from obstore.store import S3Store

    config: dict[str, str] = {"virtual_hosted_style_request": options.get("virtual_hosted_style", "false")}
    if options.get("endpoint"):
        config["endpoint"] = options["endpoint"]
    if options.get("region"):
        config["region"] = options["region"]
    return S3Store(
        bucket,
        config=config,  # type: ignore[arg-type]
        client_options=client(options),  # type: ignore[arg-type]
        retry_config=retries(),  # type: ignore[arg-type]
    )


def gs_store(bucket: str, options: dict[str, str]) -> GCSStore:
    from obstore.store import GCSStore

    return GCSStore(bucket, client_options=client(options), retry_config=retries())  # type: ignore[arg-type]


def az_store(container: str, options: dict[str, str]) -> AzureStore:
    from obstore.store import AzureStore

    names = {"account": "account_name", "endpoint": "endpoint"}
    config = {names[name]: value for name, value in options.items() if name in names and value}
    return AzureStore(
        container,
        config=config,  # type: ignore[arg-type]
        client_options=client(options),  # type: ignore[arg-type]
        retry_config=retries(),  # type: ignore[arg-type]
    )


MAKERS: dict[str, Callable[[str, dict[str, str]], AzureStore | GCSStore | S3Store]] = {
    "s3": s3_store,
    "gs": gs_store,
    "az": az_store,
}


def client(options: dict[str, str]) -> dict[str, object]:
    """How requests are made; plain HTTP only to an endpoint that was given as such."""
    return {
        "timeout": REQUEST_TIMEOUT,
        "connect_timeout": timedelta(seconds=5),
        "allow_http": options.get("endpoint", "").startswith("http://"),
    }


def retries() -> dict[str, object]:
    """Bounded: obstore's own default of 10 retries within 3 minutes would hold a finished task for that long."""
    return {
        "max_retries": RETRIES,
        "retry_timeout": RETRY_TIMEOUT,
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=5),
            "base": 2,
        },
    }


def url_options(parts: SplitResult) -> dict[str, str]:
    """What stands behind the `?`. Raises ConfigurationError for an option that the scheme does not have."""
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = OPTIONS.get(parts.scheme, frozenset())
    if unknown := sorted(set(given) - known):
        has = "has " + ", ".join(sorted(known)) if known else "has none"
        raise ConfigurationError(f"files: {parts.scheme}:// has no option {unknown[0]!r}; it {has}")
    return given


def rooted(path: str, prefix: str) -> Path:
    if not path:
        raise ConfigurationError("files: give the path of a directory")
    return Path(path).expanduser().absolute() / joined(prefix)


def joined(*prefixes: str) -> str:
    """One prefix out of several, without slashes at its ends."""
    prefix = "/".join(part.strip("/") for part in prefixes if part.strip("/"))
    return checked(prefix) if prefix else ""


def checked(key: str) -> str:
    """The key, if it names something below the root and nothing else."""
    if not key or "\0" in key or "\\" in key or any(part in {"", ".", ".."} for part in key.split("/")):
        raise FileStoreError(f"{key!r} is no key of a file", transient=False)
    return str(PurePosixPath(key))


@contextmanager
def spoken(what: str) -> Iterator[None]:
    """Turns what disks and object stores raise into FileStoreError and FileGone."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileGone(f"cannot {what}: it is not there") from error
    except OSError as error:
        lasting = isinstance(error, PermissionError | NotADirectoryError | IsADirectoryError)
        raise FileStoreError(f"cannot {what}: {error.strerror or error}", transient=not lasting) from error
    except ValueError as error:
        raise FileStoreError(f"cannot {what}: {first_line(error)}", transient=False) from error
    except Exception as error:
        from obstore.exceptions import BaseError

        if not isinstance(error, BaseError):
            raise
        raise FileStoreError(
            f"cannot {what}: {first_line(error)}", transient=not is_lasting(error)
        ) from error


@contextmanager
def asked(what: str) -> Iterator[None]:
    """`spoken`, for what goes through obstore: its threads do not survive a fork, and a forked child would wait for ever."""
    global first_user  # noqa: PLW0603 obstore has one set of threads for the whole process
    first_user = first_user or os.getpid()
    if first_user != os.getpid():
        raise FileStoreError(
            f"cannot {what}: this process was forked from one that had used the object store already; "
            "fork first, or start processes with spawn",
            transient=False,
        )
    with spoken(what):
        yield


def is_lasting(error: Exception) -> bool:
    """Trying again will not help: the store refuses us, not this request."""
    from obstore import exceptions

    kinds = (
        exceptions.PermissionDeniedError,
        exceptions.UnauthenticatedError,
        exceptions.InvalidPathError,
        exceptions.NotSupportedError,
    )
    return isinstance(error, kinds) or "NoSuchBucket" in str(error)


def first_line(error: BaseException) -> str:
    """What obstore says, without its debug dump."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def unfinished(directory: Path) -> BinaryIO:
    """A new file under a name of its own; the directory is made if need be."""
    name = directory / f".{secrets.token_hex(8)}.part"
    for _ in range(3):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Between the two, who removes the last file of another attempt may remove the empty directories above it.
        with suppress(FileNotFoundError):
            return name.open("xb")
    return name.open("xb")


def synced(directory: Path) -> None:
    """Make a rename survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
