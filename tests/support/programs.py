"""Running the project's own programs as a user does: in processes of their own, in a directory of their own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.support.waiting import until


class Program:
    """A program that runs until it is told to stop; what it says is gathered line by line."""

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def says(self, pattern: str, seconds: float = 30) -> re.Match[str]:
        """What it says, once that matches; AssertionError with all of it if the program ends before."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.said)
            assert found or self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.said}"
            return found

        return until(look, seconds)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 30) -> int:
        status = self.process.wait(seconds)
        self._reader.join(5)
        return status

    def close(self) -> None:
        """End it and its whole group, whatever state it is in."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(5)
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def program(*argv: str, cwd: Path, **env: str) -> Iterator[Program]:
    """A program that is ended when the block is left."""
    running = Program(argv, cwd, env)
    try:
        yield running
    finally:
        running.close()


def python(*argv: str) -> tuple[str, ...]:
    return (sys.executable, *argv)


def dumbwaiter(
    *argv: str, cwd: Path, env: Mapping[str, str] | None = None, seconds: float = 50
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    return subprocess.run(
        python("-m", "dumbwaiter", *argv),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=seconds,
    )
