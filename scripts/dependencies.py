"""Writes `docs/explanation/dependencies.md`: each library we chose, from the metadata of what is installed here.

python scripts/dependencies.py     writes the file; the sizes are this machine's
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "dependencies.md"

# Package -> (why this one, what bites). Every dependency of pyproject.toml needs a line here; a test asks for it.
REASONS = {
    "sqlalchemy": "One way to say SQL to three databases, and statements that are values: an async session of yours can "
    "run them in its own transaction. Core only, no ORM. It costs about 75 µs of CPU a statement over the bare driver; "
    "BEGIN and COMMIT cost more, so hot single statements run without them.",
    "alembic": "Migrations that ship inside the package and run on a connection we hand over. Imported by `migrate` and "
    "at the first opening of a SQLite file only: it takes most of a second to import.",
    "pydantic": "Arguments are checked against the function's own signature, all errors at once, each with its path; the "
    "HTTP models come from the same place.",
    "obstore": "S3, Google and Azure through one small Rust library with streaming uploads that are aborted when they "
    "fail. Its local store neither syncs nor lists what a crash left behind, so directories are served without it.",
    "psutil": "Process trees and memory on Linux and macOS alike.",
    "typer": "The command line from typed functions. Imported by the command line only.",
    "rich": "Tables and progress bars in the terminal. Imported by the command line only.",
    "uuid-utils": "UUIDv7 ids, which sort by time, so that the primary key grows at its end. Python has them from 3.14 on.",
    "cronsim": "Cron expressions with the clock changes right: 02:30 in the spring gap becomes 03:00, and 01:30 in autumn "
    "fires once. Another well-known library returned a time that does not exist.",
    "psycopg": "Synchronous and asynchronous PostgreSQL from one driver, with LISTEN.",
    "pymysql": "Pure Python, small, widely used; MySQL and MariaDB.",
    "fastapi": "The HTTP routes and their OpenAPI description.",
    "uvicorn": "The server behind `dumbwaiter serve`.",
    "jinja2": "The page is rendered on the server.",
    "itsdangerous": "Signatures that expire.",
    "sse-starlette": "Server-sent events, for pages that are told and need not ask.",
    "imageio-ffmpeg": "An FFmpeg for machines that have none (it is a GPL build, started as a program of its own, never "
    "linked). An FFmpeg on PATH is preferred.",
    "uvloop": "A faster event loop for coroutines, taken where it is installed. asyncio's own does without it.",
}


def page() -> str:
    """The whole page."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return "\n".join(
        [
            "# What Dumbwaiter stands on",
            "",
            "<!-- Written by scripts/dependencies.py from the metadata of the installed packages. -->",
            "",
            "Each library below was chosen among several that were tried. Version, licence, size and the newest Python each",
            "names (a sign that somebody looks after it) are read from the installed packages; the size is what the package's",
            "own files take on a Linux x86-64 machine.",
            "",
            "`import dumbwaiter` itself stays light: the heavy ones are imported where they are used.",
            "",
            "## Always installed",
            "",
            *table(project["dependencies"]),
            *(
                line
                for extra, names in extras(project)
                for line in (f"## `dumbwaiter[{extra}]`", "", *table(names))
            ),
            "## Shipped inside the package",
            "",
            "rrweb 2.2.2 (MIT), the player that draws recordings, lies under `dumbwaiter/jobs/video/vendor/`, and its recorder for pages,",
            "@rrweb/record 2.1.6 (MIT), under `dumbwaiter/recorder/vendor/`, each with its licence and its checksums. Nothing is fetched",
            "while a recording is drawn.",
            "",
            "## Programs, not libraries",
            "",
            "The video export starts a Chromium (a headless shell is best) and an FFmpeg with libx264 that the machine has;",
            "`dumbwaiter doctor` says which it found and what to install. Fonts with Chinese, Japanese, Korean and emoji",
            "letters make such text right.",
            "",
            "## Considered and left",
            "",
            "- asyncpg and aiosqlite: the core is synchronous, on threads; a second colour would double every method.",
            "- boto3 and one library for each cloud: obstore does them all in a tenth of the size.",
            "- croniter: returns 02:30 on a day when that time does not exist.",
            "- tenacity, stamina: the next try of a task is a column in its row, ten lines of arithmetic.",
            "- PyAV: a killable FFmpeg process is easier to end than an encoder inside our own.",
            "",
        ]
    )


def extras(project: dict[str, dict[str, list[str]]]) -> list[tuple[str, list[str]]]:
    return list(project["optional-dependencies"].items())


def table(requirements: list[str]) -> list[str]:
    """A Markdown table with a row for each requirement."""
    rows = [row(name_of(requirement)) for requirement in requirements]
    heads = "| package | version here | licence | size | Python up to | why |"
    return [heads, "| --- | --- | --- | --- | --- | --- |", *rows, ""]


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return found[0].lower()


def row(name: str) -> str:
    package = distribution(name)
    cells = (name, package.version, licence(package), size(package), newest_python(package), REASONS[name])
    return f"| {' | '.join(cells)} |"


def licence(package: Distribution) -> str:
    """The licence in a word: the SPDX expression if there is one, else the classifier, else the field."""
    told = package.metadata
    if "License-Expression" in told:
        return told["License-Expression"]
    for classifier in told.get_all("Classifier") or ():
        if classifier.startswith("License :: OSI Approved :: "):
            return str(classifier.rpartition(" :: ")[2])
    return told["License"].splitlines()[0] if "License" in told else "see the package"


def size(package: Distribution) -> str:
    """What its files take; binary companions that a package cannot do without are counted with it."""
    names = {"pydantic": ["pydantic", "pydantic-core"], "psycopg": ["psycopg", "psycopg-binary"]}
    total = sum(
        path.stat().st_size
        for name in names.get(package.metadata["Name"].lower(), [package.metadata["Name"]])
        for file in distribution(name).files or ()
        if "__pycache__" not in file.parts and (path := Path(str(file.locate()))).is_file()
    )
    return f"{total / 1e6:.1f} MB"


def newest_python(package: Distribution) -> str:
    versions = [
        tuple(map(int, found[1].split(".")))
        for classifier in package.metadata.get_all("Classifier") or ()
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", classifier))
    ]
    return ".".join(map(str, max(versions))) if versions else "not said"


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
