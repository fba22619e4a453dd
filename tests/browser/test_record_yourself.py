"""The example that records itself, from the first click to the video of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy
import pytest
from PIL import Image
from playwright.sync_api import Browser, FloatRect, Locator, expect

from dumbwaiter.jobs.video import find_ffmpeg, load
from tests.browser.stoves import window
from tests.support.programs import program, python
from tests.support.waiting import until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "record_yourself"
SIZE = {"width": 720, "height": 640}
GREEN = (47, 125, 74)  # of a dish that is on the table


def last_frame(video: Path, directory: Path) -> numpy.ndarray:
    """Red, green and blue of each pixel."""
    picture = directory / "last.png"
    command = [str(find_ffmpeg()), "-v", "error", "-sseof", "-0.5", "-i", str(video), "-update", "1"]
    subprocess.run([*command, str(picture)], check=True, stdin=subprocess.DEVNULL)
    return numpy.asarray(Image.open(picture).convert("RGB"), dtype=numpy.int16)


def shown(frame: numpy.ndarray, box: FloatRect, colour: tuple[int, int, int]) -> float:
    """How much of a box has this colour, from 0 to 1."""
    left, top = round(box["x"]), round(box["y"])
    part = frame[top : top + round(box["height"]), left : left + round(box["width"])]
    return float((abs(part - numpy.array(colour)).max(axis=2) < 30).mean())


def box_of(element: Locator) -> FloatRect:
    box = element.bounding_box()
    assert box is not None
    return box


@pytest.mark.timeout(120)
def test_the_example_records_its_visitor_and_shows_the_video_of_it(browser: Browser, tmp_path: Path) -> None:
    site = shutil.copytree(EXAMPLE, tmp_path / "site", ignore=shutil.ignore_patterns(".dumbwaiter"))
    with (
        program(*python("-m", "uvicorn", "app:app", "--port", "0"), cwd=site) as server,
        window(browser, viewport=SIZE, color_scheme="light") as context,
    ):
        page = context.new_page()
        page.goto(server.says(r"running on (http://127\.0\.0\.1:\d+)")[1])
        finish = page.get_by_role("button", name="Stop and make the video")
        expect(finish).to_be_enabled()
        page.get_by_label("Dish").fill("麻婆豆腐 Mapo tofu")
        page.get_by_role("button", name="Add").click()
        page.get_by_label("Note to the cook").press_sequentially("my allergies")
        page.get_by_label("麻婆豆腐 Mapo tofu").check()
        served, waiting = page.locator("#dishes li").last, page.locator("#dishes li").first
        boxes = [box_of(one) for one in (served, waiting, page.get_by_label("Note to the cook"))]
        finish.click()
        expect(page.locator("video")).to_be_visible(timeout=60_000)
        until(lambda: page.evaluate("document.querySelector('video').readyState"))
        duration = page.evaluate("document.querySelector('video').duration")
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        video = download.value.path()

        [uploaded] = [path for path in (site / ".dumbwaiter/files/uploads").rglob("*") if path.is_file()]
        frame = last_frame(video, tmp_path)
        session = load(uploaded)

    assert session.warnings == ()
    assert b"my allergies" not in uploaded.read_bytes()
    assert frame.shape == (SIZE["height"], SIZE["width"], 3)
    assert duration == pytest.approx(session.duration_ms / 1000, abs=0.1)
    # what was added and ticked is green, what was not is not, and what was typed is there as stars
    assert shown(frame, boxes[0], GREEN) > 0.7
    assert shown(frame, boxes[1], GREEN) < 0.01
    assert 0.002 < shown(frame, boxes[2], (0, 0, 0)) < 0.1
