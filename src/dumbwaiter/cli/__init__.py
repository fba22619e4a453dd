"""The command line: parse, call, print."""

from __future__ import annotations

import os


def main() -> None:
    """The entry point of `dumbwaiter`."""
    # before the rest is imported: until then process 1 is deaf to TERM
    if os.getpid() == 1:
        from dumbwaiter.cli.first_process import run_in_child

        run_in_child()
    from dumbwaiter.cli.program import run

    run()
