"""The application of the trials with process trees: each way in which a task can start one, and a film."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dumbwaiter import Dumbwaiter, Retry, TaskContext
from dumbwaiter.jobs.video.task import export_video
from tests.support import hostile
from tests.support.kitchen import noted

waiter = Dumbwaiter()
ONCE = Retry(max_retries=0)
HOSTILE = str(Path(hostile.__file__))
WAYS = ("tree-isolated", "tree-run", "tree-command")


@waiter.task("tree-isolated", isolate=True, retry=ONCE)
def tree_isolated(ctx: TaskContext, pids: str, output: str, traits: str) -> None:
    """Starts it as a library would, which knows nothing of tasks."""
    with noted(ctx):
        (ctx.workdir / "half.txt").write_text("half", encoding="utf-8")
        subprocess.run([sys.executable, HOSTILE, pids, output, traits], check=True)


@waiter.task("tree-run", retry=ONCE)
def tree_run(ctx: TaskContext, pids: str, output: str, traits: str) -> None:
    with noted(ctx):
        (ctx.workdir / "half.txt").write_text("half", encoding="utf-8")
        ctx.run([sys.executable, HOSTILE, pids, output, traits])


waiter.command("tree-command", [sys.executable, HOSTILE, "{pids}", "{output}", "{traits}"], retry=ONCE)

waiter.task("film", isolate=True, needs={"chromium": 1}, retry=ONCE)(export_video)
