"""What is claimed before a slot is free for it: how much, in which order it begins, and when it goes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from dumbwaiter.executors.registry import Registry, TaskType
from dumbwaiter.executors.signature import Signature
from dumbwaiter.task import Fence, Status, Task
from dumbwaiter.worker.buffer import AT_HAND, ENOUGH, LATE, MOST, Buffer
from dumbwaiter.worker.slots import Slots

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SLOTS = 2


def task(name: str, *, attempt: int = 1, max_crash_count: int = 3) -> Task:
    return Task(
        name,
        "t",
        "default",
        Status.RUNNING,
        {},
        NOW,
        NOW,
        NOW,
        attempt=attempt,
        max_crash_count=max_crash_count,
        worker_id="w1",
        ahead=True,
    )


@dataclass
class Bench:
    """A worker of two slots, whose clock is set by hand."""

    seconds: float = 0.0
    launched: list[Task] = field(default_factory=list)
    announced: list[list[str]] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    back: list[str] = field(default_factory=list)
    ends_at_once: bool = False

    def __post_init__(self) -> None:
        registry = Registry()
        self.entry = registry.add(TaskType("t", print, Signature("t", lambda: None)))
        self.slots = Slots({"default": SLOTS}, 1, {})
        self.buffer = Buffer(
            self.slots,
            registry,
            launch=self.launch,
            announce=self.announce,
            give_back=lambda task: self.back.append(task.id),
            monotonic=lambda: self.seconds,
        )

    def launch(self, task: Task) -> None:
        self.launched.append(task)
        if self.ends_at_once:
            self.end()

    def announce(self, fences: Sequence[Fence]) -> set[Fence]:
        self.announced.append([fence.task_id for fence in fences])
        return {fence for fence in fences if fence.task_id not in self.lost}

    def end(self) -> None:
        self.slots.give_back("default", self.entry)
        self.buffer.feed("default")

    def run_for(self, seconds: float, times: int = ENOUGH) -> None:
        for _ in range(times):
            self.buffer.ended("default", seconds)

    @property
    def begun(self) -> list[str]:
        return [task.id for task in self.launched]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nothing_is_claimed_ahead_until_it_is_known_how_long_tasks_take(bench: Bench) -> None:
    assert bench.buffer.room("default") == 0
    bench.run_for(0.001, times=ENOUGH - 1)
    assert bench.buffer.room("default") == 0
    bench.run_for(0.001, times=1)
    assert bench.buffer.room("default") > 0


@pytest.mark.parametrize(
    ("length", "room"),
    [(0.0, MOST), (0.00001, MOST), (0.01, SLOTS * 10), (0.05, SLOTS * 2), (0.2, 0), (60.0, 0)],
)
def test_as_much_is_at_hand_as_the_slots_do_in_a_tenth_of_a_second(
    bench: Bench, length: float, room: int
) -> None:
    bench.run_for(length)

    assert bench.buffer.room("default") == room


def test_one_long_task_among_short_ones_ends_it(bench: Bench) -> None:
    bench.run_for(0.001, times=1_000)
    bench.run_for(10.0, times=1)

    assert bench.buffer.room("default") == 0


def test_more_is_claimed_when_half_of_it_has_gone(bench: Bench) -> None:
    bench.run_for(0.01)
    bench.buffer.put([task(f"{number:02}") for number in range(SLOTS * 10)])
    assert bench.buffer.enough("default")

    bench.buffer.feed("default")
    while len(bench.launched) < SLOTS * 5 - 1:
        assert bench.buffer.room("default") == 0
        bench.end()
    bench.end()

    assert bench.buffer.room("default") == SLOTS * 5


def test_what_waits_begins_in_its_order_as_slots_come_free(bench: Bench) -> None:
    bench.buffer.put([task(name) for name in "abcd"])
    bench.buffer.feed("default")
    assert bench.begun == ["a", "b"]

    bench.end()

    assert bench.begun == ["a", "b", "c"]
    assert {fence.task_id for fence in bench.buffer.fences} == {"d"}


def test_what_ends_at_once_lets_thousands_begin_one_after_another(bench: Bench) -> None:
    """Not one within another: Python's stack ends at a thousand."""
    bench.ends_at_once = True
    bench.buffer.put([task(str(number)) for number in range(5_000)])
    bench.buffer.feed("default")

    assert len(bench.launched) == 5_000


@pytest.mark.parametrize("formal", [{"attempt": 2}, {"max_crash_count": 0}])
def test_what_may_not_be_repeated_unseen_begins_with_a_word_in_its_turn(
    bench: Bench, formal: dict[str, int]
) -> None:
    bench.buffer.put([task("a"), task("b", **formal), task("c")])
    assert not bench.buffer.calls("default")
    bench.buffer.feed("default")
    assert bench.begun == ["a"], "what comes after it waits for its word"
    assert bench.buffer.calls("default")

    bench.buffer.announce()
    bench.end()

    assert bench.announced == [["b"]]
    assert bench.begun == ["a", "b", "c"]
    assert [one.ahead for one in bench.launched] == [True, False, True]


def test_no_more_is_announced_than_has_a_slot(bench: Bench) -> None:
    bench.buffer.put([task(name, attempt=2) for name in "abc"])
    bench.buffer.announce()
    bench.buffer.announce()
    assert bench.announced == [["a", "b"]]

    bench.end()
    bench.buffer.announce()

    assert bench.announced == [["a", "b"], ["c"]]


def test_what_was_lost_before_its_turn_does_not_begin(bench: Bench) -> None:
    bench.lost = {"a"}
    bench.buffer.put([task("a", attempt=2), task("b", attempt=2)])
    bench.buffer.announce()

    assert bench.begun == ["b"]
    assert bench.buffer.fences == ()


def test_what_waited_too_long_goes_back_and_is_ours_until_that_is_written(bench: Bench) -> None:
    bench.buffer.put([task("old"), task("old too", attempt=2)])
    bench.seconds += LATE / 2
    bench.buffer.put([task("young")])
    bench.seconds += LATE / 2 + 0.1
    bench.buffer.give_back_late()

    assert sorted(bench.back) == ["old", "old too"]
    assert {fence.task_id for fence in bench.buffer.fences} == {"old", "old too", "young"}
    for name, attempt in (("old", 1), ("old too", 2)):
        bench.buffer.returned(Fence(name, "w1", attempt))
    assert {fence.task_id for fence in bench.buffer.fences} == {"young"}


def test_after_that_nothing_is_claimed_ahead_until_it_is_known_anew_how_long_tasks_take(bench: Bench) -> None:
    bench.run_for(0.001)
    bench.buffer.put([task("a")])
    bench.seconds += LATE + 0.1
    bench.buffer.give_back_late()
    assert bench.buffer.room("default") == 0

    bench.run_for(0.001)

    assert bench.buffer.room("default") > 0


def test_a_worker_that_stood_still_begins_nothing_that_it_may_have_lost(bench: Bench) -> None:
    bench.buffer.put([task("a")])
    bench.seconds += LATE + 0.1
    bench.buffer.feed("default")
    assert bench.begun == []

    bench.buffer.give_back_late()
    assert bench.back == ["a"]


def test_a_stop_gives_everything_back_what_is_claimed_at_that_moment_too(bench: Bench) -> None:
    bench.run_for(0.001)
    bench.buffer.put([task("a"), task("b", attempt=2)])
    bench.buffer.close()
    bench.buffer.put([task("c")])
    bench.buffer.feed("default")

    assert sorted(bench.back) == ["a", "b", "c"]
    assert bench.begun == []
    assert bench.buffer.room("default") == 0


def test_so_little_is_at_hand_that_an_urgent_task_waits_for_a_tenth_of_a_second(bench: Bench) -> None:
    bench.run_for(0.002)

    assert bench.buffer.room("default") * 0.002 / SLOTS <= AT_HAND
