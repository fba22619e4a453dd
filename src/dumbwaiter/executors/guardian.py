"""The guardian of one process tree: starts it, and ends all of it when told to or when its owner is gone.

It is run by its path in a bare interpreter (`python -I -S guardian.py CONTROL_FD OWNER_PID`, 4 MB private), so it may
import nothing but the standard library. Its owner speaks to it over a socket:

    owner     {"start": {"argv": […], "cwd": "…", "env": {…}}}     once, first
    guardian  {"started": pid}  or  {"refused": {"step": "fork" | "cwd" | "exec", "errno": …, "text": …}}
    owner     {"do": "term"}    TERM to the process group of what was started
    owner     {"do": "kill"}    end the tree now
    owner     {"do": "sweep"}   end everything but the process that was started; answered by {"swept": true | false}
    guardian  {"ended": status} the process ended (-9: killed by signal 9) and nothing of its tree is left; the guardian goes

On Linux nothing gets out: as a subreaper the guardian inherits whoever double-forks or calls setsid. Elsewhere only the
process group can be ended, and `sweep` says false.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

# In the environment of every process of every tree: "<worker>:<task id>:<attempt>", for those that get out all the same.
TAG = "DUMBWAITER_TAG"
LINUX = sys.platform == "linux"
# A frame larger than this is a fault of ours, not a message: results above 1 MiB belong in a file.
LARGEST = 64 * 1024 * 1024
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# A task may have left something that forks faster than it can be stopped; then its warm child is given up instead.
SWEEP_SECONDS = 2.0


class Channel:
    """Messages over a stream socket, each four bytes of length and then JSON."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._buffer = bytearray()
        self._sending = threading.Lock()

    def fileno(self) -> int:
        return self._wire.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Raises OSError if the other end is gone, ValueError for a message that is too large."""
        # ASCII: a lone surrogate in a message of the user's must not break the dialog
        data = json.dumps(message, ensure_ascii=True).encode()
        if len(data) > LARGEST:
            raise ValueError(f"a message of {len(data)} bytes is too large for the pipe (at most {LARGEST})")
        with self._sending:
            self._wire.sendall(struct.pack("!I", len(data)) + data)

    def receive(self) -> list[dict[str, Any]]:
        """Wait for bytes, and give the messages they complete, maybe none. Raises EOFError when the other end is gone."""
        try:
            data = self._wire.recv(256 * 1024)
        except ConnectionError:
            data = b""
        if not data:
            raise EOFError("the other end of the pipe is gone")
        self._buffer += data
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        return messages

    def _next(self) -> dict[str, Any] | None:
        if len(self._buffer) < 4:
            return None
        (size,) = struct.unpack_from("!I", self._buffer)
        if size > LARGEST:
            raise EOFError(f"the other end sent a frame of {size} bytes, which is no message")
        if len(self._buffer) < 4 + size:
            return None
        data = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        message: dict[str, Any] = json.loads(data)
        return message

    def close(self) -> None:
        self._wire.close()


class Process(NamedTuple):
    """A process as /proc tells of it; `started` (clock ticks since boot) tells it from a later one of the same pid."""

    pid: int
    parent: int
    state: str
    started: int

    @property
    def alive(self) -> bool:
        return self.state not in "ZX"


def process(pid: int) -> Process | None:
    """What /proc says of a process; None if there is none."""
    try:
        text = contents(f"/proc/{pid}/stat")
    except OSError:
        return None
    # the name stands in parentheses and may hold any of them, so count from the last one
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return Process(pid, int(fields[1]), fields[0].decode(), int(fields[19]))


def contents(path: str) -> bytes:
    """A file of /proc, read whole. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 64 * 1024):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def processes() -> dict[int, Process]:
    """Every process that /proc shows."""
    found = (process(int(entry.name)) for entry in os.scandir("/proc") if entry.name.isdigit())
    return {one.pid: one for one in found if one is not None}


def descendants(roots: Iterable[int], table: Mapping[int, Process]) -> list[Process]:
    """Everything that stems from the roots and lives, without the roots."""
    children: dict[int, list[Process]] = {}
    for one in table.values():
        children.setdefault(one.parent, []).append(one)
    waiting, seen, found = list(roots), set(roots), []
    while waiting:
        for one in children.get(waiting.pop(), ()):
            if one.pid not in seen:
                seen.add(one.pid)
                waiting.append(one.pid)
                found.append(one)
    return [one for one in found if one.alive]


def send_signal(target: Process, number: int) -> bool:
    """Signal exactly this process, never another that got its pid meanwhile. False if it is gone or not ours to signal."""
    try:
        handle = os.pidfd_open(target.pid)
    except (OSError, AttributeError):
        return _send_checked(target, number)
    try:
        now = process(target.pid)
        if now is None or now.started != target.started:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _send_checked(target: Process, number: int) -> bool:
    """Without pidfd (Linux before 5.3, or a sandbox that forbids it) a moment for a reused pid remains."""
    now = process(target.pid)
    if now is None or now.started != target.started:
        return False
    try:
        os.kill(target.pid, number)
    except OSError:
        return False
    return True


class Refused(Exception):
    """What was to be started could not be: at which step, and what the system said."""

    def __init__(self, step: str, number: int, text: str) -> None:
        super().__init__(step, number, text)
        self.told = {"step": step, "errno": number, "text": text}


class Guardian:
    """Holds one tree for the owner at the other end of the channel."""

    def __init__(self, channel: Channel, owner: int) -> None:
        self._channel = channel
        self._owner = owner
        self._pid = 0
        self._status: int | None = None

    def serve(self) -> None:
        """Start what is asked for, then obey until the tree has ended or the owner is gone."""
        alarm = child_alarm()
        become_subreaper()
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        if not self._begin():
            return
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(alarm, select.POLLIN)
        while self._status is None:
            poll.poll(1000)
            drain(alarm)
            self._reap()
            # a process that the owner forked may hold its end of the socket, so EOF alone is not enough
            if not self._obey() or os.getppid() != self._owner:
                break
        self._end_tree()
        with contextlib.suppress(OSError):
            self._channel.send({"ended": self._status})

    def _begin(self) -> bool:
        orders: list[dict[str, Any]] = []
        try:
            while not orders:
                orders = self._channel.receive()
            self._pid = start(orders[0]["start"])
        except EOFError:
            return False
        except Refused as refused:
            self._channel.send({"refused": refused.told})
            return False
        let_go_of_streams(keep=self._channel.fileno())
        self._channel.send({"started": self._pid})
        return True

    def _obey(self) -> bool:
        """Do what was asked since the last look. False if the tree is to end."""
        readable, _, _ = select.select([self._channel], [], [], 0)
        if not readable:
            return True
        try:
            orders = self._channel.receive()
        except EOFError:
            return False
        for order in orders:
            match order["do"]:
                case "term" if self._status is None:
                    with contextlib.suppress(OSError):
                        os.killpg(self._pid, signal.SIGTERM)
                case "sweep":
                    self._channel.send({"swept": self._sweep()})
                case "kill":
                    return False
        return True

    def _reap(self) -> bool:
        """Take the status of whoever ended. False if there is nobody left, living or dead."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._pid:
                self._status = os.waitstatus_to_exitcode(status)

    def _end_tree(self) -> None:
        """Stop all, kill all, reap all, until nobody is left."""
        pause = 0.001
        while self._reap():
            if LINUX:
                kill_frozen((os.getpid(),))
            elif self._status is None:
                with contextlib.suppress(OSError):
                    os.killpg(self._pid, signal.SIGKILL)
            time.sleep(pause)
            # what hangs in the kernel (state D) cannot be hurried
            pause = min(pause * 1.5, 0.5)

    def _sweep(self) -> bool:
        """End what a task left beside its warm child. False if that cannot be made sure."""
        if not LINUX:
            return False
        until = time.monotonic() + SWEEP_SECONDS
        while self._status is None:
            self._reap()
            if self._alone() or not kill_frozen((os.getpid(), self._pid)):
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        return False

    def _alone(self) -> bool:
        """Whether the child and this process have no other children, by the kernel's own lists (100 µs, no scan)."""
        try:
            return children_of(os.getpid()) == {self._pid} and not children_of(self._pid)
        except OSError:
            return False


def kill_frozen(roots: tuple[int, ...]) -> int:
    """Kill all that stems from the roots, not the roots themselves; returns how many processes that were."""
    found = frozen(lambda: descendants(roots, processes()))
    for one in found:
        send_signal(one, signal.SIGKILL)
    return len(found)


def frozen(find: Callable[[], list[Process]]) -> list[Process]:
    """What is found, all of it stopped: looked for again until nothing new shows, since what runs can fork off a list."""
    known: dict[tuple[int, int], Process] = {}
    while True:
        fresh = [one for one in find() if (one.pid, one.started) not in known]
        if not fresh:
            return list(known.values())
        for one in fresh:
            known[one.pid, one.started] = one
            send_signal(one, signal.SIGSTOP)


def children_of(pid: int) -> set[int]:
    """The children of all threads of a process. Raises OSError where the kernel keeps no such list."""
    found: set[int] = set()
    for thread in os.scandir(f"/proc/{pid}/task"):
        found.update(map(int, contents(f"{thread.path}/children").split()))
    return found


def start(order: Mapping[str, Any]) -> int:
    """Fork and exec what was ordered, in a session of its own; the pid. Raises Refused."""
    fault, tell = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        raise Refused("fork", error.errno or 0, error.strerror or str(error)) from None
    if pid == 0:
        try:
            become(order)
        except Refused as refused:
            os.write(tell, json.dumps(refused.told).encode())
        finally:
            os._exit(127)
    os.close(tell)
    with os.fdopen(fault, "rb") as file:
        # an exec that succeeds closes the other end, and nothing comes
        told = file.read()
    if told:
        os.waitpid(pid, 0)
        why = json.loads(told)
        raise Refused(why["step"], why["errno"], why["text"])
    return pid


def become(order: Mapping[str, Any]) -> None:
    """In the forked process: turn into what was ordered. Returns only by raising Refused."""
    guardian = os.getppid()
    os.setsid()
    if LINUX:
        # the last resort, should the guardian itself be killed; it is lost when a setuid program is started
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian:
            os._exit(127)
    for number in (*IGNORED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.chdir(order["cwd"])
    except (OSError, ValueError) as error:
        raise Refused(
            "cwd", getattr(error, "errno", 0) or 0, getattr(error, "strerror", "") or str(error)
        ) from None
    try:
        os.execvpe(order["argv"][0], order["argv"], {**os.environ, **order["env"]})  # noqa: S606 - a shell is not wanted
    except (OSError, ValueError) as error:
        raise Refused(
            "exec", getattr(error, "errno", 0) or 0, getattr(error, "strerror", "") or str(error)
        ) from None


def prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """Whoever below loses its parent becomes a child of this process rather than of pid 1."""
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)


def child_alarm() -> int:
    """A descriptor that becomes readable when a child ends."""
    alarm, bell = os.pipe()
    os.set_blocking(alarm, False)
    os.set_blocking(bell, False)
    # a handler must be there for the wake-up descriptor to be written to
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
    return alarm


def drain(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(descriptor, 4096):
            pass


def let_go_of_streams(keep: int) -> None:
    """Close what only the started process should hold, or its owner would wait for an end of file that never comes."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    for descriptor in map(int, sys.argv[3:]):
        if descriptor != keep:
            os.close(descriptor)


def main() -> None:
    control, owner = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(control, False)
    Guardian(Channel(socket.socket(fileno=control)), owner).serve()


if __name__ == "__main__":
    main()
