"""From a claimed task to its recorded end: started, executed, decided, cleaned, finished. Every engine ends here."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumbwaiter.errors import DatabaseUnavailable, Fail, LostClaim, NoTransaction
from dumbwaiter.executors.base import Commands, Ended, Executor, Running, Surroundings
from dumbwaiter.executors.context import UNSAID, Publication, Stop
from dumbwaiter.executors.inputs import Inputs
from dumbwaiter.executors.registry import PROCESS, Registry
from dumbwaiter.executors.steps import Memory
from dumbwaiter.executors.tree import CannotStartProcess, CannotStartThread
from dumbwaiter.retry import decide, formatted, interrupted, message, timed_out
from dumbwaiter.store.rows import Finish
from dumbwaiter.strict_json import dumps
from dumbwaiter.task import AttemptOutcome, Kind, Outcome, ResultFile, Status, Task

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sqlalchemy.engine import Connection

    from dumbwaiter.files import FileStore

log = logging.getLogger("dumbwaiter")


# what most attempts end with
RETURNED_NOTHING = Outcome.succeeded()


class Runner:
    """Runs claimed tasks: starts each with the executor of its type, and turns its end into what is to be written.

    `over` is given each end, with what the store must hear of it; of those that had lost their task the caller tells by
    `disowned`.
    """

    def __init__(
        self,
        registry: Registry,
        executors: Mapping[str, Executor],
        *,
        files: Callable[[], FileStore],
        workdir: Callable[[Task], Path],
        clean: Callable[[Task], None],
        commands: Callable[[Running], Commands],
        memory: Callable[[Running], Memory],
        inputs: Callable[[Running], Inputs],
        clock: Callable[[], datetime],
        over: Callable[[Running, Finish | None], None],
        succeeding: Callable[[Task, Callable[[], Finish]], AbstractContextManager[Connection]],
        max_result: int,
        max_interruptions: int,
    ) -> None:
        self._registry = registry
        self._executors = executors
        self._files = files
        self._clean = clean
        self._around = Surroundings(
            workdir=workdir,
            publish=self._publish,
            commands=commands,
            done=self._conclude,
            memory=memory,
            inputs=inputs,
            transact=self._transact,
        )
        self._clock = clock
        self._over = over
        self._succeeding = succeeding
        self._max_result = max_result
        self._max_interruptions = max_interruptions
        self._lock = threading.Lock()

    def prepare(self, task: Task) -> Running:
        """A claimed task as something that can be started."""
        return Running(task, self._registry[task.task_type], self._around)

    def start(self, running: Running) -> None:
        """Start it; returns at once. Whatever happens, its end is reported through `over`."""
        try:
            self.executor(running).start(running)
        except Exception as error:  # noqa: BLE001 - whatever an executor raises is the end of the attempt
            running.complete(Ended(error=error))

    def executor(self, running: Running) -> Executor:
        return self._executors[running.entry.executor]

    def disowned(self, running: Running) -> None:
        """The store has heard of its end, and it had lost its task: its files are deleted; of others the store tells."""
        if running.publishes:
            self._drop_files(running.task)

    @contextlib.contextmanager
    def _transact(self, running: Running, result: Callable[[], Any]) -> Iterator[Connection]:
        """The task's own writes and its success, in one transaction."""
        if running.committed:
            raise NoTransaction(
                f"task {running.task.id} has ended with its first ctx.transaction(): put all of its writes into one"
            )
        try:
            with self._succeeding(running.task, lambda: self._commit(running, result())) as connection:
                yield connection
        except BaseException as error:
            self._uncommit(running, error)
            raise
        running.committed = True

    def _commit(self, running: Running, result: object) -> Finish:
        """The success as its transaction is to write it, with what has been published until now."""
        outcome = self._success(result)
        if outcome.status is not Status.SUCCESS:
            raise Fail(outcome.error_message or "")
        with self._lock:
            if running.ended:
                raise LostClaim(f"attempt {running.task.attempt} of task {running.task.id} was given up")
            running.committing = True
            running.closed = True
            return Finish(running.task, outcome, running.files)

    def _uncommit(self, running: Running, error: BaseException) -> None:
        """The transaction left nothing. But of a commit that nobody heard of only the store can tell, at the attempt's end."""
        with self._lock:
            if not running.committing or isinstance(error, DatabaseUnavailable):
                return
            running.committing = False
            if not running.ended:
                running.closed = False

    def _conclude(self, running: Running, ended: Ended) -> None:
        """Never raises: the attempt's slot is given back here, and nowhere else."""
        if running.committed:
            self._conclude_committed(running, ended)
            return
        self._close(running)
        if ended.error is not None and cannot_start(running, ended.error):
            running.unstarted = message(ended.error)
        outcome = self._meaning(running, ended)
        if running.has_workdir:
            self._tidy(running)
        if outcome is not None:
            mark, files = running.fresh_mark(), running.files
            self._over(
                running, Finish(running.task, outcome, files, mark, running.remembers, running.publishes)
            )
            return
        if running.publishes:
            self._drop_files(running.task)
        self._over(running, None)

    def _conclude_committed(self, running: Running, ended: Ended) -> None:
        """Its success stands; what the function did after it changes nothing."""
        task = running.task
        log.info("%s %s, attempt %d: success", task.task_type, task.id, task.attempt)
        if ended.error is not None and running.stop_reason is None:
            log.error(
                "task %s raised after its ctx.transaction() had committed; its success stands:\n%s",
                task.id,
                formatted(ended.error),
            )
        elif ended.result is not None:
            log.warning(
                "what task %s returned is lost: its success was written by ctx.transaction(); set ctx.result in the block",
                task.id,
            )
        if running.has_workdir:
            self._tidy(running)
        self._over(running, None)

    def _close(self, running: Running) -> None:
        with self._lock:
            running.closed = True

    def _meaning(self, running: Running, ended: Ended) -> Outcome | None:
        if ended.error is ended.result is running.stop_reason is running.unstarted is None:
            return RETURNED_NOTHING
        try:
            return self._decide(running, ended)
        except Exception as fault:
            log.exception("what the end of task %s means could not be told", running.task.id)
            return Outcome(
                Kind.FAIL,
                AttemptOutcome.FAILED,
                error_type="UnreadableEnd",
                error_message=f"what the task returned or raised could not be read: {message(fault)}"[:2_000],
                traceback=formatted(fault),
            )

    def _decide(self, running: Running, ended: Ended) -> Outcome | None:
        """What the end of the code means for the task; None if the task is not this attempt's any more."""
        task, policy = running.task, running.entry.retry
        match running.stop_reason:
            case Stop.LOST:
                return None
            case Stop.CANCEL:
                return Outcome.cancelled()
            case Stop.TIMEOUT:
                # even if it returned: what stops because it was asked to has not done all of its work
                return timed_out(task, policy)
            case Stop.SHUTDOWN:
                return interrupted(task, self._max_interruptions)
        if running.unstarted is not None:
            return given_back(running.unstarted)
        if ended.error is not None:
            return decide(task, ended.error, policy)
        return self._success(ended.result)

    def _success(self, result: object) -> Outcome:
        """A success, if the value can be stored. If not, another try would return the same."""
        if result is None:
            return RETURNED_NOTHING
        try:
            size = len(dumps(result).encode())
        except (ValueError, RecursionError) as error:
            return unstorable(f"the task returned something that is not JSON: {error}")
        if size > self._max_result:
            return unstorable(
                f"the task returned {size:,} bytes of JSON, more than the {self._max_result:,} allowed; "
                "publish a file instead (ctx.publish), or raise DUMBWAITER_MAX_RESULT"
            )
        return Outcome.succeeded(result)

    def _publish(self, running: Running, publication: Publication) -> None:
        from dumbwaiter.files import object_key

        task = running.task
        key = object_key(task.id, task.attempt, publication.name)
        with self._lock:
            if running.closed:
                raise ended_meanwhile(task)
            # before the upload: one that breaks half-way may have left something too
            running.publishes = True
        stored = self._files().put(
            publication.path, key, content_type=publication.content_type, filename=publication.name
        )
        expires = running.entry.expires if publication.expires is UNSAID else publication.expires
        expires_at = None if expires is None else self._clock() + expires
        file = ResultFile(
            name=publication.name,
            content_type=stored.content_type,
            size=stored.size,
            sha256=stored.sha256,
            object_key=key,
            attempt=task.attempt,
            expires_at=expires_at,
        )
        with self._lock:
            if running.add(file):
                return
        # what was published in time may be part of a success by now, so only this one is taken back
        if all(one.object_key != key for one in running.files):
            self._files().delete([key])
        raise ended_meanwhile(task)

    def _tidy(self, running: Running) -> None:
        try:
            self._clean(running.task)
        except Exception:
            log.exception("the work directory of task %s could not be removed", running.task.id)

    def _drop_files(self, task: Task) -> None:
        try:
            self._files().delete_attempt(task.id, task.attempt)
        except Exception as error:  # noqa: BLE001 - the files are left to the sweep
            log.warning(
                "files of attempt %d of task %s could not be deleted: %s", task.attempt, task.id, error
            )


def cannot_start(running: Running, error: BaseException) -> bool:
    """Whether the machine gave nothing to run it with, so that it never began."""
    # a task that runs on a thread is at work when a command of its own cannot be started
    return isinstance(error, CannotStartThread) or (
        isinstance(error, CannotStartProcess) and PROCESS in running.entry.all_needs
    )


def unstorable(why: str) -> Outcome:
    return Outcome(Kind.FAIL, AttemptOutcome.FAILED, error_type="UnstorableResult", error_message=why[:2_000])


def ended_meanwhile(task: Task) -> LostClaim:
    return LostClaim(
        f"attempt {task.attempt} of task {task.id} has ended; what it publishes now belongs to nobody"
    )


def given_back(why: str) -> Outcome:
    """The task never began, for a want of this machine's: it goes back at once, and nothing is charged, however often."""
    return Outcome(
        Kind.SNOOZE, AttemptOutcome.INTERRUPTED, error_type="CannotStartProcess", error_message=why
    )
