"""What the documents show is what the program does: their code runs, their tables are complete, their links lead somewhere."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import subprocess
import sys
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest
import typer

from dumbwaiter.cli.program import program
from dumbwaiter.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
# A page whose code goes into several files names them: the last one named is the program.
RUNNABLE = re.compile(r"^```python runnable *(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
STORIES = [page for page in PAGES if RUNNABLE.search(page.read_text(encoding="utf-8"))]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def told_by(page: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a page's code, as its reader would: in files of these names, in an empty directory."""
    program = "story.py"
    for name, code in RUNNABLE.findall(page.read_text(encoding="utf-8")):
        program = name or "story.py"
        with (directory / program).open("a", encoding="utf-8") as file:
            file.write(f"{code}\n")
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("DUMBWAITER_", "APP_ENV"))
    }
    return subprocess.run(
        [sys.executable, "-W", "error", program],
        cwd=directory,
        env=environ,
        capture_output=True,
        text=True,
        timeout=50,
    )


@pytest.mark.parametrize("page", STORIES, ids=named)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    told = told_by(page, tmp_path)

    assert told.returncode == 0, told.stderr


def test_the_tutorial_shows_what_its_program_prints(tmp_path: Path) -> None:
    page = ROOT / "docs" / "tutorial" / "first-task.md"
    [shown] = re.findall(r"^```text\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

    printed = told_by(page, tmp_path).stdout

    # its ids are new each time, and how often it looks at a running task depends on the machine
    assert {same(line) for line in printed.splitlines()} <= {same(line) for line in shown.splitlines()}
    assert printed.splitlines()[-1] == shown.splitlines()[-1]


def same(line: str) -> str:
    return re.sub(r"^[0-9a-f-]{36}", "ID", line).strip()


def test_there_is_code_to_run() -> None:
    assert len(STORIES) >= 5


def test_the_table_of_settings_names_each_with_its_default() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| ([^|]+) \|", page, re.MULTILINE))
    settings = {
        entry.name: entry.default for entry in dataclasses.fields(Settings) if entry.name != "origins"
    }

    assert set(rows) == set(settings)
    for name, default in settings.items():
        if default != "":
            assert spelled(default) in rows[name], name


def spelled(default: object) -> str:
    """A default as a person writes it."""
    if isinstance(default, timedelta):
        if default >= timedelta(days=2):
            return f"{default.days} d"
        hours, seconds = divmod(default.total_seconds(), 3600)
        return f"{hours:.0f} h" if hours and not seconds else f"{seconds:.0f} s"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int):
        for size, unit in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
            if default and default % size == 0:
                return f"{default // size} {unit}"
    return str(default)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_link_inside_the_documents_leads_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)|<img [^>]*src=\"([^\"]+)\"", text)
    inside = [target for pair in targets if (target := pair[0] or pair[1]) and "://" not in target]

    assert [target for target in inside if not (page.parent / target).exists()] == []


def test_every_page_can_be_reached_from_the_first() -> None:
    first = ROOT / "docs" / "README.md"
    linked = {
        (first.parent / target).resolve()
        for target in re.findall(r"\]\(([^)#]+\.md)\)", first.read_text("utf-8"))
    }

    assert set((ROOT / "docs").rglob("*.md")) - {first} - linked == set()


def test_the_page_of_the_states_is_current() -> None:
    told = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "states.py"), "--check"], capture_output=True, text=True
    )

    assert told.returncode == 0, told.stderr


def test_every_test_that_the_failure_cases_name_is_there() -> None:
    named_there = {word for _, tried_by in failure_cases() for word in re.findall(r"`(\w+)`", tried_by)}
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    names = set(re.findall(r"def (test_\w+)", "\n".join(tests)))

    assert len(named_there) > 40
    assert {word for word in named_there if not any(word in name for name in names)} == set()


def test_every_failure_case_has_its_place() -> None:
    page = (ROOT / "docs" / "explanation" / "failure-cases.md").read_text(encoding="utf-8")

    assert {f"C{number:02}" for number in range(1, 62)} - set(re.findall(r"\bC\d\d\b", page)) == set()


def test_a_failure_case_was_tried_or_says_why_it_cannot_occur() -> None:
    untried = {
        number
        for row, tried_by in failure_cases()
        for number in re.findall(r"\bC\d\d\b", row)
        if not re.search(r"`\w+`|cannot occur here: ", tried_by)
    }

    assert untried == set()


def failure_cases() -> list[tuple[str, str]]:
    """Of each row of the page: all of it, and its cell "tried by"."""
    page = (ROOT / "docs" / "explanation" / "failure-cases.md").read_text(encoding="utf-8")
    rows = re.findall(r"^(\|[^|]*\|[^|]*\|[^|]*\|([^|]*)\|)$", page, re.MULTILINE)
    return [(row, tried_by) for row, tried_by in rows if not row.startswith(("| case ", "| ---"))]


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + [
        name for extra in project["optional-dependencies"].values() for name in extra
    ]
    page = (ROOT / "docs" / "explanation" / "dependencies.md").read_text(encoding="utf-8")

    names = {re.split(r"[\[><=~ ]", requirement)[0].lower() for requirement in wanted}
    assert {name for name in names if f"| {name} |" not in page} == set()


def test_the_floors_in_the_document_are_those_that_are_checked() -> None:
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (`[^|]+`) \|", text.partition("## The floors")[2].partition("\n## ")[0], re.MULTILINE
    )
    described = [re.findall(r"`(\w+)", row) for row in rows]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [layers] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    checked = [[name for name in re.findall(r"\w+", layer) if built(name)] for layer in layers]

    assert described == [floor for floor in checked if floor]


def built(name: str) -> bool:
    package = ROOT / "src" / "dumbwaiter"
    return (package / f"{name}.py").exists() or (package / name / "__init__.py").exists()


def test_the_reference_of_the_command_line_names_every_command_and_option() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    for module in ("tasks", "serving", "video", "health", "cleaning", "demo"):
        importlib.import_module(f"dumbwaiter.cli.{module}")
    commands = typer.main.get_group(program).commands

    for name, command in commands.items():
        if not command.hidden:
            assert f"`{name}" in page, name
            longest = [
                max(option.opts, key=len) for option in command.params if option.opts[0].startswith("-")
            ]
            assert [option for option in longest if option not in page] == [], name


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md", "docs/tutorial/behind-a-page.md"])
def test_the_example_in_a_page_is_the_example_that_the_tests_run(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    example = (ROOT / "examples" / "fastapi_app.py").read_text(encoding="utf-8")

    assert f"```python\n{example.strip()}\n```" in text
