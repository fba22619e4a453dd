"""Any interleaving of producers, workers and sweeps, against a model in Python: whatever happens, the promises hold.

Hypothesis chooses what is done next, and to which task; the clock is the test's own. After every step the whole table is
compared with the model, and the promises are read off the rows themselves, without it.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dumbwaiter.errors import DuplicateTask, IllegalMove
from dumbwaiter.retry import Retry, decide, interrupted
from dumbwaiter.store.claiming import Concern
from dumbwaiter.store.rows import Finish, NewTask, Report, WorkerRow, active_key, next_key
from dumbwaiter.store.store import Store
from dumbwaiter.task import ACTIVE, LEGAL, AttemptOutcome, Fence, Kind, Outcome, Progress, Status, Task
from tests.store.world import LEASE, NOW, emptied, want

BEAT_FOR = timedelta(seconds=33)
RETRY = Retry(delays=[timedelta(seconds=5)], jitter=0)
SNOOZE = timedelta(seconds=7)
MOST_INTERRUPTIONS = 2
WORKERS = ("w1", "w2", "w3")
# One type needs what there is one of, so that both forms of the claim are taken.
NEEDS = {"heavy": {"chromium": 1.0}}
# The other is isolated: its crash takes no worker along.
IN_PROCESS = ("t",)

seconds = st.sampled_from([0, 1, 4, 6, 15, 21, 40, 100])
workers = st.sampled_from(WORKERS)
# Of what there is, the newest first: what has just happened is where races are.
which = st.integers(0, 30)
fractions = st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0, float("nan")])
ends = st.sampled_from(["succeed", "error", "error", "fail", "snooze", "release", "give back", "cancelled"])


def outcome_of(how: str, task: Task) -> Outcome:
    """What a worker decides about an attempt that ended so, knowing the task as it was claimed."""
    match how:
        case "succeed":
            return Outcome.succeeded({"n": 1})
        case "fail":
            return Outcome(Kind.FAIL, AttemptOutcome.FAILED, error_type="Broken")
        case "error":
            return decide(task, ConnectionError("refused"), RETRY)
        case "snooze":
            return Outcome.snoozed(SNOOZE)
        case "give back":
            return Outcome.given_back()
        case "release":
            return interrupted(task, MOST_INTERRUPTIONS)
    return Outcome.cancelled()


@dataclass
class Modelled:
    """A task as it must stand in the table."""

    new: NewTask
    run_at: datetime
    ready: bool
    active_key: str | None
    waits_for: str | None = None
    status: Status = Status.PENDING
    attempt: int = 0
    retry_count: int = 0
    crash_count: int = 0
    interruption_count: int = 0
    ahead: bool = False
    worker_id: str | None = None
    reserved_by: str | None = None
    heartbeat_at: datetime | None = None
    beat_until: datetime | None = None
    cancel_requested_at: datetime | None = None
    finished_at: datetime | None = None
    progress: float = 0.0
    retried_as: str | None = None

    @property
    def key(self) -> str | None:
        return self.new.active_key

    @property
    def active(self) -> bool:
        return self.status in ACTIVE

    @property
    def cancelling(self) -> bool:
        return self.status is Status.RUNNING and self.cancel_requested_at is not None

    @property
    def suspect(self) -> bool:
        """It has crashed a worker, and would take this one along."""
        return self.new.task_type in IN_PROCESS and self.crash_count > 0

    def in_time(self, now: datetime) -> bool:
        return self.new.start_before is None or self.attempt > 0 or self.new.start_before > now

    def holds(self, fence: Fence) -> bool:
        return self.status is Status.RUNNING and (self.worker_id, self.attempt) == (
            fence.worker_id,
            fence.attempt,
        )

    def row(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "new"}

    def let_go(self) -> None:
        self.worker_id = self.heartbeat_at = self.beat_until = None
        self.ahead = False


class Promises(RuleBasedStateMachine):
    """The store of one database, and what must be in it."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.now = NOW
        self.tasks: dict[str, Modelled] = {}
        self.claims: list[Task] = []
        self.written: dict[Fence, tuple[str, Status]] = {}
        self.before: dict[str, Any] = {}
        emptied(store)
        self.heard = dict.fromkeys(WORKERS, NOW)
        for name in WORKERS:
            store.register(WorkerRow(name, "host", 7, "1", {}, {}, NOW, NOW, stopping=False), now=NOW)

    # producers

    @rule(
        key=st.sampled_from([None, "a", "b"]),
        on_duplicate=st.sampled_from(["return", "reject", "after", "replace"]),
        request=st.sampled_from([None, None, None, "r"]),
        reuse=st.sampled_from([None, None, timedelta(seconds=50)]),
        task_type=st.sampled_from(["t", "t", "heavy"]),
        priority=st.integers(-1, 1),
        delay=st.sampled_from([0, 0, 10]),
        start_within=st.sampled_from([None, None, 30]),
        timeout=st.sampled_from([None, 60]),
        retries=st.sampled_from([0, 1, 2, 2]),
        crashes=st.integers(0, 3),
    )
    def somebody_asks(
        self,
        *,
        key,
        on_duplicate,
        request,
        reuse,
        task_type,
        priority,
        delay,
        start_within,
        timeout,
        retries,
        crashes,
    ):
        new = NewTask(
            id=self.next_id(),
            task_type=task_type,
            payload={},
            priority=priority,
            business_key=key,
            on_duplicate=on_duplicate,
            request_key=None if request is None else active_key("request", None, request),
            request_hash=None if request is None else active_key("body", None, request),
            reuse_for=reuse,
            delay=timedelta(seconds=delay),
            start_before=None if start_within is None else self.now + timedelta(seconds=start_within),
            timeout=None if timeout is None else timedelta(seconds=timeout),
            max_retry_count=retries,
            max_crash_count=crashes,
        )
        self.enqueue(new)

    def next_id(self) -> str:
        """The same when the same steps are played again: rows that are due at one time are claimed by their ids."""
        return f"00000000-0000-7000-8000-{len(self.tasks):012x}"

    def enqueue(self, new: NewTask) -> tuple[str, str]:
        expected = self.expected_of(new)
        try:
            task, created = self.store.enqueue(new, now=self.now)
            answer = ("new" if created else "found", task.id)
        except DuplicateTask as refused:
            answer = ("refused", refused.task.id)
        assert answer == expected
        return answer

    def expected_of(self, new: NewTask) -> tuple[str, str]:
        if new.request_key is not None:
            for one in self.tasks.values():
                if one.new.request_key == new.request_key:
                    return "found", one.new.id
        if new.active_key is None:
            return self.insert(new, None)
        if new.reuse_for is not None and (valid := self.reusable(new, new.reuse_for)):
            return "found", max(valid)
        holder = self.holder(new.active_key)
        if holder is None:
            return self.insert(new, new.active_key)
        if new.on_duplicate == "reject" and not holder.cancelling:
            return "refused", holder.new.id
        if new.on_duplicate == "return" and not holder.cancelling:
            return "found", holder.new.id
        follower = self.holder(next_key(new.active_key))
        if new.on_duplicate == "replace":
            if follower is not None:
                self.end(follower, Status.CANCELLED, promote=False)
                follower = None
            if holder.status is Status.PENDING:
                self.end(holder, Status.CANCELLED, promote=False)
                return self.insert(new, new.active_key)
            holder.cancel_requested_at = holder.cancel_requested_at or self.now
        if follower is not None:
            return "refused" if new.on_duplicate == "reject" else "found", follower.new.id
        return self.insert(new, next_key(new.active_key), waits_for=holder.new.id)

    def insert(self, new: NewTask, key: str | None, waits_for: str | None = None) -> tuple[str, str]:
        ready = not new.delay and waits_for is None
        self.tasks[new.id] = Modelled(new, self.now + new.delay, ready, key, waits_for)
        return "new", new.id

    def reusable(self, new: NewTask, young: timedelta) -> list[str]:
        return [
            one.new.id
            for one in self.tasks.values()
            if one.key == new.active_key
            and one.status is Status.SUCCESS
            and one.finished_at is not None
            and one.finished_at > self.now - young
        ]

    def holder(self, key: str | None) -> Modelled | None:
        return next((one for one in self.tasks.values() if key is not None and one.active_key == key), None)

    @precondition(lambda self: self.held())
    @rule(number=which)
    def somebody_cancels_what_runs(self, number):
        self.cancel(self.tasks[newest(self.held(), number).id])

    @precondition(lambda self: self.tasks)
    @rule(number=which)
    def somebody_cancels(self, number):
        self.cancel(newest(list(self.tasks.values()), number))

    def cancel(self, one: Modelled) -> None:
        if one.status.final:
            with pytest.raises(IllegalMove):
                self.store.cancel(one.new.id, now=self.now)
            return
        self.store.cancel(one.new.id, now=self.now)
        if one.status is Status.PENDING:
            self.end(one, Status.CANCELLED)
        else:
            one.cancel_requested_at = one.cancel_requested_at or self.now

    @precondition(lambda self: any(one.status.final for one in self.tasks.values()))
    @rule(number=which)
    def somebody_makes_a_finished_one_again(self, number):
        old = newest([one for one in self.tasks.values() if one.status.final], number)
        again = replace(
            old.new,
            id=self.next_id(),
            on_duplicate="return",
            retry_of=old.new.id,
            request_key=None,
            request_hash=None,
            reuse_for=None,
            delay=timedelta(0),
            start_before=None,
        )
        answer, made = self.enqueue(again)
        if answer == "new":
            self.store.note_retry(self.store.get(old.new.id), self.store.get(made))
            old.retried_as = old.retried_as or made

    # workers

    @precondition(lambda self: any(one.ready for one in self.tasks.values()))
    @rule(
        worker=workers,
        slots=st.integers(1, 4),
        types=st.sampled_from([("t",), ("t", "heavy")]),
        browsers=st.integers(0, 1),
        ahead=st.booleans(),
    )
    def a_worker_claims(self, worker, slots, types, browsers, ahead):
        self.claim(worker, slots, types, browsers, ahead=ahead)

    def claim(
        self, worker: str, slots: int, types: tuple[str, ...], browsers: int, *, ahead: bool = False
    ) -> None:
        if self.claims_nothing(worker):
            return
        asked = want(
            slots,
            *types,
            needs=NEEDS,
            free={"chromium": float(browsers)},
            beat_for=BEAT_FOR,
            in_process=IN_PROCESS,
            ahead=ahead,
        )
        claimed = self.store.claim(asked, worker, now=self.now)
        assert [task.id for task in claimed] == self.first_due(slots, types, browsers)
        for task in claimed:
            assert task.ahead == ahead
            self.take(task, worker)

    def claims_nothing(self, worker: str) -> bool:
        """It runs a suspect, or has stopped claiming until it can."""
        mine = [one for one in self.tasks.values() if worker in (one.worker_id, one.reserved_by)]
        return any(one.suspect for one in mine)

    def empty(self, worker: str) -> bool:
        return all(one.worker_id != worker for one in self.tasks.values())

    @precondition(lambda self: self.suspects())
    @rule(worker=workers)
    def an_empty_worker_claims_a_suspect(self, worker):
        self.claim_alone(worker)

    def claim_alone(self, worker: str) -> None:
        if not self.empty(worker):
            return
        claimed = self.store.claim(want(1, *IN_PROCESS, alone=True, beat_for=BEAT_FOR), worker, now=self.now)
        assert [task.id for task in claimed] == [one.new.id for one in self.suspects() if one.suspect][:1]
        for task in claimed:
            self.take(task, worker)

    def suspects(self) -> list[Modelled]:
        """What has crashed a worker and is ready again, also what needs no solitude, in its order."""
        crashed = [one for one in self.tasks.values() if one.ready and one.crash_count > 0]
        return sorted(crashed, key=in_order)

    @precondition(lambda self: self.suspects())
    @rule(worker=workers)
    def a_busy_worker_reserves_a_suspect(self, worker):
        since = self.now - LEASE
        reserved = self.store.reserve(Concern(IN_PROCESS), worker, LEASE, now=self.now)
        reserving = {one.reserved_by for one in self.suspects()} - {worker, None}
        if any(other in self.heard and self.heard[other] >= since for other in reserving):
            assert reserved is None, "two workers would stop claiming"
            return
        first = next((one for one in self.suspects() if one.suspect), None)
        assert reserved == (None if first is None else first.new.id)
        if first is not None:
            first.reserved_by = worker

    def first_due(self, slots: int, types: tuple[str, ...], browsers: int) -> list[str]:
        startable = [
            one
            for one in self.tasks.values()
            if one.ready
            and one.in_time(self.now)
            and one.new.task_type in types
            and not one.suspect
            and (browsers or one.new.task_type != "heavy")
        ]
        taken = []
        for one in sorted(startable, key=in_order)[:slots]:
            if one.new.task_type == "heavy":
                if not browsers:
                    continue
                browsers -= 1
            taken.append(one.new.id)
        return taken

    @precondition(lambda self: any(one.active for one in self.tasks.values()))
    @rule(worker=workers, number=which)
    def a_worker_claims_one(self, worker, number):
        one = newest(list(self.tasks.values()), number)
        alone = self.empty(worker) and one.crash_count > 0
        if self.claims_nothing(worker) and not alone:
            return
        asked = want(1, "t", "heavy", beat_for=BEAT_FOR, in_process=IN_PROCESS, alone=alone)
        task = self.store.claim_one(one.new.id, worker, asked, now=self.now)
        assert (task is not None) == (one.ready and one.in_time(self.now) and (alone or not one.suspect))
        if task is not None:
            self.take(task, worker)

    def take(self, task: Task, worker: str) -> None:
        one = self.tasks[task.id]
        one.status, one.ready, one.progress, one.reserved_by = Status.RUNNING, False, 0.0, None
        one.attempt += 1
        one.worker_id, one.heartbeat_at, one.ahead = worker, self.now, task.ahead
        one.beat_until = None if one.new.timeout is None else self.now + one.new.timeout + BEAT_FOR
        assert task.fence == Fence(task.id, worker, one.attempt)
        self.claims.append(task)

    @precondition(lambda self: self.claims)
    @rule(several=st.lists(which, min_size=1, max_size=3), worker=workers)
    def attempts_begin_maybe_too_late(self, several, worker):
        """Of all that this worker ever claimed, so some are another's by now, or ended long ago."""
        fences = list({newest(self.claims, number).fence for number in several})
        fences = [fence for fence in fences if fence.worker_id == worker]
        if not fences:
            return
        owned = {fence for fence in fences if self.tasks[fence.task_id].holds(fence)}
        assert self.store.begin(fences) == owned
        for fence in owned:
            self.tasks[fence.task_id].ahead = False

    @precondition(lambda self: self.held())
    @rule(worker=workers)
    def a_worker_beats(self, worker):
        self.beat(worker)

    def beat(self, worker: str) -> None:
        self.store.heartbeat(worker, now=self.now)
        if worker in self.heard:
            self.heard[worker] = self.now
        for one in self.tasks.values():
            if one.worker_id == worker and (one.beat_until is None or one.beat_until > self.now):
                one.heartbeat_at = self.now

    @precondition(lambda self: self.claims)
    @rule(number=which, fraction=fractions)
    def an_attempt_reports(self, number, fraction):
        self.report(newest(self.claims, number), fraction)

    @precondition(lambda self: self.superseded())
    @rule(number=which, fraction=fractions)
    def an_attempt_reports_while_another_runs(self, number, fraction):
        self.report(newest(self.superseded(), number), fraction)

    def report(self, task: Task, fraction: float) -> None:
        self.store.report([Report(task, Progress(fraction))], now=self.now)
        one = self.tasks[task.id]
        if one.holds(task.fence) and not math.isnan(fraction):
            one.progress = max(one.progress, min(fraction, 0.999))

    @precondition(lambda self: self.held())
    @rule(number=which, how=ends)
    def an_attempt_ends(self, number, how):
        self.finish([(newest(self.held(), number), how)])

    @precondition(lambda self: self.claims)
    @rule(several=st.lists(st.tuples(which, ends), min_size=1, max_size=3))
    def attempts_end_maybe_too_late(self, several):
        """Of all claims that ever were, so some are another's by now, or ended long ago."""
        self.finish([(newest(self.claims, number), how) for number, how in several])

    @precondition(lambda self: self.superseded())
    @rule(number=which, how=ends)
    def an_attempt_ends_while_another_runs(self, number, how):
        self.finish([(newest(self.superseded(), number), how)])

    def superseded(self) -> list[Task]:
        """Claims whose task is running under another attempt by now."""
        return [
            task
            for task in self.claims
            if (one := self.tasks[task.id]).status is Status.RUNNING and one.attempt != task.attempt
        ]

    def held(self) -> list[Task]:
        return [task for task in self.claims if self.tasks[task.id].holds(task.fence)]

    def finish(self, several: list[tuple[Task, str]]) -> None:
        given = [(Finish(task, outcome_of(how, task)), how) for task, how in several]
        statuses = self.store.finish([end for end, _ in given], now=self.now)
        answers = list(zip(given, statuses, strict=True))
        # written in the order of the ids
        for (end, how), status in sorted(answers, key=lambda answer: answer[0][0].task.id):
            self.finished(end, how, status)

    def finished(self, end: Finish, how: str, status: Status | None) -> None:
        one, fence = self.tasks[end.task.id], end.task.fence
        if not one.holds(fence):
            told = self.written.get(fence)
            if told is None:
                # taken back: the rescuer may have ended it as cancelled, or given it back as this end would have
                also = {Status.PENDING} if how == "give back" else set()
                assert status in {None, Status.CANCELLED, *also}
            elif told[0] == how:
                assert status == told[1], "an end that was written is told again"
            return
        outcome = Outcome.cancelled() if one.cancelling else end.outcome
        assert status == outcome.status
        self.written[fence] = (how, outcome.status)
        self.apply(one, outcome)

    def apply(self, one: Modelled, outcome: Outcome) -> None:
        if outcome.status.final:
            self.end(one, outcome.status)
            return
        one.let_go()
        one.status, one.progress = Status.PENDING, 0.0
        one.ready = outcome.kind in (Kind.RELEASE, Kind.RESCUE, Kind.GIVE_BACK)
        if not one.ready:
            one.run_at = self.now + outcome.delay
        one.retry_count += outcome.kind is Kind.RETRY
        one.interruption_count += outcome.kind is Kind.RELEASE
        one.crash_count += outcome.kind is Kind.RESCUE

    def end(self, one: Modelled, status: Status, *, promote: bool = True) -> None:
        if one.status is Status.PENDING:
            one.cancel_requested_at = self.now
        key = one.active_key
        one.let_go()
        one.status, one.finished_at, one.ready = status, self.now, False
        one.active_key = one.waits_for = one.reserved_by = None
        if status is Status.SUCCESS:
            one.progress = 1.0
        follower = self.holder(next_key(key)) if key is not None and promote else None
        if follower is not None:
            follower.active_key, follower.waits_for = key, None
            follower.ready = follower.run_at <= self.now

    # time and sweeps

    @precondition(lambda self: any(one.active for one in self.tasks.values()))
    @rule(passed=seconds)
    def time_passes(self, passed):
        self.now += timedelta(seconds=passed)

    @precondition(lambda self: self.held())
    @rule(silent=workers, taken_over=st.booleans(), back=st.booleans())
    def one_worker_falls_silent(self, silent, taken_over, back):
        self.now += LEASE + timedelta(seconds=1)
        for worker in WORKERS:
            if worker != silent:
                self.beat(worker)
        self.take_from_silent_workers()
        if taken_over:
            # what a worker that was thought dead says now comes too late; chance alone rarely gets here
            self.the_promises_hold()
            self.claim(next(worker for worker in WORKERS if worker != silent), 4, ("t", "heavy"), 1)
        if back:
            self.beat(silent)

    @precondition(lambda self: self.silent())
    @rule()
    def silent_workers_are_taken_from(self):
        self.take_from_silent_workers()

    def take_from_silent_workers(self) -> None:
        silent = self.silent()
        rescued = {task.id: outcome for task, outcome in self.store.rescue(LEASE, now=self.now)}
        assert set(rescued) == {one.new.id for one in silent}
        for one in silent:
            outcome = rescued[one.new.id]
            spent = not one.ahead and one.crash_count + 1 >= one.new.max_crash_count
            assert outcome.status is (
                Status.CANCELLED if one.cancelling else Status.FAILED if spent else Status.PENDING
            )
            self.apply(one, outcome)

    def silent(self) -> list[Modelled]:
        since = self.now - LEASE
        alive = {worker for worker, heard in self.heard.items() if heard >= since}
        return [
            one
            for one in self.tasks.values()
            if one.heartbeat_at is not None
            and one.heartbeat_at < since
            and ((one.beat_until is not None and one.beat_until <= self.now) or one.worker_id not in alive)
        ]

    @precondition(lambda self: any(heard < self.now - LEASE for heard in self.heard.values()))
    @rule()
    def silent_workers_are_forgotten(self):
        self.store.forget_silent_workers(LEASE, now=self.now)
        self.heard = {worker: at for worker, at in self.heard.items() if at >= self.now - LEASE}

    @precondition(lambda self: self.due())
    @rule()
    def due_tasks_are_staged(self):
        self.stage()

    def stage(self) -> None:
        due = self.due()
        assert self.store.stage(now=self.now) == len(due)
        for one in due:
            one.ready = True

    def due(self) -> list[Modelled]:
        return [
            one
            for one in self.tasks.values()
            if one.status is Status.PENDING
            and not one.ready
            and one.waits_for is None
            and one.run_at <= self.now
        ]

    @precondition(lambda self: self.late())
    @rule()
    def late_tasks_expire(self):
        self.expire()

    def expire(self) -> None:
        late = self.late()
        assert self.store.expire(now=self.now) == len(late)
        for one in late:
            self.end(one, Status.CANCELLED)

    def late(self) -> list[Modelled]:
        return [
            one for one in self.tasks.values() if one.status is Status.PENDING and not one.in_time(self.now)
        ]

    # the end

    def teardown(self) -> None:
        """Nothing is ever stuck: the sweeps and one worker bring everything to its end."""
        if sys.exc_info()[0] is not None:
            return  # a promise was broken already; that is what is to be told
        for _ in range(100):
            if not any(one.active for one in self.tasks.values()):
                return
            self.now += timedelta(seconds=200)
            for step in (
                self.take_from_silent_workers,
                self.expire,
                self.stage,
                lambda: self.claim("w1", 10, ("t", "heavy"), 1),
                lambda: self.finish([(task, "succeed") for task in self.held()]),
                lambda: self.claim_alone("w1"),
            ):
                step()
                self.the_promises_hold()
        raise AssertionError(f"stuck: {[one for one in self.tasks.values() if one.active]}")

    # what must hold

    @invariant()
    def the_promises_hold(self):
        rows, attempts = self.read()
        self.the_table_is_as_the_model_says(rows)
        history: dict[str, list[Any]] = {task_id: [] for task_id in rows}
        for attempt in attempts:
            history[attempt["task_id"]].append(attempt)
        for task_id, row in rows.items():
            accepted_is_kept_and_moves_are_legal(self.before.get(task_id), row)
            every_attempt_is_charged_once(row, history[task_id])
            nothing_is_stuck(row, rows)
        assert set(self.before) <= set(rows), "a task that was accepted is gone"
        once_per_key(rows)
        a_suspect_runs_alone(rows)
        self.one_at_a_time(rows)
        self.before = rows

    def the_table_is_as_the_model_says(self, rows: dict[str, Any]) -> None:
        expected = {task_id: one.row() for task_id, one in self.tasks.items()}
        assert expected == {
            task_id: {name: row[name] for name in expected.get(task_id, row)} for task_id, row in rows.items()
        }

    def one_at_a_time(self, rows: dict[str, Any]) -> None:
        """Of all the attempts that ever were, the table knows as owners those of the running rows, one each."""
        if not self.claims:
            return
        standing = self.store.standing([task.fence for task in self.claims])
        owned = sorted(fence.task_id for fence, one in standing.items() if one.owned)
        assert owned == sorted(task_id for task_id, row in rows.items() if row["status"] == "running")

    def read(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        tasks, attempts = self.store.tables.tasks, self.store.tables.attempts
        with self.store.connections.reading() as connection:
            rows = connection.execute(sa.select(tasks)).mappings().all()
            ended = connection.execute(sa.select(attempts).order_by(attempts.c.number)).mappings().all()
        return {row["id"]: dict(row) for row in rows}, [dict(row) for row in ended]


def in_order(one: Modelled) -> tuple[int, datetime, str]:
    """The order of the claim."""
    return -one.new.priority, one.run_at, one.new.id


def newest(things: list[Any], number: int) -> Any:
    return things[-1 - number % len(things)]


def accepted_is_kept_and_moves_are_legal(before: dict[str, Any] | None, row: dict[str, Any]) -> None:
    if before is None:
        assert (row["status"], row["attempt"]) == ("pending", 0)
        return
    was, now = Status(before["status"]), Status(row["status"])
    if was.final:
        # one column of a final row may change, once: the name of the task that was made from it
        assert before["retried_as"] in (None, row["retried_as"])
        assert before | {"retried_as": None} == row | {"retried_as": None}
        return
    assert now is was or (was, now) in LEGAL
    started = was is Status.PENDING and now is Status.RUNNING
    assert row["attempt"] == before["attempt"] + started, "an attempt is charged at its claim, and only there"
    if was is now is Status.RUNNING:
        assert row["progress"] >= before["progress"]
        assert row["worker_id"] == before["worker_id"]
    assert row["version"] >= before["version"]


def every_attempt_is_charged_once(row: dict[str, Any], history: list[Any]) -> None:
    """The budgets, by the history: what an attempt was charged to is how it ended."""
    ended = [attempt["outcome"] for attempt in history]
    again = ended[:-1] if row["status"] in ("failed", "cancelled", "success") else ended
    if row["status"] == "cancelled" and len(ended) == row["attempt"] and (ended and ended[-1] != "cancelled"):
        again = ended  # it was cancelled while it waited
    assert row["crash_count"] == again.count("crashed")
    assert row["interruption_count"] == again.count("interrupted")
    assert row["retry_count"] == again.count("failed")
    unwritten = row["status"] == "running" or (row["status"], row["attempt"]) == ("success", 1)
    assert len(ended) == row["attempt"] - unwritten
    assert row["retry_count"] <= row["max_retry_count"]
    assert row["crash_count"] < max(row["max_crash_count"], 1)
    assert row["interruption_count"] <= MOST_INTERRUPTIONS
    assert (row["progress"] == 1.0) == (row["status"] == "success")


def nothing_is_stuck(row: dict[str, Any], rows: dict[str, Any]) -> None:
    """A pending task is ready, or the stager will find it, or it waits for a task that is active and whose end frees it."""
    if row["status"] != "pending" or row["waits_for"] is None:
        return
    holders = [
        one
        for one in rows.values()
        if one["active_key"] is not None and next_key(one["active_key"]) == row["active_key"]
    ]
    assert [one["id"] for one in holders] == [row["waits_for"]]
    assert holders[0]["status"] in ("pending", "running")


def a_suspect_runs_alone(rows: dict[str, Any]) -> None:
    """What has crashed a worker takes no other task along a second time."""
    held = [row for row in rows.values() if row["status"] == "running"]
    for row in held:
        if row["task_type"] in IN_PROCESS and row["crash_count"] > 0:
            assert [one["id"] for one in held if one["worker_id"] == row["worker_id"]] == [row["id"]]


def once_per_key(rows: dict[str, Any]) -> None:
    """One active task for each key, and at most one that waits for it."""
    active: dict[tuple[str, str], list[Any]] = {}
    for row in rows.values():
        if row["status"] in ("pending", "running") and row["business_key"] is not None:
            active.setdefault((row["task_type"], row["business_key"]), []).append(
                row["waits_for"] is not None
            )
    assert all(sorted(waiting) in ([False], [False, True]) for waiting in active.values())


def played(store: Store, examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    # any maker of machines will do, whatever its annotation says
    run_state_machine_as_test(lambda: Promises(store), settings=chosen)  # type: ignore[arg-type]


def test_the_promises_hold_whatever_producers_workers_and_sweeps_do(store):
    played(store, examples=10, steps=40)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_promises_hold_through_long_lives_too(store):
    played(store, examples=100, steps=80)
