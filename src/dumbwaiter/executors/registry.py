"""The task types that an application knows, each with what it needs and how it is retried."""

from __future__ import annotations

import inspect
import re
import string
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from dumbwaiter.course import Course, course
from dumbwaiter.errors import ConfigurationError, UnknownTaskType
from dumbwaiter.executors.signature import Signature
from dumbwaiter.retry import Retry, storable
from dumbwaiter.task import Retention, Task

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
# What every isolated process and command takes one of: a worker has as many as it has cores.
PROCESS = "process"
# A bare interpreter with this package takes some 20 MiB.
LEAST_MEMORY = 32 * 1024 * 1024
MOST_VERSIONS = 32_767
# Makes arguments of an older version new: it is given them, and that version.
Upgrade = Callable[[dict[str, Any], int], Mapping[str, Any]]


# without slots: what is asked of it at every attempt is found out once
@dataclass(frozen=True)
class TaskType:
    """The name of what to run, the code behind it, and the terms on which it runs."""

    name: str
    function: Callable[..., Any]
    signature: Signature
    queue: str = "default"
    priority: int = 0
    retry: Retry = field(default_factory=Retry)
    timeout: timedelta | None = timedelta(hours=1)
    isolate: bool = False
    reference: str = ""
    argv: tuple[str, ...] | None = None
    publishes: tuple[str, ...] = ()
    needs: Mapping[str, float] = field(default_factory=dict)
    max_crashes: int = 3
    http: bool = False
    max_active_per_owner: int | None = None
    scope: Callable[..., Any] | None = None
    max_memory: int | None = None
    version: int = 1
    upgrade: Upgrade | None = None
    expires: timedelta | None = timedelta(hours=24)
    steps: Mapping[str, float] | None = None
    prints: re.Pattern[str] | None = None
    retention: Retention = field(default_factory=Retention)
    disk: bool | None = None

    def arguments(self, task: Task) -> dict[str, Any]:
        """The task's arguments as the function takes them, those of an older version made new.

        Raises InvalidArguments if they do not fit the signature, and whatever `upgrade` raises.
        """
        return self.signature.arguments(self.current(task).payload)

    def current(self, task: Task) -> Task:
        """The task with arguments of this version; without an `upgrade` they are taken for that."""
        if self.upgrade is None or task.payload_version == self.version:
            return task
        payload = dict(self.upgrade(dict(task.payload), task.payload_version))
        return replace(task, payload=payload, payload_version=self.version)

    @cached_property
    def coroutine(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def executor(self) -> str:
        """Which executor runs it: "command", "process", "coroutine" or "thread"."""
        if self.argv is not None:
            return "command"
        if self.isolate:
            return "process"
        return "coroutine" if self.coroutine else "thread"

    @cached_property
    def in_process(self) -> bool:
        """It runs within the worker's own process: a crash of the one ends the other."""
        return self.executor in ("coroutine", "thread")

    @cached_property
    def course(self) -> Course | None:
        """Its declared steps. Raises ConfigurationError for what cannot be steps."""
        return course(self.name, self.steps)

    @cached_property
    def needs_disk(self) -> bool:
        """It is not started where the disk is nearly full. Unless it says: what runs in a process of its own."""
        return not self.in_process if self.disk is None else self.disk

    @cached_property
    def all_needs(self) -> Mapping[str, float]:
        """What a worker must have free to start it, the process it runs in included."""
        if self.isolate or self.argv is not None:
            return {PROCESS: 1, **self.needs}
        return self.needs


class Registry:
    """The task types of one application, by name."""

    def __init__(self) -> None:
        self._types: dict[str, TaskType] = {}

    def add(self, entry: TaskType) -> TaskType:
        """Register a task type. Raises ConfigurationError if it cannot run as declared, or its name is taken."""
        if not NAME.fullmatch(entry.name):
            raise ConfigurationError(
                f"task type name {entry.name!r}: letters, digits and . _ : - only, at most 100, and not one of the signs first"
            )
        taken = self._types.get(entry.name)
        if taken is not None and not same(taken, entry):
            raise ConfigurationError(
                f"there are two task types named {entry.name!r}, {taken.reference or taken.argv} and "
                f"{entry.reference or entry.argv}; choose another name"
            )
        if not 0 < len(entry.queue) <= 100 or storable(entry.queue) != entry.queue:
            # a worker that serves all queues of its types would ask for it again and again, and do nothing else
            raise ConfigurationError(
                f"task {entry.name!r}: queue={entry.queue!r}: 1 to 100 characters, without NUL and lone surrogates"
            )
        if not -100 <= entry.priority <= 100:
            raise ConfigurationError(f"task {entry.name!r}: priority {entry.priority} is not within -100…100")
        if entry.timeout is not None and entry.timeout <= timedelta(0):
            raise ConfigurationError(f"task {entry.name!r}: timeout {entry.timeout} is not more than nothing")
        if entry.max_active_per_owner is not None and entry.max_active_per_owner < 1:
            raise ConfigurationError(
                f"task {entry.name!r}: max_active_per_owner={entry.max_active_per_owner} must be at least 1, or None"
            )
        if any(amount <= 0 for amount in entry.needs.values()):
            raise ConfigurationError(
                f"task {entry.name!r}: needs={dict(entry.needs)} must be more than nothing"
            )
        if entry.max_memory is not None:
            refuse_unlimitable(entry, entry.max_memory)
        refuse_unversioned(entry.name, entry.version, entry.upgrade)
        # raises what is wrong with it
        _ = entry.course
        if entry.isolate and entry.argv is None:
            refuse_unimportable(entry)
        entry.signature.prepare()
        self._types[entry.name] = entry
        return entry

    def __getitem__(self, name: str) -> TaskType:
        try:
            return self._types[name]
        except KeyError:
            raise UnknownTaskType(name, list(self._types)) from None

    def get(self, name: str) -> TaskType | None:
        return self._types.get(name)

    def __iter__(self) -> Iterator[TaskType]:
        return iter(list(self._types.values()))

    def __len__(self) -> int:
        return len(self._types)

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(sorted({entry.queue for entry in self._types.values()} | {"default"}))


def same(one: TaskType, other: TaskType) -> bool:
    """Whether a module that is read twice (by a reload, or as __main__ and by its name) registers the same thing again."""
    modules = {one.function.__module__, other.function.__module__}
    named_alike = one.function.__qualname__ == other.function.__qualname__
    return named_alike and one.argv == other.argv and (len(modules) == 1 or "__main__" in modules)


def reference_of(function: Callable[..., Any]) -> str:
    """`module:qualname`, by which another process can import the function."""
    return f"{function.__module__}:{function.__qualname__}"


def refuse_unimportable(entry: TaskType) -> None:
    """An isolated function is imported by another process, so it must have an importable name."""
    module, _, name = entry.reference.partition(":")
    if module == "__main__":
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        hint = f" (started with -m, it is {main.name})" if main is not None else ""
        raise ConfigurationError(
            f"task {entry.name!r}: isolate=True needs a function that another process can import, and this one is in "
            f"__main__{hint}; move it to a module of its own"
        )
    if "<" in name:
        raise ConfigurationError(
            f"task {entry.name!r}: isolate=True needs an importable module:name, and {name} is made inside a function; "
            "move it to the top of its module"
        )


def refuse_unversioned(name: str, version: Any, upgrade: Any) -> None:
    """What is not a version of the parameters, or makes new what no older version has."""
    if not isinstance(version, int) or not 1 <= version <= MOST_VERSIONS:
        raise ConfigurationError(
            f"task {name!r}: version={version!r}: give a whole number from 1 to {MOST_VERSIONS:,}"
        )
    if upgrade is not None and (version == 1 or not callable(upgrade)):
        raise ConfigurationError(
            f"task {name!r}: upgrade= is a function that makes arguments of an older version new, so version= must be over 1"
        )


def refuse_unlimitable(entry: TaskType, limit: int) -> None:
    """Only what runs in processes of its own can be measured, and ended, by itself; and less than Python needs is a mistake."""
    if not entry.isolate or entry.argv is not None:
        raise ConfigurationError(
            f"task {entry.name!r}: max_memory= needs a function with isolate=True; what else runs shares its worker's memory, "
            "or is a command"
        )
    if limit < LEAST_MEMORY:
        raise ConfigurationError(
            f"task {entry.name!r}: max_memory={limit!r} must be a number of bytes, at least {LEAST_MEMORY:,} "
            "(Python itself takes some of it)"
        )


def placeholders(task_type: str, argv: Sequence[str]) -> tuple[str, ...]:
    """The names in `{braces}` of a command's words, `{workdir}` apart. Raises ConfigurationError for odd braces."""
    names: dict[str, None] = {}
    for word in argv:
        try:
            found = [name for _, name, _, _ in string.Formatter().parse(word) if name is not None]
        except ValueError as error:
            raise ConfigurationError(
                f"task {task_type!r}: the word {word!r} of its command: {error}"
            ) from None
        for name in found:
            if not name.isidentifier():
                raise ConfigurationError(
                    f"task {task_type!r}: {{{name}}} in {word!r} is not a parameter name"
                )
            names[name] = None
    names.pop("workdir", None)
    return tuple(names)
