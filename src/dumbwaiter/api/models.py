"""What a client sees of a task. Nothing here is for operators: no traceback, no error message, no worker."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from dumbwaiter.outlook import UNKNOWN, Outlook
from dumbwaiter.task import Display, Phase, Status, Task

PHASE = "the status in a person's words: a retry waits as `retrying`, not as `pending`"
DISPLAY = "what a page should show: `working`, `ready`, or `retry` (offer it again)"
LEFT = "estimated time left; null while nothing is known"
PLACE = "while it is queued: 1 is the next; null while that is not known"
ATTEMPT = "which of `max_attempts` it is at, or comes next: only failures count, not a worker that was stopped or died"
RETRY_AT = "when the next attempt starts, while the phase is `retrying`"


class View(BaseModel):
    """The base of all answers; frozen, and made by us alone."""

    model_config = ConfigDict(frozen=True)


class FileView(View):
    """A file that can be downloaded."""

    name: str
    size: int = Field(description="in bytes")
    content_type: str
    url: str
    expires_at: datetime | None = Field(
        description="when the file is removed; null: as late as the task itself"
    )


class StepView(View):
    """One of the steps that the task type declared."""

    name: str
    weight: float
    state: Literal["done", "current", "waiting"]


class Links(View):
    """Where to ask, to follow, to cancel and to make again."""

    self: str
    progress: str
    events: str
    cancel: str
    retry: str


class TaskFields(View):
    """What of a task a person may see, whoever they are."""

    task_id: str
    task_type: str
    status: Status
    phase: Phase = Field(description=PHASE)
    display: Display = Field(description=DISPLAY)
    progress_percentage: float = Field(ge=0, le=100)
    current_step: str | None
    steps: list[StepView] = Field(description="empty if the task type declared none")
    message: str | None = Field(description="what the task says of itself while it runs")
    attempt: int = Field(ge=1, description=ATTEMPT)
    max_attempts: int = Field(ge=1)
    retry_at: datetime | None = Field(description=RETRY_AT)
    estimated_remaining_seconds: float | None = Field(description=LEFT)
    estimated_remaining_range: tuple[float, float] | None = Field(
        description="between how many and how many seconds, where earlier tasks of the type tell"
    )
    queue_position: int | None = Field(description=PLACE)
    queue_position_is_lower_bound: bool = Field(
        description="more are ahead than were counted: at least so many"
    )
    expected_start_at: datetime | None
    result: Any
    result_url: str | None = Field(description="where the first file is, while it is available")
    files: list[FileView] = Field(description="those that are available")
    expired_files: int = Field(description="how many were available and are no more")
    user_message: str | None = Field(description="what to tell the person when it failed")
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class TaskView(TaskFields):
    """A task as the person who asked for it may see it."""

    links: Links


class SharedView(TaskFields):
    """A task as whoever has a signed link to it may see it."""

    link_expires_at: datetime = Field(description="until when the link is good")


class ProgressView(View):
    """The little of a task that a page asks for again and again."""

    task_id: str
    status: Status
    phase: Phase = Field(description=PHASE)
    display: Display = Field(description=DISPLAY)
    progress_percentage: float = Field(ge=0, le=100)
    current_step: str | None
    message: str | None
    estimated_remaining_seconds: float | None = Field(description=LEFT)
    queue_position: int | None = Field(description=PLACE)
    retry_at: datetime | None = Field(description=RETRY_AT)


class LatestView(View):
    """The newest task of a type and a business key; null if there is none."""

    task: TaskView | None


class RecentView(View):
    """The newest tasks, the newest first."""

    tasks: list[TaskView]


def task_view(task: Task, now: datetime, base: str, outlook: Outlook = UNKNOWN) -> TaskView:
    """The task at the time `now`; `base` is the path that the task routes stand under, as in `/jobs` for `/jobs/tasks/…`.

    `outlook` is what is known beside its row (`Dumbwaiter.outlooks`).
    """
    phase = task.phase(now)
    remaining, between = task.remaining(now), task.remaining_range(now)
    place = outlook.place
    url = f"{base}/tasks/{task.id}"
    files = file_views(task, now, url)
    return TaskView(
        task_id=task.id,
        task_type=task.task_type,
        status=task.status,
        phase=phase,
        display=task.display(now),
        progress_percentage=percentage(task),
        current_step=task.current_step,
        steps=[StepView(name=step.name, weight=step.weight, state=step.state) for step in outlook.steps],
        message=task.message if task.status is Status.RUNNING else None,
        attempt=task.counted_attempt,
        max_attempts=task.max_attempts,
        retry_at=task.run_at if phase == "retrying" else None,
        estimated_remaining_seconds=None if remaining is None else round(remaining.total_seconds(), 1),
        estimated_remaining_range=None
        if between is None
        else (round(between[0].total_seconds(), 1), round(between[1].total_seconds(), 1)),
        queue_position=None if place is None else place.position,
        queue_position_is_lower_bound=place is not None and place.lower_bound,
        expected_start_at=None if place is None else place.expected_start_at,
        result=task.result,
        result_url=files[0].url if files else None,
        files=files,
        expired_files=len(task.files) - len(files),
        user_message=task.user_message,
        created_at=task.created_at,
        run_at=task.run_at,
        started_at=task.started_at,
        finished_at=task.finished_at,
        links=Links(
            self=url,
            progress=f"{url}/progress",
            events=f"{url}/events",
            cancel=f"{url}/cancel",
            retry=f"{url}/retry",
        ),
    )


def percentage(task: Task) -> float:
    """From 0 to 100, which only a success reaches."""
    return 100.0 if task.status is Status.SUCCESS else round(task.progress * 100, 1)


def file_views(task: Task, now: datetime, url: str) -> list[FileView]:
    """The files of the task at that address which can be had."""
    return [
        FileView(
            name=file.name,
            size=file.size,
            content_type=file.content_type,
            url=f"{url}/files/{quote(file.name, safe='')}",
            expires_at=file.expires_at,
        )
        for file in task.files
        if file.available(now)
    ]


def progress_view(view: TaskView) -> ProgressView:
    """The small form of the whole view."""
    return ProgressView.model_construct(**{name: getattr(view, name) for name in ProgressView.model_fields})
