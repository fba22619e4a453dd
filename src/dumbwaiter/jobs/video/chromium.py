"""Finding a Chromium, and starting it so that it opens no port, keeps its sandbox and leaves nothing behind."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dumbwaiter.jobs.video import leftovers
from dumbwaiter.jobs.video.errors import ChromiumMissing
from dumbwaiter.jobs.video.processes import environment

VARIABLE = "DUMBWAITER_CHROMIUM"
HEADLESS_SHELLS = ("chromium-headless-shell", "chrome-headless-shell", "headless_shell")
FULL_BROWSERS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge", "microsoft-edge-stable",
)  # fmt: skip
MAC_BROWSERS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
SHELLS_IN_CACHES = (
    ("PLAYWRIGHT_BROWSERS_PATH", ".cache/ms-playwright", "chromium_headless_shell-*/*/*headless[-_]shell"),
    (
        "PLAYWRIGHT_BROWSERS_PATH",
        "Library/Caches/ms-playwright",
        "chromium_headless_shell-*/*/*headless[-_]shell",
    ),
    ("PUPPETEER_CACHE_DIR", ".cache/puppeteer", "chrome-headless-shell/*/*/chrome-headless-shell"),
)
FULL_IN_CACHES = (
    ("PLAYWRIGHT_BROWSERS_PATH", ".cache/ms-playwright", "chromium-*/*/chrome"),
    ("PUPPETEER_CACHE_DIR", ".cache/puppeteer", "chrome/*/*/chrome"),
)
INSTALL = (
    "install one with `apt-get install chromium-headless-shell` (Debian, Ubuntu) or `playwright install chromium-headless-shell`, "
    f"or name one in {VARIABLE}"
)

FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    "--mute-audio",
    "--hide-scrollbars",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--metrics-recording-only",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-background-timer-throttling",
    # /dev/shm is 64 MB in a container, or missing
    "--disable-dev-shm-usage",
    # the same pixels on every machine
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    "--lang=en-US",
    # rrweb scrolls smoothly: without this 122 of 151 frames of a scrolling session were wrong
    "--disable-smooth-scrolling",
    # otherwise the edges of glyphs depend on what was drawn before
    "--disable-partial-raster",
    # nothing leaves, whatever else fails: a proxy that is not there, for loopback too, and no name has an address
    "--proxy-server=127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--dns-prefetch-disable",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    # one process for the page and all its frames: one frame request draws them all, one wall stands around them. Without
    # RasterInducingScroll what is scrolled inside of a page is drawn with the frame, and not two frames later
    "--disable-features=RasterInducingScroll,Translate,OptimizationHints,MediaRouter,IsolateOrigins,site-per-process,IsolateSandboxedIframes",
    "--disable-site-isolation-trials",
)
FRAMES_ON_REQUEST = (
    "--deterministic-mode",
    "--enable-begin-frame-control",
    "--disable-new-content-rendering-timeout",
    "--run-all-compositor-stages-before-draw",
    "--disable-threaded-animation",
    "--disable-threaded-scrolling",
    "--disable-checker-imaging",
    "--disable-image-animation-resync",
    "--enable-surface-synchronization",
)
# Chromium reads its orders from descriptor 3 and answers on 4. A small process of its own puts the pipes there and drops
# root, because code between fork and exec may deadlock in a worker with threads.
LAUNCHER = """
import fcntl, os, sys
orders, answers, user, group = map(int, sys.argv[1:5])
spare = [fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, 10) for pipe in (orders, answers)]
os.close(orders)
os.close(answers)
os.dup2(spare[0], 3)
os.dup2(spare[1], 4)
if user >= 0:
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
os.execv(sys.argv[5], sys.argv[5:])
"""
PROFILE_PREFIX = "profile-"
# Sockets in the temporary directory must fit into 108 bytes.
LONGEST_TEMPORARY = 70


@dataclass(frozen=True)
class User:
    """Who a browser runs as."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Way:
    """One way to start a browser: as whom, and with the sandbox or without."""

    user: User | None
    sandbox: bool


def find_chromium(option: Path | str | None = None) -> Path:
    """The browser to use: the option, the environment, a headless shell, a full browser.

    Raises:
        ChromiumMissing: there is none; the message says what to install.

    Example:
        >>> find_chromium()
        PosixPath('/usr/bin/chromium-headless-shell')
    """
    for origin, named in (("the option", option), (VARIABLE, os.environ.get(VARIABLE))):
        if named:
            found = shutil.which(str(named))
            if found is None:
                raise ChromiumMissing(
                    f"{named}, named by {origin}, is no program that can be started; {INSTALL}"
                )
            return Path(found)
    for path in installed():
        return path
    raise ChromiumMissing(f"no Chromium was found; {INSTALL}")


def installed() -> Iterator[Path]:
    """Browsers on this machine, the most suitable first."""
    yield from on_path(HEADLESS_SHELLS)
    yield from in_caches(SHELLS_IN_CACHES)
    yield from on_path(FULL_BROWSERS)
    yield from in_caches(FULL_IN_CACHES)
    yield from (Path(name) for name in MAC_BROWSERS if os.access(name, os.X_OK))


def on_path(names: tuple[str, ...]) -> Iterator[Path]:
    """Programs of these names on PATH."""
    yield from (Path(found) for name in names if (found := shutil.which(name)))


def in_caches(caches: tuple[tuple[str, str, str], ...]) -> Iterator[Path]:
    """Programs in the directories where Playwright and Puppeteer keep theirs, the newest first."""
    for variable, default, pattern in caches:
        directory = Path(os.environ.get(variable) or Path.home() / default)
        if directory.is_dir():
            found = [path for path in directory.glob(pattern) if os.access(path, os.X_OK)]
            yield from sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def ways(sandbox: bool | None) -> list[Way]:
    """The ways to try, the safest first. As root Chromium refuses its sandbox, as an unprivileged user it takes it."""
    user = unprivileged() if os.geteuid() == 0 else None
    with_sandbox = [] if os.geteuid() == 0 and user is None else [Way(user, True)]
    without = [Way(user, False)] if user is None else [Way(user, False), Way(None, False)]
    if sandbox is None:
        return with_sandbox + without
    return with_sandbox if sandbox else without


def unprivileged() -> User | None:
    """The user that has no rights."""
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return None
    return User(entry.pw_uid, entry.pw_gid)


def make_profile(workdir: Path, user: User | None) -> Path:
    """A private profile directory, inside `workdir` if its user can get there."""
    leftovers.sweep()
    workdir.mkdir(parents=True, exist_ok=True)
    if user is not None and not reachable(workdir):
        profile = leftovers.hold(leftovers.PROFILE)
    else:
        profile = Path(tempfile.mkdtemp(prefix=PROFILE_PREFIX, dir=workdir))
    (profile / "tmp").mkdir(mode=0o700)
    if user is not None:
        for path in (profile / "tmp", profile):
            os.chown(path, user.uid, user.gid)
    return profile


def reachable(directory: Path) -> bool:
    """Whether everybody may pass through `directory`; ours is opened for that, its parents are not."""
    directory = directory.resolve()
    if not all(parent.stat().st_mode & 0o001 for parent in directory.parents):
        return False
    mode = directory.stat().st_mode & 0o7777
    if not mode & 0o001:
        directory.chmod(mode | 0o011)  # to pass, not to list
    return True


def launch(
    executable: Path, profile: Path, way: Way, *, orders: int, answers: int, on_request: bool
) -> subprocess.Popen[bytes]:
    """Start a browser as the leader of a session of its own, reading from `orders` and answering on `answers`."""
    arguments = [*FLAGS, *(FRAMES_ON_REQUEST if on_request else ()), f"--user-data-dir={profile}"]
    if not way.sandbox:
        arguments.append("--no-sandbox")
    uid, gid = (way.user.uid, way.user.gid) if way.user else (-1, -1)
    launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(orders), str(answers), str(uid), str(gid)]
    with (profile / "stderr").open("wb") as stderr:
        return subprocess.Popen(
            [*launcher, str(executable), *arguments, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=(orders, answers),
            start_new_session=True,
            env=environment_in(profile),
            cwd=profile,
        )


def environment_in(profile: Path) -> dict[str, str]:
    """What it needs of ours, with everything that a browser writes on its own led into the profile."""
    temporary = str(profile / "tmp")
    changes = {"HOME": str(profile), "XDG_CONFIG_HOME": str(profile), "XDG_CACHE_HOME": str(profile)}
    if len(temporary) <= LONGEST_TEMPORARY:
        changes["TMPDIR"] = temporary
    return {**environment(), **changes}
