"""What a client sees of a task. Nothing here is for operators: no traceback, no error message, no worker."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from dumbwaiter.task import Display, Phase, Status, Task


class View(BaseModel):
    """The base of all answers; strict, so that a wrong type is our bug and not silently mended."""

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


class Links(View):
    """Where to ask, cancel and make again."""

    self: str
    cancel: str
    retry: str


class TaskView(View):
    """A task as the person who asked for it may see it."""

    id: str
    type: str
    status: Status
    phase: Phase = Field(
        description="the status in a person's words: a retry waits as `retrying`, not as `pending`"
    )
    display: Display = Field(
        description="what a page should show: `working`, `ready`, or `retry` (offer it again)"
    )
    progress: float = Field(ge=0, le=1)
    step: str | None
    remaining_seconds: float | None = Field(description="estimated time left; null while nothing is known")
    attempt: int
    max_attempts: int
    retry_at: datetime | None = Field(
        description="when the next attempt starts, while the phase is `retrying`"
    )
    user_message: str | None = Field(description="what to tell the person when it failed")
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    result: Any
    files: list[FileView]
    links: Links


def task_view(task: Task, now: datetime, base: str) -> TaskView:
    """The task at the time `now`; `base` is the path that the task routes stand under, as in `/jobs` for `/jobs/tasks/…`."""
    phase = task.phase(now)
    remaining = task.remaining(now)
    url = f"{base}/tasks/{task.id}"
    return TaskView(
        id=task.id,
        type=task.task_type,
        status=task.status,
        phase=phase,
        display=task.display(now),
        progress=1.0 if task.status is Status.SUCCESS else task.progress,
        step=task.current_step,
        remaining_seconds=None if remaining is None else round(remaining.total_seconds(), 1),
        attempt=task.attempt,
        max_attempts=task.max_retry_count + 1,
        retry_at=task.run_at if phase == "retrying" else None,
        user_message=task.user_message,
        created_at=task.created_at,
        run_at=task.run_at,
        started_at=task.started_at,
        finished_at=task.finished_at,
        result=task.result,
        files=[
            FileView(
                name=file.name,
                size=file.size,
                content_type=file.content_type,
                url=f"{url}/files/{quote(file.name, safe='')}",
                expires_at=file.expires_at,
            )
            for file in task.files
            if file.available(now)
        ],
        links=Links(self=url, cancel=f"{url}/cancel", retry=f"{url}/retry"),
    )
