"""One frozen `Settings`: arguments win over the environment, the environment over `pyproject.toml`."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from dumbwaiter.errors import ConfigurationError

log = logging.getLogger("dumbwaiter")

DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*", re.ASCII)
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, None: 1}
SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%|[kmgt]i?b|b)?\s*", re.ASCII | re.IGNORECASE)
SIZES = {"": 1, "b": 1} | {
    f"{letter}{rest}": base**power
    for power, letter in enumerate("kmgt", 1)
    for rest, base in (("b", 1000), ("ib", 1024))
}
PREFIX = "DUMBWAITER_"


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@dataclass(frozen=True, slots=True)
class Reserve:
    """How much of a disk is to stay free: a number of bytes, or a fraction of the disk."""

    size: int = 0
    fraction: float = 0.0

    @classmethod
    def of(cls, text: str) -> Reserve:
        """From "2GiB", "500MB", a number of bytes, or "5%". Raises ConfigurationError."""
        match = SIZE.fullmatch(text)
        if not match:
            raise ConfigurationError(
                f"disk_reserve {text!r}: write bytes, such as 2GiB, or a part of the disk, such as 5%"
            )
        number, unit = float(match[1]), (match[2] or "").lower()
        if unit == "%":
            if number >= 100:
                raise ConfigurationError(f"disk_reserve {text!r}: that is the whole disk")
            return cls(fraction=number / 100)
        return cls(size=int(number * SIZES[unit]))

    def bytes_of(self, total: int) -> int:
        """How many bytes that is on a disk of so many."""
        return self.size or int(total * self.fraction)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set. Durations are `timedelta`; in the environment "20", "20s" or "5m".

    `origins` tells for each setting that is not at its default where it came from.
    """

    database: str = "sqlite:///.dumbwaiter/tasks.db"
    files: str = ""
    workdir: str = ""
    env: str = "development"
    app: str = ""
    table_prefix: str = "dumbwaiter_"
    schema: str = ""
    listen_database: str = ""
    pgbouncer: bool = False
    shared_files: bool = False

    lease: timedelta = seconds(20)
    heartbeat: timedelta = seconds(4)
    sweep: timedelta = seconds(5)
    poll: timedelta = seconds(1)
    grace: timedelta = seconds(3)
    shutdown_grace: timedelta = seconds(30)
    shutdown_grace_in_app: timedelta = seconds(10)
    timeout: timedelta = seconds(3600)
    request_timeout: timedelta = seconds(4)
    # None is for ever
    file_expiry: timedelta | None = timedelta(hours=24)
    upload_expiry: timedelta = timedelta(hours=24)
    success_retention: timedelta | None = timedelta(days=30)
    failed_retention: timedelta | None = timedelta(days=7)
    cancelled_retention: timedelta | None = timedelta(days=1)

    slots: int = 10
    max_interruptions: int = 20
    # 0 is no limit
    max_active_per_owner: int = 0
    max_payload: int = 256 * 1024
    max_result: int = 1024 * 1024
    disk_reserve: str = "1%"
    max_upload: int = 2 * 1024**3
    upload_origins: str = ""
    secret: str = field(default="", repr=False)

    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.heartbeat * 3 > self.lease:
            raise ConfigurationError(
                f"heartbeat ({self.heartbeat}) must be at most a third of the lease ({self.lease}): "
                "one late beat would hand healthy tasks to another worker"
            )
        for name in ("lease", "heartbeat", "sweep", "poll", "request_timeout", "upload_expiry"):
            if getattr(self, name) <= timedelta(0):
                raise ConfigurationError(f"{name} must be more than nothing")
        if self.max_active_per_owner < 0:
            raise ConfigurationError(
                "max_active_per_owner must be the number of tasks that an owner may have under way, or 0 for any"
            )
        for name in sorted(FOR_EVER):
            if not is_keepable(getattr(self, name)):
                raise ConfigurationError(
                    f"{name} must be more than nothing and at most {LONGEST_KEPT.days} days, or never"
                )
        Reserve.of(self.disk_reserve)
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,30}", self.table_prefix):
            raise ConfigurationError(
                f"table_prefix {self.table_prefix!r}: lower-case letters, digits and underscores, at most 31"
            )
        if not re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]{0,62})?", self.schema):
            raise ConfigurationError(f"schema {self.schema!r} is not a plain identifier")

    @classmethod
    def load(
        cls,
        given: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> Settings:
        """The settings from arguments, the environment and `[tool.dumbwaiter]` of the nearest `pyproject.toml`.

        Raises ConfigurationError for a name that is no setting or a value that cannot be read.
        """
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}

        def take(name: str, value: Any, origin: str) -> None:
            values[name] = parsed(name, value, origin)
            origins[name] = origin

        path, table = from_pyproject(directory or Path.cwd())
        for name, value in table.items():
            take(name.replace("-", "_"), value, str(path))
        if "APP_ENV" in environ:
            take("env", environ["APP_ENV"], "environment variable APP_ENV")
        for name in KINDS:
            variable = PREFIX + name.upper()
            if environ.get(variable, "") != "":
                take(name, environ[variable], f"environment variable {variable}")
        for name, value in (given or {}).items():
            if value is not None or name in FOR_EVER:
                take(name, value, "argument")
        warn_of_misspelt(environ)
        return cls(**values, origins=origins)

    @property
    def home(self) -> Path:
        """Where files and work directories stand when nothing else is said: beside the SQLite file."""
        return (self.sqlite_file or Path(".dumbwaiter/tasks.db").absolute()).parent

    @property
    def sqlite_file(self) -> Path | None:
        """The file of a SQLite database; None for a server's."""
        match = re.fullmatch(r"sqlite(?:\+\w+)?:///(.+)", self.database)
        if match and match[1] not in (":memory:", ""):
            return Path(match[1].split("?")[0]).absolute()
        return None

    @property
    def shown_database(self) -> str:
        """Which database it is, as may be shown: where its file lies, or its address without the password."""
        return without_password(self.database) if self.sqlite_file is None else f"SQLite, {self.sqlite_file}"

    @property
    def workdir_path(self) -> Path:
        return Path(self.workdir).absolute() if self.workdir else self.home / "work"

    @property
    def files_url(self) -> str:
        return self.files or str(self.home / "files")


def without_password(address: str) -> str:
    """An address as it may be shown."""
    head, at, tail = address.rpartition("@")
    scheme, _, credentials = head.partition("://")
    return f"{scheme}://{credentials.split(':')[0]}{at}{tail}" if at and credentials else address


KINDS: dict[str, Any] = {
    entry.name: type(entry.default) for entry in dataclasses.fields(Settings) if entry.name != "origins"
}


# What may be None in Python and `never` in the environment.
FOR_EVER = frozenset({"file_expiry", "success_retention", "failed_retention", "cancelled_retention"})
# Longer is for ever, and is no instant that every database can name.
LONGEST_KEPT = timedelta(days=36_500)


def is_keepable(kept: object) -> bool:
    """Whether something can be kept for so long: a timedelta, or None for ever."""
    return kept is None or (isinstance(kept, timedelta) and timedelta(0) < kept <= LONGEST_KEPT)


# Read by other parts than `Settings`: tools, inputs, tests.
OTHER_VARIABLES = frozenset({"CHROMIUM", "FFMPEG", "PYTHON", "RECORDINGS", "TAG", "TEST"})


def warn_of_misspelt(environ: Mapping[str, str]) -> None:
    """A variable of ours that nobody reads is most likely misspelt: say so, since it would be ignored in silence."""
    for variable in environ:
        name = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or name in KINDS or name.split("_")[0].upper() in OTHER_VARIABLES:
            continue
        near = difflib.get_close_matches(name, KINDS, n=1)
        hint = f"; did you mean {PREFIX}{near[0].upper()}?" if near else ""
        log.warning(
            "the environment variable %s is no setting of Dumbwaiter and is ignored%s", variable, hint
        )


def parsed(name: str, value: Any, origin: str) -> Any:
    """A value as the setting of that name keeps it."""
    kind = KINDS.get(name)
    if kind is None:
        known = ", ".join(sorted(KINDS))
        raise ConfigurationError(f"there is no setting {name!r} ({origin}); the settings are: {known}")
    try:
        if name in FOR_EVER:
            return duration_or_never(value)
        if kind is timedelta:
            return duration(value)
        if kind is bool:
            return boolean(value)
        if kind is int:
            return int(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"setting {name} ({origin}): {error}") from None
    return os.fspath(value) if not isinstance(value, str) else value


def duration(value: Any) -> timedelta:
    """A duration from a timedelta, a number of seconds, or text such as "20s", "5m", "1.5h"."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=value)
    match = DURATION.fullmatch(str(value))
    if not match:
        raise ValueError(f"{value!r} is not a duration; write seconds, or for example 20s, 5m, 2h")
    return timedelta(seconds=float(match[1]) * UNITS[match[2]])


def duration_or_never(value: Any) -> timedelta | None:
    """The same, or None for ever: None itself, or the word "never"."""
    if value is None or str(value).strip().lower() == "never":
        return None
    return duration(value)


def boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise ValueError(f"{value!r} is neither true nor false")


def from_pyproject(directory: Path) -> tuple[Path, Mapping[str, Any]]:
    """The table `[tool.dumbwaiter]` of the nearest `pyproject.toml` at or above the directory."""
    for place in (directory, *directory.parents):
        path = place / "pyproject.toml"
        if path.is_file():
            try:
                found = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("dumbwaiter", {})
            except tomllib.TOMLDecodeError as error:
                raise ConfigurationError(f"{path} is not TOML: {error}") from None
            return path, found
    return directory / "pyproject.toml", {}
