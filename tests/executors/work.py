"""Task functions that the tests of executors run in processes of their own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dumbwaiter import errors
from dumbwaiter.executors.context import TaskContext
from dumbwaiter.executors.registry import TaskType
from dumbwaiter.executors.signature import Signature

# Double-forks, calls setsid, ignores TERM and HUP, at each of three levels; writes every pid down and stays.
HOSTILE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)
def note():
    with open(sys.argv[1], "a") as file: file.write(f"{os.getpid()}\\n")
def escape(depth):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note()
            if depth: escape(depth - 1)
            while True: time.sleep(60)
        if not depth: os._exit(0)  # an orphan is left
        note()
        while True: time.sleep(60)
escape(2)
note()
while True: time.sleep(60)
"""
HOSTILE_SIZE = 6


def add(left: int, right: int) -> int:
    return left + right


async def add_slowly(left: int, right: int) -> int:
    await asyncio.sleep(0.01)
    return left + right


def whoami() -> int:
    return os.getpid()


def unserialisable() -> Any:
    return {"when": [1, object()]}


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __reduce__(self) -> Any:
        raise RuntimeError("no pickle")


def fail(how: str) -> None:
    match how:
        case "value":
            raise ValueError("the month is \ud800 13")
        case "fail":
            raise errors.Fail("for operators", user_message="for people")
        case "unprintable":
            raise Unprintable
        case "exit":
            sys.exit(3)
        case "_exit":
            print("the last words", flush=True)
            os._exit(7)
        case "segfault":
            ctypes.string_at(0)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "interrupt":
            raise KeyboardInterrupt
        case "recursion":
            fail(how)


def shout(megabytes: int) -> str:
    line = "x" * 1023 + "\n"
    for _ in range(megabytes * 1024):
        sys.stdout.write(line)
    return "done"


def say(text: str) -> None:
    print(text)
    print(text, file=sys.stderr)


def report(ctx: TaskContext) -> None:
    ctx.progress(0.25, step="reading")
    ctx.progress(0.5, step="writing")


def publish(ctx: TaskContext, text: str) -> str:
    (ctx.workdir / "out.txt").write_text(text)
    ctx.publish("out.txt", filename="answer.txt", content_type="text/plain")
    return str(ctx.workdir)


def publish_refused(ctx: TaskContext) -> str:
    (ctx.workdir / "out.txt").write_text("late")
    try:
        ctx.publish("out.txt")
    except errors.LostClaim as lost:
        return f"lost: {lost}"
    return "stored"


def wait_for_stop(ctx: TaskContext, ready: str) -> str:
    Path(ready).write_text(str(os.getpid()))
    try:
        ctx.sleep(60)
    except errors.TaskCancelled:
        Path(ready).write_text("saw it")
        raise
    return "never"


def wait_for(ready: str, go: str) -> str:
    Path(ready).touch()
    while not Path(go).exists():
        time.sleep(0.001)
    return ready


def note(path: str, text: str) -> None:
    Path(path).write_text(text)


async def wait_for_stop_async(ready: str) -> None:
    note(ready, "up")
    try:
        await asyncio.sleep(60)
    finally:
        note(ready, "saw it")


def hostile(pids: str) -> None:
    subprocess.run([sys.executable, "-c", HOSTILE, pids], check=True)


def leave_behind(pids: str) -> int:
    subprocess.Popen([sys.executable, "-c", HOSTILE, pids], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while lines(Path(pids)) < HOSTILE_SIZE and time.monotonic() < until:
        time.sleep(0.01)
    return os.getpid()


def lines(path: Path) -> int:
    return len(path.read_text().split()) if path.exists() else 0


def leave_a_thread() -> int:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    return os.getpid()


def make_a_mess() -> None:
    os.chdir("/")
    os.environ["MESS"] = "left"


def remove_own_place(place: str) -> str:
    os.chdir(place)
    sys.stdout.close()
    return "done"


def start_threads_that_end(ctx: TaskContext) -> int:
    ctx.run(["cat"], stdin=b"x")
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    return os.getpid()


def look_around() -> list[Any]:
    return [str(Path.cwd()), os.environ.get("MESS"), os.environ["DUMBWAITER_TAG"]]


def use_a_command(ctx: TaskContext) -> list[Any]:
    seen: list[str] = []
    result = ctx.run(["sh", "-c", "cat; echo two >&2; pwd"], stdin=b"one\n", on_line=seen.append)
    return [result.status, result.output, seen, str(ctx.workdir)]


def run_a_long_command(ctx: TaskContext, ready: str) -> None:
    ctx.run(["sh", "-c", f"trap 'echo got TERM > {ready}; exit 1' TERM; echo up > {ready}; sleep 60 & wait"])


def hold_the_gil(ready: str) -> None:
    Path(ready).write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(60)


def take_memory(mebibytes: int) -> int:
    """Take it bit by bit, touch all of it, and hold it until somebody ends us."""
    taken = [bytearray(b"x" * 1024 * 1024) for _ in range(mebibytes)]
    time.sleep(30)
    return len(taken)


def take_memory_together(ctx: TaskContext, processes: int, each: int) -> None:
    """The same in processes of sessions of their own, none of which is large."""
    code = f"import time; x = bytearray(b'x' * {each} * 1024 * 1024); time.sleep(60)"
    for _ in range(processes):
        subprocess.Popen([sys.executable, "-I", "-c", code], start_new_session=True)
    ctx.sleep(30)


def share_memory(ready: str, mebibytes: int, forks: int) -> str:
    """Forks that share what their parent has: each looks as large as that, and none takes any more."""
    shared = bytearray(b"x" * mebibytes * 1024 * 1024)
    pids = []
    for _ in range(forks):
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        pids.append(pid)
    time.sleep(1.5)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    Path(ready).write_text(str(len(shared)))
    return "shared"


leaked: list[bytearray] = []


def leak(mebibytes: int) -> tuple[int, int, int]:
    """Keep that much for good: the pid, how often this process did so, and how large it is in MiB."""
    leaked.append(bytearray(b"x" * mebibytes * 1024 * 1024))
    size = next(
        line.split()[1]
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    return os.getpid(), len(leaked), int(size) // 1024


@contextmanager
def scope(ctx: TaskContext) -> Iterator[str]:
    yield f"scope of {ctx.task.id}"


def use_scope(ctx: TaskContext) -> Any:
    return ctx.scope


registered = TaskType("registered", use_scope, Signature("registered", use_scope), scope=scope)
