"""What a signed link opens (`Dumbwaiter.link`): how a task stands, or a file of it, without a login and for a while."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Header, Request, Response

from dumbwaiter.api import downloads
from dumbwaiter.api.linkpages import refusal_page, task_page, wants_page
from dumbwaiter.api.looks import looks
from dumbwaiter.api.models import SharedView, TaskView
from dumbwaiter.api.problems import ProblemRoute, problems
from dumbwaiter.api.refusals import Refusal
from dumbwaiter.app import Dumbwaiter
from dumbwaiter.languages import language_of
from dumbwaiter.links import Grant, Links
from dumbwaiter.task import Task

# The address is all that it takes, so it should be told to nobody: not to caches, nor to what the page links to.
DISCREET = {
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
}


HTML: dict[str, Any] = {"text/html": {"schema": {"type": "string"}}}


class LinkRoute(ProblemRoute):
    """A route that people open in a browser: what is refused to them is told as a sentence on a page."""

    def refuse(self, request: Request, refusal: Refusal) -> Response:
        if wants_page(request.headers.get("accept", "")):
            return refusal_page(refusal, language_of(request.headers.get("accept-language")), DISCREET)
        return super().refuse(request, refusal)


def or_page(answers: dict[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """The same answers, which browsers get as pages."""
    return {
        status: answer | {"content": answer["content"] | HTML} if "content" in answer else answer
        for status, answer in answers.items()
    }


def shared_routes(waiter: Dumbwaiter) -> APIRouter:
    """The routes of signed links. They ask nobody who they are: the signature is the permission."""
    router = APIRouter(prefix="/links", route_class=LinkRoute, tags=["links"])

    @cache
    def links() -> Links:  # when it is first asked for: the secret is in the database
        return Links(waiter.store.schema.secret)

    @router.get(
        "/{token}",
        response_model=SharedView,
        responses=or_page(problems(404, 410, 416, 422))
        | {200: {"content": HTML}, 206: downloads.ANSWERS[206], 307: downloads.ANSWERS[307]},
    )
    def opened(
        token: str,
        *,
        request: Request,
        if_none_match: Annotated[str | None, Header()] = None,
        if_range: Annotated[str | None, Header()] = None,
        range_: Annotated[str | None, Header(alias="Range")] = None,
    ) -> Response:
        """How the task stands that the link is for, as JSON or, for a browser, as a page; or the file, if it is for one."""
        grant, task = granted(waiter, links(), token)
        if grant.file is not None:
            return download(waiter, task, grant.file, downloads.Asked(if_none_match, if_range, range_))
        [look] = looks(waiter, [task])
        view = shared_view(look.view(""), grant, request.url.path)
        if wants_page(request.headers.get("accept", "")):
            return task_page(view, language_of(request.headers.get("accept-language")), DISCREET)
        headers = DISCREET | {"Vary": "Accept"}
        return Response(view.model_dump_json(), headers=headers, media_type="application/json")

    # Mail programs and messengers ask so before they show an address. Asked of a store elsewhere, a link that is signed for
    # GET would be refused.
    @router.head("/{token}", include_in_schema=False)
    def described(token: str, *, request: Request) -> Response:
        grant, task = granted(waiter, links(), token)
        return opened(token, request=request) if grant.file is None else description(waiter, task, grant.file)

    @router.get(
        "/{token}/files/{name}",
        response_class=Response,
        responses=or_page(problems(404, 410, 416, 422)) | downloads.ANSWERS,
    )
    def file(
        token: str,
        name: str,
        *,
        if_none_match: Annotated[str | None, Header()] = None,
        if_range: Annotated[str | None, Header()] = None,
        range_: Annotated[str | None, Header(alias="Range")] = None,
    ) -> Response:
        """A file of the task that the link is for."""
        task = file_granted(waiter, links(), token, name)
        return download(waiter, task, name, downloads.Asked(if_none_match, if_range, range_))

    @router.head("/{token}/files/{name}", include_in_schema=False)
    def file_described(token: str, name: str) -> Response:
        return description(waiter, file_granted(waiter, links(), token, name), name)

    return router


def granted(waiter: Dumbwaiter, links: Links, token: str) -> tuple[Grant, Task]:
    """What the token opens, and the task. Refuses with 404 what we never signed, with 410 what is over."""
    grant = links.read(token)
    if grant is None:
        raise Refusal(404, "no-such-link", "There is no such link.")
    if grant.expires_at <= waiter.store.now():
        raise Refusal(410, "link-expired", "This link was good for a while, and is no more.")
    return grant, waiter.get(grant.task_id)


def file_granted(waiter: Dumbwaiter, links: Links, token: str, name: str) -> Task:
    """The task whose file of that name the token opens. Refuses as `granted`, and with 404 another file than the token's."""
    grant, task = granted(waiter, links, token)
    if grant.file not in (None, name):
        raise Refusal(404, "no-such-link", "There is no such link.")
    return task


def description(waiter: Dumbwaiter, task: Task, name: str) -> Response:
    """The headers of the download."""
    file = downloads.file_of(task, name, waiter.store.now())
    return discreet(Response(headers=downloads.headers(file) | {"Content-Length": str(file.size)}))


def download(waiter: Dumbwaiter, task: Task, name: str, asked: downloads.Asked) -> Response:
    now = waiter.store.now()
    return discreet(downloads.answer(waiter.files, downloads.file_of(task, name, now), asked, now))


def discreet(response: Response) -> Response:
    response.headers.update({name: value for name, value in DISCREET.items() if name != "Cache-Control"})
    return response


def shared_view(view: TaskView, grant: Grant, path: str) -> SharedView:
    """The task with its files where the link opens them; what needs a login is not in it."""
    files = [
        file.model_copy(update={"url": f"{path}/files/{quote(file.name, safe='')}"}) for file in view.files
    ]
    shown = {name: getattr(view, name) for name in TaskView.model_fields if name != "links"}
    shown |= {"files": files, "result_url": files[0].url if files else None}
    return SharedView(**shown, link_expires_at=grant.expires_at)
