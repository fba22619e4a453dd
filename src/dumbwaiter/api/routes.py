"""The routes of the HTTP door in FastAPI. Each asks the owner first; what it then does is in `answers`."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from sse_starlette import EventSourceResponse
from starlette.concurrency import run_in_threadpool

from dumbwaiter.api import answers, downloads, events
from dumbwaiter.api.answers import Answer, found, wanted_of
from dumbwaiter.api.bodies import body_of, refuse_strange_pages
from dumbwaiter.api.feed import feed_of
from dumbwaiter.api.looks import looks_at
from dumbwaiter.api.models import LatestView, ProgressView, RecentView, TaskView
from dumbwaiter.api.problems import ProblemRoute, problems
from dumbwaiter.api.refusals import Refusal
from dumbwaiter.api.schemas import asking, operation_id
from dumbwaiter.app import Dumbwaiter
from dumbwaiter.errors import UnknownTask
from dumbwaiter.executors.registry import TaskType

# Names the owner of a request, or raises HTTPException; a dependency as FastAPI has them.
Owner = Callable[[Request], Awaitable[str | None]]

UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "it has not changed"}}
KEY = Query(min_length=1, max_length=200, description="the page's own name for the work, such as `order-42`")
MOST_TASKS = 100
THERE_IS_ONE = "there is one already"
REPEATED = "the same key for the same task is the same new task"


def task_routes(waiter: Dumbwaiter, owner: Owner) -> APIRouter:
    """Enqueue, look at, download, cancel and retry tasks over HTTP.

    `owner` names the owner of a request. A task is reachable only by its owner; who is nobody reaches those of nobody.
    """
    router = APIRouter(prefix="/tasks", route_class=ProblemRoute, tags=["tasks"])
    known = [entry for entry in waiter.registry if entry.http]
    for entry in known:
        add_enqueue(router, waiter, owner, entry)
    add_lists(router, waiter, owner)
    add_events(router, waiter, owner)
    add_looks(router, waiter, owner)
    # of one path shape with the looks, and after them: a method that no path knows is told the looks' own
    add_enqueue(router, waiter, owner, described=not known)
    add_files(router, waiter, owner)
    add_moves(router, waiter, owner)
    return router


def add_enqueue(
    router: APIRouter,
    waiter: Dumbwaiter,
    owner_of_request: Owner,
    entry: TaskType | None = None,
    *,
    described: bool = True,
) -> None:
    """Ask for a task: the path of one type, so that OpenAPI knows its arguments, or that of whatever type it names."""
    who, body = Depends(owner_of_request), body_of(waiter.settings.max_payload)

    # What it takes is described here and read below: to have FastAPI do it costs as much as the insert.
    async def enqueue(*, request: Request, owner: Annotated[str | None, who]) -> Response:
        """Enqueue a task of a type that is open to HTTP. The body is a JSON object of its arguments."""
        name = request.path_params["task_type"] if entry is None else entry.name
        answers.open_type(waiter, name)
        wanted = wanted_of(request.query_params, request.headers)
        arguments, base = await body(request), base_of(request, 1)

        def ask() -> Response:
            return sent(answers.enqueue(waiter, name, arguments, wanted, owner=owner, base=base))

        return await run_in_threadpool(ask)

    router.add_api_route(
        "/{task_type}" if entry is None else f"/{entry.name}",
        enqueue,
        methods=["POST"],
        status_code=202,
        response_model=TaskView,
        responses=problems(400, 404, 408, 409, 413, 415, 422, 429)
        | {200: {"model": TaskView, "description": THERE_IS_ONE}},
        openapi_extra=asking(entry),
        operation_id="enqueue" if entry is None else operation_id(entry),
        summary="Enqueue" if entry is None else f"Enqueue {entry.name}",
        description=None if entry is None else inspect.getdoc(entry.function),
        include_in_schema=described,
    )


def add_lists(router: APIRouter, waiter: Dumbwaiter, owner_of_request: Owner) -> None:
    """The latest task of a key, and the recent ones."""
    who = Depends(owner_of_request)

    @router.get("", responses=problems(400, 422) | UNCHANGED, response_model=LatestView | RecentView)
    def tasks(
        *,
        request: Request,
        owner: Annotated[str | None, who],
        task_type: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
        business_key: Annotated[str | None, KEY] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_TASKS)] = 20,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Your newest tasks; with `task_type` and `business_key`, your newest task of that key alone."""
        base = base_of(request, 0)
        if business_key is None:
            answer = answers.newest(waiter, owner=owner, base=base, task_type=task_type, limit=limit)
        elif task_type is None:
            raise Refusal(400, "no-task-type", "business_key names the task of a type: give task_type too.")
        else:
            answer = answers.latest(waiter, task_type, business_key, owner=owner, base=base)
        return sent(answer, if_none_match)


def add_looks(router: APIRouter, waiter: Dumbwaiter, owner_of_request: Owner) -> None:
    """How a task stands."""
    who = Depends(owner_of_request)

    @router.get("/{task_id}", responses=problems(404, 422) | UNCHANGED, response_model=TaskView)
    def look(
        task_id: str,
        *,
        request: Request,
        owner: Annotated[str | None, who],
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """How a task stands. Ask with `If-None-Match` to hear only of changes."""
        return sent(answers.standing(waiter, task_id, owner=owner, base=base_of(request, 1)), if_none_match)

    @router.get("/{task_id}/progress", responses=problems(404, 422) | UNCHANGED, response_model=ProgressView)
    def glance(
        task_id: str,
        *,
        request: Request,
        owner: Annotated[str | None, who],
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """How far a task is: the little that a page asks for again and again."""
        return sent(answers.glance(waiter, task_id, owner=owner, base=base_of(request, 2)), if_none_match)


def add_events(router: APIRouter, waiter: Dumbwaiter, owner_of_request: Owner) -> None:
    """Hear of changes instead of asking."""
    who, last = Depends(owner_of_request), Header(max_length=200)

    @router.get("/events", responses=problems(422) | events.STREAM, response_class=EventSourceResponse)
    def follow_several(
        *,
        request: Request,
        owner: Annotated[str | None, who],
        ids: Annotated[str, Query(description=f"1 to {events.MOST_IDS} ids of tasks, separated by commas")],
        last_event_id: Annotated[str | None, last] = None,
    ) -> Response:
        """Follow many tasks on one connection, which ends when all of them have."""
        looks = looks_at(waiter, events.read_ids(ids), owner)
        return events.answer(feed_of(waiter), looks, base=base_of(request, 1), last_event_id=last_event_id)

    @router.get(
        "/{task_id}/events", responses=problems(404, 422) | events.STREAM, response_class=EventSourceResponse
    )
    def follow(
        task_id: str,
        *,
        request: Request,
        owner: Annotated[str | None, who],
        last_event_id: Annotated[str | None, last] = None,
    ) -> Response:
        """Follow a task: how it stands, each change, and its end, with which the stream ends."""
        looks = looks_at(waiter, [task_id], owner)
        if looks[task_id] is None:
            raise UnknownTask(task_id)
        return events.answer(feed_of(waiter), looks, base=base_of(request, 2), last_event_id=last_event_id)


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
        response_model=TaskView,
        responses=problems(404, 409, 422) | {202: {"model": TaskView, "description": "asked to stop"}},
    )
    def cancel(task_id: str, *, request: Request, owner: Annotated[str | None, who]) -> Response:
        """Cancel a task: at once if it waits (200), within a second or so if it runs (202)."""
        refuse_strange_pages(request.headers)
        return sent(answers.cancel(waiter, task_id, owner=owner, base=base_of(request, 2)))

    @router.post(
        "/{task_id}/retry",
        status_code=202,
        response_model=TaskView,
        responses=problems(404, 409, 422, 429) | {200: {"model": TaskView, "description": THERE_IS_ONE}},
    )
    def retry(
        task_id: str,
        *,
        request: Request,
        owner: Annotated[str | None, who],
        force: bool = False,
        idempotency_key: Annotated[
            str | None, Header(min_length=1, max_length=200, description=REPEATED)
        ] = None,
    ) -> Response:
        """Make a finished task of a type that is open to HTTP again, as a new one; with `force` even if its result is still good."""
        refuse_strange_pages(request.headers)
        base = base_of(request, 2)
        return sent(
            answers.retry(waiter, task_id, owner=owner, base=base, force=force, request_key=idempotency_key)
        )


def sent(answer: Answer, if_none_match: str | None = None) -> Response:
    """The answer, or that the client has it already."""
    headers = {**answer.headers, "X-Content-Type-Options": "nosniff"}
    if answer.tag is not None:
        headers["ETag"] = answer.tag
        if downloads.matches(if_none_match, answer.tag):
            return Response(status_code=304, headers=headers)
    return Response(answer.view.model_dump_json(), answer.status, headers, media_type="application/json")


def base_of(request: Request, below: int) -> str:
    """The path before `/tasks…`: taken from the request, so that it is right under any prefix, mount or proxy path.

    `below` is how many parts of the path follow the `tasks`.
    """
    return request.url.path.rsplit("/", below + 1)[0]
