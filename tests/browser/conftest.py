"""A real Chromium, before real servers with workers; the tasks are quick ones that the tests steer."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from dumbwaiter.jobs.video import find_chromium
from tests.browser.stoves import Stove, cooking, window


# Not for the session: while it is open, playwright's event loop counts as running in this thread, and no other module's
# test could call asyncio.run.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(find_chromium()))
        yield browser
        browser.close()


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
    with window(browser, viewport={"width": 600, "height": 500}) as context:
        yield context
