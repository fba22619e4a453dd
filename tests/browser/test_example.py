"""The page of the example that the README shows: opened in a browser, and its button pressed."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.stoves import button, window
from tests.support.programs import program, python

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fastapi_app.py"


def test_the_button_of_the_readme_shows_progress_for_some_seconds_and_then_the_download(
    browser: Browser, tmp_path: Path
) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    with (
        program(*python("-m", "uvicorn", "fastapi_app:app", "--port", "0"), cwd=tmp_path) as server,
        window(browser) as context,
    ):
        address = server.says(r"running on (http://127\.0\.0\.1:\d+)")[1]
        page = context.new_page()
        page.goto(address)
        button(page, "Start").click()
        expect(page.get_by_role("progressbar")).to_be_visible()
        expect(page.get_by_text("Adding up")).to_be_visible()
        with page.expect_download(timeout=40_000) as download:
            page.get_by_role("link", name="Download").click(timeout=40_000)

        assert download.value.suggested_filename == "sales-2026-11.csv"
        assert len(download.value.path().read_text().splitlines()) == 1000
