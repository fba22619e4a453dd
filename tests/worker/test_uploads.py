"""Tasks that take uploads: on a thread, as a coroutine, in a process of their own; from a disk and from elsewhere."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dumbwaiter import Dumbwaiter, Upload
from dumbwaiter.errors import (
    IllegalMove,
    InvalidArguments,
    InvalidOption,
    UnknownUpload,
    UploadConflict,
    UploadTooLarge,
)
from dumbwaiter.task import Task
from dumbwaiter.uploads import sweep_uploads
from tests.support import letterbox
from tests.support.waiting import until

DATA = os.urandom(2_500_000)
DAY = timedelta(days=1, seconds=1)


@pytest.fixture(params=["disk", "elsewhere"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "files") if request.param == "disk" else "memory://"


@pytest.fixture
def waiter(tmp_path: Path, place: str) -> Iterator[Dumbwaiter]:
    waiter = made(tmp_path, place)
    yield waiter
    waiter.close()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Dumbwaiter]:
    """One that keeps its files on this disk."""
    waiter = made(tmp_path, str(tmp_path / "files"))
    yield waiter
    waiter.close()


def made(directory: Path, files: str, **settings: Any) -> Dumbwaiter:
    database = f"sqlite:///{directory}/tasks.db"
    waiter = Dumbwaiter(database, files=files, poll="200ms", grace="1s", **settings)
    for entry in letterbox.waiter.registry:
        waiter.registry.add(entry)
    return waiter


def worked(waiter: Dumbwaiter, task: Task) -> Task:
    """The task once a worker has ended it."""
    worker = waiter.worker()
    worker.start()
    until(lambda: waiter.get(task.id).status.final, 30)
    worker.stop(hurry=True)
    assert worker.join(15)
    return waiter.get(task.id)


def stored(directory: Path) -> list[Path]:
    return [path for path in (directory / "files").rglob("*") if path.is_file()]


def swept(waiter: Dumbwaiter, limit: int = 100) -> int:
    return sweep_uploads(waiter.store, waiter.files, limit, now=waiter.store.now() + DAY)


@pytest.mark.parametrize("how", ["read-on-thread", "read-as-coroutine", "read-isolated"])
def test_a_task_reads_and_downloads_its_upload(waiter: Dumbwaiter, tmp_path: Path, how: str) -> None:
    path = tmp_path / "报告 7.csv"
    path.write_bytes(DATA)

    task = worked(waiter, waiter.enqueue(how, {"letter": path}, owner="ada"))

    digest = hashlib.sha256(DATA).hexdigest()
    assert task.error_message is None
    assert task.result == {
        "name": "报告 7.csv",
        "size": len(DATA),
        "type": "text/csv",
        "whole": digest,
        "ends": [DATA[1:3].decode("latin-1"), DATA[-3:].decode("latin-1")],
        "downloaded": ["报告 7.csv", digest],
        "in_workdir": True,
    }


def test_uploads_may_stand_anywhere_among_the_arguments(local: Dumbwaiter) -> None:
    one = local.upload(b"one", filename="one.txt")
    arguments = {"letters": [one, b"two", one], "cover": {"upload": one.id}}

    task = local.enqueue("read-all", arguments)

    assert local.store.uploads.of_task(task.id)[0] == one.id
    assert len(local.store.uploads.of_task(task.id)) == 2
    assert worked(local, task).result == ["one", "two", "one", "one"]


def test_where_a_text_will_do_a_text_is_no_path(local: Dumbwaiter) -> None:
    task = worked(local, local.enqueue("read-all", {"letters": [], "cover": "/etc/passwd"}))

    assert task.result == ["/etc/passwd"]


@pytest.mark.parametrize("given", ["/etc/passwd", 7, {"upload": "../x"}, {"path": "/etc/passwd"}])
def test_a_text_in_place_of_an_upload_is_refused_and_nothing_is_read(local: Dumbwaiter, given: Any) -> None:
    with pytest.raises(InvalidArguments, match="letter: "):
        local.enqueue("read-on-thread", {"letter": given})
    assert local.find() == []


def test_a_retry_by_itself_and_one_by_hand_find_the_uploads_still_there(local: Dumbwaiter) -> None:
    first = worked(local, local.enqueue("read-all", {"letters": [b"one"], "fail": True}))
    assert (first.attempt, first.result) == (2, ["one"])
    assert swept(local) == 0

    second = worked(local, local.retry(first.id, force=True))

    assert second.result == ["one"]
    assert local.store.uploads.of_task(second.id) == local.store.uploads.of_task(first.id)


def test_a_task_cannot_open_an_upload_that_it_was_not_given(local: Dumbwaiter) -> None:
    other = local.upload(b"another's", owner="eve")

    task = worked(local, local.enqueue("read-anothers", {"upload_id": other.id}, owner="ada"))

    assert (task.status, task.error_type) == ("failed", "dumbwaiter.errors.UnknownUpload")


def test_an_upload_of_another_owner_is_given_to_no_task(local: Dumbwaiter) -> None:
    other = local.upload(b"hers", owner="eve")

    with pytest.raises(UnknownUpload):
        local.enqueue("read-on-thread", {"letter": other}, owner="ada")
    with pytest.raises(UnknownUpload):
        local.enqueue_many("read-on-thread", [{"letter": b"his"}, {"letter": other}], owner="ada")
    assert local.find() == []


def test_many_tasks_take_their_uploads_at_once(local: Dumbwaiter) -> None:
    one = local.upload(b"one")

    ids = local.enqueue_many("read-on-thread", [{"letter": one}, {"letter": one}])

    assert [local.store.uploads.of_task(id_) for id_ in ids] == [[one.id], [one.id]]


def test_one_statement_cannot_take_an_upload(local: Dumbwaiter) -> None:
    with pytest.raises(InvalidOption, match="connection="):
        local.statement("read-on-thread", {"letter": local.upload(b"one")}, driver="sqlite3")


def test_within_a_callers_transaction_only_what_is_stored_already_is_taken(local: Dumbwaiter) -> None:
    one = local.upload(b"one")
    with local.store.connections.engine.connect() as connection, connection.begin():
        with pytest.raises(InvalidOption, match=r"waiter\.upload"):
            local.enqueue("read-on-thread", {"letter": b"two"}, connection=connection)
        task = local.enqueue("read-on-thread", {"letter": one}, connection=connection)

    assert local.store.uploads.of_task(task.id) == [one.id]


def test_what_no_task_takes_is_gone_after_a_day_and_one_sweep(local: Dumbwaiter, tmp_path: Path) -> None:
    taken = local.upload(b"taken")
    local.enqueue("read-on-thread", {"letter": taken})
    for _ in range(3):
        local.upload(b"spare")
    announced = local.uploads.announce(None, filename="never-came.txt")
    assert sweep_uploads(local.store, local.files) == 0

    assert [swept(local, 3), swept(local, 3), swept(local, 3)] == [3, 1, 0]

    assert len(stored(tmp_path)) == 1
    assert local.uploads.of(taken.id, None).sha256 == taken.sha256
    with pytest.raises(UnknownUpload):
        local.uploads.of(announced.id, None)


def test_an_upload_larger_than_allowed_leaves_nothing(tmp_path: Path) -> None:
    waiter = made(tmp_path, str(tmp_path / "files"), max_upload=1000)

    with pytest.raises(UploadTooLarge):
        waiter.upload(b"x" * 1001)
    assert waiter.upload(b"x" * 1000).size == 1000

    assert len(stored(tmp_path)) == 1
    assert len(waiter.store.uploads.expired(now=waiter.store.now() + DAY)) == 1
    waiter.close()


@pytest.mark.parametrize("name", ["", "..", "../../x", "a/b", "a\\b", "a\nb", "a\0b", "é" * 101])
def test_a_name_that_could_lead_elsewhere_is_refused(local: Dumbwaiter, name: str) -> None:
    with pytest.raises(InvalidOption, match="filename"):
        local.uploads.announce(None, filename=name)


def in_parts(waiter: Dumbwaiter, *texts: bytes, size: int | None = None) -> Any:
    upload = waiter.uploads.announce("ada", filename="whole.txt", size=size)
    for number, text in reversed(list(enumerate(texts, 1))):
        waiter.uploads.receive_part(upload, number, [text[:2], text[2:]])
    return upload


def test_parts_are_joined_in_the_order_of_their_numbers(waiter: Dumbwaiter) -> None:
    upload = in_parts(waiter, b"one ", b"two ", b"three", size=13)

    row = waiter.uploads.complete(upload, sha256=hashlib.sha256(b"one two three").hexdigest())

    assert b"".join(waiter.files.stream(row.object_key or "")) == b"one two three"
    assert (row.size, row.sha256) == (13, hashlib.sha256(b"one two three").hexdigest())
    assert waiter.uploads.complete(waiter.uploads.of(upload.id, "ada")) == row


def test_the_parts_go_when_the_whole_is_there(local: Dumbwaiter, tmp_path: Path) -> None:
    local.uploads.complete(in_parts(local, b"one ", b"two "))
    assert len(stored(tmp_path)) == 1

    local.uploads.complete(in_parts(local, b"alone"))
    assert len(stored(tmp_path)) == 2
    swept(local)
    assert list((tmp_path / "files").iterdir()) == []


def test_four_who_complete_it_at_once_agree_on_one_object(local: Dumbwaiter, tmp_path: Path) -> None:
    upload = in_parts(local, b"one ", b"two ", b"three")
    meet = threading.Barrier(4)

    def complete() -> Any:
        meet.wait()
        return local.uploads.complete(upload)

    with ThreadPoolExecutor(4) as pool:
        rows = [one.result() for one in [pool.submit(complete) for _ in range(4)]]

    assert len({row.object_key for row in rows}) == 1
    assert b"".join(local.files.stream(rows[0].object_key)) == b"one two three"
    assert len(stored(tmp_path)) == 1


def test_parts_that_come_at_once_are_all_there(local: Dumbwaiter) -> None:
    upload = local.uploads.announce("ada")
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda number: local.uploads.receive_part(upload, number, [b"%d" % number]), range(1, 10)
            )
        )

    row = local.uploads.complete(upload)
    assert b"".join(local.files.stream(row.object_key or "")) == b"123456789"


def on_disk(directory: Path) -> int:
    sizes = []
    for path in (directory / "files").rglob("*"):
        with suppress(FileNotFoundError):  # it goes while we look
            sizes.append(path.stat().st_size if path.is_file() else 0)
    return sum(sizes)


@pytest.mark.parametrize("numbers", ["of their own", "one for all"])
def test_parts_that_come_at_once_keep_to_one_limit_while_they_come(tmp_path: Path, numbers: str) -> None:
    limit, size, parts = 30_000_000, 20_000_000, 10
    waiter = made(tmp_path, str(tmp_path / "files"), max_upload=limit)
    upload = waiter.uploads.announce("ada")
    meet = threading.Barrier(parts)
    peaks = []

    def pieces() -> Iterator[bytes]:
        meet.wait(20)
        for _ in range(size // 1_000_000):
            yield bytes(1_000_000)
            peaks.append(on_disk(tmp_path))

    def send(number: int) -> bool:
        try:
            waiter.uploads.receive_part(upload, number, pieces())
        except UploadTooLarge:
            return False
        return True

    with ThreadPoolExecutor(parts) as pool:
        taken = list(pool.map(send, range(1, parts + 1) if numbers == "of their own" else [1] * parts))

    # of one number there may be the last and those before, until they are known to be gone
    assert max(peaks) <= (limit if numbers == "of their own" else 2 * limit + size)
    # at most one of them finds room; those that stand in each other's way may all be refused
    there = sum(part.size for part in waiter.uploads.parts(upload))
    assert there == (size if True in taken else 0) == on_disk(tmp_path)
    # whatever was refused takes nobody's place afterwards
    waiter.uploads.receive_part(upload, 11, [bytes(limit - there)])
    with pytest.raises(UploadTooLarge):
        waiter.uploads.receive_part(upload, 12, [b"x"])
    waiter.close()


def test_a_part_can_be_sent_again_while_the_one_before_hangs(tmp_path: Path) -> None:
    """A connection that broke off unheard is not known to be gone for a minute; its part comes again at once."""
    waiter = made(tmp_path, str(tmp_path / "files"), max_upload=100)
    upload = waiter.uploads.announce("ada")
    waiter.uploads.receive_part(upload, 1, [b"x" * 40])
    come, gone = threading.Event(), threading.Event()

    def hanging() -> Iterator[bytes]:
        yield b"y" * 50
        come.set()
        gone.wait(20)
        raise EOFError

    with ThreadPoolExecutor(1) as pool:
        before = pool.submit(waiter.uploads.receive_part, upload, 2, hanging())
        assert come.wait(20)
        waiter.uploads.receive_part(upload, 2, [b"z" * 60])
        with pytest.raises(UploadTooLarge):
            waiter.uploads.receive_part(upload, 3, [b"z"])
        gone.set()
        with pytest.raises(EOFError):
            before.result(20)

    row = waiter.uploads.complete(upload)
    assert b"".join(waiter.files.stream(row.object_key or "")) == b"x" * 40 + b"z" * 60
    waiter.close()


def test_a_part_that_is_sent_again_leaves_one_object(local: Dumbwaiter, tmp_path: Path) -> None:
    upload = in_parts(local, b"one ", b"tow ")
    local.uploads.receive_part(upload, 2, [b"two "])
    assert len(stored(tmp_path)) == 2

    row = local.uploads.complete(upload)
    assert b"".join(local.files.stream(row.object_key or "")) == b"one two "


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda waiter: waiter.uploads.announce("ada"), "no part of it"),
        (lambda waiter: in_parts(waiter, b"one", b"two", size=7), "6 bytes, and 7 were announced"),
    ],
)
def test_what_is_not_whole_is_not_completed(
    local: Dumbwaiter, spoil: Callable[[Dumbwaiter], Any], why: str
) -> None:
    upload = spoil(local)

    with pytest.raises(UploadConflict, match=why):
        local.uploads.complete(upload)
    with pytest.raises(UploadConflict, match="not complete"):
        local.enqueue("read-on-thread", {"letter": {"upload": upload.id}}, owner="ada")


def test_a_missing_part_and_a_wrong_checksum_are_told(local: Dumbwaiter, tmp_path: Path) -> None:
    upload = local.uploads.announce("ada")
    local.uploads.receive_part(upload, 1, [b"one"])
    local.uploads.receive_part(upload, 3, [b"three"])
    with pytest.raises(UploadConflict, match="part 2 is missing"):
        local.uploads.complete(upload)
    local.uploads.receive_part(upload, 2, [b"two"])

    with pytest.raises(UploadConflict, match="SHA-256"):
        local.uploads.complete(upload, sha256="0" * 64)
    assert len(stored(tmp_path)) == 3
    assert local.uploads.complete(upload).size == 11


def test_a_source_that_breaks_leaves_nothing_and_says_why(waiter: Dumbwaiter) -> None:
    def breaking() -> Iterator[bytes]:
        yield b"x" * 9_000_000
        yield b"x" * 9_000_000
        raise EOFError("the client went away")

    with pytest.raises(EOFError, match="went away"):
        waiter.uploads.receive(None, breaking())
    upload = waiter.uploads.announce(None)
    with pytest.raises(EOFError, match="went away"):
        waiter.uploads.receive_part(upload, 1, breaking())

    assert waiter.uploads.parts(upload) == []
    assert waiter.store.uploads.expired(now=waiter.store.now() + DAY) == [upload.id]


def test_a_task_that_has_not_ended_is_not_retried_with_its_uploads(local: Dumbwaiter) -> None:
    task = local.enqueue("read-on-thread", {"letter": b"one"})

    with pytest.raises(IllegalMove):
        local.retry(task.id)


def test_an_upload_is_public_by_its_name() -> None:
    assert Upload("0190a6c8-0000-7000-8000-000000000000").stored() == {
        "upload": "0190a6c8-0000-7000-8000-000000000000"
    }
