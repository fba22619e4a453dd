"""An application with task routes, and a worker in its lifespan, on a real SQLite database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request

from dumbwaiter import Dumbwaiter, Fail, Retry, TaskContext
from dumbwaiter.integrations.fastapi import lifespan, router
from tests.support.serving import serving
from tests.support.waiting import until

BYTES = bytes(range(256)) * 40


@pytest.fixture
def waiter(tmp_path: Path) -> Iterator[Dumbwaiter]:
    waiter = make_waiter(f"sqlite:///{tmp_path / 'tasks.db'}", tmp_path)
    yield waiter
    waiter.close()


@pytest.fixture
def client(waiter: Dumbwaiter) -> Iterator[httpx.Client]:
    """A client of an application that anybody may use, with a worker."""
    app = FastAPI(lifespan=lifespan(waiter))
    app.include_router(router(waiter, public=True))
    with serving(app) as client:
        yield client


@pytest.fixture
def idle_client(waiter: Dumbwaiter) -> Iterator[httpx.Client]:
    """The same without a worker: whatever is enqueued stays pending."""
    app = FastAPI(lifespan=lifespan(waiter, worker=False))
    app.include_router(router(waiter, public=True))
    with serving(app) as client:
        yield client


@pytest.fixture
def owned_client(waiter: Dumbwaiter) -> Iterator[httpx.Client]:
    """A client of an application in which the header X-User says whose request it is."""

    async def user(request: Request) -> str:
        if (name := request.headers.get("X-User")) is None:
            raise HTTPException(401, "Say who you are.", {"WWW-Authenticate": "X-User"})
        return name

    app = FastAPI(lifespan=lifespan(waiter))
    app.include_router(router(waiter, authorize=user), prefix="/jobs")
    with serving(app) as client:
        yield client


def make_waiter(database: str, directory: Path, **settings: Any) -> Dumbwaiter:
    """An application with a task type for each thing that the routes must cope with."""
    places = {"files": str(directory / "files"), "workdir": str(directory / "work")}
    waiter = Dumbwaiter(database, env="test", shutdown_grace_in_app=0.5, **(places | settings))

    @waiter.task("greet", http=True)
    def greet(name: str, times: int = 1) -> str:
        return f"Hello {name}! " * times

    @waiter.task("private")
    def private() -> None: ...

    @waiter.task("report", http=True)
    def report(ctx: TaskContext, name: str = "report.bin", expires: float | None = None) -> None:
        path = ctx.workdir / "made"
        path.write_bytes(BYTES)
        kept = None if expires is None else timedelta(seconds=expires)
        ctx.publish(path, filename=name, expires=kept)

    @waiter.task("endless", http=True)
    def endless(ctx: TaskContext) -> None:
        ctx.progress(0.5, step="thinking")
        while True:
            ctx.sleep(0.02)

    @waiter.task("hopeless", http=True, retry=Retry(max_retries=0))
    def hopeless() -> None:
        raise Fail("ledger 7 is torn at page 3 of /srv/secret", user_message="This ledger cannot be read.")

    return waiter


def ended(client: httpx.Client, url: str, **headers: str) -> dict[str, Any]:
    """The task at that address, once it has ended."""

    def final() -> dict[str, Any] | None:
        task = client.get(url, headers=headers).raise_for_status().json()
        return task if task["finished_at"] else None

    return until(final)


def running(client: httpx.Client, url: str) -> dict[str, Any]:
    """The task at that address, once it runs and has said so."""

    def moving() -> dict[str, Any] | None:
        task = client.get(url).raise_for_status().json()
        return task if task["phase"] == "running" and task["current_step"] else None

    return until(moving)
