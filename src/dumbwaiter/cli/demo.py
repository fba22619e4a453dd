"""`dumbwaiter demo`: a recorded session becomes a video through the queue, and the page shows it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dumbwaiter.cli.program import Given, command, default_waiter
from dumbwaiter.errors import DumbwaiterError, RefusedError

if TYPE_CHECKING:
    from dumbwaiter.app import Dumbwaiter
    from dumbwaiter.dashboard.views import Offer
    from dumbwaiter.task import Task

HOST = "127.0.0.1"
# Seconds: the task tells its duration to the millisecond.
ROUNDED = 0.002


class DemoFailed(RefusedError):
    """The demo's video was not made."""


@command("demo")
def demo(
    ctx: typer.Context,
    recording: Annotated[
        Path | None, typer.Argument(metavar="RECORDING.json", help="A recorded session of your own.")
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option(metavar="FILE.mp4", help="Where to put the video.")] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End after the video: status 0 if it is good.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The page's port; the next free one if it is taken.")
    ] = 8000,
    home: Annotated[Path, typer.Option(metavar="DIRECTORY", help="Where tasks and files are kept.")] = Path(
        ".dumbwaiter"
    ),
) -> None:
    """Show the main job: a recorded web session becomes an MP4, through the queue."""
    given: Given = ctx.obj
    target = checked_target(out)
    waiter = demo_waiter(home)
    ctx.call_on_close(waiter.close)
    offer = bundled_or_own(waiter, recording, home)
    from dumbwaiter.cli import site

    listener, found = site.listening(HOST, port)
    address = site.url_of(HOST, found)
    offers = [offer, *(other for other in site.offered(waiter) if other.slug != offer.slug)]
    for other in others_at_work(waiter):
        say(
            f"process {other} works on the tasks in {home} too, and may do the work; --home names another place"
        )
    with term_as_ctrl_c(), served(site.site(waiter, offers, worker=False), listener), working(waiter):
        page = "the page, until the video is made" if once else "the page"
        say(f"{page}: {address}" + (f" (port {port} is taken)" if port not in (found, 0) else ""))
        try:
            video = made(waiter, offer, target)
        except DumbwaiterError:
            if once:
                raise
            say_failure(given)
        else:
            print(video, flush=True)
        if not once:
            say(f"{address} stays up; Ctrl-C stops it")
            stay()


def checked_target(out: Path | None) -> Path | None:
    """Where the video goes. Raises DemoFailed for a place that cannot be, before minutes are spent on it."""
    if out is None:
        return None
    target = out.absolute()
    if target.is_dir():
        raise DemoFailed(f"--out {out}: this is a directory; name the file")
    if not target.parent.is_dir():
        raise DemoFailed(f"--out {out}: there is no directory {target.parent}")
    return target


def demo_waiter(home: Path) -> Dumbwaiter:
    """The embedded default: SQLite and files in one directory."""
    home.mkdir(parents=True, exist_ok=True)
    return default_waiter(
        database=f"sqlite:///{home.absolute() / 'tasks.db'}",
        files=str(home.absolute() / "files"),
        workdir=str(home.absolute() / "work"),
    )


def others_at_work(waiter: Dumbwaiter) -> list[int]:
    """The processes of other workers here: a second demo in one directory, for one."""
    import psutil

    now = waiter.store.now()
    return [
        row.pid
        for row in waiter.store.workers()
        if now - row.heartbeat_at < waiter.settings.lease
        and (row.host != socket.gethostname() or psutil.pid_exists(row.pid))
    ]


def bundled_or_own(waiter: Dumbwaiter, recording: Path | None, home: Path) -> Offer:
    """What the demo makes first. Raises DemoFailed if there is no such recording."""
    from dumbwaiter.cli.site import offered

    if recording is not None:
        return own_recording(recording, home)
    for offer in offered(waiter):
        return offer
    raise DemoFailed("this installation has no bundled recording; name one of your own")


def own_recording(recording: Path, home: Path) -> Offer:
    """A recording of the user's, copied to where the task type may read it: it opens no path that it is merely given."""
    from dumbwaiter.cli.site import about_recording
    from dumbwaiter.dashboard.views import Offer
    from dumbwaiter.jobs.video import RecordingError, load
    from dumbwaiter.jobs.video.task import RECORDINGS

    if not recording.exists():
        raise DemoFailed(f"{recording}: there is no such file")
    try:
        read = load(recording)
    except RecordingError as error:
        raise DemoFailed(f"{recording}: {error}") from error
    shelf = home.absolute() / "recordings"
    content = recording.read_bytes()
    place = shelf / hashlib.sha256(content).hexdigest()[:12] / recording.name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    os.environ[RECORDINGS] = str(shelf)
    slug = f"own-{place.parent.name}"
    reference = f"{place.parent.name}/{recording.name}"
    return Offer(
        slug,
        read.title or recording.name,
        "video-export",
        {"recording": reference},
        about_recording(read),
        recording=lambda: read.events,
    )


@contextlib.contextmanager
def term_as_ctrl_c() -> Iterator[None]:
    """A TERM ends the demo as Ctrl-C does: with everything put away."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def served(app: object, listener: socket.socket) -> Iterator[None]:
    """The site, served from a thread: Ctrl-C stays with the main one."""
    from dumbwaiter.cli.site import server

    web = server(app, quiet=True)  # type: ignore[arg-type]
    thread = threading.Thread(target=web.run, kwargs={"sockets": [listener]}, name="dumbwaiter-demo-web")
    thread.start()
    try:
        yield
    finally:
        web.should_exit = True
        thread.join()


@contextlib.contextmanager
def working(waiter: Dumbwaiter) -> Iterator[None]:
    """A worker, stopped without waiting for what it runs: the next demo goes on with it."""
    worker = waiter.worker(in_app=True)
    worker.start()
    try:
        yield
    finally:
        worker.stop(hurry=True)
        worker.join()


def made(waiter: Dumbwaiter, offer: Offer, target: Path | None) -> Path:
    """Enqueue the export, follow it, and copy the video to its place. Raises DemoFailed."""
    from dumbwaiter.cli.following import followed
    from dumbwaiter.cli.show import error_of
    from dumbwaiter.task import Status

    # Before what an earlier demo left behind when it was interrupted.
    task = waiter.enqueue(offer.task_type, offer.arguments, key=offer.key, priority=50)
    task = followed(waiter, task.id, offer.name)
    if task.status is not Status.SUCCESS:
        raise DemoFailed(
            f"the video was not made: the task {task.status}: {error_of(task) or task.user_message or ''}"
        )
    return good_video(saved(waiter, task, target), task.result)


def saved(waiter: Dumbwaiter, task: Task, target: Path | None) -> Path:
    """The task's video, copied to its place: whole, or not at all."""
    file = next((file for file in task.files if file.name.endswith(".mp4")), None)
    if file is None:
        raise DemoFailed(f"task {task.id} succeeded and published no MP4")
    place = target or Path.cwd() / file.name
    half = place.with_name(f".{place.name}.part")
    try:
        with half.open("wb") as written:
            for chunk in waiter.files.stream(file.object_key):
                written.write(chunk)
        shutil.move(half, place)
    finally:
        half.unlink(missing_ok=True)
    return place


def good_video(path: Path, told: Mapping[str, Any]) -> Path:
    """The file, once its own boxes say the same of it as the task did. Raises DemoFailed."""
    from dumbwaiter.jobs.video.mp4 import read_mp4

    found = read_mp4(path)
    if found.frames < 1 or abs(found.duration_seconds - told["duration_seconds"]) > ROUNDED:
        raise DemoFailed(
            f"{path}: the video lasts {found.duration_seconds:.3f} s and should last {told['duration_seconds']:.3f} s"
        )
    return path


def stay() -> None:
    """Until Ctrl-C, which is the way to end it and no error."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def say_failure(given: Given) -> None:
    error = sys.exc_info()[1]
    say(f"dumbwaiter: {error}")
    if given.debug:
        import traceback

        traceback.print_exc()
