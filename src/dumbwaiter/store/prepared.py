"""A statement compiled once and for all, for the bare driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

# where psycopg has a parameter, and its sign for a percent
PLACE = re.compile(r"%\((\w+)\)s|%%")


@dataclass(frozen=True, slots=True)
class Alone:
    """Statements that commit each by itself: how to make those of this `form`, once, and the values of their parameters.

    `in_bulk`: a duty asks for, or says, much at a time.
    """

    form: Hashable
    statements: Callable[[Dialect], Sequence[sa.Executable]]
    values: Mapping[str, Any]
    in_bulk: bool = False


class Prepared:
    """The text of a statement as a driver takes it, and how its parameters are made of values given by name."""

    def __init__(self, statement: sa.Executable, dialect: Dialect) -> None:
        # an IN is written out with the values that it has now
        compiled: Any = statement.compile(  # type: ignore[attr-defined]
            dialect=dialect, compile_kwargs={"render_postcompile": True}
        )
        self.text = str(compiled)
        self._own: Mapping[str, Any] = compiled.params
        self._names: Sequence[str] = compiled.positiontup if compiled.positional else list(self._own)
        processors: Mapping[str, Any] = compiled._bind_processors
        # what was written out has the name of its list, and a number
        listed = {name: name if name in compiled.binds else name.rpartition("_")[0] for name in self._names}
        self._processors = {name: processors[of] for name, of in listed.items() if of in processors}
        self._positional = bool(compiled.positional)

    @cached_property
    def numbered(self) -> tuple[str, Sequence[str]]:
        """The text with the numbers that the server of PostgreSQL has for parameters, and their names in that order."""
        places = {name: f"${number}" for number, name in enumerate(self._names, 1)}
        text = PLACE.sub(lambda found: places[found[1]] if found[1] else "%", self.text)
        return text, list(places)

    def parameters(self, values: Mapping[str, Any]) -> Mapping[str, Any] | Sequence[Any]:
        """The values as the driver takes them: a mapping, or a list where the text has places without names.

        What is not among them is the statement's own.
        """
        processed = {name: values[name] if name in values else self._own[name] for name in self._names}
        for name, process in self._processors.items():
            processed[name] = process(processed[name])
        return [processed[name] for name in self._names] if self._positional else processed
