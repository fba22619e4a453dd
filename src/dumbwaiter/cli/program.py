"""The program `dumbwaiter`: its options, its commands, and how a refusal is told."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer
from typer.core import TyperGroup

from dumbwaiter import __version__
from dumbwaiter.errors import ConfigurationError, DumbwaiterError, RefusedError

if TYPE_CHECKING:
    from dumbwaiter.app import Dumbwaiter

Command = TypeVar("Command", bound=Callable[..., Any])

# What people try first, having come from other programs, and how it is called here. Slips of the pen typer sees by itself.
MEANT = {
    "show": "status",
    "get": "status",
    "inspect": "status",
    "ls": "list",
    "tasks": "list",
    "jobs": "list",
    "ps": "workers",
    "add": "enqueue",
    "submit": "enqueue",
    "send": "enqueue",
    "run": "worker",
    "work": "worker",
    "stop": "cancel",
    "kill": "cancel",
    "redo": "retry",
    "server": "serve",
    "check": "doctor",
    "clean": "prune",
    "upgrade": "migrate",
}


class Commands(TyperGroup):
    """Says what a command is called here that is called otherwise elsewhere."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            meant = MEANT.get(args[0]) if args else None
            if meant is None or not is_usage_error(error):
                raise
            raise typer.BadParameter(
                f"there is no command {args[0]!r}; it is {meant!r} here", ctx=ctx
            ) from error


program = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class NoTasksYet(RefusedError):
    """There is no database file to look at."""


class Given:
    """What stood before the command's name."""

    def __init__(self, app: str | None, *, debug: bool) -> None:
        self.debug = debug
        self._app = app
        self._waiter: Dumbwaiter | None = None

    def waiter(self, *, jobs: bool = True) -> Dumbwaiter:
        """The application that was named, or a default one that knows the built-in jobs.

        Without `jobs` the default one knows none: importing them takes 150 ms, and the table can be read without.
        """
        if self._waiter is None:
            from dumbwaiter.settings import Settings

            place = Settings.load({"app": self._app}).app
            self._waiter = imported(place) if place else default_waiter(jobs=jobs)
        return self._waiter

    def existing(self) -> Dumbwaiter:
        """The application, to look at tasks that are there. Raises NoTasksYet rather than make a SQLite file for that."""
        waiter = self.waiter(jobs=False)
        file = waiter.settings.sqlite_file
        if file is not None and not file.exists():
            raise NoTasksYet(
                f"there are no tasks yet: {file} does not exist, and the first enqueue makes it; "
                "to look elsewhere, name a database (DUMBWAITER_DATABASE) or an application (--app)"
            )
        return waiter

    def close(self) -> None:
        if self._waiter is not None:
            self._waiter.close()


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"dumbwaiter {__version__}")
        raise typer.Exit


@program.callback()
def options(
    ctx: typer.Context,
    app: Annotated[
        str | None,
        typer.Option(
            help="The application, as module:name. Without it (and without the setting `app`): the built-in jobs."
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of a refusal, and more of the log.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Durable background tasks for slow work that people wait for."""
    ctx.obj = Given(app, debug=debug)


def command(name: str) -> Callable[[Command], Command]:
    """Register a command whose errors are told as one sentence. Its first parameter is `ctx: typer.Context`."""

    def registered(function: Command) -> Command:
        @wraps(function)
        def spoken(ctx: typer.Context, *args: Any, **kwargs: Any) -> None:
            given: Given = ctx.obj
            try:
                function(ctx, *args, **kwargs)
                sys.stdout.flush()
            except DumbwaiterError as error:
                refuse(str(error), error, debug=given.debug)
            except BrokenPipeError:
                leave_quietly()
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
            except OSError as error:
                refuse(told(error), error, debug=given.debug)
            except (typer.Exit, typer.Abort, typer.BadParameter):
                raise
            except Exception as error:
                if is_usage_error(error):
                    raise
                refuse(f"{type(error).__name__}: {error} (--debug shows where)", error, debug=given.debug)
            finally:
                given.close()

        program.command(name)(spoken)
        return cast("Command", spoken)

    return registered


def run() -> None:
    """Parse the command line and run the command; ends the process with its exit status."""
    # Commands register themselves when their modules are imported.
    for module in ("tasks", "serving", "video", "health", "cleaning", "demo"):
        importlib.import_module(f"dumbwaiter.cli.{module}")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="replace"
            )  # a terminal that has no letter for it shows ?, and no traceback
    program(prog_name="dumbwaiter")


def refuse(sentence: str, error: BaseException, *, debug: bool) -> None:
    """One sentence on stderr and exit status 1."""
    if debug:
        traceback.print_exception(error)
    print(f"dumbwaiter: {sentence}", file=sys.stderr)
    raise typer.Exit(1)


def told(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def is_usage_error(error: Exception) -> bool:
    """Errors of the parser, which prints them itself: they carry the exit status 2, whichever parser typer brings along."""
    return getattr(error, "exit_code", None) == 2


def leave_quietly() -> None:
    """Whoever read our output has gone (`| head`): end as other programs do then, without Python's complaint at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(141)


def imported(place: str) -> Dumbwaiter:
    """The application at `module:name`. Raises ConfigurationError if there is none."""
    from dumbwaiter.app import Dumbwaiter

    found = attribute(place, "--app")
    if not isinstance(found, Dumbwaiter):
        raise ConfigurationError(
            f"--app {place}: this is a {type(found).__name__}, and should be a Dumbwaiter"
        )
    return found


def attribute(place: str, option: str) -> Any:
    """What `module:name` names. The directory that the program runs in may be imported from."""
    module_name, _, name = place.partition(":")
    if not module_name or not name:
        raise ConfigurationError(f"{option} {place}: write module:name, for example shop.tasks:waiter")
    if "" not in sys.path and str(here := os.getcwd()) not in sys.path:  # noqa: PTH109 - as text
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigurationError(f"{option} {place}: importing {module_name} failed: {error}") from error
        raise ConfigurationError(
            f"{option} {place}: there is no module {error.name} on the path or in {os.getcwd()}"  # noqa: PTH109
        ) from error
    except DumbwaiterError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"{option} {place}: importing {module_name} failed: {type(error).__name__}: {error}"
        ) from error
    try:
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise ConfigurationError(f"{option} {place}: the module {module_name} has no {name}") from None
    return found


def default_waiter(*, jobs: bool = True, **settings: Any) -> Dumbwaiter:
    """An application that knows the built-in jobs."""
    from dumbwaiter.app import Dumbwaiter

    waiter = Dumbwaiter(**settings)
    if jobs:
        from dumbwaiter.jobs.video.task import register

        register(waiter)
    return waiter


def log_to_stderr(*, debug: bool) -> None:
    """What happens while a worker or a server runs, a line each."""
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for chatty in ("asyncio", "alembic", "sqlalchemy", "httpx"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
