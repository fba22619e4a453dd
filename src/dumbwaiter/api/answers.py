"""What each route answers, as plain functions: they know tasks and owners, and of the web framework nothing.

`owner` is whose request it is, `base` the path that the task routes stand under. What belongs to somebody else does not exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from dumbwaiter.api.looks import looks
from dumbwaiter.api.models import LatestView, RecentView, TaskView, View, progress_view
from dumbwaiter.api.refusals import Refusal
from dumbwaiter.app import Dumbwaiter
from dumbwaiter.errors import DuplicateTask, IllegalMove, UnknownTask, UnknownTaskType
from dumbwaiter.store.rows import OnDuplicate
from dumbwaiter.task import Task

UNCACHED = {"Cache-Control": "private, no-store"}
# A copy may be kept, and must be asked about each time.
ASKED_AGAIN = {"Cache-Control": "private, no-cache"}


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a body, and headers. `tag` is the body's ETag: to whom has it already, it need not be sent."""

    view: View
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client may say about the task that it asks for, beside the arguments."""

    business_key: str | None = None
    on_duplicate: OnDuplicate = "return"
    request_key: str | None = None


def wanted_of(query: Mapping[str, str], headers: Mapping[str, str]) -> Wanted:
    """What the query and the headers of a request want. Refuses with 422, and every fault."""
    key, request_key = query.get("business_key"), headers.get("idempotency-key")
    policy = query.get("on_duplicate", "return")
    faults = [
        {"path": path, "message": "give 1 to 200 characters"}
        for path, text in (("query.business_key", key), ("header.idempotency-key", request_key))
        if text is not None and not 0 < len(text) <= 200
    ]
    if policy not in get_args(OnDuplicate):
        known = ", ".join(get_args(OnDuplicate))
        faults.append(
            {"path": "query.on_duplicate", "message": f"there is no such policy; there are {known}"}
        )
    if faults:
        detail = "; ".join(f"{fault['path']}: {fault['message']}" for fault in faults)
        raise Refusal(422, "invalid-request", detail, errors=faults)
    return Wanted(key, cast(OnDuplicate, policy), request_key)


def enqueue(
    waiter: Dumbwaiter,
    task_type: str,
    arguments: Mapping[str, Any],
    wanted: Wanted,
    *,
    owner: str | None,
    base: str,
) -> Answer:
    """A new task (202), or the one that its key or an earlier request stands for (200)."""
    open_type(waiter, task_type)
    try:
        task, new = waiter.enqueue_or_get(
            task_type,
            arguments,
            strict=True,
            owner=owner,
            key=wanted.business_key,
            on_duplicate=wanted.on_duplicate,
            request_key=wanted.request_key,
        )
    except DuplicateTask as error:
        view = shown(waiter, waiter.get(error.task.id), base)
        raise Refusal(
            409,
            "duplicate-task",
            f"A task with this business_key {error.task.in_words} already.",
            task=view.model_dump(mode="json"),
        ) from None
    # A request that enqueues asks for nothing else: a new task is shown as it was when it came to be, and its place in the
    # queue is found out by who looks.
    [look] = looks(waiter, [task], task.created_at if new else None, placed=False)
    return asked(look.view(base), new=new, request_key=wanted.request_key)


def open_type(waiter: Dumbwaiter, task_type: str) -> str:
    """The name of a type that is open to HTTP. Raises UnknownTaskType for any other: what is not open does not exist."""
    entry = waiter.registry.get(task_type)
    if entry is None or not entry.http:
        raise UnknownTaskType(task_type)
    return task_type


def standing(waiter: Dumbwaiter, task_id: str, *, owner: str | None, base: str) -> Answer:
    """How a task stands."""
    [look] = looks(waiter, [found(waiter, task_id, owner)])
    return Answer(look.view(base), headers=ASKED_AGAIN, tag=look.tag)


def glance(waiter: Dumbwaiter, task_id: str, *, owner: str | None, base: str) -> Answer:
    """The little of it that changes while it is made."""
    [look] = looks(waiter, [found(waiter, task_id, owner)])
    return Answer(progress_view(look.view(base)), headers=ASKED_AGAIN, tag=look.tag)


def latest(waiter: Dumbwaiter, task_type: str, key: str, *, owner: str | None, base: str) -> Answer:
    """The owner's newest task of a type under a business key: for the page that comes back."""
    task = waiter.latest(task_type, key, owner=owner)
    if task is None:
        return Answer(LatestView(task=None), headers=ASKED_AGAIN, tag='W/"none"')
    [look] = looks(waiter, [task])
    return Answer(LatestView(task=look.view(base)), headers=ASKED_AGAIN, tag=look.tag)


def newest(
    waiter: Dumbwaiter, *, owner: str | None, base: str, task_type: str | None = None, limit: int = 20
) -> Answer:
    """The owner's newest tasks."""
    recent = looks(waiter, waiter.recent(owner=owner, task_type=task_type, limit=limit))
    view = RecentView(tasks=[look.view(base) for look in recent])
    return Answer(view, headers=ASKED_AGAIN, tag=f'W/"{digest(look.tag for look in recent)}"')


def cancel(waiter: Dumbwaiter, task_id: str, *, owner: str | None, base: str) -> Answer:
    """The task as it stands once it was asked to stop: at once if it waited (200), else soon (202)."""
    found(waiter, task_id, owner)
    try:
        task = waiter.cancel(task_id)
    except IllegalMove as error:
        raise too_late(waiter, error, base) from None
    return Answer(shown(waiter, task, base), 200 if task.status.final else 202, UNCACHED)


def retry(
    waiter: Dumbwaiter,
    task_id: str,
    *,
    owner: str | None,
    base: str,
    force: bool = False,
    request_key: str | None = None,
) -> Answer:
    """The new task that a finished one was made again as (202), or the one that its key or an earlier request stands for (200).

    A type that is not open to HTTP cannot be asked for in this way either.
    """
    open_type(waiter, found(waiter, task_id, owner).task_type)
    try:
        task, new = waiter.retry_or_get(task_id, force=force, request_key=request_key)
    except IllegalMove as error:
        raise too_late(waiter, error, base) from None
    return asked(shown(waiter, task, base), new=new, request_key=request_key)


def asked(view: TaskView, *, new: bool, request_key: str | None) -> Answer:
    """The answer to who asked for a task."""
    headers = {"Location": view.links.self} | UNCACHED
    if request_key is not None and not new:
        headers["Idempotent-Replayed"] = "true"
    return Answer(view, 202 if new else 200, headers)


def found(waiter: Dumbwaiter, task_id: str, owner: str | None) -> Task:
    """The task, if it is this owner's. A 403 would say that the task exists, so a stranger's is a 404."""
    task = waiter.get(task_id)
    if task.owner != owner:
        raise UnknownTask(task_id)
    return task


def shown(waiter: Dumbwaiter, task: Task, base: str) -> TaskView:
    [look] = looks(waiter, [task])
    return look.view(base)


def digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def too_late(waiter: Dumbwaiter, error: IllegalMove, base: str) -> Refusal:
    """A move that the task's status does not allow, told with the task as it stands."""
    task = waiter.get(error.task.id)
    view = shown(waiter, task, base)
    detail = f"Cannot {error.move} this task: it {task.in_words}."
    if error.move == "retry" and view.display == "ready":
        detail += " Its result is still good; ?force=true makes it again all the same."
    return Refusal(409, "not-possible-now", detail, task=view.model_dump(mode="json"))
