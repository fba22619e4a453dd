"""The routes of the HTTP door. Each asks the owner first: what belongs to somebody else does not exist."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response

from dumbwaiter.api import downloads
from dumbwaiter.api.bodies import JSON_OBJECT, body_of
from dumbwaiter.api.models import TaskView, task_view
from dumbwaiter.api.problems import ProblemRoute, Refusal, problems
from dumbwaiter.app import Dumbwaiter
from dumbwaiter.errors import IllegalMove, UnknownTask, UnknownTaskType
from dumbwaiter.task import Task

# Names the owner of a request, or raises HTTPException; a dependency as FastAPI has them.
Owner = Callable[[Request], Awaitable[str | None]]


def task_routes(waiter: Dumbwaiter, owner: Owner) -> APIRouter:
    """Enqueue, look at, download, cancel and retry tasks over HTTP.

    `owner` names the owner of a request. A task is reachable only by its owner; who is nobody reaches those of nobody.
    """
    router = APIRouter(prefix="/tasks", route_class=ProblemRoute, tags=["tasks"])
    add_asking(router, waiter, owner)
    add_files(router, waiter, owner)
    add_moves(router, waiter, owner)
    return router


def add_asking(router: APIRouter, waiter: Dumbwaiter, owner_of_request: Owner) -> None:
    """Enqueue a task, and ask how it stands."""
    who, given = Depends(owner_of_request), Depends(body_of(waiter.settings.max_payload))

    @router.post(
        "/{task_type}",
        status_code=202,
        responses=problems(400, 404, 413, 415, 422)
        | {200: {"model": TaskView, "description": "asked for before"}},
        openapi_extra=JSON_OBJECT,
    )
    def enqueue(
        task_type: str,
        *,
        request: Request,
        response: Response,
        owner: Annotated[str | None, who],
        arguments: Annotated[dict[str, Any], given],
        idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    ) -> TaskView:
        """Enqueue a task of a type that is open to HTTP. The body is a JSON object of its arguments."""
        entry = waiter.registry.get(task_type)
        if entry is None or not entry.http:
            raise UnknownTaskType(task_type)
        asked_at = waiter.store.now()
        task = waiter.enqueue(task_type, arguments, strict=True, owner=owner, request_key=idempotency_key)
        view = shown(waiter, task, request)
        response.headers["Location"] = view.links.self
        if idempotency_key is not None and task.created_at < asked_at:
            response.status_code = 200
            response.headers["Idempotent-Replayed"] = "true"
        return view

    @router.get(
        "/{task_id}",
        responses=problems(404, 422) | {304: {"description": "it has not changed"}},
        response_model=TaskView,
    )
    def look(
        task_id: str,
        *,
        request: Request,
        response: Response,
        owner: Annotated[str | None, who],
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Any:
        """How a task stands. Ask with `If-None-Match` to hear only of changes."""
        task = found(waiter, task_id, owner)
        view = shown(waiter, task, request)
        headers = {"ETag": tag(task, view), "Cache-Control": "private, no-cache"}
        if downloads.matches(if_none_match, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        response.headers.update(headers)
        return view


def add_files(router: APIRouter, waiter: Dumbwaiter, owner_of_request: Owner) -> None:
    """Download what a task published."""
    who = Depends(owner_of_request)

    @router.get(
        "/{task_id}/files/{name}",
        response_class=Response,
        responses=problems(404, 410, 416, 422) | downloads.ANSWERS,
    )
    def download(
        task_id: str,
        name: str,
        *,
        owner: Annotated[str | None, who],
        if_none_match: Annotated[str | None, Header()] = None,
        if_range: Annotated[str | None, Header()] = None,
        range_: Annotated[str | None, Header(alias="Range")] = None,
    ) -> Response:
        """A file that the task published, or the part of it that `Range` names."""
        now = waiter.store.now()
        file = downloads.file_of(found(waiter, task_id, owner), name, now)
        return downloads.answer(waiter.files, file, downloads.Asked(if_none_match, if_range, range_), now)

    @router.head("/{task_id}/files/{name}", include_in_schema=False)
    def describe(task_id: str, name: str, *, owner: Annotated[str | None, who]) -> Response:
        file = downloads.file_of(found(waiter, task_id, owner), name, waiter.store.now())
        return Response(headers=downloads.headers(file) | {"Content-Length": str(file.size)})


def add_moves(router: APIRouter, waiter: Dumbwaiter, owner_of_request: Owner) -> None:
    """Cancel a task, and make it again."""
    who = Depends(owner_of_request)

    @router.post(
        "/{task_id}/cancel",
        responses=problems(404, 409, 422) | {202: {"model": TaskView, "description": "asked to stop"}},
    )
    def cancel(
        task_id: str, *, request: Request, response: Response, owner: Annotated[str | None, who]
    ) -> TaskView:
        """Cancel a task: at once if it waits (200), within a second or so if it runs (202)."""
        found(waiter, task_id, owner)
        try:
            task = waiter.cancel(task_id)
        except IllegalMove as error:
            raise too_late(waiter, error, request) from None
        response.status_code = 200 if task.status.final else 202
        return shown(waiter, task, request)

    @router.post("/{task_id}/retry", status_code=202, responses=problems(404, 409, 422))
    def retry(
        task_id: str,
        *,
        request: Request,
        response: Response,
        owner: Annotated[str | None, who],
        force: bool = False,
    ) -> TaskView:
        """Make a finished task again, as a new one; with `force` even if its result is still good."""
        found(waiter, task_id, owner)
        try:
            task = waiter.retry(task_id, force=force)
        except IllegalMove as error:
            raise too_late(waiter, error, request) from None
        view = shown(waiter, task, request)
        response.headers["Location"] = view.links.self
        return view


def found(waiter: Dumbwaiter, task_id: str, owner: str | None) -> Task:
    """The task, if it is this owner's. A 403 would say that the task exists, so a stranger's is a 404."""
    task = waiter.get(task_id)
    if task.owner != owner:
        raise UnknownTask(task_id)
    return task


def shown(waiter: Dumbwaiter, task: Task, request: Request) -> TaskView:
    [outlook] = waiter.outlooks([task])
    return task_view(task, waiter.store.now(), base_of(request), outlook)


def too_late(waiter: Dumbwaiter, error: IllegalMove, request: Request) -> Refusal:
    """A move that the task's status does not allow, told with the task as it stands."""
    task = waiter.get(error.task.id)
    view = shown(waiter, task, request)
    detail = f"Cannot {error.move} this task: it {task.in_words}."
    if error.move == "retry" and view.display == "ready":
        detail += " Its result is still good; ?force=true makes it again all the same."
    return Refusal(409, "not-possible-now", detail, task=view.model_dump(mode="json"))


def base_of(request: Request) -> str:
    """The path before `/tasks/…`: taken from the request, so that it is right under any prefix, mount or proxy path."""
    path = request.url.path
    return path[: path.rindex("/tasks/")]


def tag(task: Task, view: TaskView) -> str:
    """Weak, since the estimate moves with time. The phase and the files are in it: both change when a time passes."""
    return f'W/"{task.id}.{task.version}.{view.phase}.{len(view.files)}"'
