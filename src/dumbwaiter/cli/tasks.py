"""Commands about tasks: enqueue, status, list, cancel, retry, workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from dumbwaiter.cli import show
from dumbwaiter.cli.arguments import read_arguments
from dumbwaiter.cli.program import Given, command
from dumbwaiter.errors import IllegalMove, InvalidOption, RefusedError, UnknownTask
from dumbwaiter.settings import duration
from dumbwaiter.task import Phase, Status, Task

if TYPE_CHECKING:
    from dumbwaiter.app import Dumbwaiter

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TaskId = Annotated[
    str, typer.Argument(metavar="ID", help="The task's id, or a beginning of it that no other has.")
]
ID_LENGTH = 36
PAGE = 200
# What the column STATUS shows, with the status that such tasks have in the table.
PHASES: dict[str, Status] = {
    **{phase: Status(phase) for phase in get_args(Phase) if phase in set(Status)},
    "pending": Status.PENDING,
    "queued": Status.PENDING,
    "scheduled": Status.PENDING,
    "retrying": Status.PENDING,
    "cancelling": Status.RUNNING,
}


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
    tracebacks: Annotated[
        bool, typer.Option("--tracebacks", help="Show the traceback of each attempt that failed.")
    ] = False,
    json: Json = False,
) -> None:
    """Show how a task stands, and how its attempts ended."""
    given: Given = ctx.obj
    waiter = given.existing()
    task_id = id_of(waiter, task_id)
    if watch:
        watched(given, task_id, tracebacks=tracebacks, json=json)
    else:
        tell(waiter, waiter.get(task_id), tracebacks=tracebacks, json=json)


def tell(waiter: Dumbwaiter, task: Task, *, tracebacks: bool = False, json: bool = False) -> None:
    """Print a task and its history."""
    now, attempts = waiter.store.now(), waiter.attempts(task.id)
    if json:
        show.print_json(
            show.as_json(task, now) | {"attempts": [show.attempt_as_json(one) for one in attempts]}
        )
        return
    more = [("tracebacks", f"dumbwaiter status {task.id} --tracebacks")]
    hint = more if any(one.traceback for one in attempts) and not tracebacks else []
    [outlook] = waiter.outlooks([task], now=now)
    show.print_rows(show.details(task, now, outlook.place) + show.history(attempts) + hint)
    if tracebacks:
        show.print_tracebacks(attempts)


@command("list")
def list_tasks(
    ctx: typer.Context,
    *,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            help=f"Only tasks that stand so: {', '.join(PHASES)}; pending is all that wait, running includes cancelling.",
        ),
    ] = None,
    task_type: Annotated[str | None, typer.Option("--type", help="Only tasks of this type.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only tasks of this queue.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    json: Json = False,
) -> None:
    """List tasks, the newest first."""
    if status is not None and status not in PHASES:
        raise typer.BadParameter(
            f"{status!r} is none of: {', '.join(PHASES)}", ctx=ctx, param_hint="'--status'"
        )
    given: Given = ctx.obj
    waiter = given.existing()
    now = waiter.store.now()
    tasks = list(matching(waiter, now, status=status, limit=limit, task_type=task_type, queue=queue))
    if json:
        show.print_json([show.as_json(task, now) for task in tasks])
    elif tasks:
        show.print_rows([show.row(task, now) for task in tasks], show.COLUMNS)
    else:
        print("no tasks", file=sys.stderr)


def matching(
    waiter: Dumbwaiter, now: datetime, *, status: str | None, limit: int, **where: str | None
) -> Iterator[Task]:
    """The newest tasks that stand so. The table knows statuses; what else a phase says is looked for page by page."""
    kept = None if status is None else PHASES[status]
    before: str | None = None
    size = max(limit, PAGE)
    while limit > 0:
        page = waiter.store.find(status=kept, before=before, limit=size, **where)
        found = [task for task in page if status in (None, "pending", task.status, task.phase(now))][:limit]
        yield from found
        limit -= len(found)
        if len(page) < size:
            return
        before = page[-1].id


@command("cancel")
def cancel(
    ctx: typer.Context,
    task_ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="The tasks' ids, or beginnings of them.")
    ],
) -> None:
    """Cancel tasks: at once if they wait, within a second or so if they run."""
    waiter = ctx.obj.existing()
    refused = 0
    for word in task_ids:
        try:
            task = waiter.cancel(id_of(waiter, word))
        except RefusedError as error:
            if isinstance(error, IllegalMove) and error.task.status is Status.CANCELLED:
                print(f"{error.task.id} was cancelled already", flush=True)
                continue
            if len(task_ids) == 1:
                raise
            # the others are asked for all the same
            print(f"dumbwaiter: {error}", file=sys.stderr)
            refused += 1
        else:
            print(f"{task.id} {'cancelled' if task.status.final else 'was asked to stop'}", flush=True)
    if refused:
        raise Unsuccessful(f"{refused} of {len(task_ids)} tasks were not cancelled")


@command("retry")
def retry(
    ctx: typer.Context,
    task_id: TaskId,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it succeeded and its result is still good.")
    ] = False,
) -> None:
    """Make a finished task again, as a new task, and print its id."""
    waiter = ctx.obj.existing()
    try:
        print(waiter.retry(id_of(waiter, task_id), force=force).id)
    except IllegalMove as error:
        if error.task.status is not Status.SUCCESS:
            raise
        way = "its result is still good, and --force makes it again all the same"
        raise IllegalMove(error.task, error.move, way=way) from error


@command("workers")
def workers(ctx: typer.Context, json: Json = False) -> None:
    """List the workers that live: what they serve, and what they run."""
    waiter = ctx.obj.existing()
    lease, now = waiter.settings.lease, waiter.store.now()
    found = [(worker, waiter.store.held(worker.name)) for worker in waiter.store.workers()]
    if json:
        show.print_json([show.worker_as_json(worker, held, now, lease) for worker, held in found])
    elif found:
        show.print_rows(
            [show.worker_row(worker, held, now, lease) for worker, held in found], show.WORKER_COLUMNS
        )
    else:
        print("no workers", file=sys.stderr)


class Unsuccessful(RefusedError):
    """Not everything that was asked for, or waited for, came about."""


class SeveralTasks(RefusedError):
    """The beginning of an id is that of several."""


def id_of(waiter: Dumbwaiter, word: str) -> str:
    """The id that a word is, or begins. Raises UnknownTask, SeveralTasks."""
    word = word.lower()
    found = [word] if len(word) == ID_LENGTH else waiter.store.ids_from(word)
    if not found:
        raise UnknownTask(word[:100])
    if len(found) > 1:
        raise SeveralTasks(
            f"the ids of several tasks begin with {word}: {', '.join(found)}; write more of one"
        )
    return found[0]


def watched(given: Given, task_id: str, *, tracebacks: bool = False, json: bool = False) -> None:
    """Follow a task to its end. Raises Unsuccessful if that is not a success."""
    from dumbwaiter.cli.following import followed

    waiter = given.waiter()
    try:
        task = followed(waiter, task_id, waiter.get(task_id).task_type)
    except KeyboardInterrupt:
        print(f"the task goes on; dumbwaiter status {task_id} tells how it stands", file=sys.stderr)
        raise
    tell(waiter, task, tracebacks=tracebacks, json=json)
    now = waiter.store.now()
    if task.status is not Status.SUCCESS:
        why = show.error_of(task)
        raise Unsuccessful(f"task {task.id} {task.phase(now)}" + (f": {why}" if why else ""))


def read_delay(text: str) -> timedelta:
    try:
        return duration(text)
    except ValueError as error:
        raise InvalidOption(f"--delay: {error}") from None
