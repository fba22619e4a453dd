"""`dumbwaiter doctor`: what this machine can do, and how to mend what it cannot."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from dumbwaiter.cli.program import Given, command
from dumbwaiter.cli.show import print_rows

SECRET = ("secret",)
MARKS = {True: "good", False: "BAD", None: "-"}


@command("doctor")
def doctor(
    ctx: typer.Context,
    settings: Annotated[
        bool, typer.Option("--settings", help="Print every setting and where it came from.")
    ] = False,
) -> None:
    """Check what the work needs, and say how to mend it. Status 1 if something is wrong."""
    given: Given = ctx.obj
    waiter = given.waiter()
    if settings:
        print_rows(settings_rows(waiter.settings))
        return
    from dumbwaiter.doctor import checks

    good = True
    for check in checks(waiter):
        good = good and check.ok is not False
        print(f"{MARKS[check.ok]:<5} {check.name:<16} {check.found}", flush=True)
        if check.ok is not True and check.mend:
            print(f"{'':<22} mend: {check.mend}", flush=True)
    if not good:
        print("dumbwaiter: something above is BAD; see what mends it", file=sys.stderr)
        raise typer.Exit(1)


def settings_rows(settings: object) -> list[tuple[str, str, str]]:
    """Name, value, origin; secrets and passwords are not shown."""
    from dumbwaiter.settings import Settings, without_password

    assert isinstance(settings, Settings)
    rows = []
    for entry in dataclasses.fields(settings):
        if entry.name == "origins":
            continue
        value = getattr(settings, entry.name)
        shown = "(set)" if entry.name in SECRET and value else without_password(str(value))
        rows.append((entry.name, shown, settings.origins.get(entry.name, "default")))
    return rows
