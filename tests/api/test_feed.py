"""The one reader behind all streams, without HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.api.feed import Feed, Watch
from dumbwaiter.api.looks import Look, looks
from dumbwaiter.task import Status
from tests.api.conftest import make_waiter
from tests.support.waiting import until


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Dumbwaiter]:
    waiter = make_waiter(f"sqlite:///{tmp_path / 'tasks.db'}", tmp_path)
    yield waiter
    waiter.close()


def taken(watch: Watch) -> list[tuple[str, Look | None]]:
    found = []
    while (one := watch.take()) is not None:
        found.append(one)
    return found


def test_of_a_thousand_changes_nobody_took_the_latest_is_kept_alone(shop: Dumbwaiter) -> None:
    feed = Feed(shop)
    task = shop.enqueue("greet", {"name": "Kitchen"})
    [look] = looks(shop, [task])
    watch = feed.watch([look], lambda: None)
    for _ in range(1_000):
        watch.tell(task.id, look)
    shop.cancel(task.id)
    until(lambda: (one := watch._untold[task.id]) is not None and one.final)

    [(_, last)] = taken(watch)
    assert last is not None
    assert last.task.status is Status.CANCELLED


def test_all_who_watch_a_task_hear_its_end_from_one_reader(shop: Dumbwaiter) -> None:
    feed, task = Feed(shop), shop.enqueue("greet", {"name": "Kitchen"})
    [look] = looks(shop, [task])
    ends = [threading.Event() for _ in range(20)]
    watches = [feed.watch([look], end.set, known=True) for end in ends]
    shop.cancel(task.id)

    assert all(end.wait(10) for end in ends)
    told = [watch.take() for watch in watches]
    assert len({id(one[1]) for one in told if one is not None}) == 1  # and the text is made once


def test_an_end_between_the_look_and_the_watch_is_not_missed(shop: Dumbwaiter) -> None:
    feed, task = Feed(shop), shop.enqueue("greet", {"name": "Kitchen"})
    [look] = looks(shop, [task])
    shop.cancel(task.id)
    heard = threading.Event()
    watch = feed.watch([look], heard.set, known=True)

    assert heard.wait(10)
    [(_, end)] = taken(watch)
    assert end is not None
    assert end.final


def test_a_watch_that_is_closed_hears_nothing_and_lets_the_reader_rest(shop: Dumbwaiter) -> None:
    feed, task = Feed(shop), shop.enqueue("greet", {"name": "Kitchen"})
    [look] = looks(shop, [task])
    gone, stays = feed.watch([look], lambda: None, known=True), feed.watch([look], lambda: None, known=True)
    gone.close()
    gone.close()
    shop.cancel(task.id)
    until(lambda: stays._untold)
    stays.close()

    assert taken(gone) == []
    until(lambda: not [one for one in threading.enumerate() if one.name == "dumbwaiter-feed"])
