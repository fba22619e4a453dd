"""A directory with an application in it, as a user would have one."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dumbwaiter.cli import main

Cli = Callable[..., "subprocess.CompletedProcess[str]"]

SHOP = '''
"""An application."""
from dumbwaiter import Dumbwaiter, Fail, Retry, TaskContext, Upload

waiter = Dumbwaiter("sqlite:///tasks.db", env="test")
not_a_waiter = 7


@waiter.task("greet")
def greet(name: str, times: int = 1, tags: list[str] | None = None) -> str:
    return f"Hello {name}! " * times


@waiter.task("measure")
def measure(file: Upload) -> int:
    return file.size


@waiter.task("torn", retry=Retry(max_retries=0))
def torn() -> None:
    raise Fail("ledger 7 is torn")


@waiter.task("steps")
def steps(ctx: TaskContext) -> None:
    for part in range(4):
        ctx.progress(part / 4, step=f"part {part}")
        ctx.sleep(0.4)


@waiter.task("endless")
def endless(ctx: TaskContext) -> None:
    while True:
        ctx.sleep(0.05)
'''


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The directory; the application is `shop:waiter`."""
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs the command line in that directory, in this process: a new one costs up to a second of imports."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with monkeypatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["dumbwaiter", *words])
            patch.setattr(sys, "path", [str(tmp_path), *sys.path])
            for name in ("shop", "broken"):
                patch.delitem(sys.modules, name, raising=False)
            with pytest.raises(SystemExit) as ended:
                main()
            for name in ("shop", "broken"):
                sys.modules.pop(name, None)
        texts = []
        for stream in (out, err):
            stream.flush()
            stream.seek(0)
            texts.append(stream.read())
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), *texts)

    return run
