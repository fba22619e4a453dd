"""What whoever follows a task on the command line is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dumbwaiter.cli.following import left_of, step_of
from dumbwaiter.cli.show import as_json, details, place_words, time_left
from dumbwaiter.outlook import Place
from tests.unit.test_task import NOW, PENDING, RUNNING, SECOND


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (Place(1), "the next"),
        (Place(2), "1 ahead"),
        (Place(1_001, lower_bound=True), "more than 1,000 ahead"),
        (Place(1, expected_start_at=NOW), "the next, starts soon"),
        (
            Place(2, served=False),
            "1 ahead; no worker is at work on this queue, start one with: dumbwaiter worker",
        ),
        (Place(4, expected_start_at=NOW + 130 * SECOND), "3 ahead, starts in about 2 min 10 s"),
    ],
)
def test_the_place_in_the_queue_in_words(place, words):
    assert place_words(place, NOW) == words
    assert step_of(PENDING, NOW, place) == f"queued, {words}"


def test_the_status_of_a_waiting_task_tells_its_place():
    assert ("place", "1 ahead") in details(PENDING, NOW, Place(2))
    assert "place" not in dict(details(PENDING, NOW))


def test_without_a_place_it_is_queued():
    assert step_of(PENDING, NOW) == "queued"


def test_the_time_left_with_its_range():
    task = replace(RUNNING, estimated_finish_at=NOW + timedelta(seconds=40), estimate_spread=1.6)

    assert left_of(task, NOW) == "40 s left"
    assert time_left(task, NOW) == "40 s (25 s to 1 min 4 s)"
    assert as_json(task, NOW)["remaining_range"] == [25, 64]
    bare = replace(task, estimate_spread=None)
    assert time_left(bare, NOW) == "40 s"
    assert as_json(bare, NOW)["remaining_range"] is None
    assert (left_of(RUNNING, NOW), time_left(RUNNING, NOW)) == ("", "")
