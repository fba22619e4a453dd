"""Takes the pictures in `docs/pictures`: runs the demo in a terminal of its own, and looks at both while the video is made.

`./dev screenshots` runs it; it needs what the demo needs.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import Error as BrowserError
from rich.console import Console
from rich.text import Text

from dumbwaiter.jobs.video import find_chromium

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
COMMAND = "./dev demo --out shop-tour.mp4"
COLUMNS, ROWS = 100, 12
PATIENCE = 300.0
# How far the bar is in the pictures, in percent.
FAR_ENOUGH = 45
# Where in the recording the pictures show it, in ms.
SCENE = 7_600
DESK, PHONE, LONGER = (1180, 724), (390, 800), 930


class Terminal:
    """A program in a terminal of its own, and what it has written there."""

    def __init__(self, command: list[str], directory: Path) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environ = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=directory, env=environ
        )
        os.close(slave)
        self._master = master
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # The terminal of a program that has ended answers with an error.
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 65_536):
                self._written += data

    @property
    def text(self) -> str:
        return bytes(self._written).decode(errors="replace")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the pattern has been written; what else was written is the error if it never is."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if found := re.search(pattern, self.text):
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"{pattern!r} was never written; this was:\n{self.text}")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(30)
        self._reader.join(5)
        os.close(self._master)


@contextlib.contextmanager
def demo() -> Iterator[Terminal]:
    """The demo, in a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="dumbwaiter-pictures-") as place:
        home = Path(place)
        command = [sys.executable, "-m", "dumbwaiter", "demo", "--out", "shop-tour.mp4"]
        terminal = Terminal(command, home)
        try:
            yield terminal
        finally:
            terminal.close()


def opened(browser: Browser, address: str, size: tuple[int, int], scheme: str, scale: float) -> Page:
    """The page with the recording at a scene that shows something."""
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]},
        device_scale_factor=scale,
        color_scheme=scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",
    )
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(address)
    page.locator("#play:not([disabled])").wait_for()
    page.locator("#seek").evaluate(
        "(seek, at) => { seek.value = at; seek.dispatchEvent(new Event('input')); }", SCENE
    )
    return page


def picture_at_work(page: Page, to: Path) -> None:
    """The page while its bar is on the way."""
    page.evaluate(
        """least => new Promise((done) => {
        const button = document.getElementById("button");
        const look = () => (button.task?.progress_percentage ?? 0) >= least && done();
        button.addEventListener("dumbwaiter-task", look);
        look();
        })""",
        FAR_ENOUGH,
    )
    shoot(page, to)


def picture_at_the_end(page: Page, to: Path) -> None:
    """The page with the video that was made, at the same scene."""
    page.locator("#button").get_by_role("link", name="Download").wait_for()
    page.locator("#video").wait_for()
    page.locator("#video").evaluate(
        """(video, at) => new Promise((done) => {
        video.addEventListener("seeked", done, { once: true });
        video.currentTime = at;
        video.removeAttribute("controls");
        })""",
        SCENE / 1000,
    )
    page.locator("#list").get_by_role("link", name="Download").wait_for()
    page.set_viewport_size({"width": DESK[0], "height": LONGER})
    shoot(page, to)


def shoot(page: Page, to: Path) -> None:
    page.screenshot(path=to)
    print(to.relative_to(PICTURES.parents[1]), f"{to.stat().st_size // 1000} kB")


def picture_of_terminal(written: str, to: Path) -> None:
    """What stands on the screen, as SVG without anything from elsewhere."""
    screen = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    screen.print(Text.assemble(("$ ", "green"), COMMAND))
    for line in visible(written):
        screen.print(Text.from_ansi(line), no_wrap=True, crop=True)
    svg = screen.export_svg(title="Dumbwaiter")
    # rich names fonts on another host; a picture in a repository should load nothing.
    to.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), encoding="utf-8")


def visible(written: str) -> list[str]:
    """The lines as they stand after carriage returns, without what moves or hides the cursor; colours stay."""
    lines = []
    for line in written.replace("\r\n", "\n").split("\n"):
        last = line.rpartition("\r")[2]
        lines.append(re.sub(r"\x1b\[[0-9;?]*[A-Za-ln-z]", "", last))
    return [line for line in lines if line.strip()]


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with demo() as terminal, sync_playwright() as playwright:
        address = terminal.wait_for(r"http://[0-9.]+:\d+")[0]
        terminal.wait_for(r"\d %")  # a page that is opened before shows the button, not the bar
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # as root Chromium starts only without
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=sandbox)
        try:
            desk = opened(browser, address, DESK, "light", 1.5)
            phone = opened(browser, address, PHONE, "light", 2)
            picture_at_work(desk, PICTURES / "page.png")
            picture_at_work(phone, PICTURES / "phone.png")
            written = terminal.text
            desk.emulate_media(color_scheme="dark")
            picture_at_the_end(desk, PICTURES / "page-ready.png")
        except BrowserError as error:
            sys.exit(f"{error}\nThe terminal says:\n{terminal.text}")
        picture_of_terminal(written, PICTURES / "terminal.svg")
        browser.close()


if __name__ == "__main__":
    main()
