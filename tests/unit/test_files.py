"""Result files: what every place for them must do, and what each does in its own way."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import secrets
import socket
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbwaiter import files as files_module
from dumbwaiter.errors import ConfigurationError, DumbwaiterError, FileGone, FileStoreError
from dumbwaiter.files import (
    FileStore,
    content_disposition,
    content_type_of,
    kept_key,
    object_key,
    stored_name,
)
from dumbwaiter.task import ResultFile
from tests.support.moto import Moto, moto
from tests.support.objects import ObjectServer, object_server
from tests.support.swift import KEY, SECRET, Swift, swift

MIB = 1024 * 1024
NAMES = st.text(min_size=1, max_size=200).filter(
    lambda name: "/" not in name and "\0" not in name and name not in {".", ".."}
)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anybody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with object_server() as server:
        yield server


@pytest.fixture(scope="module")
def bucket() -> Iterator[Moto]:
    with moto() as server:
        yield server


@pytest.fixture(scope="module")
def swift_server() -> Iterator[Swift]:
    with swift() as server:
        yield server


ON_SWIFT = pytest.param("swift", marks=(pytest.mark.swift, pytest.mark.service("swift")))


@pytest.fixture(params=["directory", "memory", "s3", "moto", ON_SWIFT])
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileStore:
    if request.param == "directory":
        return FileStore(tmp_path / "store")
    if request.param == "memory":
        return FileStore("memory://", prefix="production")
    if request.param == "swift":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        return FileStore(request.getfixturevalue("swift_server").url, prefix=secrets.token_hex(4))
    server = request.getfixturevalue("s3")
    if request.param == "moto":
        # of which each test has a part for itself
        return FileStore(request.getfixturevalue("bucket").url, prefix=secrets.token_hex(4))
    return FileStore(server.url)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[bytes], Path]:
    """Makes a file with these bytes."""

    def write(data: bytes) -> Path:
        path = tmp_path / f"source-{hashlib.sha256(data).hexdigest()[:8]}"
        path.write_bytes(data)
        return path

    return write


def test_a_stored_file_comes_back_whole(files: FileStore, written: Callable[[bytes], Path]) -> None:
    data = os.urandom(17 * MIB + 3)  # three parts of an upload to S3

    stored = files.put(written(data), "t/1/film.mp4", filename="film.mp4")

    assert stored.size == len(data) == files.size("t/1/film.mp4")
    assert stored.sha256 == hashlib.sha256(data).hexdigest()
    assert stored.content_type == "video/mp4"
    assert b"".join(files.stream("t/1/film.mp4")) == data


@pytest.mark.parametrize("data", [b"", b"x"])
def test_an_empty_file_is_a_file(files: FileStore, written: Callable[[bytes], Path], data: bytes) -> None:
    files.put(written(data), "t/1/a.txt", filename="a.txt")

    assert b"".join(files.stream("t/1/a.txt")) == data


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 3, b"012"), (3, None, b"3456789"), (8, 99, b"89"), (10, None, b""), (4, 4, b"")],
)
def test_a_range_of_a_file_is_those_bytes_and_no_others(
    files: FileStore, written: Callable[[bytes], Path], start: int, end: int | None, expected: bytes
) -> None:
    files.put(written(b"0123456789"), "t/1/digits", filename="digits")

    assert b"".join(files.stream("t/1/digits", start, end)) == expected


def test_the_second_of_two_files_with_one_key_wins(
    files: FileStore, written: Callable[[bytes], Path]
) -> None:
    files.put(written(b"first and longer"), "t/1/a", filename="a")
    files.put(written(b"second"), "t/1/a", filename="a")

    assert b"".join(files.stream("t/1/a")) == b"second"


def test_a_missing_file_is_reported_before_the_first_byte_is_asked_for(files: FileStore) -> None:
    with pytest.raises(FileGone, match="it is not there"):
        files.stream("t/1/nothing")


def test_deleting_what_is_gone_already_is_fine(files: FileStore, written: Callable[[bytes], Path]) -> None:
    files.put(written(b"x"), "t/1/a", filename="a")

    files.delete(["t/1/a", "t/1/never-was"])
    files.delete(["t/1/a"])

    with pytest.raises(FileGone):
        files.size("t/1/a")


def test_a_fetched_file_is_the_one_that_was_stored(
    files: FileStore, written: Callable[[bytes], Path], tmp_path: Path
) -> None:
    data = os.urandom(9 * MIB)
    stored = files.put(written(data), "t/kept/1-a/model", filename="model")
    target = tmp_path / "new" / "folder" / "model"
    files.fetch("t/kept/1-a/model", target, size=stored.size, sha256=stored.sha256)

    assert target.read_bytes() == data
    assert list(target.parent.iterdir()) == [target]


def test_a_file_that_is_not_the_one_that_was_stored_is_not_fetched(
    files: FileStore, written: Callable[[bytes], Path], tmp_path: Path
) -> None:
    stored = files.put(written(b"hot soup"), "t/kept/1-a/soup", filename="soup")
    files.put(written(b"cold one"), "t/kept/1-a/soup", filename="soup")
    target = tmp_path / "soup"
    target.write_bytes(b"what was there before")

    with pytest.raises(FileStoreError, match="not the file that was stored"):
        files.fetch("t/kept/1-a/soup", target, size=stored.size, sha256=stored.sha256)
    with pytest.raises(FileGone):
        files.fetch("t/kept/1-a/roast", target, size=stored.size, sha256=stored.sha256)
    assert target.read_bytes() == b"what was there before"
    assert not list(tmp_path.glob(".*.part"))


def test_kept_files_go_all_together_and_results_stay(
    files: FileStore, written: Callable[[bytes], Path]
) -> None:
    kept = [kept_key("t", 1, "a.bin"), kept_key("t", 1, "a.bin"), kept_key("t", 2, "报告")]
    others = [object_key("t", 1, "a.bin"), kept_key("t2", 1, "a.bin")]
    for key in kept + others:
        files.put(written(key.encode()), key, filename="a.bin")
    assert len(set(kept)) == 3
    files.delete_kept("t")
    files.delete_kept("t")

    for key in kept:
        with pytest.raises(FileGone):
            files.size(key)
    assert all(files.size(key) for key in others)


def test_deleting_attempt_1_leaves_attempt_10_alone(
    files: FileStore, written: Callable[[bytes], Path]
) -> None:
    for attempt in (1, 10):
        for name in ("a.txt", "Überblick 2026.pdf"):
            files.put(written(b"x"), object_key("task", attempt, name), filename=name)

    files.delete_attempt("task", 1)
    files.delete_attempt("task", 1)

    assert [files.size(object_key("task", 10, name)) for name in ("a.txt", "Überblick 2026.pdf")] == [1, 1]
    for name in ("a.txt", "Überblick 2026.pdf"):
        with pytest.raises(FileGone):
            files.size(object_key("task", 1, name))


@pytest.mark.parametrize(
    "name", ["文" * 66, "a" * 200, "%41", "a b.TXT", "..x", "-", "con\n", "🎬.mp4", "a\\b", ".hidden"]
)
def test_any_file_name_can_be_stored(files: FileStore, written: Callable[[bytes], Path], name: str) -> None:
    key = object_key("task", 1, name)

    files.put(written(b"x"), key, filename=name)

    assert files.size(key) == 1


@pytest.mark.parametrize("key", ["", "../a", "/etc/passwd", "a//b", "a/./b", "a/../../b", "a\0b", "a\\..\\b"])
def test_a_key_cannot_leave_the_store(files: FileStore, written: Callable[[bytes], Path], key: str) -> None:
    with pytest.raises(FileStoreError, match="is no key"):
        files.put(written(b"x"), key, filename="a")
    with pytest.raises(FileStoreError, match="is no key"):
        files.stream(key)


def test_a_source_that_cannot_be_read_is_the_callers_error(files: FileStore, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.put(tmp_path / "nothing", "t/1/a", filename="a")


class Breaking:
    """A source of 24 MiB whose disk fails after 16."""

    expected = 24 * MIB

    def chunks(self, size: int) -> Iterator[bytes]:
        for _ in range(16 * MIB // size):
            yield bytes(size)
        raise OSError(5, "Input/output error")


def test_half_a_file_is_never_there(files: FileStore, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with pytest.raises(FileStoreError, match="Input/output error"):
        files._shelf.put(Breaking(), "t/1/a", "text/plain", "attachment")  # type: ignore[arg-type]

    with pytest.raises(FileGone):
        files.size("t/1/a")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    if "s3" in request.fixturenames:
        server: ObjectServer = request.getfixturevalue("s3")
        assert server.uploads == {}, "the upload was aborted, nobody pays for its parts"


def test_a_directory_is_left_as_if_nothing_had_been_in_it(
    tmp_path: Path, written: Callable[[bytes], Path]
) -> None:
    files = FileStore(tmp_path / "store")
    files.put(written(b"x"), "t/1/a", filename="a")
    files.put(written(b"x"), "t/2/a", filename="a")

    files.delete_attempt("t", 1)
    files.delete(["t/2/a"])

    assert list((tmp_path / "store").iterdir()) == []


def test_what_a_killed_worker_left_half_written_goes_with_its_attempt(tmp_path: Path) -> None:
    files = FileStore(tmp_path)
    half = files_module.unfinished(tmp_path / "t" / "1")
    half.close()

    files.delete_attempt("t", 1)

    assert not (tmp_path / "t").exists()


def test_result_files_on_disk_are_for_their_owner_only(
    tmp_path: Path, written: Callable[[bytes], Path]
) -> None:
    FileStore(tmp_path / "store").put(written(b"x"), "t/1/a", filename="a")

    assert (tmp_path / "store" / "t" / "1").stat().st_mode & 0o077 == 0


def test_storing_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    source = tmp_path / "large"
    with source.open("wb") as file:
        file.truncate(256 * MIB)

    tracemalloc.start()
    FileStore(tmp_path / "store").put(source, "t/1/large", filename="large")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 8 * MIB


def test_a_server_that_is_busy_is_asked_again(s3: ObjectServer, written: Callable[[bytes], Path]) -> None:
    s3.faults += [("PUT", "/a", 503), ("PUT", "/a", 500)]

    FileStore(s3.url).put(written(b"x"), "t/1/a", filename="a")

    assert len(s3.requests) == 3


def test_a_server_that_stays_broken_is_given_up_and_the_task_may_retry(
    s3: ObjectServer, written: Callable[[bytes], Path]
) -> None:
    s3.faults += [("PUT", "/a", 503)] * 20

    with pytest.raises(FileStoreError, match="cannot store t/1/a") as caught:
        FileStore(s3.url).put(written(b"x"), "t/1/a", filename="a")

    assert caught.value.transient
    assert len(s3.requests) == files_module.RETRIES + 1


def test_a_part_that_cannot_be_sent_aborts_the_upload(
    s3: ObjectServer, written: Callable[[bytes], Path]
) -> None:
    s3.faults += [("PUT", "partNumber=2", 503)] * 20

    with pytest.raises(FileStoreError):
        FileStore(s3.url).put(written(bytes(20 * MIB)), "t/1/a", filename="a")

    assert s3.objects == {}
    assert s3.uploads == {}


def test_a_refusal_is_not_worth_a_retry(s3: ObjectServer, written: Callable[[bytes], Path]) -> None:
    s3.faults += [("PUT", "/a", 403)]

    with pytest.raises(FileStoreError) as caught:
        FileStore(s3.url).put(written(b"x"), "t/1/a", filename="a")

    assert not caught.value.transient
    assert len(s3.requests) == 1


def test_a_server_that_is_not_there_is_worth_a_retry(
    s3: ObjectServer, written: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "RETRIES", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]

    with pytest.raises(FileStoreError) as caught:
        FileStore(f"s3://exports?endpoint=http://127.0.0.1:{closed}").put(
            written(b"x"), "t/1/a", filename="a"
        )

    assert caught.value.transient
    assert "\n" not in str(caught.value)


def test_an_object_says_its_type_and_the_name_to_save_it_under(
    s3: ObjectServer, written: Callable[[bytes], Path]
) -> None:
    FileStore(s3.url).put(written(b"x"), "t/1/a", filename='片 "1".html')

    [(data, headers)] = s3.objects.values()
    assert data == b"x"
    assert headers == {
        "Content-Type": "text/html",
        "Content-Disposition": "attachment; filename=\"_ _1_.html\"; filename*=UTF-8''%E7%89%87%20%221%22.html",
    }


def test_a_child_forked_after_the_first_use_is_told_so_and_does_not_hang(
    s3: ObjectServer, written: Callable[[bytes], Path]
) -> None:
    files = FileStore(s3.url)
    files.put(written(b"x"), "t/1/a", filename="a")
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def child() -> None:
        with pytest.raises(FileStoreError) as caught:
            files.size("t/1/a")
        sender.send(str(caught.value))

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # forking with threads around is what is tried here
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()

    assert receiver.poll(10)
    assert "forked" in receiver.recv()
    process.join(10)
    assert files.size("t/1/a") == 1


def linked(store: FileStore, expires: timedelta) -> str | None:
    return store.link(ResultFile("a", "text/plain", 1, "", "t/1/a", 1), expires=expires)


def test_a_link_names_the_public_address_and_its_end(s3: ObjectServer) -> None:
    link = linked(FileStore(s3.url + "&public_endpoint=https://files.example.org"), timedelta(minutes=5))

    assert link is not None
    url = urlsplit(link)
    assert (url.scheme, url.netloc, url.path) == ("https", "files.example.org", "/exports/results/t/1/a")
    assert parse_qs(url.query)["X-Amz-Expires"] == ["300"]


def test_a_link_can_be_as_long_as_s3_allows_and_no_longer(s3: ObjectServer) -> None:
    link = linked(FileStore(s3.url), timedelta(days=90))

    assert link is not None
    assert parse_qs(urlsplit(link).query)["X-Amz-Expires"] == [str(7 * 24 * 3600)]


def test_a_link_does_not_outlive_its_file(s3: ObjectServer) -> None:
    ends = datetime.now(UTC) + timedelta(seconds=90)
    file = ResultFile("a", "text/plain", 1, "", "t/1/a", 1, expires_at=ends)

    link = FileStore(s3.url).link(file, expires=timedelta(hours=1))

    assert link is not None
    assert 85 <= int(parse_qs(urlsplit(link).query)["X-Amz-Expires"][0]) <= 90


@pytest.mark.parametrize(
    ("credentials_end", "link_for", "given"),
    [
        (None, timedelta(minutes=5), True),
        (None, timedelta(minutes=6), False),
        (timedelta(minutes=2), timedelta(minutes=5), False),
        (timedelta(days=2), timedelta(days=1), True),
        (timedelta(minutes=-1), timedelta(seconds=1), False),
    ],
)
def test_no_link_is_given_that_would_die_with_temporary_credentials_before_its_time(
    s3: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    credentials_end: timedelta | None,
    link_for: timedelta,
    given: bool,
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "for a while")
    monkeypatch.delenv("AWS_CREDENTIAL_EXPIRATION", raising=False)
    if credentials_end is not None:
        monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", (datetime.now(UTC) + credentials_end).isoformat())

    link = linked(FileStore(s3.url), link_for)

    assert (link is not None) == given
    assert ("credentials are temporary" in caplog.text) == (not given)


def test_a_bucket_may_be_part_of_the_host_name(s3: ObjectServer) -> None:
    url = "s3://exports/a?endpoint=https://exports.oss.example.org&virtual_hosted_style=true&region=cn"

    link = linked(FileStore(url), timedelta(minutes=5))

    assert link is not None
    assert link.startswith("https://exports.oss.example.org/a/t/1/a?")


def test_files_on_disk_have_a_path_and_no_link(tmp_path: Path) -> None:
    store = FileStore(f"file://{tmp_path}", prefix="production")

    assert store.local
    assert store.local_path("t/1/a") == tmp_path / "production" / "t" / "1" / "a"
    assert linked(store, timedelta(minutes=5)) is None


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("ftp://host/a", "ftp:// is not known"),
        ("s3://", "name the bucket"),
        ("s3://key:secret@bucket", "credentials do not belong in the URL"),
        ("s3://bucket?endpiont=http://x", "has no option 'endpiont'"),
        ("file://relative/path", "write three slashes"),
        ("", "give the path"),
        ("s3://bucket/a/../../b", "is no key"),
    ],
)
def test_a_url_that_cannot_be_is_refused_with_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(DumbwaiterError, match=sentence) as caught:
        FileStore(url)

    assert "secret" not in str(caught.value)


def test_a_cloud_that_lacks_its_credentials_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)

    with pytest.raises(ConfigurationError, match="files 'az://container'"):
        FileStore("az://container")


@given(NAMES)
def test_a_stored_name_is_safe_everywhere(name: str) -> None:
    stored = stored_name(name)

    assert 0 < len(stored) <= 120
    assert set(stored) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    assert not stored.startswith((".", "-"))


@given(NAMES, NAMES)
def test_two_names_never_share_a_key(one: str, other: str) -> None:
    assert (stored_name(one) == stored_name(other)) == (one == other)


def test_names_that_differ_in_case_only_do_not_meet_on_a_disk_that_ignores_case() -> None:
    assert stored_name("a.txt") == "a.txt"
    assert stored_name("A.txt").lower() == stored_name("A.txt") != "a.txt"


@given(NAMES)
def test_the_header_with_a_name_is_one_line_of_ascii(name: str) -> None:
    header = content_disposition(name)

    assert header.isascii()
    assert header.isprintable()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.mp4", "video/mp4"), ("a.tar.gz", "application/octet-stream"), ("a", "application/octet-stream")],
)
def test_a_type_is_read_off_the_name(name: str, expected: str) -> None:
    assert content_type_of(name) == expected
