"""Housekeeping by a worker and by hand: what expired goes, what dead attempts left goes, and nothing that is good."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dumbwaiter import Dumbwaiter, Fail, TaskContext, Upload
from dumbwaiter.errors import FileStoreError
from dumbwaiter.files import FileStore
from dumbwaiter.store.rows import Finish
from dumbwaiter.task import Outcome, Task
from dumbwaiter.worker import chores
from dumbwaiter.worker.chores import Removed
from dumbwaiter.worker.housekeeper import LOOK, RESTS, TIDY, Housekeeper
from tests.support.pantry import SOON, publish
from tests.support.waiting import until


@pytest.fixture
def waiter(tmp_path: Path) -> Iterator[Dumbwaiter]:
    waiter = Dumbwaiter(
        f"sqlite:///{tmp_path}/tasks.db",
        poll="200ms",
        grace="1s",
        lease="2s",
        heartbeat="300ms",
        sweep="500ms",
    )

    @waiter.task("jam", retry=SOON)
    def jam(ctx: TaskContext, seconds: float | None = None, how: str = "") -> None:
        publish(ctx, "jam.txt", seconds)
        if how == "fail":
            raise Fail("burnt")
        if how == "retry" and ctx.task.attempt == 1:
            raise ConnectionError("the line was cut")
        if how == "wait":
            ctx.sleep(60)

    waiter.migrate()
    yield waiter
    waiter.close()


@pytest.fixture
def working(waiter: Dumbwaiter) -> Iterator[Dumbwaiter]:
    """The same with a worker."""
    worker = waiter.worker()
    worker.start()
    yield waiter
    worker.stop(hurry=True)
    assert worker.join(15)


def stored(waiter: Dumbwaiter) -> list[str]:
    """What lies in the file store."""
    root = Path(waiter.settings.files_url)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def ended(waiter: Dumbwaiter, **arguments: Any) -> Task:
    task = waiter.enqueue("jam", arguments)
    until(lambda: waiter.get(task.id).status.final)
    return waiter.get(task.id)


def aged(waiter: Dumbwaiter, *task_ids: str) -> None:
    """As if these had ended long ago."""
    tasks = waiter.store.tables.tasks
    with waiter.store.connections.writing() as connection:
        long_ago = waiter.store.now() - timedelta(seconds=1)
        connection.execute(sa.update(tasks).where(tasks.c.id.in_(task_ids)).values(prune_at=long_ago))


def spoiled(waiter: Dumbwaiter, *task_ids: str) -> None:
    """As if the files of these had expired just now, and not while the worker that made them was there to remove them."""
    files = waiter.store.tables.files
    with waiter.store.connections.writing() as connection:
        just_now = waiter.store.now()
        connection.execute(sa.update(files).where(files.c.task_id.in_(task_ids)).values(expires_at=just_now))


@pytest.mark.parametrize("how", ["fail", "retry"])
def test_the_files_of_an_attempt_that_did_not_succeed_go_at_its_end(working: Dumbwaiter, how: str) -> None:
    task = ended(working, how=how)

    wanted = [] if how == "fail" else [f"{task.id}/2/jam.txt"]
    until(lambda: stored(working) == wanted)
    until(lambda: not working.store.prunable().leftovers)


def test_a_worker_that_starts_removes_what_has_expired_and_what_is_old(waiter: Dumbwaiter) -> None:
    first = waiter.worker()
    first.start()
    good, expired, old = ended(waiter), ended(waiter, seconds=0.01), ended(waiter, seconds=0.01)
    first.stop()
    assert first.join(15)
    aged(waiter, old.id)
    second = waiter.worker()
    second.start()

    until(lambda: stored(waiter) == [f"{good.id}/1/jam.txt"])
    until(lambda: {task.id for task in waiter.find()} == {good.id, expired.id})
    [file] = waiter.get(expired.id).files
    until(lambda: waiter.get(expired.id).files[0].deleted_at is not None)
    assert waiter.get(expired.id).display(waiter.store.now()) == "retry"
    assert (waiter.get(good.id).files[0].deleted_at, file.name) == (None, "jam.txt")
    second.stop()
    assert second.join(15)


def test_prune_removes_all_there_is_and_tells_how_many(waiter: Dumbwaiter) -> None:
    worker = waiter.worker()
    worker.start()
    tasks = [ended(waiter) for _ in range(4)]
    worker.stop()
    assert worker.join(15)
    spoiled(waiter, tasks[0].id, tasks[1].id)
    aged(waiter, tasks[1].id, tasks[2].id)
    removed = waiter.prune()

    assert removed == Removed(files=2, records=2)
    assert str(removed) == "2 expired files, 2 old records"
    assert stored(waiter) == [f"{tasks[3].id}/1/jam.txt"]
    assert waiter.prune() == Removed()
    assert str(Removed()) == "nothing"


def succeeded(waiter: Dumbwaiter, number: int, *, seconds: float = -60.0) -> list[str]:
    """Successes whose one file expired a minute ago, without a worker."""
    from dumbwaiter.files import object_key
    from dumbwaiter.store.claiming import Want
    from dumbwaiter.task import ResultFile

    ids = waiter.enqueue_many("jam", [{} for _ in range(number)])
    claimed = waiter.store.claim(Want("default", number, ("jam",)), "w1")
    expires = waiter.store.now() + timedelta(seconds=seconds)
    ends = []
    source = Path(waiter.settings.files_url).parent / "source"
    source.write_text("jam")
    for task in claimed:
        key = object_key(task.id, 1, "jam.txt")
        kept = waiter.files.put(source, key, filename="jam.txt")
        file = ResultFile("jam.txt", kept.content_type, kept.size, kept.sha256, key, 1, expires_at=expires)
        ends.append(Finish(task, Outcome.succeeded(), [file], published=True))
    waiter.store.finish(ends)
    return ids


def test_what_cannot_be_deleted_does_not_hold_up_the_rest_and_keeps_its_record(
    waiter: Dumbwaiter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ids = succeeded(waiter, 5)
    aged(waiter, *ids)
    stuck = ids[1]
    whole = FileStore.delete

    def refuse(self: FileStore, keys: Any) -> None:
        keys = list(keys)
        if any(stuck in key for key in keys):
            raise FileStoreError("this one is held", transient=True)
        whole(self, keys)

    monkeypatch.setattr(FileStore, "delete", refuse)
    removed = waiter.prune()

    assert removed == Removed(files=4, records=4)
    assert [task.id for task in waiter.find()] == [stuck]
    assert f"{stuck}/1/jam.txt could not be deleted" in caplog.text
    monkeypatch.setattr(FileStore, "delete", whole)
    assert waiter.prune() == Removed(files=1, records=1)
    assert stored(waiter) == []


def test_a_pruner_that_dies_between_the_files_and_their_rows_leaves_the_rest_to_the_next(
    waiter: Dumbwaiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = succeeded(waiter, 3)
    aged(waiter, *ids)

    class Died(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(type(waiter.store), "mark_deleted", die)
        with pytest.raises(Died):
            waiter.prune()
    assert (stored(waiter), len(waiter.find())) == ([], 3)

    assert waiter.prune() == Removed(files=3, records=3)


def test_an_upload_goes_with_the_record_of_the_last_task_that_took_it(waiter: Dumbwaiter) -> None:
    @waiter.task("weigh")
    def weigh(letter: Upload) -> int:
        return letter.size

    nobodys, taken = waiter.upload(b"of nobody", filename="a.txt"), waiter.upload(b"taken", filename="b.txt")
    tasks = [waiter.enqueue("weigh", {"letter": taken}) for _ in range(2)]
    for task in tasks:
        waiter.cancel(task.id)
    assert len(stored(waiter)) == 2
    uploads = waiter.store.tables.uploads
    with waiter.store.connections.writing() as connection:
        over = waiter.store.now() - timedelta(seconds=1)
        connection.execute(sa.update(uploads).where(uploads.c.id == nobodys.id).values(expires_at=over))
    aged(waiter, tasks[0].id)

    assert waiter.prune() == Removed(records=1, uploads=1)
    [left] = stored(waiter)
    assert taken.id in left
    aged(waiter, tasks[1].id)
    assert waiter.prune() == Removed(records=1, uploads=1)
    assert stored(waiter) == []


class Files:
    """A file store that is away until somebody says otherwise."""

    away = True

    def delete(self, keys: Any) -> None:
        if self.away:
            raise FileStoreError("the store is away")

    def delete_attempt(self, task_id: str, attempt: int) -> None:
        self.delete([])


@pytest.fixture
def keeper(waiter: Dumbwaiter, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A housekeeper whose clock is set by hand, with files that are away."""
    from dumbwaiter.worker.sweeper import Sweeper

    monkeypatch.setattr(Sweeper, "round", lambda _: 60.0)

    class Kept:
        seconds = 1_000.0
        tidied = 0
        looks = 0
        files = Files()

    kept = Kept()
    whole = waiter.store.prunable

    def counted() -> Any:
        kept.looks += 1
        return whole()

    def tidy() -> None:
        kept.tidied += 1

    monkeypatch.setattr(waiter.store, "prunable", counted)
    kept.keeper = Housekeeper(  # type: ignore[attr-defined]
        waiter.store,
        lambda: kept.files,  # type: ignore[arg-type, return-value]
        tidy=tidy,
        monotonic=lambda: kept.seconds,
    )
    return kept


def test_at_rest_there_is_one_look_a_minute_and_a_tidying_an_hour(keeper: Any) -> None:
    hour = 0.0
    while hour < TIDY + 60:
        wait = keeper.keeper.round()
        assert 0 < wait <= LOOK
        keeper.seconds += wait
        hour += wait

    assert 60 <= keeper.looks <= 80
    assert keeper.tidied == 1


def test_between_two_batches_it_rests_longer_than_it_worked(
    waiter: Dumbwaiter, keeper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeeded(waiter, 25)
    keeper.files.away = False
    monkeypatch.setattr(chores, "FIRST", 10)
    keeper.keeper._chores.files._limit = 10

    def slow(self: Files, keys: Any) -> None:
        keeper.seconds += 2.0

    monkeypatch.setattr(Files, "delete", slow)

    assert keeper.keeper.round() == pytest.approx(2.0 * RESTS)
    assert len(waiter.store.expired_files()) == 15


def test_a_file_store_that_is_away_is_told_of_once_and_asked_again_a_minute_later(
    waiter: Dumbwaiter, keeper: Any, caplog: pytest.LogCaptureFixture
) -> None:
    succeeded(waiter, 4)
    for _ in range(3):
        assert keeper.keeper.round() == 0.0
        wait = keeper.keeper.round()
        assert LOOK * 0.8 <= wait <= LOOK
        keeper.seconds += wait
    assert caplog.text.count("stay until they can be removed") == 1
    assert len(waiter.store.expired_files()) == 4

    keeper.files.away = False
    keeper.keeper.round()
    assert waiter.store.expired_files() == []


def test_a_worker_that_is_told_of_leftovers_does_not_wait_for_its_next_look(
    waiter: Dumbwaiter, keeper: Any
) -> None:
    keeper.keeper.round()
    keeper.seconds += 1
    assert keeper.keeper.round() > 0
    keeper.keeper.hurry()
    keeper.keeper.round()

    assert keeper.looks == 2


def test_batches_grow_while_the_database_is_quick_and_shrink_when_it_is_not() -> None:
    seconds = [0.001] * 5 + [0.2] * 9
    seen: list[int] = []

    def batch(limit: int, skip: int) -> chores.Batch:
        seen.append(limit)
        return chores.Batch(limit, limit, seconds[len(seen) - 1])

    chore = chores.Chore("things", batch)
    for _ in seconds:
        assert chore.once() == (seen[-1], True)

    assert seen[:5] == [200, 400, 800, 1_000, 1_000]
    assert seen[-1] == chores.FEWEST
