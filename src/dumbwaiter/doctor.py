"""Whether this machine and this database can do the work, and how to mend what cannot: `dumbwaiter doctor`."""

from __future__ import annotations

import ctypes
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dumbwaiter.errors import DumbwaiterError, SchemaMismatch, WrongEnvironment
from dumbwaiter.settings import Reserve, without_password
from dumbwaiter.task import Status

if TYPE_CHECKING:
    from dumbwaiter.app import Dumbwaiter

GIB = 1024**3
# A video of an hour with its frames in flight took less; below this a full disk is only a matter of time.
LEAST_FREE = GIB
PROBE_SECONDS = 20
PR_GET_CHILD_SUBREAPER = 37
VIDEO_TASK = "video-export"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: `ok` is None when it could not be told, or is not needed here."""

    name: str
    ok: bool | None
    found: str
    mend: str = ""


def checks(waiter: Dumbwaiter) -> Iterator[Check]:
    """Looks at one thing after another; each look is made when its check is asked for, the slowest take a second.

        for check in checks(waiter):
            print(check.name, check.found, check.mend)

    Raises nothing: what goes wrong is what is found.
    """
    for name, look in LOOKS:
        yield looked(name, look, waiter)


def looked(name: str, look: Look, waiter: Dumbwaiter) -> Check:
    try:
        ok, found, mend = look(waiter)
    except DumbwaiterError as error:
        return Check(name, False, str(error), "the sentence says what to change")
    except Exception as error:  # noqa: BLE001 a broken machine breaks looks in ways that nobody listed
        return Check(
            name, False, f"{type(error).__name__}: {error}", "this look failed by itself; please report it"
        )
    return Check(name, ok, found, mend)


Finding = tuple[bool | None, str, str]
Look = Callable[["Dumbwaiter"], Finding]


def python(_: Dumbwaiter) -> Finding:
    from dumbwaiter import __version__

    return (
        True,
        f"Dumbwaiter {__version__}, Python {platform.python_version()}, {platform.platform(terse=True)}",
        "",
    )


def database(waiter: Dumbwaiter) -> Finding:
    address = waiter.settings.shown_database
    try:
        waiter.store.schema.revision()
    except DumbwaiterError as error:
        return False, f"{address}: {error}", "start the database, or set DUMBWAITER_DATABASE to its address"
    return True, address, ""


def schema(waiter: Dumbwaiter) -> Finding:
    try:
        waiter.store.schema.ensure()
    except SchemaMismatch as error:
        return False, str(error), "run: dumbwaiter migrate"
    except WrongEnvironment:
        return None, "see environment", ""
    return True, "the tables are those of this version", ""


def environment(waiter: Dumbwaiter) -> Finding:
    name = waiter.settings.env
    try:
        waiter.store.schema.ensure()
    except WrongEnvironment as error:
        return (
            False,
            str(error),
            "use the database of this environment, or set DUMBWAITER_ENV to the database's",
        )
    except DumbwaiterError:
        return None, f"{name}; what the database was installed for cannot be told yet", ""
    return True, name, ""


def clock(waiter: Dumbwaiter) -> Finding:
    from dumbwaiter.store.store import LARGEST_CLOCK_OFFSET

    offset = abs(waiter.store.clock_offset())
    found = f"{offset.total_seconds():.3f} s from the database's"
    return offset <= LARGEST_CLOCK_OFFSET, found, "set this host's clock: systemd-timesyncd or chrony"


def files(waiter: Dumbwaiter) -> Finding:
    place = without_password(waiter.settings.files_url)
    key = f"doctor/{secrets.token_hex(8)}/probe.txt"
    with tempfile.NamedTemporaryFile() as probe:
        probe.write(b"dumbwaiter")
        probe.flush()
        try:
            waiter.files.put(probe.name, key, filename="probe.txt")
            whole = b"".join(waiter.files.stream(key)) == b"dumbwaiter"
            waiter.files.delete([key])
        except DumbwaiterError as error:
            return False, f"{place}: {error}", "make it writable, or set DUMBWAITER_FILES to a place that is"
    if not whole:
        return False, f"{place}: what was written is not what is read", "look at that disk or bucket"
    if waiter.files.local and not waiter.settings.shared_files:
        return True, f"{place} (workers and web server on this host only)", ""
    return True, place, ""


def workdir(waiter: Dumbwaiter) -> Finding:
    place = waiter.settings.workdir_path
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return (
            False,
            f"{place}: {error.strerror}",
            "make it writable, or set DUMBWAITER_WORKDIR to a place that is",
        )
    usage = shutil.disk_usage(place)
    least = Reserve.of(waiter.settings.disk_reserve).bytes_of(usage.total)
    found = f"{place}, {usage.free / GIB:.1f} GiB free"
    if usage.free < least:
        found += f", less than disk_reserve ({least / GIB:.1f} GiB): tasks that need disk are not claimed"
    return (
        usage.free >= max(LEAST_FREE, least),
        found,
        "free some space, or set DUMBWAITER_WORKDIR to a larger disk",
    )


def short_workers(waiter: Dumbwaiter) -> Finding:
    heard = waiter.store.now() - waiter.settings.lease
    alive = [worker for worker in waiter.store.workers() if worker.heartbeat_at > heard]
    short = [f"{worker.host}: {worker.short_of}" for worker in alive if worker.short_of]
    if short:
        return (
            False,
            "; ".join(short),
            "free some space there; until then those workers leave tasks that need disk to others",
        )
    if alive:
        return True, f"{len(alive)} at work", ""
    if tasks_wait(waiter):
        return (
            None,
            "none at work, and tasks wait",
            "start one: dumbwaiter worker, or lifespan(waiter) in the web application",
        )
    return True, "none at work, and nothing waits", ""


def tasks_wait(waiter: Dumbwaiter) -> bool:
    """Of the newest that are pending, one is due."""
    now = waiter.store.now()
    return any(task.run_at <= now for task in waiter.store.find(status=Status.PENDING, limit=100))


def subreaper(_: Dumbwaiter) -> Finding:
    if not sys.platform.startswith("linux"):
        return None, "Linux only: here a task's process group is ended, what leaves the group is not", ""
    flag = ctypes.c_int()
    if ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(flag), 0, 0, 0) == 0:
        return True, "the kernel hands a task's stray processes to us", ""
    return (
        False,
        "prctl(PR_SET_CHILD_SUBREAPER) is refused",
        "allow prctl in this container's seccomp profile",
    )


def processes(_: Dumbwaiter) -> Finding:
    if not sys.platform.startswith("linux"):
        return None, "Linux only", ""
    if Path(f"/proc/{os.getpid()}/environ").exists():
        return True, "/proc is there: what a killed worker left is found", ""
    return (
        False,
        "/proc is not mounted",
        "mount it (mount -t proc proc /proc): stray processes are found there",
    )


def shared_memory(_: Dumbwaiter) -> Finding:
    place = Path("/dev/shm")  # noqa: S108 looked at, not written
    if not place.is_dir():
        return None, "missing; Chromium is started so that it needs none", ""
    return True, f"{shutil.disk_usage(place).total / 1024**2:.0f} MiB", ""


def browser(waiter: Dumbwaiter) -> Finding:
    from dumbwaiter.jobs.video.chromium import find_chromium

    return tool(waiter, lambda: find_chromium(), "--version")


def encoder(waiter: Dumbwaiter) -> Finding:
    from dumbwaiter.jobs.video.encoder import find_ffmpeg, writes

    ok, found, mend = tool(waiter, lambda: find_ffmpeg(), "-version")
    if ok and not writes(find_ffmpeg()):
        return (
            needed(waiter),
            f"{found}, without libx264",
            "install an FFmpeg with x264, or the package's extra: pip install '.[video]' in a checkout",
        )
    return ok, found, mend


def fonts(waiter: Dumbwaiter) -> Finding:
    from dumbwaiter.jobs.video.fonts import missing_fonts

    if shutil.which("fc-list") is None:
        return None, "fontconfig is not installed, so nobody can tell", "apt-get install fontconfig"
    if missing := missing_fonts():
        letters = "; ".join(sentence.split(":")[0] for sentence in missing)
        return (
            needed(waiter),
            letters,
            "; ".join(sentence.partition(": ")[2].strip("`") for sentence in missing),
        )
    return True, "Chinese, Japanese, Korean and emoji", ""


def tool(waiter: Dumbwaiter, find: Callable[[], Path], flag: str) -> Finding:
    """A program is there, and starts."""
    try:
        path = find()
    except DumbwaiterError as error:
        sentence, _, mend = str(error).partition("; ")
        return needed(waiter), sentence, mend
    try:
        asked = subprocess.run(
            [path, flag], capture_output=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return needed(waiter), f"{path} does not start: {error}", "install it anew, or name another one"
    version = asked.stdout.decode(errors="replace").strip().splitlines()
    return True, f"{path} ({version[0].strip()[:80] if version else 'no version'})", ""


def needed(waiter: Dumbwaiter) -> bool | None:
    """What a lack means here: False, a fault, where videos are exported; None where nobody does."""
    return False if waiter.registry.get(VIDEO_TASK) is not None else None


LOOKS: tuple[tuple[str, Look], ...] = (
    ("python", python),
    ("database", database),
    ("schema", schema),
    ("environment", environment),
    ("clock", clock),
    ("files", files),
    ("work directory", workdir),
    ("workers", short_workers),
    ("subreaper", subreaper),
    ("/proc", processes),
    ("/dev/shm", shared_memory),  # noqa: S108 looked at, not written
    ("browser", browser),
    ("encoder", encoder),
    ("fonts", fonts),
)
