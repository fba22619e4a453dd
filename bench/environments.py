"""A virtual environment for each queue that is measured, from its lock; never the project's own."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.contestants import OURS

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".dev" / "bench" / "venvs"
OLDEST = (3, 12)
VARIABLE = "DUMBWAITER_BENCH_PYTHON"


class Unavailable(Exception):
    """An environment that cannot be made; its text says why."""


def python_of(queue: str) -> Path:
    """The interpreter of a queue's environment, which is made anew if its lock has changed.

    We are measured in one too, with the same interpreter as the others.
    """
    place = ENVIRONMENTS / queue
    python, stamp = place / "bin" / "python", place / "lock"
    locks = [ROOT / "requirements" / f"bench-{queue}.txt"]
    if queue == OURS:
        locks.insert(0, ROOT / "requirements" / "run.txt")
    base = base_python()
    wanted = hashlib.sha256(b"".join([base.encode(), *(lock.read_bytes() for lock in locks)])).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"bench: making an environment for {queue}", file=sys.stderr)
    uv("venv", "--clear", "--python", base, str(place))
    uv("pip", "sync", "--python", str(python), "--require-hashes", *map(str, locks))
    if queue == OURS:
        build = ("--build-constraints", str(ROOT / "requirements" / "build.txt"))
        uv("pip", "install", "--python", str(python), "--no-deps", *build, "--editable", str(ROOT))
    stamp.write_text(wanted)
    return python


def base_python() -> str:
    """A Python that all of them take."""
    names = [os.environ.get(VARIABLE, ""), sys.executable, *(f"python3.{minor}" for minor in range(12, 16))]
    for name in names:
        path = shutil.which(name) if name else None
        if path and (found := true_python(path)):
            return found
    # where versions lie beside each other, each in a directory of its own
    for place in sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python")):
        if found := true_python(str(place)):
            return found
    raise Unavailable(
        f"not every queue that we measure beside ours runs on a Python before {OLDEST[0]}.{OLDEST[1]}, and there is no "
        f"other here: name one, {VARIABLE}=/path/to/python3, or measure alone with --here"
    )


def true_python(path: str) -> str | None:
    """The program itself, if it is new enough: one in a virtual environment or a version manager's word stands for another."""
    told = subprocess.run(
        [path, "-c", "import sys; print(sys._base_executable, sys.version_info >= (3, 12))"],
        capture_output=True,
        text=True,
    ).stdout.split()
    return told[0] if told and told[-1] == "True" else None


def uv(*words: str) -> None:
    program = os.environ.get("UV") or shutil.which("uv")
    if program is None:
        raise Unavailable("uv was not found; ./dev bench brings it")
    done = subprocess.run([program, *words, "--quiet"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"uv {' '.join(words[:2])}: {' '.join(done.stderr.split())[-300:]}")
