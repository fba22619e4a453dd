"""Steps as a running task sees them: what earlier attempts left, read when first asked for, and what this one leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from dumbwaiter.errors import ConfigurationError, InvalidStep
from dumbwaiter.strict_json import dumps, loads
from dumbwaiter.task import Progress, Recalled

LONGEST_NAME = 200


class Memory(Protocol):
    """What carries steps from attempt to attempt. Each call but `mark` may block, and raises LostClaim."""

    limit: int
    """How many bytes of JSON a value may have."""

    def recall(self) -> Recalled:
        """What earlier attempts left."""
        ...

    def result(self, name: str) -> Any:
        """The result of a step that has one."""
        ...

    def remember(self, name: str, value: Any) -> None: ...

    def mark(self, value: Any) -> None:
        """Say where the attempt is in its work; written with its progress. Never blocks."""
        ...

    def keep(self, name: str, path: Path) -> None: ...

    def restore(self, name: str, into: Path) -> bool:
        """Write the kept file to that path. False if there is none."""
        ...


class Steps:
    """The steps of one attempt's task."""

    def __init__(self, memory: Memory | None, report: Callable[[Progress], None]) -> None:
        self._given = memory
        self._report = report
        self._recalling = threading.Lock()
        self._choosing = threading.Lock()
        self._busy: set[str] = set()
        self._results: set[str] | None = None
        self._cursor: Any = None
        self._moved = False

    @property
    def memory(self) -> Memory:
        if self._given is None:
            raise ConfigurationError(
                "this task does not run in a worker, so there is nothing that keeps its steps"
            )
        return self._given

    @property
    def cursor(self) -> Any:
        if not self._moved:
            self._recall()
        return self._cursor

    @cursor.setter
    def cursor(self, value: Any) -> None:
        # a copy: what the task does to a list later on is not where it was now
        self._cursor = self._stored("ctx.cursor", value)
        self._moved = True
        self.memory.mark(self._cursor)

    @contextmanager
    def once(self, name: str) -> Iterator[None]:
        """One at a time under one name."""
        checked(name)
        with self._choosing:
            if name in self._busy:
                raise InvalidStep(f"step {name!r} is running already; give each step a name of its own")
            self._busy.add(name)
        try:
            yield
        finally:
            self._busy.discard(name)

    def done(self, name: str) -> bool:
        return name in self._recall()

    def result(self, name: str) -> Any:
        return self.memory.result(name)

    def remember(self, name: str, value: Any) -> Any:
        """Store what a step returned; the value as every later attempt gets it."""
        results = self._recall()
        stored = self._stored(f"what step {name!r} returned", value)
        self.memory.remember(name, stored)
        results.add(name)
        return stored

    def _recall(self) -> set[str]:
        """What is there, asked for once; the progress goes on from where it was then."""
        with self._recalling:
            if self._results is None:
                recalled = self.memory.recall()
                self._results = set(recalled.results)
                if not self._moved:
                    self._cursor = recalled.cursor
                if recalled.fraction is not None:
                    self._report(Progress(recalled.fraction))
            return self._results

    def _stored(self, what: str, value: Any) -> Any:
        """The value as it comes back from its JSON. Raises InvalidStep."""
        try:
            text = dumps(value)
            size = len(text.encode())
        except (ValueError, RecursionError) as error:
            raise InvalidStep(f"{what} cannot be kept as JSON: {error}") from None
        if size > self.memory.limit:
            raise InvalidStep(
                f"{what} has {size:,} bytes of JSON, more than the {self.memory.limit:,} allowed; "
                "keep a file instead (ctx.keep), or raise DUMBWAITER_MAX_RESULT"
            )
        return loads(text)


def checked(name: str) -> str:
    """The name of a step. Raises InvalidStep for one that cannot be."""
    try:
        fits = 0 < len(name.encode()) <= LONGEST_NAME and "\0" not in name
    except (AttributeError, UnicodeEncodeError):
        fits = False
    if not fits:
        raise InvalidStep(f"step name {shown(name)}: give a text of 1 to {LONGEST_NAME} bytes")
    return name


def checked_file(name: str) -> str:
    """The name of a kept file, which is its name in the work directory too. Raises InvalidStep."""
    if "/" in checked(name) or name in {".", ".."}:
        raise InvalidStep(f"file name {shown(name)}: give 1 to {LONGEST_NAME} bytes without a slash")
    return name


def shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 80 else f"{text[:80]}…"
