"""The page of `dumbwaiter serve` in a real Chromium; the task that makes the video is one that the test steers."""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, BrowserContext, FilePayload, Locator, Page, expect

from dumbwaiter import Retry, TaskContext, Upload
from dumbwaiter.cli.site import replayer
from dumbwaiter.dashboard.views import Offer, page
from dumbwaiter.integrations.fastapi import lifespan, owner_of, router
from dumbwaiter.jobs.video import sample
from dumbwaiter.task import Status
from tests.browser.stoves import BYTES, Stove, button, headline, waiter_at, window
from tests.jobs.video.support import RECORDINGS
from tests.support.serving import serving
from tests.support.waiting import until

TOUR = sample("shop-tour")


@pytest.fixture
def studio(tmp_path: Path) -> Stove:
    """A stove on which videos are dishes."""
    studio = Stove(waiter_at(tmp_path), tmp_path)

    @studio.waiter.task("video-export", http=True, retry=Retry(max_retries=0))
    def video_export(
        ctx: TaskContext,
        recording: str | Upload,
        *,
        fps: int = 25,
        max_side: int = 1920,
        speed: float = 1,
        max_gap_seconds: float | None = None,
        format: str = "mp4",
    ) -> dict[str, Any]:
        ctx.progress(0.0, step="reading")
        studio.wait(ctx, "half")
        ctx.progress(0.42, step="rendering")
        studio.wait(ctx, "done")
        if isinstance(recording, Upload):
            with ctx.open(recording) as file:
                return {"title": f"{len(json.loads(gzip.decompress(file.read())))} events"}
        (ctx.workdir / "made").write_bytes(BYTES)
        ctx.publish("made", filename="tour.bin")
        return {"title": "The tour"}

    return studio


@pytest.fixture
def client(studio: Stove) -> Iterator[httpx.Client]:
    app = FastAPI(lifespan=lifespan(studio.waiter))
    app.include_router(router(studio.waiter, public=True))
    offer = Offer(
        "tour", "Tour · 茶", "video-export", {"recording": "sample:tour"}, "0:37", lambda: TOUR.events
    )
    app.include_router(page(studio.waiter, [offer], owner_of(None), player=replayer()))
    with serving(app) as client:
        yield client
        for gate in ("half", "done"):
            studio.gates[gate].set()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with window(browser, viewport={"width": 1100, "height": 800}) as context:
        yield context


@pytest.fixture
def tab(context: BrowserContext, client: httpx.Client) -> Page:
    tab = context.new_page()
    tab.goto(str(client.base_url))
    return tab


def stage(tab: Page) -> Locator:
    """The recorded page, in the player's frame in the page."""
    return tab.frame_locator("#player").frame_locator("iframe").locator("body")


def test_a_recording_is_seen_exported_and_downloaded_and_a_reload_changes_nothing(
    tab: Page, studio: Stove
) -> None:
    expect(stage(tab)).to_contain_text("Spring harvest is here")
    clock = tab.locator("#clock")
    expect(clock).to_have_text("0:00 / 0:37")
    button(tab, "Play").click()
    expect(clock).not_to_have_text("0:00 / 0:37")
    button(tab, "Pause").click()
    making = tab.locator("#button")
    button(making, "Export video").click()
    studio.gates["half"].set()
    expect(making.locator(".percent")).to_have_text("42%")
    tab.reload()
    expect(making.locator(".percent")).to_have_text("42%")
    studio.gates["done"].set()
    expect(headline(making)).to_have_text("Ready")
    earlier = tab.get_by_role("list", name="Recent tasks").get_by_role("listitem")
    expect(earlier).to_have_count(1)
    expect(earlier.locator(".title")).to_have_text("Tour · 茶")

    with tab.expect_download() as download:
        making.get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_bytes() == BYTES


def test_each_choice_of_size_rate_and_speed_is_a_video_of_its_own(tab: Page, studio: Stove) -> None:
    for gate in ("half", "done"):
        studio.gates[gate].set()
    making = tab.locator("#button")
    button(making, "Export video").click()
    expect(headline(making)).to_have_text("Ready")
    tab.get_by_role("radio", name="640 px").check()
    tab.get_by_role("radio", name="4×").check()
    expect(button(making, "Export video")).to_be_visible()
    button(making, "Export video").click()
    expect(headline(making)).to_have_text("Ready")
    tab.get_by_role("radio", name="Full").check()
    tab.get_by_role("radio", name="1×").check()
    expect(headline(making)).to_have_text("Ready")

    small, plain = studio.waiter.find(task_type="video-export")
    assert plain.payload["recording"] == "sample:tour"
    assert (small.payload["max_side"], small.payload["fps"], small.payload["speed"]) == (640, 25, 4)
    assert small.payload.get("max_gap_seconds") is None


def test_pauses_can_be_shortened_and_the_kind_of_file_chosen(tab: Page, studio: Stove) -> None:
    for gate in ("half", "done"):
        studio.gates[gate].set()
    making = tab.locator("#button")
    tab.get_by_role("radio", name="2 s at most").check()
    tab.get_by_role("radio", name="GIF").check()
    button(making, "Export video").click()
    expect(headline(making)).to_have_text("Ready")

    (asked,) = studio.waiter.find(task_type="video-export")
    assert (asked.payload["max_gap_seconds"], asked.payload["format"]) == (2, "gif")


def test_a_recording_of_ones_own_plays_before_it_is_sent_and_is_uploaded_by_the_button(
    tab: Page, studio: Stove
) -> None:
    for gate in ("half", "done"):
        studio.gates[gate].set()
    text = (RECORDINGS / "own" / "spa-typical.json").read_bytes()
    file: FilePayload = {
        "name": "<b>mine.json.gz",
        "mimeType": "application/gzip",
        "buffer": gzip.compress(text),
    }
    expect(tab.locator("#clock")).to_have_text("0:00 / 0:37")
    tab.locator("#file").set_input_files(file)
    expect(tab.get_by_role("heading", name="<b>mine.json.gz")).to_be_visible()
    expect(tab.locator("#clock")).to_have_text(re.compile(r"0:00 / (?!0:37)"))
    assert studio.waiter.find() == []
    button(tab.locator("#button"), "Export video").click()
    expect(headline(tab.locator("#button"))).to_have_text("Done")

    # as it is called here, before and after
    expect(tab.locator("#list .title")).to_have_text("<b>mine.json.gz")


def test_earlier_exports_keep_the_name_of_the_file_while_they_run_fail_and_are_made_again(
    tab: Page, studio: Stove
) -> None:
    tab.locator("#file").set_input_files(
        {"name": "broken.json", "mimeType": "application/json", "buffer": b"nothing"}
    )
    expect(tab.get_by_role("heading", name="broken.json")).to_be_visible()
    making, titles = tab.locator("#button"), tab.locator("#list .title")
    button(making, "Export video").click()
    expect(making.locator(".step")).to_have_text("Reading")
    expect(titles).to_have_text(["broken.json"])
    for gate in ("half", "done"):
        studio.gates[gate].set()
    expect(headline(making)).to_have_text(re.compile("Something went wrong"))
    expect(titles).to_have_text(["broken.json"])
    button(tab.locator("#list"), "Export again").click()

    expect(titles).to_have_text(["broken.json", "broken.json"])
    tab.reload()
    expect(titles).to_have_text(["broken.json", "broken.json"])


def test_the_card_of_ones_own_file_is_back_after_a_reload_and_asks_for_the_file_before_it_sends_one(
    tab: Page, studio: Stove
) -> None:
    for gate in ("half", "done"):
        studio.gates[gate].set()
    file: FilePayload = {
        "name": "mine.json.gz",
        "mimeType": "application/gzip",
        "buffer": gzip.compress((RECORDINGS / "own" / "spa-typical.json").read_bytes(), mtime=0),
    }
    tab.locator("#file").set_input_files(file)
    making = tab.locator("#button")
    button(making, "Export video").click()
    expect(headline(making)).to_have_text("Done")
    tab.reload()
    expect(tab.get_by_role("heading", name="mine.json.gz")).to_be_visible()
    expect(headline(making)).to_have_text("Done")
    expect(tab.locator("#unseen")).to_have_text("Choose the file once more to see it here.")
    with tab.expect_file_chooser() as choice:
        button(making, "Export again").click()
    choice.value.set_files(file)
    expect(tab.locator("#clock")).to_have_text(re.compile(r"0:00 / 0:\d\d"))

    assert len(studio.waiter.find()) == 1


def test_a_chinese_browser_gets_a_chinese_page(browser: Browser, client: httpx.Client, studio: Stove) -> None:
    with window(browser, locale="zh-CN", viewport={"width": 1100, "height": 800}) as context:
        tab = context.new_page()
        tab.goto(str(client.base_url))
        expect(tab.get_by_text("拖放到页面任意位置")).to_be_visible()
        expect(tab.get_by_role("heading", name="以往的导出")).to_be_visible()
        button(tab, "播放").click()
        button(tab, "暂停").click()
        button(tab.locator("#button"), "导出视频").click()
        expect(headline(tab.locator("#button"))).to_have_text("正在生成视频")
    plain = client.get("/", headers={"Accept-Language": "de, zh-TW;q=0.7, en;q=0.3"})

    assert plain.headers["Vary"] == "Accept-Language"
    assert '<html lang="zh">' in plain.text
    assert "正在生成" in plain.text
    assert '<html lang="en">' in client.get("/", headers={"Accept-Language": "de"}).text


def test_an_application_without_videos_names_its_tasks_and_lists_them(
    tmp_path: Path, browser: Browser
) -> None:
    waiter = waiter_at(tmp_path)

    @waiter.task("sales-report", http=True)
    def report(month: str) -> str:
        return month

    @waiter.task("secret")
    def secret() -> None: ...

    app = FastAPI(lifespan=lifespan(waiter))
    app.include_router(router(waiter, public=True))
    app.include_router(page(waiter, [], owner_of(None)))
    with serving(app) as client, window(browser) as context:
        waiter.enqueue("sales-report", {"month": "2026-11"})
        tab = context.new_page()
        tab.goto(str(client.base_url))
        expect(tab.get_by_text("POST /tasks/sales-report")).to_be_visible()
        expect(tab.get_by_role("link", name="/docs")).to_have_attribute("href", "docs")
        expect(tab.locator("#list .title")).to_have_text("sales-report")
        expect(headline(tab.locator("#list"))).to_have_text("Done")

        assert "secret" not in tab.content()
        assert "video" not in tab.locator("body").inner_text().lower()


def test_what_cannot_be_shown_can_be_exported_all_the_same(tab: Page) -> None:
    tab.locator("#file").set_input_files(
        {"name": "strange.bin", "mimeType": "application/octet-stream", "buffer": b"\0\1\2"}
    )
    expect(tab.locator("#unseen")).to_have_text(
        "This recording cannot be shown here. It may be exported all the same."
    )
    expect(button(tab.locator("#button"), "Export video")).to_be_visible()


def test_a_hostile_recording_runs_nothing_and_asks_nobody(browser: Browser, client: httpx.Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.setblocking(False)
        there = f"http://127.0.0.1:{canary.getsockname()[1]}"
        # no `window`: the browser tells of everything that it refuses
        tab = browser.new_context().new_page()
        tab.goto(str(client.base_url))
        content = json.dumps(hostile(there)).encode()
        tab.locator("#file").set_input_files(
            {"name": "evil.json", "mimeType": "application/json", "buffer": content}
        )
        expect(tab.locator("#clock")).to_have_text("0:00 / 0:01")
        expect(stage(tab)).to_contain_text("here all the same")
        button(tab, "Play").click()
        expect(tab.locator("#clock")).to_have_text("0:01 / 0:01")

        assert tab.evaluate("window.owned") is None
        assert tab.evaluate("document.getElementById('player').contentWindow.owned") is None
        tab.context.close()
        with pytest.raises(BlockingIOError):
            canary.accept()


def hostile(there: str) -> list[dict[str, Any]]:
    """A recording that wants to run code in our page, and to tell somebody that it was looked at."""
    evil = (
        f'<img src="{there}/pixel" onerror="top.owned=1"><iframe src="javascript:top.owned=1"></iframe>'
        f'<script src="/static/page.js"></script><script>top.owned=1</script><link rel="stylesheet" href="{there}/style">'
    )
    inside: list[tuple[str, dict[str, str]]] = [
        ("img", {"src": f"{there}/pixel", "onerror": "top.owned=1"}),
        ("iframe", {"src": "javascript:top.owned=1"}),
        ("iframe", {"srcdoc": evil}),
        ("iframe", {"src": f"{there}/frame"}),
        ("link", {"rel": "stylesheet", "href": f"{there}/style"}),
        ("script", {"src": "/static/page.js"}),
        ("video", {"src": f"{there}/film", "autoplay": ""}),
    ]
    children: list[dict[str, Any]] = [
        {"type": 2, "tagName": tag, "attributes": attributes, "childNodes": [], "id": number}
        for number, (tag, attributes) in enumerate(inside, 10)
    ]
    children.append({"type": 3, "textContent": "here all the same", "id": 9})
    body = {
        "type": 2,
        "tagName": "body",
        "attributes": {"onload": "top.owned=1"},
        "childNodes": children,
        "id": 3,
    }
    html = {"type": 2, "tagName": "html", "attributes": {}, "childNodes": [body], "id": 2}
    page = {"node": {"type": 0, "childNodes": [html], "id": 1}, "initialOffset": {"top": 0, "left": 0}}
    return [
        {
            "type": 4,
            "data": {"href": "http://evil.example/", "width": 400, "height": 300},
            "timestamp": 1_000,
        },
        {"type": 2, "data": page, "timestamp": 1_001},
        {"type": 3, "data": {"source": 3, "id": 1, "x": 0, "y": 0}, "timestamp": 2_100},
    ]


def test_it_fits_a_phone(browser: Browser, client: httpx.Client, studio: Stove) -> None:
    studio.waiter.enqueue("video-export", {"recording": "sample:tour"}, key="offer:tour")
    with window(browser, viewport={"width": 320, "height": 700}, has_touch=True) as context:
        phone = context.new_page()
        phone.goto(str(client.base_url))
        cancel = button(phone.locator("#button"), "Cancel")
        expect(cancel).to_be_visible()

        settings = phone.get_by_text("Settings")
        assert settings.bounding_box() is not None
        expect(phone.get_by_role("radio", name="640 px")).to_be_hidden()
        assert phone.evaluate("document.documentElement.scrollWidth") <= 320
        box = cancel.bounding_box()
        assert box is not None
        assert box["height"] >= 44


def test_without_javascript_the_button_and_the_states_are_there(
    browser: Browser, client: httpx.Client, studio: Stove
) -> None:
    plain = browser.new_context(java_script_enabled=False).new_page()
    plain.goto(str(client.base_url))
    button(plain, "Export video").click()
    expect(plain.get_by_role("progressbar", name="Tour")).to_be_visible()
    for gate in ("half", "done"):
        studio.gates[gate].set()
    until(lambda: studio.waiter.find()[0].status is Status.SUCCESS)
    plain.reload()
    expect(plain.get_by_role("link", name="Download")).to_be_visible()
    plain.context.close()


def test_the_page_asks_nobody_else_for_anything(client: httpx.Client) -> None:
    text = client.get("/").text
    policy = client.get("/").headers["Content-Security-Policy"]
    player = client.get("/player").headers["Content-Security-Policy"]

    assert re.findall(r'(?:src|href)="(https?:)?//', text) == []
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert player.startswith(
        "sandbox allow-scripts allow-same-origin; default-src 'none'; script-src 'nonce-"
    )
    assert "connect-src" not in player


def test_a_form_of_another_site_makes_nothing(client: httpx.Client, studio: Stove) -> None:
    strange = client.post(
        "/offers/tour", headers={"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    )
    unknown = client.post("/offers/nothing")

    assert (strange.status_code, unknown.status_code) == (403, 404)
    assert studio.waiter.find() == []


def test_the_assets_may_be_kept_for_good_and_nothing_else_is_served(client: httpx.Client) -> None:
    addresses = re.findall(r'"((?:static/|dumbwaiter-)[^"]+)"', client.get("/").text)
    inside = re.findall(r'"(static/[^"]+)"', client.get("/player").text)

    assert (len(addresses), len(inside)) == (4, 2)
    for address in addresses + inside:
        assert "immutable" in client.get(f"/{address}").headers["Cache-Control"]
    assert client.get("/static/page.html").status_code == 404
