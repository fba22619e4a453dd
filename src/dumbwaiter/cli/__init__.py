"""The command line: parse, call, print."""

from __future__ import annotations


def main() -> None:
    """The entry point of `dumbwaiter`."""
    from dumbwaiter.cli.program import run

    run()
