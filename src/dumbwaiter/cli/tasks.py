"""Commands about tasks: enqueue, status, list, cancel, retry."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from dumbwaiter.cli import show
from dumbwaiter.cli.arguments import read_arguments
from dumbwaiter.cli.program import Given, command
from dumbwaiter.errors import InvalidOption, RefusedError
from dumbwaiter.settings import duration
from dumbwaiter.task import Status

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TaskId = Annotated[str, typer.Argument(metavar="ID", help="The task's id.")]


@command("enqueue")
def enqueue(
    ctx: typer.Context,
    task_type: Annotated[str, typer.Argument(metavar="TYPE", help="The task type.")],
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Its arguments.")
    ] = None,
    *,
    json: Annotated[str | None, typer.Option(help="The arguments as one JSON object.")] = None,
    key: Annotated[str | None, typer.Option(help="A name of the work: one active task for each.")] = None,
    queue: Annotated[str | None, typer.Option(help="Another queue than the task type's.")] = None,
    priority: Annotated[int | None, typer.Option(min=-100, max=100, help="Higher runs first.")] = None,
    owner: Annotated[str | None, typer.Option(help="Whose task it is.")] = None,
    delay: Annotated[str | None, typer.Option(help="Not before so long from now: 90, 20s, 5m, 2h.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Wait for its end and show its progress.")] = False,
) -> None:
    """Put a task into its queue and print its id."""
    given: Given = ctx.obj
    waiter = given.waiter()
    signature = waiter.registry[task_type].signature
    task = waiter.enqueue(
        task_type,
        read_arguments(task_type, pairs or [], json, signature.schema()),
        key=key,
        queue=queue,
        priority=priority,
        owner=owner,
        delay=None if delay is None else read_delay(delay),
    )
    print(task.id, flush=True)
    if watch:
        watched(given, task.id)


@command("status")
def status(
    ctx: typer.Context,
    task_id: TaskId,
    watch: Annotated[
        bool, typer.Option("--watch", help="Wait for its end; status 1 unless it succeeds.")
    ] = False,
    json: Json = False,
) -> None:
    """Show how a task stands."""
    given: Given = ctx.obj
    if watch:
        watched(given, task_id, json=json)
        return
    waiter = given.waiter()
    task, now = waiter.get(task_id), waiter.store.now()
    if json:
        show.print_json(show.as_json(task, now))
    else:
        show.print_rows(show.details(task, now))


@command("list")
def list_tasks(
    ctx: typer.Context,
    *,
    status: Annotated[Status | None, typer.Option(help="Only tasks of this status.")] = None,
    task_type: Annotated[str | None, typer.Option("--type", help="Only tasks of this type.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only tasks of this queue.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    json: Json = False,
) -> None:
    """List tasks, the newest first."""
    waiter = ctx.obj.waiter()
    tasks = waiter.find(status=status, task_type=task_type, queue=queue, limit=limit)
    now = waiter.store.now()
    if json:
        show.print_json([show.as_json(task, now) for task in tasks])
    else:
        show.print_rows([show.row(task, now) for task in tasks], show.COLUMNS)


@command("cancel")
def cancel(ctx: typer.Context, task_id: TaskId) -> None:
    """Cancel a task: at once if it waits, within a second or so if it runs."""
    task = ctx.obj.waiter().cancel(task_id)
    print(f"{task.id} {'cancelled' if task.status.final else 'was asked to stop'}")


@command("retry")
def retry(
    ctx: typer.Context,
    task_id: TaskId,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it succeeded and its result is still good.")
    ] = False,
) -> None:
    """Make a finished task again, as a new task, and print its id."""
    print(ctx.obj.waiter().retry(task_id, force=force).id)


class Unsuccessful(RefusedError):
    """The task that was watched did not succeed."""


def watched(given: Given, task_id: str, *, json: bool = False) -> None:
    """Follow a task to its end. Raises Unsuccessful if that is not a success."""
    from dumbwaiter.cli.following import followed

    waiter = given.waiter()
    task = followed(waiter, task_id, waiter.get(task_id).task_type)
    now = waiter.store.now()
    if json:
        show.print_json(show.as_json(task, now))
    else:
        show.print_rows(show.details(task, now))
    if task.status is not Status.SUCCESS:
        why = show.error_of(task)
        raise Unsuccessful(f"task {task.id} {task.phase(now)}" + (f": {why}" if why else ""))


def read_delay(text: str) -> timedelta:
    try:
        return duration(text)
    except ValueError as error:
        raise InvalidOption(f"--delay: {error}") from None
