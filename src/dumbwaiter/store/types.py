"""Column types that mean the same on PostgreSQL, MySQL, MariaDB and SQLite.

SQLAlchemy's modules for a database are imported where its types are asked for: each costs 100 ms and more.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from dumbwaiter.strict_json import dumps, loads


def sortable(instant: datetime) -> str:
    """An instant as SQLite stores it: ISO text of a fixed width. Not by strftime, whose %Y writes the year 500 with three digits."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


class Id(TypeDecorator[str]):
    """A UUID as lower-case text: `uuid` on PostgreSQL, CHAR(36) in ASCII elsewhere."""

    impl = sa.CHAR(36)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            from sqlalchemy.dialects import postgresql

            return dialect.type_descriptor(postgresql.UUID(as_uuid=False))
        if dialect.name in ("mysql", "mariadb"):
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.CHAR(36, charset="ascii", collation="ascii_bin"))
        return dialect.type_descriptor(sa.CHAR(36))

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor | None:
        return as_text if dialect.name == "postgresql" else None


class Hash(TypeDecorator[str]):
    """64 hexadecimal digits, compared bytewise."""

    impl = sa.CHAR(64)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in ("mysql", "mariadb"):
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.CHAR(64, charset="ascii", collation="ascii_bin"))
        return dialect.type_descriptor(sa.CHAR(64))


class Name(TypeDecorator[str]):
    """Text of at most `length` characters, compared bytewise on every database.

    MySQL's and MariaDB's text collations find "a" and "A", or "b" and "b ", equal (even utf8mb4_bin pads with spaces),
    so there the UTF-8 bytes are stored.
    """

    impl = sa.String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in ("mysql", "mariadb"):
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.VARBINARY(self.length * 4))
        return dialect.type_descriptor(sa.String(self.length))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        if value is not None and dialect.name in ("mysql", "mariadb"):
            return value.encode()
        return value

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor | None:
        return decoded if dialect.name in ("mysql", "mariadb") else None


class LongText(TypeDecorator[str]):
    """Text without a practical limit (MySQL's TEXT ends at 64 KiB)."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in ("mysql", "mariadb"):
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"))
        return dialect.type_descriptor(sa.Text())


class Json(TypeDecorator[Any]):
    r"""A JSON value as its text.

    Not jsonb: that refuses \u0000, forgets the difference between 1e2 and 100 and costs a parse at each write, and nothing
    here asks the database to look inside. `payload::jsonb` still works in an operator's query.
    """

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return LongText().load_dialect_impl(dialect)

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else dumps(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        return read


class Timestamp(TypeDecorator[datetime]):
    """An instant in UTC with microseconds: timestamptz, DATETIME(6), or ISO text of fixed width ending in Z.

    The text sorts as the instants do, which `…00Z` beside `…00.5Z` would not. Naive datetimes are refused.
    """

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(sa.CHAR(27))
        if dialect.name in ("mysql", "mariadb"):
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(sa.DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone; use an aware datetime, such as datetime.now(UTC)")
        instant = value.astimezone(UTC)
        if dialect.name == "sqlite":
            return sortable(instant)
        return instant.replace(tzinfo=None) if dialect.name in ("mysql", "mariadb") else instant

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        return from_text if dialect.name == "sqlite" else in_utc


# What a row's values go through, one function each: a claim reads thousands, and SQLAlchemy's own way has three.
Processor = Callable[[Any], Any]


def as_text(value: Any) -> Any:
    return value if value is None else str(value)


def decoded(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def read(value: Any) -> Any:
    return value if value is None else loads(value)


def from_text(value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(value, str) else in_utc(value)


def in_utc(value: Any) -> Any:
    if value is None or value.tzinfo is UTC:
        return value
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
