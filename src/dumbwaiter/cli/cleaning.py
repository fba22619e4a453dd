"""`dumbwaiter prune`: remove now what nobody needs any more."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dumbwaiter.cli.program import Given, command
from dumbwaiter.strict_json import dumps


@command("prune")
def prune(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove expired files, what dead attempts left, and old records, and say how many.

    Workers do it too, a little every minute.
    """
    given: Given = ctx.obj
    removed = given.existing().prune()
    print(dumps(asdict(removed)) if as_json else f"removed {removed}")
