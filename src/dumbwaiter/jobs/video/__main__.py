"""`python -m dumbwaiter.jobs.video IN -o OUT`: an export without a queue."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from dumbwaiter.jobs.video.errors import VideoError
from dumbwaiter.jobs.video.export import export
from dumbwaiter.jobs.video.leftovers import work_directory
from dumbwaiter.jobs.video.processes import ending_cleanly
from dumbwaiter.jobs.video.recording import load


def main() -> int:
    """Export one file; 1 and a sentence when that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m dumbwaiter.jobs.video", description=__doc__)
    parser.add_argument("recording", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    began = time.monotonic()
    try:
        with ending_cleanly() as cancelled, work_directory() as workdir:
            recording = load(arguments.recording)
            video = export(recording, arguments.out, progress=show, cancelled=cancelled, workdir=workdir)
    except (VideoError, OSError) as error:
        print(f"\n{arguments.recording}: {error}", file=sys.stderr)
        return 1
    print(file=sys.stderr)
    for warning in video.warnings:
        print(f"{arguments.recording}: warning: {warning}", file=sys.stderr)
    print(f"{video} in {time.monotonic() - began:.1f} s")
    return 0


def show(fraction: float, step: str) -> None:
    """One line that is written over."""
    print(f"\r{fraction:6.1%} {step:<12}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
