"""Work directories: one for each attempt, gone at every end, swept when their worker is dead."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import shutil
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from dumbwaiter.errors import ConfigurationError
from dumbwaiter.task import Task

log = logging.getLogger("dumbwaiter")

# What a lock file of ours begins with: the root may be a directory that others keep locks in, such as /tmp.
MARK = b"dumbwaiter worker "
SUFFIX = ".lock"
OF_ATTEMPT = re.compile(r".+-\d+")
# A sweeper holds a free lock for as long as it removes a directory.
LOCK_SECONDS = 10.0


class Workdirs:
    """The work directories of one worker, `root/worker/<task id>-<attempt>`.

    The worker counts as alive for as long as it holds the lock of `root/worker.lock`: the kernel lets go of it however the
    process ends, so neither a reused pid nor a stale file can deceive a sweeper.
    """

    def __init__(self, root: Path, worker: str) -> None:
        self._root = root
        self._home = root / worker
        self._lock = root / f"{worker}{SUFFIX}"
        self._held: int | None = None

    def open(self) -> None:
        """Take the lock that says this worker lives. Raises ConfigurationError if that cannot be done there."""
        try:
            # Others may pass but not look: a browser that a task starts as a user without rights has its profile in here.
            self._root.mkdir(parents=True, exist_ok=True, mode=0o711)
            if self._held is None:
                self._held = taken(self._lock)
            self._home.mkdir(exist_ok=True, mode=0o711)
        except OSError as error:
            raise ConfigurationError(
                f"the work directory {self._root} cannot be used ({error}); set DUMBWAITER_WORKDIR to a place that can"
            ) from error
        opened.add(self)

    def path(self, task: Task) -> Path:
        """Where an attempt works; made by whoever needs it first."""
        return self._home / self.name(task)

    @staticmethod
    def name(task: Task) -> str:
        """What an attempt's directory is called."""
        return f"{task.id}-{task.attempt}"

    def remove(self, task: Task) -> None:
        """Remove what the attempt left there, whatever it did to it."""
        path = self.path(task)
        # most attempts never made it
        if os.path.lexists(path):
            removed(path)

    def sweep(self, alive: Callable[[], Collection[str]]) -> int:
        """Remove what attempts that have ended left here after all; how many. `alive` names those that run, `<task>-<attempt>`."""
        # in this order: whoever made one of these before the look is still among the living, or has ended
        found = [path for path in self._home.iterdir() if OF_ATTEMPT.fullmatch(path.name)]
        living = alive()
        return sum(removed(path) for path in found if path.name not in living)

    def close(self) -> None:
        """Remove what is left and give up the lock; what cannot be removed is left to a later sweep."""
        if self._held is None:
            return
        if removed(self._home):
            self._lock.unlink(missing_ok=True)
        self.let_go()

    def let_go(self) -> None:
        """Close our copy of the lock."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)


opened: weakref.WeakSet[Workdirs] = weakref.WeakSet()


def let_go_in_fork() -> None:
    """A fork shares its parent's lock and would keep it held, and the worker "alive", for as long as the fork lives."""
    for workdirs in list(opened):
        workdirs.let_go()


os.register_at_fork(after_in_child=let_go_in_fork)


def sweep(root: Path) -> list[str]:
    """Remove the work directories of dead workers; returns the workers' names. Two sweepers may meet."""
    return [name for name in sorted(dead(root)) if sweep_one(root, name)]


def sweep_one(root: Path, name: str) -> bool:
    """Remove one worker's directory and then its lock file, under its lock, unless it lives after all."""
    lock = root / f"{name}{SUFFIX}"
    with free(lock) as ours:
        if not ours or not removed(root / name):
            return False
        lock.unlink(missing_ok=True)
        return True


def dead(root: Path) -> set[str]:
    """The workers whose lock file is there and not held."""
    names = set()
    for lock in root.glob(f"*{SUFFIX}"):
        with free(lock) as ours:
            if ours:
                names.add(lock.name.removesuffix(SUFFIX))
    return names


@contextlib.contextmanager
def free(lock: Path) -> Iterator[bool]:
    """Hold a lock file of ours if nobody does; says whether it is held now."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        yield marked(descriptor) and locked(descriptor) and same(descriptor, lock)
    finally:
        os.close(descriptor)


def taken(lock: Path) -> int:
    """The descriptor of the lock file, made and locked. Raises OSError, TimeoutError if another process keeps it."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        # a sweeper may remove the file between our opening and our locking it: then this lock would be nobody's
        if locked(descriptor) and same(descriptor, lock):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, MARK + f"{lock.name.removesuffix(SUFFIX)}, pid {os.getpid()}\n".encode(), 0)
            return descriptor
        os.close(descriptor)
        if time.monotonic() > until:
            raise TimeoutError(errno.ETIMEDOUT, "another process holds its lock", str(lock))
        time.sleep(0.01)


def locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def marked(descriptor: int) -> bool:
    return os.pread(descriptor, len(MARK), 0) == MARK


def same(descriptor: int, path: Path) -> bool:
    """Whether the path still leads to the file that the descriptor has open."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def removed(path: Path) -> bool:
    """Remove a directory with all that is in it, read-only or not. False, with a warning, if something stays."""
    fault: OSError | None = None
    for _ in range(5):
        try:
            if path.is_symlink():
                path.unlink()
            else:
                shutil.rmtree(path)
        except FileNotFoundError:
            # gone, or another sweeper took something away under our hands
            pass
        except OSError as error:
            # a directory without write permission, or a process that is about to end still writes there
            fault = error
            open_up(path)
        if not os.path.lexists(path):
            return True
    log.warning("the work directory %s could not be removed: %s", path, fault)
    return False


def open_up(path: Path) -> None:
    """Give ourselves back the right to remove what is in the directories."""
    with contextlib.suppress(OSError):
        path.chmod(0o700)
    for place, names, _ in os.walk(path):
        for name in names:
            inner = Path(place) / name
            if not inner.is_symlink():
                with contextlib.suppress(OSError):
                    inner.chmod(0o700)
