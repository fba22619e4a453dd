"""A process with all that it starts, as its owner holds it: under a guardian that ends it whole."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dumbwaiter.errors import DumbwaiterError
from dumbwaiter.executors import guardian, orphans
from dumbwaiter.executors.guardian import TAG, Channel

GUARDIAN = str(Path(guardian.__file__).resolve())
# Bare interpreters start in 10 ms here; half a minute means that the machine gives us nothing.
START_SECONDS = 30.0
# A killed tree goes within milliseconds; after this long its attempt is recorded as ended all the same.
KILL_SECONDS = 10.0
TAIL = 64 * 1024
LONGEST_LINE = 16 * 1024
LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])")


class CannotStartProcess(DumbwaiterError):
    """This machine starts no more processes (pids, memory, open files): the worker should stop claiming and say so."""

    transient = True


class CannotStartThread(CannotStartProcess):
    """Nor more threads, which count as processes there: then nothing can be started."""


def start_thread(target: Callable[..., object], *arguments: Any, name: str) -> threading.Thread:
    """A thread that does not keep its process alive. Raises CannotStartThread."""
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise CannotStartThread(f"no thread can be started: {error}") from error
    return thread


class Tree:
    """A running process under its guardian. `output` and `stdin` are descriptors for the process; they stay the caller's.

    `keep` are further descriptors that the process is to inherit under their numbers. `tag` names the attempt it works for.

    Raises CannotStartProcess when the machine has no room for another process, and what starting a program raises
    otherwise: FileNotFoundError, PermissionError, NotADirectoryError, ValueError for a NUL in a word.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        tag: str,
        output: int,
        env: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
        keep: Sequence[int] = (),
    ) -> None:
        self.tag = tag
        self.status: int | None = None
        self.ended = False
        self._tags = {tag}
        self._sweeps: list[bool] = []
        self._closing = threading.Lock()
        self._closed = False
        self._killed_at: float | None = None
        self._guardian, self._control = started_guardian(tag, output, stdin, keep)
        try:
            self.pid = self._begin(argv, cwd, {TAG: tag, **(env or {})})
        except BaseException:
            self.close()
            raise

    def _begin(self, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> int:
        try:
            self._control.send({"start": {"argv": list(argv), "cwd": cwd, "env": dict(env)}})
            answers: list[dict[str, Any]] = []
            until = time.monotonic() + START_SECONDS
            while not answers:
                if not readable(self._control.fileno(), until - time.monotonic()):
                    raise CannotStartProcess(
                        f"no process could be started within {START_SECONDS:.0f} s: {argv[0]}"
                    )
                answers = self._control.receive()
        except (EOFError, OSError) as error:
            raise CannotStartProcess(f"the guardian of {argv[0]} ended before it had started it") from error
        answer = answers[0]
        if "refused" in answer:
            raise refusal(answer["refused"], argv[0], cwd)
        pid: int = answer["started"]
        # a short command may have ended already
        self._note(answers[1:])
        return pid

    def fileno(self) -> int:
        """Readable when the guardian has something to say: call `listen` then."""
        return self._control.fileno()

    @property
    def guardian(self) -> int:
        """The pid of the guardian, from which all of the tree stems."""
        return self._guardian.pid

    def retag(self, tag: str) -> None:
        """The process works for another attempt from now on, and tags what it starts accordingly."""
        self._tags = {self.tag, tag}

    def listen(self) -> None:
        """Take in what the guardian says; waits for it if there is nothing yet."""
        try:
            self._note(self._control.receive())
        except (EOFError, OSError):
            if not self.ended:
                # somebody killed the guardian: the process went with it, and what it started has only its tag left
                self.ended = True
                self.status = -9
                orphans.end_tagged(lambda tag: tag in self._tags)

    def _note(self, messages: Sequence[Mapping[str, Any]]) -> None:
        for message in messages:
            if "ended" in message:
                self.ended = True
                self.status = message["ended"]
            elif "swept" in message:
                self._sweeps.append(message["swept"] is True)

    def wait(self, seconds: float) -> bool:
        """Wait until the tree has ended, at most so long."""
        until = time.monotonic() + seconds
        while not self.ended:
            if not readable(self._control.fileno(), until - time.monotonic()):
                return False
            self.listen()
        return True

    def terminate(self) -> None:
        """Ask the process group to end (TERM)."""
        self._tell("term")

    def kill(self) -> None:
        """End the whole tree; does not wait for it."""
        if self._killed_at is None:
            self._killed_at = time.monotonic()
        self._tell("kill")

    @property
    def overdue(self) -> bool:
        """It was killed more than ten seconds ago and is still there: something hangs in the kernel."""
        return (
            not self.ended
            and self._killed_at is not None
            and time.monotonic() - self._killed_at > KILL_SECONDS
        )

    def sweep(self, seconds: float = 5.0) -> bool:
        """End everything but the process itself. False if that cannot be made sure: give it up then."""
        self._sweeps.clear()
        self._tell("sweep")
        until = time.monotonic() + seconds
        while not self._sweeps and not self.ended:
            if not readable(self._control.fileno(), until - time.monotonic()):
                return False
            self.listen()
        return self._sweeps == [True] and not self.ended

    def _tell(self, what: str) -> None:
        # closed, or the guardian has gone: then the tree has, too
        with self._closing, contextlib.suppress(OSError, ValueError):
            self._control.send({"do": what})

    def close(self) -> bool:
        """End the tree and wait until nothing of it is left. False if it hangs; the guardian then goes on by itself."""
        if self._closed:
            return self.ended
        self.kill()
        gone = self.wait(0 if self.overdue else KILL_SECONDS)
        with self._closing:
            self._closed = True
            self._control.close()
        try:
            self._guardian.wait(1)
        except subprocess.TimeoutExpired:
            threading.Thread(target=self._guardian.wait, name="dumbwaiter-reaper", daemon=True).start()
        return gone


def started_guardian(
    tag: str, output: int, stdin: int, keep: Sequence[int]
) -> tuple[subprocess.Popen[bytes], Channel]:
    """A guardian and our end of its control socket. Raises CannotStartProcess."""
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise CannotStartProcess(f"no process can be started: {error}") from error
    words = [str(theirs.fileno()), str(os.getpid()), *map(str, keep)]
    try:
        process = subprocess.Popen(
            [interpreter(), "-I", "-S", GUARDIAN, *words],
            stdin=stdin,
            stdout=output,
            stderr=output,
            env={**os.environ, TAG: tag},
            pass_fds=(theirs.fileno(), *keep),
            # a signal to the worker's group (Ctrl-C, kill -9 of the group) must not reach the guardian first
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        raise CannotStartProcess(f"no process can be started: {error}") from error
    finally:
        theirs.close()
    return process, Channel(ours)


def refusal(told: Mapping[str, Any], program: str, cwd: str) -> Exception:
    """What the guardian could not do, as the error that subprocess would have raised."""
    step, number, text = told["step"], told["errno"], told["text"]
    if step == "fork":
        return CannotStartProcess(f"no process can be started: {text}")
    if not number:
        return ValueError(f"{program} cannot be started: {text}")
    return OSError(number, text, cwd if step == "cwd" else program)


def interpreter() -> str:
    """The Python to start; servers that embed it (uWSGI) name themselves in sys.executable."""
    if re.match("python|pypy", Path(sys.executable or "").name, re.IGNORECASE):
        return sys.executable
    return str(Path(sys.exec_prefix) / "bin" / "python3")


def readable(descriptor: int, seconds: float) -> bool:
    """Wait until there is something to read (or the other end is gone), at most so long."""
    poll = select.poll()  # select() refuses descriptors above 1,023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0, seconds) * 1000))


class Lines:
    """Output of a program as it comes, cut into lines (a carriage return ends one, too); remembers the last 64 KiB.

    A line longer than 16 KiB comes in pieces.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._tail = bytearray()

    def feed(self, data: bytes) -> list[str]:
        """The lines that these bytes complete."""
        self._tail += data
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]
        *complete, self._rest = LINE_END.split(self._rest + data)
        while len(self._rest) > LONGEST_LINE:
            complete.append(self._rest[:LONGEST_LINE])
            self._rest = self._rest[LONGEST_LINE:]
        return [piece.decode(errors="replace") for line in complete for piece in pieces(line)]

    def finish(self) -> list[str]:
        """The last line, if it has no end."""
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        return [rest.decode(errors="replace")] if rest else []

    @property
    def tail(self) -> str:
        return bytes(self._tail[-TAIL:]).decode(errors="replace")


def pieces(line: bytes) -> list[bytes]:
    return [line[at : at + LONGEST_LINE] for at in range(0, len(line), LONGEST_LINE)] or [line]
