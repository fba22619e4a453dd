from __future__ import annotations

import json
import os
import pty
import signal
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
    assert "run 1       failed after" in torn.stdout
    assert (steps.returncode, "50 % part 2" in steps.stderr) == (0, True)


def test_arguments_are_read_as_the_parameters_want_them(cli: Cli) -> None:
    by_pairs = enqueued(cli, "greet", "name=007", "times=2", 'tags=["a"]')
    by_json = enqueued(cli, "greet", "--json", '{"name": "灯笼"}')

    assert status_of(cli, by_pairs)["arguments"] == {"name": "007", "times": 2, "tags": ["a"]}
    assert status_of(cli, by_json)["arguments"] == {"name": "灯笼"}


def test_a_file_that_is_named_is_uploaded_for_its_owner(cli: Cli, shop: Path) -> None:
    (shop / "poem.txt").write_text("one\ntwo\n")

    task_id = enqueued(cli, "measure", "file=@poem.txt", "--owner", "ada")

    told = status_of(cli, task_id)["arguments"]["file"]
    assert (told["filename"], told["size"], told["content_type"]) == ("poem.txt", 8, "text/plain")
    missing = cli(*APP, "enqueue", "measure", "file=@nowhere.txt")
    assert (missing.returncode, "there is no file nowhere.txt to upload" in missing.stderr) == (1, True)
    foreign = cli(*APP, "enqueue", "measure", f'file={{"upload": "{told["upload"]}"}}')
    assert (foreign.returncode, "there is no upload" in foreign.stderr) == (1, True)


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
    twice = cli(*APP, "cancel", task_id)

    assert cancelled.stdout == f"{task_id} cancelled\n"
    assert status_of(cli, again.stdout.strip())["retry_of"] == task_id
    assert (twice.returncode, twice.stdout) == (0, f"{task_id} was cancelled already\n")


def test_what_has_succeeded_is_not_cancelled_any_more(shop: Path, cli: Cli) -> None:
    with program(*python("-m", "dumbwaiter", *APP, "worker"), cwd=shop):
        task_id = dumbwaiter(*APP, "enqueue", "greet", "name=Kitchen", "--watch", cwd=shop).stdout.split()[0]
    too_late = cli(*APP, "cancel", task_id)

    assert (too_late.returncode, too_late.stderr.count("\n")) == (1, 1)


def test_whoever_follows_a_task_is_told_that_no_worker_is_at_work(shop: Path) -> None:
    follow = (*python("-m", "dumbwaiter"), *APP, "enqueue", "greet", "name=Kitchen", "--watch")
    with program(*follow, cwd=shop) as following:
        following.says(
            "queued, the next; no worker is at work on this queue, start one with: dumbwaiter worker"
        )
        with program(*python("-m", "dumbwaiter", *APP, "worker"), cwd=shop):
            assert following.wait() == 0


def test_an_unknown_task_is_a_sentence_and_with_debug_a_traceback_too(cli: Cli) -> None:
    enqueued(cli, "torn")
    plain, debug = cli(*APP, "status", "nonsense"), cli(*APP, "--debug", "status", "nonsense")

    assert (plain.returncode, plain.stderr) == (1, "dumbwaiter: there is no task nonsense\n")
    assert (debug.returncode, "Traceback" in debug.stderr) == (1, True)


def test_an_operator_finds_each_attempt_and_its_traceback(cli: Cli, shop: Path) -> None:
    task_id = enqueued(cli, "torn")
    with program(*python("-m", "dumbwaiter", *APP, "worker"), cwd=shop) as worker:
        first = worker.says(r"worker (\S+): all queues; database: (.+)")
        dumbwaiter(*APP, "status", task_id, "--watch", cwd=shop)
        [alive] = json.loads(cli(*APP, "workers", "--json").stdout)
        as_text = cli(*APP, "workers").stdout
    plain, with_tracebacks = cli(*APP, "status", task_id), cli(*APP, "status", task_id, "--tracebacks")
    [attempt] = status_of(cli, task_id)["attempts"]
    remarks = cli(*APP, "list").stdout

    assert first[2] == f"SQLite, {shop / 'tasks.db'}"
    assert (alive["name"], alive["state"], alive["tasks"]) == (first[1], "working", [])
    assert as_text.splitlines()[1].startswith(first[1])
    assert f"on {first[1]}: dumbwaiter.errors.Fail: ledger 7 is torn" in plain.stdout
    assert "Traceback" not in plain.stdout
    assert f"dumbwaiter status {task_id} --tracebacks" in plain.stdout
    assert 'raise Fail("ledger 7 is torn")' in with_tracebacks.stdout
    assert (attempt["number"], attempt["outcome"], attempt["worker"]) == (1, "failed", first[1])
    assert 'raise Fail("ledger 7 is torn")' in attempt["traceback"]
    assert remarks.splitlines()[1].endswith("dumbwaiter.errors.Fail: ledger 7 is torn")


@pytest.mark.parametrize(
    "words", [("list",), ("status", "0199"), ("cancel", "0199"), ("retry", "0199"), ("workers",)]
)
def test_looking_makes_no_database(cli: Cli, shop: Path, words: tuple[str, ...]) -> None:
    answer = cli(*APP, *words)

    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1)
    assert f"{shop / 'tasks.db'} does not exist" in answer.stderr
    assert not (shop / "tasks.db").exists()


def test_a_list_is_asked_for_by_what_the_column_shows(cli: Cli) -> None:
    later, now = enqueued(cli, "greet", "name=a", "--delay", "2h"), enqueued(cli, "greet", "name=b")

    def listed(status: str) -> list[str]:
        return [task["id"] for task in json.loads(cli(*APP, "list", "--status", status, "--json").stdout)]

    assert (listed("queued"), listed("scheduled"), listed("pending")) == ([now], [later], [now, later])
    assert (listed("retrying"), listed("running"), listed("cancelling")) == ([], [], [])
    wrong, empty = cli(*APP, "list", "--status", "nonsense"), cli(*APP, "list", "--status", "failed")
    assert (wrong.returncode, "Value error" in wrong.stderr) == (2, False)
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "no tasks\n")


def test_a_list_turns_as_many_pages_as_it_needs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dumbwaiter.cli.tasks.PAGE", 1)
    later = [enqueued(cli, "greet", "name=a", "--delay", "2h") for _ in range(2)]
    enqueued(cli, "greet", "name=b")
    answer = cli(*APP, "list", "--status", "scheduled", "--limit", "1", "--json")

    assert [task["id"] for task in json.loads(answer.stdout)] == [later[1]]


def test_the_beginning_of_an_id_is_enough_if_no_other_begins_so(cli: Cli) -> None:
    first, second = enqueued(cli, "greet", "name=a"), enqueued(cli, "greet", "name=b")
    length = next(index for index in range(36) if first[index] != second[index])
    common, unique = first[:length], first[: length + 1]
    both = cli(*APP, "status", common)

    assert json.loads(cli(*APP, "status", unique.upper(), "--json").stdout)["id"] == first
    assert (both.returncode, first in both.stderr, second in both.stderr) == (1, True, True)
    assert "there is no task 0199%" in cli(*APP, "status", "0199%").stderr


def test_several_tasks_are_cancelled_though_one_cannot_be(cli: Cli) -> None:
    first, second = enqueued(cli, "greet", "name=a"), enqueued(cli, "greet", "name=b")
    answer = cli(*APP, "cancel", first, "nonsense", second)

    assert answer.stdout == f"{first} cancelled\n{second} cancelled\n"
    assert (answer.returncode, "1 of 3 tasks were not cancelled" in answer.stderr) == (1, True)


def test_a_success_that_is_still_good_is_made_again_with_force(cli: Cli, shop: Path) -> None:
    with program(*python("-m", "dumbwaiter", *APP, "worker"), cwd=shop):
        task_id = dumbwaiter(*APP, "enqueue", "greet", "name=a", "--watch", cwd=shop).stdout.split()[0]
    refused, forced = cli(*APP, "retry", task_id), cli(*APP, "retry", task_id, "--force")

    assert "it has succeeded; its result is still good, and --force makes it again" in refused.stderr
    assert (refused.returncode, forced.returncode) == (1, 0)


def test_ctrl_c_ends_the_watching_and_not_the_task(cli: Cli, shop: Path) -> None:
    task_id = enqueued(cli, "greet", "name=a")
    with program(*python("-m", "dumbwaiter", *APP, "status", task_id, "--watch"), cwd=shop) as watching:
        watching.says("greet: queued")
        watching.signal(signal.SIGINT)
        status = watching.wait()

    assert status == 130
    assert f"the task goes on; dumbwaiter status {task_id}" in watching.said
    assert status_of(cli, task_id)["status"] == "pending"


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
