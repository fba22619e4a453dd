"""A statement compiled once and for all, for the bare driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect


class Prepared:
    """The text of a statement as a driver takes it, and how its parameters are made of values given by name."""

    def __init__(self, statement: sa.Executable, dialect: Dialect) -> None:
        compiled: Any = statement.compile(dialect=dialect)  # type: ignore[attr-defined]
        self.text = str(compiled)
        self._processors: Mapping[str, Any] = compiled._bind_processors
        self._names: Sequence[str] = compiled.positiontup if compiled.positional else list(compiled.params)
        self._positional = bool(compiled.positional)

    def parameters(self, values: Mapping[str, Any]) -> Mapping[str, Any] | Sequence[Any]:
        """The values as the driver takes them: a mapping, or a list where the text has places without names."""
        processed = {name: values[name] for name in self._names}
        for name, process in self._processors.items():
            processed[name] = process(processed[name])
        return [processed[name] for name in self._names] if self._positional else processed
