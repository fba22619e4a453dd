"""What a page shows of a task, for every status, with every kind of result file, before and after each expires."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product

import pytest

from dumbwaiter.task import ResultFile, Status
from tests.unit.test_task import NOW, PENDING

FOR_EVER = ResultFile("for-ever", "text/csv", 1, "1" * 64, "key", 1)
HOUR = timedelta(hours=1)
# how a file stands: when it expires, and when it was deleted
KINDS: dict[str, ResultFile] = {
    "kept for ever": FOR_EVER,
    "expires in an hour": replace(FOR_EVER, expires_at=NOW + HOUR),
    "expires this moment": replace(FOR_EVER, expires_at=NOW),
    "expired": replace(FOR_EVER, expires_at=NOW - HOUR),
    "expired and deleted": replace(FOR_EVER, expires_at=NOW - HOUR, deleted_at=NOW),
    "deleted before it expired": replace(FOR_EVER, expires_at=NOW + HOUR, deleted_at=NOW),
    "deleted though kept for ever": replace(FOR_EVER, deleted_at=NOW),
}
THERE = {"kept for ever", "expires in an hour"}
LISTS: list[tuple[str, ...]] = [(), *((kind,) for kind in KINDS), *product(KINDS, repeat=2)]


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("kinds", LISTS, ids=lambda kinds: ", ".join(kinds) or "no file")
def test_every_status_with_every_files(status: Status, kinds: tuple[str, ...]) -> None:
    task = replace(PENDING, status=status, files=[KINDS[kind] for kind in kinds])

    expected = {
        Status.PENDING: "working",
        Status.RUNNING: "working",
        Status.SUCCESS: "ready" if set(kinds) <= THERE else "retry",
        Status.FAILED: "retry",
        Status.CANCELLED: "retry",
    }[status]
    assert task.display(NOW) == expected
    # asked to stop or not: it shows what it shows until it has ended
    assert replace(task, cancel_requested_at=NOW).display(NOW) == expected


@pytest.mark.parametrize(
    ("moment", "display"),
    [(NOW, "ready"), (NOW + HOUR - timedelta.resolution, "ready"), (NOW + HOUR, "retry")],
)
def test_a_success_turns_into_the_offer_to_make_it_again_at_the_moment_it_expires(
    moment: datetime, display: str
) -> None:
    task = replace(PENDING, status=Status.SUCCESS, files=[FOR_EVER, KINDS["expires in an hour"]])

    assert task.display(moment) == display
