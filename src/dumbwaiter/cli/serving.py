"""Commands that run until they are stopped: worker, serve; and migrate, which they wait for."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Annotated, NoReturn

import typer

from dumbwaiter.cli.program import Given, attribute, command, log_to_stderr
from dumbwaiter.errors import ConfigurationError, InvalidOption

# What Python and the application's own exit handlers may take to end.
LAST_EXIT = 1.0


@command("worker")
def worker(
    ctx: typer.Context,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "-q",
            "--queue",
            metavar="QUEUE[=SLOTS]",
            help="A queue to serve, and how many of its tasks at once.",
        ),
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(metavar="NAME=AMOUNT,…", help="What this machine has: chromium=1,gpu_memory=24."),
    ] = None,
) -> None:
    """Run tasks until told to stop (Ctrl-C; twice to hurry)."""
    given: Given = ctx.obj
    log_to_stderr(debug=given.debug)
    waiter = given.waiter()
    slots = {} if queues is None else dict(read_queue(word, waiter.settings.slots) for word in queues)
    hand = waiter.worker(slots or None, capacity=read_capacity(capacity))
    served = ", ".join(f"{name}={count}" for name, count in slots.items()) or "all queues"
    print(f"worker {hand.name}: {served}; database: {waiter.settings.shown_database}", file=sys.stderr)
    leave(hand.run())


def leave(status: int) -> NoReturn:
    """End with that status, at once if Python does not: it waits for ever for a thread of asyncio.to_thread that user code left."""
    last = threading.Timer(LAST_EXIT, os._exit, (status,))
    last.daemon = True
    with contextlib.suppress(RuntimeError):  # no more threads to be had
        last.start()
    raise typer.Exit(status)


@command("serve")
def serve(
    ctx: typer.Context,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port; the next free one if it is taken.")
    ] = 8000,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Only serve; workers run elsewhere.")
    ] = False,
    authorize: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="The function that gives the owner of a request."),
    ] = None,
) -> None:
    """Serve the page and the task routes, with a worker inside."""
    from dumbwaiter.cli import site

    given: Given = ctx.obj
    if authorize is None and not site.is_loopback(host):
        raise ConfigurationError(
            f"--host {host} is reachable from other machines, and everybody could see and cancel all tasks: "
            "name who is who with --authorize module:function, or stay on 127.0.0.1"
        )
    log_to_stderr(debug=given.debug)
    waiter = given.waiter()
    owners = None if authorize is None else attribute(authorize, "--authorize")
    app = site.site(waiter, site.offered(waiter), authorize=owners, worker=not no_worker)
    listener, found = site.listening(host, port)
    if port not in (found, 0):
        print(f"port {port} is taken", file=sys.stderr)
    print(f"serving {site.url_of(host, found)} (Ctrl-C stops)", flush=True)
    try:
        site.server(app).run(sockets=[listener])
    except KeyboardInterrupt:
        return  # how a server is stopped by hand


@command("migrate")
def migrate(ctx: typer.Context) -> None:
    """Create or upgrade the tables."""
    applied = ctx.obj.waiter(jobs=False).migrate()
    for revision in applied:
        print(f"applied {revision}")
    if not applied:
        print("the tables are up to date")


def read_queue(word: str, default: int) -> tuple[str, int]:
    """`name` or `name=slots`."""
    name, separator, slots = word.partition("=")
    if not name or (separator and not (slots.isascii() and slots.isdigit() and int(slots) > 0)):
        raise InvalidOption(f"-q {word}: write QUEUE=SLOTS, for example exports=2")
    return name, int(slots) if separator else default


def read_capacity(text: str | None) -> dict[str, float] | None:
    """`name=amount,name=amount`."""
    if text is None:
        return None
    amounts: dict[str, float] = {}
    for part in text.split(","):
        name, _, amount = part.strip().partition("=")
        try:
            amounts[name] = float(amount)
        except ValueError:
            amounts[name] = -1
        if not name or not 0 <= amounts[name] < float("inf"):
            raise InvalidOption(
                f"--capacity {text}: write NAME=AMOUNT,…, for example chromium=1,gpu_memory=24"
            )
    return amounts
