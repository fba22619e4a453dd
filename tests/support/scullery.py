"""An application whose tasks leave dirt behind or cannot be got rid of: what must not harm the worker that runs them."""

from __future__ import annotations

import subprocess
import time

from dumbwaiter import Dumbwaiter, Retry, TaskContext

waiter = Dumbwaiter(app="tests.support.scullery:waiter")
ONCE = Retry(max_retries=0)

# A middle process that is killed leaves a grandchild to whoever takes orphans in; that one ends a moment later.
MIDDLE = "sleep 0.1 & exec sleep 60"


def kill_the_middle() -> None:
    with subprocess.Popen(["sh", "-c", MIDDLE]) as middle:
        time.sleep(0.05)
        middle.kill()


@waiter.task("orphan-thread")
def orphan_thread(ctx: TaskContext) -> None:
    kill_the_middle()


@waiter.task("orphan-process", isolate=True)
def orphan_process(ctx: TaskContext) -> None:
    kill_the_middle()


@waiter.task("orphan-command")
def orphan_command(ctx: TaskContext) -> None:
    ctx.run(["sh", "-c", f"sh -c '{MIDDLE}' & sleep 0.05; kill -9 $!"])
