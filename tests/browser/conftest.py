"""The page in a real Chromium, before a real server with a worker; the task is a quick one that the test steers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from dumbwaiter import Dumbwaiter, Fail, Retry, TaskContext
from dumbwaiter.dashboard.views import Offer, page
from dumbwaiter.integrations.fastapi import lifespan, owner_of, router
from dumbwaiter.jobs.video import find_chromium
from tests.browser.stoves import Stove, cooking, window
from tests.support.serving import serving

BYTES = b"made by a test\n" * 100


@dataclass
class Kitchen:
    """What the task of the page does, and the gates at which it waits for the test."""

    waiter: Dumbwaiter
    half: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    spoilt: bool = False

    def wait(self, ctx: TaskContext, gate: threading.Event) -> None:
        while not gate.is_set():
            ctx.sleep(0.02)


# Not for the session: while it is open, playwright's event loop counts as running in this thread, and no other module's
# test could call asyncio.run.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(find_chromium()))
        yield browser
        browser.close()


@pytest.fixture
def kitchen(tmp_path: Path) -> Kitchen:
    waiter = Dumbwaiter(
        f"sqlite:///{tmp_path / 'tasks.db'}",
        files=str(tmp_path / "files"),
        workdir=str(tmp_path / "work"),
        env="test",
    )
    kitchen = Kitchen(waiter)

    @waiter.task("dish", http=True, retry=Retry(max_retries=0))
    def dish(ctx: TaskContext, name: str) -> None:
        ctx.progress(0.0, step="peeling")
        kitchen.wait(ctx, kitchen.half)
        if kitchen.spoilt:
            raise Fail("oven 3 has no gas", user_message="The oven is cold.")
        ctx.progress(0.42, step="cooking")
        kitchen.wait(ctx, kitchen.done)
        (ctx.workdir / "dish").write_bytes(BYTES)
        ctx.publish("dish", filename=f"{name}.txt")

    return kitchen


@pytest.fixture
def client(kitchen: Kitchen) -> Iterator[httpx.Client]:
    app = FastAPI(lifespan=lifespan(kitchen.waiter))
    app.include_router(router(kitchen.waiter, public=True))
    offers = [Offer("soup", "Soup · 汤", "dish", {"name": "soup"}, "Recorded kitchen", verb="Make soup")]
    app.include_router(page(kitchen.waiter, offers, owner_of(None)))
    with serving(app) as client:
        yield client
        kitchen.half.set()
        kitchen.done.set()


@pytest.fixture
def tab(browser: Browser, client: httpx.Client) -> Iterator[Page]:
    """The page, open; anything that the browser complains of fails the test."""
    context = browser.new_context(viewport={"width": 900, "height": 700}, reduced_motion="reduce")
    tab = context.new_page()
    tab.set_default_timeout(10_000)
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(str(client.base_url))
    yield tab
    context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def stove(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stove]:
    with cooking(tmp_path_factory.mktemp("stove")) as stove:
        yield stove
        for gate in list(stove.gates.values()):
            gate.set()


@pytest.fixture
def name() -> str:
    """Of the dish of this test: key, gates and file are called by it."""
    return f"dish-{uuid4().hex[:8]}"


@pytest.fixture
def context(browser: Browser, stove: Stove) -> Iterator[BrowserContext]:
    stove.requests.clear()
    stove.most_streams = stove.streams
    with window(browser, viewport={"width": 600, "height": 500}) as context:
        yield context
