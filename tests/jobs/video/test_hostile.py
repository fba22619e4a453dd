"""Recordings come from strangers: nothing leaves, no script of theirs runs, and the worker survives."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dumbwaiter.jobs.video.browser import ADDRESS, Browser, start
from dumbwaiter.jobs.video.export import Video
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import plan
from dumbwaiter.jobs.video.recording import Recording, load
from dumbwaiter.jobs.video.replay import load as load_page
from tests.jobs.video.support import RECORDINGS, decode, element, page, text

BROKEN = RECORDINGS / "broken"


class Canary:
    """A server on loopback that remembers who asked for what."""

    def __init__(self) -> None:
        hits = self.hits = []  # type: list[str]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hits.append(self.path)
                self.send_response(200)
                self.end_headers()

            do_POST = do_HEAD = do_OPTIONS = do_GET  # noqa: N815 - the standard library's names

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def canary() -> Iterator[Canary]:
    canary = Canary()
    yield canary
    canary.server.shutdown()
    canary.server.server_close()


def aimed_at(canary: Canary, name: str) -> bytes:
    """A hostile recording whose addresses are the canary's."""
    return (BROKEN / name).read_bytes().replace(b":18999", f":{canary.port}".encode())


def unsanitised(raw: bytes) -> Recording:
    """A recording as it came, so that the browser's own walls are what is tested."""
    clean = load(raw)
    return Recording(**{**clean.__dict__, "events": raw})


def test_the_canary_hears_requests(canary: Canary) -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{canary.port}/hello").close()
    assert canary.hits == ["/hello"]


def test_no_request_leaves_an_export(canary: Canary, make: Callable[..., Video]) -> None:
    video = make(aimed_at(canary, "ssrf-everything.json"))
    assert video.frames == 76
    assert canary.hits == []


def test_no_request_leaves_the_browser_even_of_a_page_as_it_came(
    canary: Canary, make: Callable[..., Video]
) -> None:
    make(unsanitised(aimed_at(canary, "ssrf-everything.json")))
    assert canary.hits == []


def test_the_wall_stands_without_the_policy(
    canary: Canary, make: Callable[..., Video], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumbwaiter.jobs.video.replay.POLICY", "")
    video = make(unsanitised(aimed_at(canary, "ssrf-everything.json")))
    assert canary.hits == []
    refused = [address for address in video.refused if f":{canary.port}/" in address]
    assert len(refused) > 5, video.refused


def test_the_dead_proxy_stands_without_the_wall_and_the_policy(
    canary: Canary, make: Callable[..., Video], monkeypatch: pytest.MonkeyPatch
) -> None:
    def let_through(browser: Browser, message: dict[str, Any]) -> None:
        reply = {"requestId": message["params"]["requestId"]}
        browser._connection.send("Fetch.continueRequest", reply, session=message.get("sessionId"), within=5.0)

    answer = Browser._answer

    def only_ours(browser: Browser, message: dict[str, Any]) -> None:
        ours = message["params"]["request"]["url"] in browser._pages
        (answer if ours else let_through)(browser, message)

    monkeypatch.setattr("dumbwaiter.jobs.video.replay.POLICY", "")
    monkeypatch.setattr(Browser, "_answer", only_ours)
    make(unsanitised(aimed_at(canary, "ssrf-everything.json")))
    assert canary.hits == []


def test_without_frame_control_nothing_leaves_either(canary: Canary, make: Callable[..., Video]) -> None:
    make(unsanitised(aimed_at(canary, "ssrf-everything.json")), capture="screenshot")
    assert canary.hits == []


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[Recording], Browser]]:
    """Shows a recording and leaves the browser open."""
    browsers: list[Browser] = []

    def show(recording: Recording) -> Browser:
        grid = plan(recording, Options())
        browser = start(Options(), tmp_path, grid.width, grid.height, [])
        browsers.append(browser)
        load_page(browser, recording, grid, Options())
        browser.evaluate("Player.begin()")
        browser.evaluate("Player.next(25)")
        browser.draw(None)
        return browser

    yield show
    for browser in browsers:
        browser.close()


def test_no_script_of_a_recording_runs(opened: Callable[[Recording], Browser]) -> None:
    attacks = [
        element("script", text("top.PWNED = 1", 21), id=20),
        element("img", id=22, src="data:image/png;base64,AA", onerror="top.PWNED = 1"),
        element("iframe", id=23, src="javascript:top.PWNED = 1"),
        element("iframe", id=24, srcdoc="<script>top.PWNED = 1</script>"),
        element("svg", element("script", text("top.PWNED = 1", 27), id=26), id=25, onload="top.PWNED = 1"),
        element("p", text("</script><script>window.PWNED = 1</script><!--", 29), id=28),
        element("a", id=30, href="javascript:top.PWNED = 1", autofocus="", onfocus="top.PWNED = 1"),
    ]
    for canvas in (False, True):
        recording = unsanitised(page(*attacks))
        recording = Recording(**{**recording.__dict__, "has_canvas": canvas})
        browser = opened(recording)
        assert browser.evaluate("window.PWNED === undefined")
        assert browser.evaluate("location.href") == ADDRESS


def test_the_recording_cannot_be_fetched_a_second_time(
    opened: Callable[[Recording], Browser], form: Recording
) -> None:
    browser = opened(form)
    refused = browser.evaluate("fetch('events.json').then(() => 'answered', () => 'refused')", wait=True)
    assert refused == "refused"


def test_a_page_cannot_read_files(opened: Callable[[Recording], Browser]) -> None:
    browser = opened(unsanitised(page(element("iframe", id=20, src="file:///etc/passwd"))))
    assert "root:" not in browser.evaluate(
        "document.querySelector('iframe').contentDocument.documentElement.outerHTML"
    )


@pytest.mark.parametrize(
    "name", ["breaks-out-of-html.json", "deep-nesting.json", "never-answers.json", "null-bytes.json"]
)
def test_odd_pages_become_videos_without_waiting(name: str, make: Callable[..., Video]) -> None:
    video = make(BROKEN / name)
    assert video.frames in {76, 169}
    assert decode(video.path, video.frames - 1)[0].std() > 0.1


def test_changes_of_missing_nodes_are_survived_and_counted(make: Callable[..., Video]) -> None:
    warnings = make(BROKEN / "missing-nodes.json").warnings
    assert "an event names a node that is not on the page (50 times)" in warnings


def test_a_giant_viewport_is_scaled_down(make: Callable[..., Video]) -> None:
    video = make(BROKEN / "giant-viewport.json", fps=5)
    assert (video.width, video.height) == (1920, 1920)


def test_a_snapshot_of_thirty_megabytes_becomes_a_video(make: Callable[..., Video]) -> None:
    rows = [element("p", text("x" * 3000, 1_000_000 + i), id=1000 + i) for i in range(10_000)]
    assert make(page(*rows)).frames == 26


def test_a_picture_of_thirty_megabytes_becomes_a_video(make: Callable[..., Video]) -> None:
    address = "data:image/bmp;base64," + "A" * 30_000_000
    assert make(page(element("img", id=9, src=address))).frames == 26


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_million_mouse_points_become_a_video(make: Callable[..., Video]) -> None:
    events = json.loads(page(element("p", text("moving", 10), id=9), seconds=2.0))
    first = events[0]["timestamp"]
    moves = [
        {
            "type": 3,
            "timestamp": first + 20 * batch,
            "data": {
                "source": 1,
                "positions": [
                    {"x": i % 640, "y": i % 360, "id": 9, "timeOffset": i / 500 - 20} for i in range(10_000)
                ],
            },
        }
        for batch in range(1, 101)
    ]
    events[2:2] = moves
    assert make(json.dumps(events).encode(), fps=5).frames == 11
