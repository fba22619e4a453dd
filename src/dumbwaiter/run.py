"""From a claimed task to its recorded end: started, executed, decided, cleaned, finished. Every engine ends here."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dumbwaiter.errors import DumbwaiterError
from dumbwaiter.executors.base import Commands, Ended, Executor, Publication, Running, Stop
from dumbwaiter.executors.registry import Registry
from dumbwaiter.retry import decide, interrupted, timed_out
from dumbwaiter.store.rows import Finish
from dumbwaiter.strict_json import dumps
from dumbwaiter.task import AttemptOutcome, Kind, Outcome, ResultFile, Status, Task

if TYPE_CHECKING:
    from dumbwaiter.files import FileStore

log = logging.getLogger("dumbwaiter")


class Runner:
    """Runs claimed tasks: starts each with the executor of its type, and turns its end into what is to be written.

    `written` is given each end that the store must hear of; the caller answers with `settled` once it has.
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
        clock: Callable[[], datetime],
        over: Callable[[Running, Finish | None], None],
        max_result: int,
        max_interruptions: int,
    ) -> None:
        self._registry = registry
        self._executors = executors
        self._files = files
        self._workdir = workdir
        self._clean = clean
        self._commands = commands
        self._clock = clock
        self._over = over
        self._max_result = max_result
        self._max_interruptions = max_interruptions
        self._published: dict[Running, list[ResultFile]] = {}
        self._lock = threading.Lock()

    def prepare(self, task: Task) -> Running:
        """A claimed task as something that can be started."""
        return Running(
            task,
            self._registry[task.task_type],
            self._workdir(task),
            publish=self._publish,
            commands=self._commands,
            done=self._conclude,
        )

    def start(self, running: Running) -> None:
        """Start it; returns at once. Whatever happens, its end is reported through `over`."""
        try:
            self.executor(running).start(running)
        except Exception as error:  # noqa: BLE001 - whatever an executor raises is the end of the attempt
            running.complete(Ended(error=error))

    def executor(self, running: Running) -> Executor:
        return self._executors[running.entry.executor]

    def settled(self, end: Finish, status: Status | None) -> None:
        """The store has heard of it. Files of an attempt that did not count are deleted."""
        if end.files and status is not Status.SUCCESS:
            self._drop_files(end.task)

    def _conclude(self, running: Running, ended: Ended) -> None:
        outcome = self._decide(running, ended)
        self._tidy(running)
        with self._lock:
            files = self._published.pop(running, [])
        if outcome is None:
            if files:
                self._drop_files(running.task)
            self._over(running, None)
        else:
            self._over(running, Finish(running.task, outcome, tuple(files)))

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
        if ended.error is not None:
            return decide(task, ended.error, policy)
        return self._success(ended.result)

    def _success(self, result: object) -> Outcome:
        """A success, if the value can be stored. If not, another try would return the same."""
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
            # known before the upload, so that an upload which fails half-way is cleaned up too
            files = self._published.setdefault(running, [])
        stored = self._files().put(
            publication.path, key, content_type=publication.content_type, filename=publication.name
        )
        expires_at = None if publication.expires is None else self._clock() + publication.expires
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
            files.append(file)
        if running.ended:
            # abandoned meanwhile: whoever concluded it did not know of this file
            self._drop_files(task)

    def _tidy(self, running: Running) -> None:
        try:
            self._clean(running.task)
        except Exception:
            log.exception("the work directory of task %s could not be removed", running.task.id)

    def _drop_files(self, task: Task) -> None:
        try:
            self._files().delete_attempt(task.id, task.attempt)
        except DumbwaiterError as error:
            log.warning(
                "files of attempt %d of task %s could not be deleted: %s", task.attempt, task.id, error
            )


def unstorable(why: str) -> Outcome:
    return Outcome(Kind.FAIL, AttemptOutcome.FAILED, error_type="UnstorableResult", error_message=why[:2_000])
