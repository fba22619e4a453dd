"""Commands: under a guardian beside a thread's task, and as task types of their own."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from datetime import timedelta

import pytest

from dumbwaiter.errors import CommandFailed, ConfigurationError, TaskCancelled
from dumbwaiter.executors.base import Ended
from dumbwaiter.executors.command import CommandExecutor, filled
from dumbwaiter.executors.context import Stop
from dumbwaiter.executors.tree import TAIL, CannotStartProcess, Lines
from tests.executors import work
from tests.executors.conftest import WORKER, alive, held, hostile_pids, none_left, nothing_more_held_than


@pytest.fixture
def ctx(attempt):
    """The context of a task that runs on a thread of this process."""
    return attempt(work.report).running.context()


@pytest.fixture
def commands():
    executor = CommandExecutor(WORKER, grace=timedelta(seconds=0.5))
    yield executor
    executor.close()


def test_a_command_gives_its_status_and_both_streams_as_they_came(ctx):
    result = ctx.run(["sh", "-c", "echo one; echo two >&2; exit 4"], check=False)

    assert (result.status, result.output) == (4, "one\ntwo\n")


def test_a_command_that_fails_raises_with_its_last_words(ctx):
    with pytest.raises(CommandFailed, match="sh ended with status 4: no such month"):
        ctx.run(["sh", "-c", "echo no such month; exit 4"])


def test_a_command_runs_in_the_work_directory_with_what_was_added_to_the_environment(ctx):
    result = ctx.run(["sh", "-c", "pwd; echo $MONTH $DUMBWAITER_TAG"], env={"MONTH": "11"})

    assert result.output == f"{ctx.workdir}\n11 {WORKER}:{ctx.task.id}:1\n"


def test_signals_that_the_guardian_ignores_are_not_ignored_by_the_command(ctx):
    result = ctx.run(["sh", "-c", "kill -TERM $$"], check=False)

    assert result.status == -15


def test_a_program_that_is_not_there_is_named(ctx):
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        ctx.run(["no-such-program"])


def test_a_directory_that_is_not_there_is_named(ctx):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ctx.run(["true"], cwd="nowhere")


def test_a_file_that_is_no_program_is_refused(ctx):
    (ctx.workdir / "text").write_text("text")

    with pytest.raises(PermissionError, match="text"):
        ctx.run(["./text"])


def test_a_nul_in_a_word_is_refused(ctx):
    with pytest.raises(ValueError, match="null byte"):
        ctx.run(["echo", "a\0b"])


def test_a_command_that_reads_and_writes_much_does_not_lock_up(ctx):
    data = b"0123456789abcde\n" * 64 * 1024 * 4
    count = 0

    def see(line: str) -> None:
        nonlocal count
        count += 1

    result = ctx.run(
        ["sh", "-c", "echo start; head -c 200000 /dev/zero | tr '\\0' '\\n' >&2; cat"],
        stdin=data,
        on_line=see,
    )

    assert count == 1 + 200_000 + 64 * 1024 * 4
    assert len(result.output) == TAIL


def test_a_command_may_leave_its_input_unread(ctx):
    assert ctx.run(["true"], stdin=b"x" * 1_000_000).status == 0


def test_what_a_command_leaves_running_ends_with_it(ctx, tmp_path):
    script = f"{sys.executable} -c '{work.HOSTILE}' {tmp_path}/pids & while [ $(cat {tmp_path}/pids | wc -l) -lt {work.HOSTILE_SIZE} ]; do :; done"
    ctx.run(["sh", "-c", script + " 2>/dev/null"])

    assert none_left(hostile_pids(tmp_path / "pids"), seconds=0.1)


def test_a_command_gets_term_and_then_kill_when_the_attempt_should_stop(ctx, tmp_path):
    raised: list[BaseException] = []

    def task() -> None:
        try:
            ctx.run([sys.executable, "-c", work.HOSTILE, str(tmp_path / "pids")])
        except TaskCancelled as error:
            raised.append(error)

    thread = threading.Thread(target=task)
    thread.start()
    pids = hostile_pids(tmp_path / "pids")
    asked = time.monotonic()
    ctx._link.ask_stop(Stop.CANCEL)
    thread.join(10)

    # TERM is ignored by this tree, so the grace time (0.5 s) passes first
    assert 0.5 <= time.monotonic() - asked < 2
    assert none_left(pids, seconds=0.1)
    assert raised


def test_a_command_ends_with_its_attempt_though_the_task_hangs_in_on_line(ctx, tmp_path):
    hung = threading.Event()
    release = threading.Event()

    def hang(line: str) -> None:
        hung.set()
        release.wait(30)

    def task() -> None:
        with contextlib.suppress(TaskCancelled):
            ctx.run(["sh", "-c", f"echo $$ > {tmp_path}/pid; echo line; exec sleep 60"], on_line=hang)

    thread = threading.Thread(target=task, daemon=True)
    thread.start()
    hung.wait(10)
    pid = int((tmp_path / "pid").read_text())
    ctx._link.complete(Ended())

    assert none_left([pid])
    release.set()
    thread.join(10)


def test_an_error_in_on_line_ends_the_command_and_reaches_the_task(ctx, tmp_path):
    def refuse(line: str) -> None:
        raise LookupError(line)

    with pytest.raises(LookupError, match="first"):
        ctx.run(["sh", "-c", f"echo $$ > {tmp_path}/pid; echo first; exec sleep 60"], on_line=refuse)

    assert not alive(int((tmp_path / "pid").read_text()))


def test_no_command_is_started_for_an_attempt_that_should_stop(ctx, tmp_path):
    ctx._link.ask_stop(Stop.CANCEL)

    with pytest.raises(TaskCancelled):
        ctx.run(["touch", str(tmp_path / "made")])
    assert not (tmp_path / "made").exists()


def test_descriptors_and_threads_do_not_grow(ctx):
    ctx.run(["true"])
    before = held()
    for _ in range(5):
        ctx.run(["cat"], stdin=b"x")

    nothing_more_held_than(before)


def test_a_machine_without_room_for_a_process_is_a_named_error(ctx, monkeypatch):
    def no_room(*args: object, **how: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("dumbwaiter.executors.tree.subprocess.Popen", no_room)
    with pytest.raises(CannotStartProcess, match="temporarily unavailable"):
        ctx.run(["true"])


def test_a_task_type_that_is_a_command(attempt, commands):
    one = attempt(
        ["sh", "-c", "echo $0 $1; echo kept > out.txt", "{name}", "{workdir}"],
        {"name": "a b;c"},
        publishes=("out.txt",),
    )
    commands.start(one.running)

    assert one.result == {"status": 0, "output": f"a b;c {one.running.workdir}\n"}
    assert one.published == [("out.txt", b"kept\n", None)]


def test_a_command_task_that_fails_publishes_nothing(attempt, commands):
    one = attempt(["sh", "-c", "touch out.txt; echo broken; exit 2"], publishes=("out.txt",))
    commands.start(one.running)

    assert str(one.error) == "sh ended with status 2: broken"
    assert one.published == []


def test_a_command_task_without_its_file_fails(attempt, commands):
    one = attempt(["true"], publishes=("out.txt",))
    commands.start(one.running)

    assert isinstance(one.error, FileNotFoundError)


def test_a_command_task_is_asked_and_then_killed(attempt, commands, tmp_path):
    one = attempt(
        [sys.executable, "-c", work.HOSTILE.replace("{", "{{").replace("}", "}}"), "{pids}"],
        {"pids": str(tmp_path / "pids")},
    )
    commands.start(one.running)
    pids = hostile_pids(tmp_path / "pids")
    one.running.ask_stop(Stop.TIMEOUT)
    commands.ask(one.running)
    commands.kill(one.running)

    assert isinstance(one.error, TaskCancelled)
    assert one.times == 1
    assert none_left(pids, seconds=0.1)


def test_placeholders_are_filled_without_a_shell():
    argv = ["ffmpeg", "-i", "{source}", "--month={month}", "{{plain}}", "{files}", "{flag}"]
    arguments = {"source": "a b.mp4", "month": 11, "files": ["x", "y z"], "flag": True}

    assert filled(argv, arguments) == ["ffmpeg", "-i", "a b.mp4", "--month=11", "{plain}", "x", "y z", "true"]


def test_a_placeholder_without_an_argument_is_named():
    with pytest.raises(ConfigurationError, match="month"):
        filled(["echo", "{month}"], {})


def test_lines_end_at_newlines_and_carriage_returns_and_are_bounded():
    lines = Lines()

    assert lines.feed(b"frame=1\rframe=2\r\nend\xc3") == ["frame=1", "frame=2"]
    assert lines.feed(b"\xa4\n\nx") == ["endä", ""]
    assert [len(line) for line in lines.feed(b"y" * 40_000)] == [16 * 1024, 16 * 1024]
    assert len(lines.finish()[0]) == 40_001 - 2 * 16 * 1024
