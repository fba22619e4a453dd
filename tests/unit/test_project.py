"""The project's own files: locks, the wheel, the script that everybody starts with."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
GROUPS = PROJECT["dependency-groups"]
RUN = [
    *PROJECT["project"]["dependencies"],
    *EXTRAS["api"],
    *EXTRAS["postgresql"],
    *EXTRAS["mysql"],
    *EXTRAS["video"],
]
ASKED = {
    "run": RUN,
    "dev": [*RUN, *(line for extra in EXTRAS.values() for line in extra), *GROUPS["dev"]],
    **{name: lines for name, lines in GROUPS.items() if name != "dev"},
}


def _locked(name: str) -> dict[str, set[str]]:
    versions: dict[str, set[str]] = {}
    for package, version in re.findall(
        r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / f"{name}.txt").read_text(), re.MULTILINE
    ):
        versions.setdefault(canonicalize_name(package), set()).add(version)
    return versions


def test_there_is_a_lock_for_each_thing_that_is_installed():
    assert sorted(path.stem for path in (ROOT / "requirements").glob("*")) == sorted(ASKED)


@pytest.mark.parametrize("name", sorted(ASKED))
def test_a_lock_holds_a_fitting_version_of_everything_that_is_asked_for(name):
    locked = _locked(name)

    for requirement in map(Requirement, ASKED[name]):
        versions = locked.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement.name} is not locked: run ./dev lock"
        assert all(requirement.specifier.contains(version) for version in versions), (
            f"run ./dev lock: {requirement}"
        )


@pytest.mark.parametrize("name", sorted(ASKED))
def test_a_lock_names_no_address_and_has_a_hash_for_every_package(name):
    entries = (ROOT / "requirements" / f"{name}.txt").read_text().split("\n")
    pinned = [line for line in entries if "==" in line]

    assert [line for line in entries if "://" in line or line.startswith("-")] == []
    assert [line for line in pinned if not line.endswith("\\")] == []


def test_what_runs_the_program_is_locked_as_it_is_tested():
    tested = _locked("dev")

    assert {name: versions for name, versions in _locked("run").items() if tested[name] != versions} == {}


def test_the_wheel_holds_every_file_of_the_package(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/dumbwaiter"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()

    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        packed = {f"src/{name}" for name in wheel.namelist() if name.startswith("dumbwaiter/")}

    assert packed == {path for path in tracked if (ROOT / path).exists()}


def test_the_package_imports_nothing_heavy():
    program = "import sys, dumbwaiter; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()

    heavy = {
        "alembic",
        "fastapi",
        "obstore",
        "playwright",
        "psycopg",
        "pymysql",
        "rich",
        "starlette",
        "typer",
        "uvicorn",
    }
    assert heavy & set(loaded) == set()


@pytest.mark.parametrize("word", ["help", "--help", ""])
def test_the_script_lists_its_words(word):
    shown = subprocess.run(
        [str(ROOT / "dev"), *word.split()], check=True, capture_output=True, text=True
    ).stdout

    assert re.findall(r"^\./dev (\w+)", shown, re.MULTILINE) == [
        "demo",
        "serve",
        "test",
        "check",
        "services",
        "bench",
        "screenshots",
        "lock",
    ]


def test_an_unknown_word_is_wrong_usage():
    result = subprocess.run([str(ROOT / "dev"), "dinner"], check=False, capture_output=True, text=True)

    assert result.returncode == 2
    first, rest = result.stderr.split("\n", 1)
    assert 'there is no word "dinner"' in first
    assert "./dev demo" in rest
