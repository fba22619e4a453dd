from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

import pytest
import typer

from dumbwaiter import __version__
from dumbwaiter.cli.program import MEANT, program
from tests.cli.conftest import Cli
from tests.support.programs import dumbwaiter, python


def test_wrong_usage_is_status_2(cli: Cli) -> None:
    for words in (["nonsense"], ["list", "--nonsense"], ["status"], ["list", "--limit", "0"]):
        assert cli(*words).returncode == 2, words


@pytest.mark.parametrize(
    ("word", "hint"),
    [("show", "there is no command 'show'; it is 'status' here"), ("statsu", "Did you mean 'status'?")],
)
def test_who_takes_a_command_for_another_is_told_its_name(cli: Cli, word: str, hint: str) -> None:
    answer = cli(word, "0199")

    # the parser draws a box around it, and breaks the line where the terminal ends
    assert (answer.returncode, hint in " ".join(answer.stderr.replace("│", " ").split())) == (2, True)


def test_the_commands_that_people_are_told_are_there() -> None:
    for module in ("tasks", "serving", "health", "cleaning"):
        importlib.import_module(f"dumbwaiter.cli.{module}")
    names = set(typer.main.get_group(program).commands)

    assert set(MEANT.values()) <= names
    assert not set(MEANT) & names


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert dumbwaiter("--version", cwd=tmp_path).stdout == f"dumbwaiter {__version__}\n"


@pytest.mark.parametrize(
    ("app", "sentence"),
    [
        ("shop", "write module:name"),
        ("nowhere:waiter", "there is no module nowhere"),
        ("shop:nothing", "the module shop has no nothing"),
        ("shop:not_a_waiter", "should be a Dumbwaiter"),
        ("broken:waiter", "importing broken failed: ZeroDivisionError"),
    ],
)
def test_an_application_that_cannot_be_had_is_told_in_one_sentence(
    cli: Cli, shop: Path, app: str, sentence: str
) -> None:
    (shop / "broken.py").write_text("1 / 0")
    answer = cli("--app", app, "list")

    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1)
    assert sentence in answer.stderr


def test_the_application_may_be_named_in_the_environment_and_in_pyproject(
    cli: Cli, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("DUMBWAITER_APP", "shop:waiter")
        by_variable = cli("enqueue", "torn")
    (shop / "pyproject.toml").write_text('[tool.dumbwaiter]\napp = "shop:waiter"\n')
    by_file = cli("enqueue", "torn")

    assert (by_variable.returncode, by_file.returncode) == (0, 0), by_variable.stderr + by_file.stderr


def test_without_an_application_the_built_in_jobs_are_there(cli: Cli, tmp_path: Path) -> None:
    answer = cli("enqueue", "video-export", "recording=sample:shop-tour")

    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / ".dumbwaiter" / "tasks.db").exists()


def test_help_and_version_import_no_database_and_no_web_server(tmp_path: Path) -> None:
    look = "import sys; sys.argv = ['dumbwaiter', '--help']\nfrom dumbwaiter.cli import main\ntry: main()\nfinally: print(sorted({'sqlalchemy', 'fastapi', 'rich.progress', 'alembic', 'obstore'} & set(sys.modules)))"
    answer = subprocess.run(python("-c", look), cwd=tmp_path, capture_output=True, text=True)

    assert answer.stdout.strip().endswith("[]")


def test_a_list_imports_no_other_database_and_no_job(cli: Cli, tmp_path: Path) -> None:
    cli("enqueue", "video-export", "recording=sample:shop-tour")
    heavy = "{'sqlalchemy.dialects.mysql', 'sqlalchemy.dialects.postgresql', 'alembic', 'dumbwaiter.jobs', 'psutil'}"
    look = f"import sys; sys.argv = ['dumbwaiter', 'list']\nfrom dumbwaiter.cli import main\ntry: main()\nfinally: print(sorted({heavy} & set(sys.modules)))"
    answer = subprocess.run(python("-c", look), cwd=tmp_path, capture_output=True, text=True)

    assert "video-export" in answer.stdout
    assert answer.stdout.strip().endswith("[]")


def test_settings_are_printed_with_where_they_came_from_and_without_passwords(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUMBWAITER_DATABASE", "postgresql://ada:hush@127.0.0.1:1/shop")
    monkeypatch.setenv("DUMBWAITER_SECRET", "hush")
    answer = cli("doctor", "--settings")

    assert answer.returncode == 0, answer.stderr
    assert "environment variable DUMBWAITER_DATABASE" in answer.stdout
    assert "hush" not in answer.stdout


def test_the_doctor_says_what_it_found(tmp_path: Path) -> None:
    answer = dumbwaiter("doctor", cwd=tmp_path)

    assert answer.returncode in {0, 1}
    assert "Python" in answer.stdout


def test_migrate_creates_the_tables_once(cli: Cli, shop: Path) -> None:
    first, again = (cli("--app", "shop:waiter", "migrate") for _ in range(2))

    assert (first.returncode, again.returncode) == (0, 0), first.stderr

    assert again.stdout == "the tables are up to date\n"
