"""Tasks that kill their workers, a supervisor that starts the workers again, and innocent tasks in the same queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from dumbwaiter import Dumbwaiter
from dumbwaiter.task import AttemptOutcome, Status, Task
from tests.support.waiting import until
from tests.support.workers import Entry, Place, ended

SHORT = {
    "DUMBWAITER_LEASE": "2s",
    "DUMBWAITER_HEARTBEAT": "400ms",
    "DUMBWAITER_SWEEP": "500ms",
    "DUMBWAITER_POLL": "200ms",
}


@contextmanager
def supervised(here: Place, workers: int, *arguments: str) -> Iterator[None]:
    """So many workers, each of which is replaced at once when it dies."""
    over = Event()

    def supervise() -> None:
        living = [here.start_worker(*arguments) for _ in range(workers)]
        while not over.wait(0.05):
            living = [one if one.poll() is None else here.start_worker(*arguments) for one in living]

    thread = Thread(target=supervise)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def taken_along(here: Place, poison: Task) -> list[list[str]]:
    """For each start of the poison, what else its worker had begun and not ended when it died."""
    ledger = here.ledger()
    done = {(one.task_id, one.attempt) for one in ledger if one.event == "end"}
    begun = [one for one in ledger if one.event == "start"]

    def victims(start: Entry) -> list[str]:
        return [
            one.task_id
            for one in begun
            if one.more["worker"] == start.more["worker"]
            and one.task_id != poison.id
            and (one.task_id, one.attempt) not in done
        ]

    return [victims(start) for start in here.starts(poison.id)]


def only_the_guilty_paid(
    here: Place, waiter: Dumbwaiter, poisons: Sequence[Task], innocents: Sequence[Task]
) -> None:
    for poison in [waiter.get(poison.id) for poison in poisons]:
        assert (Status.FAILED, 3) == (poison.status, poison.attempt)
        assert "the worker died while running this task (3 times)" in str(poison.error_message)
        assert [AttemptOutcome.CRASHED] * 3 == [one.outcome for one in waiter.attempts(poison.id)]
        assert 3 == len(here.starts(poison.id))
        assert [[], []] == taken_along(here, poison)[1:]
    for innocent in [waiter.get(innocent.id) for innocent in innocents]:
        assert Status.SUCCESS is innocent.status
        assert innocent.crash_count <= 1, "a bystander paid twice"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_poison_takes_bystanders_along_once_and_is_alone_after_that(
    here: Place, waiter: Dumbwaiter
) -> None:
    here.settings.update(SHORT)
    poison = waiter.enqueue("poison", {"how": "exit"})
    innocents = [waiter.enqueue("doze", {"seconds": 0.7}) for _ in range(4)]
    with supervised(here, 1, "-q", "default=4"):
        ended(waiter, [poison, *innocents], 90)

    assert taken_along(here, poison)[0], "nobody was there to be taken along, so this proves nothing"
    only_the_guilty_paid(here, waiter, [poison], innocents)


@pytest.mark.long
@pytest.mark.timeout(500)
def test_three_poisons_and_twenty_innocents_in_one_queue(here: Place, waiter: Dumbwaiter) -> None:
    here.settings.update(SHORT | {"DUMBWAITER_LEASE": "4s"})
    poisons = [waiter.enqueue("poison", {"how": how}) for how in ("kill", "memory", "exit")]
    innocents = [waiter.enqueue(name, {"seconds": 0.7}) for name in ("nap", "doze") * 10]
    with supervised(here, 2):
        ended(waiter, [*poisons, *innocents], 400)

    only_the_guilty_paid(here, waiter, poisons, innocents)


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_poison_that_is_cancelled_after_its_first_crash_never_starts_again(
    here: Place, waiter: Dumbwaiter
) -> None:
    here.settings.update(SHORT | {"DUMBWAITER_LEASE": "4s"})
    busy = here.start_worker("-q", "default=1")
    long = waiter.enqueue("doze", {"seconds": 30})
    until(lambda: here.starts(long.id), 60)
    poison = waiter.enqueue("poison", {"how": "kill"})
    doomed = here.start_worker()
    doomed.wait(60)
    # it waits for the other one, which is not empty
    until(lambda: waiter.get(poison.id).crash_count == 1, 60)
    until(lambda: "stops claiming" in here.log(), 60)
    waiter.cancel(poison.id)
    here.start_worker()
    ended(waiter, [long, waiter.enqueue("nap", {"seconds": 0})], 90)

    assert (Status.CANCELLED, 1) == (waiter.get(poison.id).status, len(here.starts(poison.id)))
    assert busy.poll() is None
