from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.support.programs import dumbwaiter, program, python

APP = ("--app", "shop:waiter")


@pytest.fixture(autouse=True)
def here(shop: Path) -> None:
    """Every test has the application in its directory."""


def status_of(cli: Cli, task_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli(*APP, "status", task_id, "--json").stdout)
    return found


def enqueued(cli: Cli, *words: str) -> str:
    answer = cli(*APP, "enqueue", *words)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def test_a_task_is_enqueued_run_and_looked_at(shop: Path) -> None:
    task_id = dumbwaiter(*APP, "enqueue", "greet", "name=Kitchen", "times=2", cwd=shop).stdout.strip()
    with program(*python("-m", "dumbwaiter", *APP, "worker", "-q", "default=2"), cwd=shop) as worker:
        watched = dumbwaiter(*APP, "status", task_id, "--watch", "--json", cwd=shop)
        torn = dumbwaiter(*APP, "enqueue", "torn", "--watch", cwd=shop)
        steps = dumbwaiter(*APP, "enqueue", "steps", "--watch", cwd=shop)
        worker.process.terminate()
        assert worker.wait() == 0

    assert (watched.returncode, json.loads(watched.stdout)["result"]) == (0, "Hello Kitchen! Hello Kitchen! ")
    assert (torn.returncode, "ledger 7 is torn" in torn.stderr) == (1, True)
    assert (steps.returncode, "50 % part 2" in steps.stderr) == (0, True)


def test_arguments_are_read_as_the_parameters_want_them(cli: Cli) -> None:
    by_pairs = enqueued(cli, "greet", "name=007", "times=2", 'tags=["a"]')
    by_json = enqueued(cli, "greet", "--json", '{"name": "灯笼"}')

    assert status_of(cli, by_pairs)["arguments"] == {"name": "007", "times": 2, "tags": ["a"]}
    assert status_of(cli, by_json)["arguments"] == {"name": "灯笼"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("greet", "times=x"), "name: "),
        (("greet", "Kitchen"), "write name=value"),
        (("greet", "--json", "[]"), "write an object"),
        (("nonsense",), "registered here: endless, greet"),
        (("greet", "name=x", "--delay", "soon"), "is not a duration"),
    ],
)
def test_a_call_that_cannot_be_is_refused_in_one_sentence(
    cli: Cli, words: tuple[str, ...], sentence: str
) -> None:
    answer = cli(*APP, "enqueue", *words)

    assert answer.returncode == 1
    assert answer.stderr.startswith("dumbwaiter: ")
    assert answer.stderr.count("\n") == 1
    assert sentence in answer.stderr


def test_a_delayed_task_says_when_it_is_due(cli: Cli) -> None:
    task_id = enqueued(cli, "greet", "name=x", "--delay", "2h", "--key", "order-42", "--owner", "ada")
    said = cli(*APP, "status", task_id).stdout

    assert "scheduled, due in 1 h 59 min" in said or "scheduled, due in 2 h" in said
    assert "order-42" in said


def test_a_list_shows_the_newest_first_and_filters(cli: Cli) -> None:
    first, second = enqueued(cli, "greet", "name=a"), enqueued(cli, "torn")
    lines = cli(*APP, "list").stdout.splitlines()
    torn = json.loads(cli(*APP, "list", "--type", "torn", "--json").stdout)

    assert [line.split()[0] for line in lines] == ["ID", second, first]
    assert [task["id"] for task in torn] == [second]
    assert json.loads(cli(*APP, "list", "--status", "success", "--json").stdout) == []


def test_a_waiting_task_is_cancelled_and_made_again(cli: Cli) -> None:
    task_id = enqueued(cli, "greet", "name=Kitchen")
    cancelled = cli(*APP, "cancel", task_id)
    again = cli(*APP, "retry", task_id)
    too_late = cli(*APP, "cancel", task_id)

    assert cancelled.stdout == f"{task_id} cancelled\n"
    assert status_of(cli, again.stdout.strip())["retry_of"] == task_id
    assert (too_late.returncode, too_late.stderr.count("\n")) == (1, 1)


def test_an_unknown_task_is_a_sentence_and_with_debug_a_traceback_too(cli: Cli) -> None:
    plain, debug = cli(*APP, "status", "nonsense"), cli(*APP, "--debug", "status", "nonsense")

    assert (plain.returncode, plain.stderr) == (1, "dumbwaiter: there is no task nonsense\n")
    assert (debug.returncode, "Traceback" in debug.stderr) == (1, True)


def test_a_reader_that_leaves_is_no_error(cli: Cli, shop: Path) -> None:
    for _ in range(3):
        enqueued(cli, "greet", "name=Kitchen")
    command = (
        f"{' '.join(python('-m', 'dumbwaiter', *APP, 'list', '--json'))} | true; echo ${{PIPESTATUS[0]}}"
    )
    answer = subprocess.run(["bash", "-c", command], cwd=shop, capture_output=True, text=True)

    assert answer.stderr == ""
    assert answer.stdout.strip() in {"0", "141"}


def test_without_a_locale_everything_still_comes_out(cli: Cli, shop: Path) -> None:
    task_id = enqueued(cli, "greet", "name=灯笼")
    bare = {"LC_ALL": "C", "LANG": "", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    answer = dumbwaiter(*APP, "status", task_id, cwd=shop, env=bare)
    as_json = dumbwaiter(*APP, "status", task_id, "--json", cwd=shop, env=bare)

    assert (answer.returncode, as_json.returncode) == (0, 0), answer.stderr + as_json.stderr
    assert json.loads(as_json.stdout)["arguments"] == {"name": "灯笼"}


def test_on_a_terminal_a_list_is_a_table(cli: Cli, shop: Path) -> None:
    enqueued(cli, "greet", "name=Kitchen")
    ours, theirs = pty.openpty()
    command = python("-m", "dumbwaiter", *APP, "list")
    with subprocess.Popen(command, cwd=shop, stdout=theirs, env={**os.environ, "COLUMNS": "160"}) as process:
        os.close(theirs)
        said = b""
        while chunk := read_or_end(ours):
            said += chunk
    os.close(ours)

    assert process.returncode == 0
    assert "greet" in said.decode()
    assert "─" in said.decode()


def read_or_end(terminal: int) -> bytes:
    """Linux tells the end of a pseudo-terminal as an error."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""
