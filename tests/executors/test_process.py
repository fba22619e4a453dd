"""Isolated processes: results, errors, crashes, stops, and what is left."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from dumbwaiter.errors import LostClaim, MemoryExceeded, TaskCancelled
from dumbwaiter.executors import process as process_module
from dumbwaiter.executors import tree as tree_module
from dumbwaiter.executors.context import Stop
from dumbwaiter.executors.guardian import processes as all_processes
from dumbwaiter.executors.process import CannotStartProcess, ProcessDied, ProcessExecutor
from dumbwaiter.retry import RemoteError, Retry
from tests.executors import work
from tests.executors.conftest import WORKER, held, hostile_pids, none_left, nothing_more_held_than, until

MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize("function", [work.add, work.add_slowly])
def test_a_function_in_its_own_process_returns_its_result(run, function):
    one = run(function, {"left": 2, "right": 3})

    assert one.result == 5
    assert one.times == 1


def test_a_child_serves_the_next_task_of_its_function(run):
    first = run(work.whoami).result
    second = run(work.whoami).result

    assert first == second != os.getpid()


def test_two_tasks_at_once_have_two_processes(run, tmp_path):
    ones = [run(work.wait_for_stop, {"ready": str(tmp_path / str(number))}) for number in range(2)]
    texts = [tmp_path / "0", tmp_path / "1"]
    until(lambda: all(path.exists() and path.read_text() for path in texts))
    pids = [path.read_text() for path in texts]
    for one in ones:
        one.running.ask_stop(Stop.CANCEL)
        one.wait()

    assert len(set(pids)) == 2


def test_a_child_is_replaced_after_so_many_tasks(run, monkeypatch):
    monkeypatch.setattr(process_module, "MAX_TASKS", 2)
    pids = [run(work.whoami).result for _ in range(4)]

    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_child_that_has_grown_is_replaced(run, monkeypatch):
    monkeypatch.setattr(process_module, "GROWTH", -1)

    assert run(work.whoami).result != run(work.whoami).result


@pytest.mark.parametrize(
    ("tasks", "growth"),
    [
        pytest.param(40, 20),
        pytest.param(300, 100, marks=[pytest.mark.long, pytest.mark.timeout(180)]),
    ],
)
def test_tasks_that_leak_all_end_well_in_children_that_stay_small(run, monkeypatch, tasks, growth):
    monkeypatch.setattr(process_module, "MAX_TASKS", tasks)
    monkeypatch.setattr(process_module, "GROWTH", growth * MEBIBYTE)
    told = [run(work.leak, {"mebibytes": 2}).result for _ in range(tasks)]

    children = {pid: [count for one, count, _ in told if one == pid] for pid, _, _ in told}
    # each was run, and once: a child counts what it has leaked
    assert [list(range(1, len(counts) + 1)) for counts in children.values()] == list(children.values())
    # no child serves a single task only, and none goes on for ever
    assert tasks * 2 // growth // 2 <= len(children) <= tasks * 2 // growth + 1
    assert max(size for *_, size in told) <= min(size for *_, size in told) + growth + 10


def test_a_limit_of_growth_below_a_childs_own_size_does_not_cost_each_task_a_child(run, monkeypatch):
    monkeypatch.setattr(process_module, "GROWTH", 8 * MEBIBYTE)
    told = [run(work.leak, {"mebibytes": 0}).result for _ in range(10)]

    assert told[0][2] > 8
    assert len({pid for pid, *_ in told}) == 1


def test_an_idle_child_goes_by_itself(run, monkeypatch):
    monkeypatch.setattr(process_module, "IDLE_SECONDS", 0.05)
    pid = run(work.whoami).result

    assert none_left([pid])


def test_no_more_children_stay_warm_than_allowed(run):
    pids = [run(function).result for function in (work.whoami, work.leave_a_thread)]
    others = [run(work.look_around), run(work.add, {"left": 1, "right": 1})]
    for other in others:
        other.wait()

    assert none_left(pids)


def test_a_warm_child_that_died_unnoticed_is_replaced(run):
    pid = run(work.whoami).result
    os.kill(pid, signal.SIGKILL)
    none_left([pid])

    assert run(work.whoami).result != pid


def test_two_functions_have_two_processes(run):
    assert run(work.whoami).result != run(work.leave_a_thread).result


def test_the_next_task_finds_directory_and_environment_as_they_were(run):
    run(work.make_a_mess).wait()
    place, mess, tag = run(work.look_around).result

    assert place == str(Path.cwd())
    assert mess is None
    assert tag.startswith(f"{WORKER}:0199-")


def test_a_task_that_left_a_thread_gets_its_child_replaced(run):
    assert run(work.leave_a_thread).result != run(work.leave_a_thread).result


def test_a_task_whose_threads_have_ended_keeps_its_child(run):
    assert run(work.start_threads_that_end).result == run(work.start_threads_that_end).result


def test_a_task_that_closes_its_streams_still_gives_its_result(run, tmp_path):
    assert run(work.remove_own_place, {"place": str(tmp_path)}).result == "done"
    assert run(work.remove_own_place, {"place": str(tmp_path)}).result == "done"


def test_descriptors_and_threads_do_not_grow(attempt):
    for _ in range(2):
        executor = ProcessExecutor(WORKER, grace=timedelta(seconds=0.5), warm=1)
        before = held()
        for function in (work.whoami, work.whoami, work.leave_a_thread):
            one = attempt(function)
            executor.start(one.running)
            one.wait()
        executor.close()

        nothing_more_held_than(before)


def test_a_machine_without_room_for_a_process_ends_the_attempt_with_a_named_error(run, monkeypatch):
    def no_room(*args: object, **how: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("dumbwaiter.executors.tree.subprocess.Popen", no_room)
    before = held()
    error = run(work.whoami).error

    assert isinstance(error, CannotStartProcess)
    assert error.transient
    nothing_more_held_than(before)


def test_what_a_task_left_running_is_gone_when_it_has_ended(run, tmp_path):
    pids = tmp_path / "pids"
    child = run(work.leave_behind, {"pids": str(pids)}).result

    assert none_left(hostile_pids(pids), seconds=0.1)
    # the child itself was spared, and takes the next task
    pids.unlink()
    assert run(work.leave_behind, {"pids": str(pids)}).result == child


def test_an_error_arrives_with_its_type_text_and_traceback(run):
    error = run(work.fail, {"how": "value"}).error

    assert isinstance(error, RemoteError)
    assert error.error_type == "ValueError"
    assert str(error) == "the month is \\ud800 13"
    assert "in fail" in error.traceback
    assert not error.worth


def test_the_text_for_people_arrives(run):
    error = run(work.fail, {"how": "fail"}).error

    assert error.user_message == "for people"
    assert not error.worth


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("unprintable", "could not be made"),
        ("exit", "the task called sys.exit(3)"),
        ("interrupt", "interrupted"),
        ("recursion", "recursion"),
    ],
)
def test_whatever_is_raised_is_a_failure_of_the_task_alone(run, how, sentence):
    error = run(work.fail, {"how": how}).error

    assert sentence in str(error)
    assert run(work.add, {"left": 1, "right": 1}).result == 2


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("segfault", "the task's process was killed by signal 11 (SIGSEGV)"),
        ("killed", "the task's process was killed by signal 9 (SIGKILL)"),
        ("_exit", "the task's process ended with status 7"),
    ],
)
def test_a_process_that_dies_is_a_failure_with_a_sentence(run, how, sentence):
    error = run(work.fail, {"how": how}).error

    assert isinstance(error, ProcessDied)
    assert str(error).startswith(sentence)


def test_the_last_words_of_a_process_that_died_are_kept(run):
    error = run(work.fail, {"how": "_exit"}).error

    assert "the last words" in error.__notes__[0]


def test_a_result_that_is_not_json_fails_with_its_place(run):
    error = run(work.unserialisable).error

    assert "when[1]" in str(error)
    assert not error.worth


def test_ten_megabytes_of_prints_hold_nothing_up(run, monkeypatch):
    monkeypatch.setattr(process_module, "pass_on", lambda label, line: None)

    assert run(work.shout, {"megabytes": 10}).result == "done"


def test_prints_go_to_the_log_line_by_line(run, caplog):
    caplog.set_level(logging.INFO, logger="dumbwaiter")
    run(work.say, {"text": "good morning"}).wait()

    until(lambda: sum("good morning" in message for message in caplog.messages) == 2)


def test_prints_go_to_stderr_where_nobody_reads_the_log(run, capsys):
    run(work.say, {"text": "good morning"}).wait()

    until(lambda: "good morning" in capsys.readouterr().err)


def test_progress_arrives_and_the_last_report_counts(run):
    one = run(work.report)
    one.wait()

    shown = one.running.fresh_progress()
    assert (shown.fraction, shown.step) == (0.5, "writing")


def test_a_file_is_published_through_the_pipe(run):
    one = run(work.publish, {"text": "forty-two"})

    assert one.result.endswith(one.running.workdir.name)
    assert one.published == [("answer.txt", b"forty-two", "text/plain")]


def test_a_refused_publication_is_told_to_the_task(attempt, processes):
    one = attempt(work.publish_refused)
    one.refuse_with = LostClaim("attempt 1 is late")
    processes.start(one.running)

    assert one.result == "lost: attempt 1 is late"


def test_a_task_in_a_child_sees_that_it_should_stop(run, processes, tmp_path):
    ready = tmp_path / "ready"
    one = run(work.wait_for_stop, {"ready": str(ready)})
    until(ready.exists)
    asked = time.monotonic()
    one.running.ask_stop(Stop.CANCEL)
    processes.ask(one.running)
    error = one.error

    assert time.monotonic() - asked < 1
    assert ready.read_text() == "saw it"
    assert error.meaning == "cancel"


def test_a_coroutine_in_a_child_is_cancelled(run, processes, tmp_path):
    ready = tmp_path / "ready"
    one = run(work.wait_for_stop_async, {"ready": str(ready)})
    until(ready.exists)
    one.running.ask_stop(Stop.SHUTDOWN)
    processes.ask(one.running)

    assert one.error.meaning == "cancel"
    assert ready.read_text() == "saw it"


def test_a_stop_that_was_asked_before_the_start_is_seen(attempt, processes, tmp_path):
    one = attempt(work.wait_for_stop, {"ready": str(tmp_path / "ready")})
    one.running.ask_stop(Stop.CANCEL)
    processes.start(one.running)

    assert one.error.meaning == "cancel"


def test_a_hostile_tree_is_ended_by_kill(run, processes, tmp_path):
    one = run(work.hostile, {"pids": str(tmp_path / "pids")})
    pids = hostile_pids(tmp_path / "pids")
    one.running.ask_stop(Stop.TIMEOUT)
    asked = time.monotonic()
    processes.kill(one.running)
    error = one.error

    assert time.monotonic() - asked < 1
    assert isinstance(error, TaskCancelled)
    assert none_left(pids, seconds=0.1)


def test_a_function_that_holds_the_interpreter_is_ended_by_kill(run, processes, tmp_path):
    ready = tmp_path / "ready"
    one = run(work.hold_the_gil, {"ready": str(ready)})
    pid = int(until(lambda: ready.exists() and ready.read_text()))
    one.running.ask_stop(Stop.TIMEOUT)
    processes.ask(one.running)
    processes.kill(one.running)

    assert isinstance(one.error, TaskCancelled)
    assert none_left([pid], seconds=0.1)


def test_a_stopped_process_is_ended_by_kill(run, processes, tmp_path):
    ready = tmp_path / "ready"
    one = run(work.wait_for_stop, {"ready": str(ready)})
    pid = int(until(lambda: ready.exists() and ready.read_text()))
    os.kill(pid, signal.SIGSTOP)
    one.running.ask_stop(Stop.CANCEL)
    processes.kill(one.running)

    assert isinstance(one.error, TaskCancelled)
    assert none_left([pid], seconds=0.1)


def test_a_kill_before_the_process_is_there_is_not_forgotten(attempt, processes, tmp_path):
    one = attempt(work.hostile, {"pids": str(tmp_path / "pids")})
    processes.start(one.running)
    one.running.ask_stop(Stop.TIMEOUT)
    processes.kill(one.running)

    assert isinstance(one.error, TaskCancelled)


def test_a_kill_that_comes_as_its_task_ends_hits_no_other_task_of_its_child(
    run, processes, tmp_path, monkeypatch
):
    ready, go = [[tmp_path / f"{word}{number}" for number in (1, 2)] for word in ("ready", "go")]
    first = run(work.wait_for, {"ready": str(ready[0]), "go": str(go[0])})
    until(ready[0].exists)
    killing, next_one = threading.Event(), threading.Event()
    kill = tree_module.Tree.kill

    def slowly(tree):
        # in the middle of its kill the watcher's thread is not given the processor for a moment
        killing.set()
        next_one.wait(1)
        kill(tree)

    with monkeypatch.context() as patch:
        patch.setattr(tree_module.Tree, "kill", slowly)
        watcher = threading.Thread(target=processes.kill, args=(first.running,))
        watcher.start()
        killing.wait(5)
        go[0].touch()
        first.wait()
        second = run(work.wait_for, {"ready": str(ready[1]), "go": str(go[1])})
        until(ready[1].exists)
        next_one.set()
        watcher.join()
    child = processes._at_work[second.running]
    go[1].touch()

    assert child.tree._killed_at is None
    assert second.result == str(ready[1])


def test_a_child_that_was_killed_when_its_task_had_ended_serves_no_other(
    run, processes, tmp_path, monkeypatch
):
    sweep = tree_module.Tree.sweep

    def swept(tree, *how):
        clean = sweep(tree, *how)
        processes.kill(first.running)
        return clean

    monkeypatch.setattr(tree_module.Tree, "sweep", swept)
    first = run(work.whoami)

    first.wait()
    assert processes._idle == []


def test_a_killed_guardian_takes_its_tree_along(run, tmp_path):
    one = run(work.hostile, {"pids": str(tmp_path / "pids")})
    pids = hostile_pids(tmp_path / "pids")
    (guardian,) = guardians_of(os.getpid())
    os.kill(guardian, signal.SIGKILL)

    assert isinstance(one.error, ProcessDied)
    assert none_left(pids)


def test_a_tree_that_cannot_be_ended_does_not_hold_up_its_attempt(run, processes, tmp_path, monkeypatch):
    monkeypatch.setattr(tree_module, "KILL_SECONDS", 0.3)
    one = run(work.hostile, {"pids": str(tmp_path / "pids")})
    pids = hostile_pids(tmp_path / "pids")
    (guardian,) = guardians_of(os.getpid())
    # as if a process of the tree hung in the kernel
    os.kill(guardian, signal.SIGSTOP)
    try:
        one.running.ask_stop(Stop.TIMEOUT)
        processes.kill(one.running)

        assert isinstance(one.error, TaskCancelled)
    finally:
        os.kill(guardian, signal.SIGCONT)
    assert none_left([*pids, guardian])


def guardians_of(pid: int) -> list[int]:
    children = [one.pid for one in all_processes().values() if one.parent == pid and one.alive]
    return [child for child in children if b"guardian.py" in Path(f"/proc/{child}/cmdline").read_bytes()]


WORKER_PROGRAM = """
import sys, threading
from datetime import timedelta
from pathlib import Path
from dumbwaiter.executors.base import Running, Surroundings
from dumbwaiter.executors.guardian import processes as all_processes
from dumbwaiter.executors.process import ProcessExecutor
from dumbwaiter.executors.registry import TaskType, reference_of
from dumbwaiter.executors.signature import Signature
from tests.executors import work
from tests.executors.conftest import NOW, WORKER
from dumbwaiter.task import Status, Task
task = Task("1", "hostile", "default", Status.RUNNING, {"pids": sys.argv[1]}, NOW, NOW, NOW, attempt=1, worker_id="w")
entry = TaskType("hostile", work.hostile, Signature("hostile", work.hostile), isolate=True, reference=reference_of(work.hostile))
around = Surroundings(lambda _: Path(sys.argv[1]).parent / "w", publish=None, commands=None, done=lambda *_: None)
running = Running(task, entry, around)
ProcessExecutor(WORKER, grace=timedelta(seconds=1), warm=1).start(running)
threading.Event().wait()
"""


@pytest.mark.parametrize("stop_first", [False, True])
def test_nothing_is_left_when_the_worker_itself_is_killed(tmp_path, stop_first):
    pids_file = tmp_path / "pids"
    worker = subprocess.Popen([sys.executable, "-c", WORKER_PROGRAM, str(pids_file)], cwd=Path.cwd())
    try:
        pids = [*hostile_pids(pids_file), *guardians_of(worker.pid)]
        if stop_first:
            worker.send_signal(signal.SIGSTOP)
    finally:
        worker.kill()
        worker.wait()

    assert len(pids) == work.HOSTILE_SIZE + 1
    assert none_left(pids, seconds=2)


def test_close_ends_idle_and_working_children(attempt, tmp_path):
    executor = ProcessExecutor(WORKER, grace=timedelta(seconds=0.5), warm=2)
    idle = attempt(work.whoami)
    executor.start(idle.running)
    idle_pid = idle.result
    one = attempt(work.hostile, {"pids": str(tmp_path / "pids")})
    executor.start(one.running)
    pids = hostile_pids(tmp_path / "pids")
    executor.close()

    assert none_left([idle_pid, *pids], seconds=0.1)
    assert isinstance(one.error, TaskCancelled)


def test_the_scope_is_entered_inside_the_child(run):
    one = run(work.use_scope, scope=work.scope)

    assert one.result == f"scope of {one.running.task.id}"


def test_a_function_registered_where_it_stands_runs_as_it_was_registered(attempt, processes):
    one = attempt(work.use_scope)
    one.running.task = dataclasses.replace(one.running.task, task_type="registered")
    one.running.entry = dataclasses.replace(one.running.entry, reference="tests.executors.work:registered")
    processes.start(one.running)

    assert one.result == f"scope of {one.running.task.id}"


def test_a_scope_that_cannot_be_imported_is_refused_with_the_cure(run):
    error = run(work.use_scope, scope=lambda ctx: None).error

    assert "make it a function at the top of a module" in str(error)


@pytest.mark.parametrize(
    ("how", "policy", "worth"),
    [
        ("value", Retry(on=(LookupError, ValueError)), True),
        ("value", Retry(on=(LookupError,)), False),
        ("unprintable", Retry(), True),
        ("unprintable", Retry(never=(work.Unprintable,)), False),
        ("fail", Retry(on=(Exception,)), False),
    ],
)
def test_the_workers_policy_decides_whether_an_error_of_the_child_is_worth_a_retry(run, how, policy, worth):
    error = run(work.fail, {"how": how}, retry=policy).error

    assert error.worth is worth


def test_a_command_inside_a_child(run):
    status, output, seen, workdir = run(work.use_a_command).result

    assert status == 0
    assert seen == ["one", "two", workdir]
    assert output == f"one\ntwo\n{workdir}\n"


def test_a_command_inside_a_child_gets_term_when_the_attempt_should_stop(run, processes, tmp_path):
    ready = tmp_path / "ready"
    one = run(work.run_a_long_command, {"ready": str(ready)})
    until(lambda: ready.exists() and ready.read_text())
    one.running.ask_stop(Stop.CANCEL)
    processes.ask(one.running)

    assert one.error.meaning == "cancel"
    assert ready.read_text() == "got TERM\n"


def test_a_task_that_uses_more_memory_than_it_may_is_ended_and_says_how_much(run):
    one = run(work.take_memory, {"mebibytes": 300}, max_memory=120 * MEBIBYTE)

    error = one.error
    assert isinstance(error, MemoryExceeded)
    assert error.used > error.allowed == 120 * MEBIBYTE
    assert re.fullmatch(
        r"killed: memory; the task's process used \d+ MiB, more than the 120 MiB that max_memory= allows",
        str(error),
    )


def test_what_a_task_started_counts_too(run):
    one = run(work.take_memory_together, {"processes": 4, "each": 40}, max_memory=120 * MEBIBYTE)

    assert isinstance(one.error, MemoryExceeded)
    assert one.error.processes > 2
    nothing = f"{WORKER}:{one.running.task.id}:1"
    until(lambda: not [pid for pid in all_processes() if tagged(pid, nothing)])


def tagged(pid, tag):
    try:
        return f"DUMBWAITER_TAG={tag}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_memory_that_processes_share_counts_once(run, tmp_path):
    one = run(
        work.share_memory,
        {"ready": str(tmp_path / "ready"), "mebibytes": 60, "forks": 4},
        max_memory=200 * MEBIBYTE,
    )

    assert one.result == "shared"


def test_a_task_within_its_memory_is_left_alone_and_its_child_kept(run):
    first = run(work.whoami, max_memory=200 * MEBIBYTE).result

    assert run(work.whoami, max_memory=200 * MEBIBYTE).result == first


def test_too_much_memory_is_not_tried_again_unless_the_policy_says_so():
    error = MemoryExceeded(2, 1, 1)

    assert not Retry().worth(error)
    assert Retry(on=(MemoryExceeded,)).worth(error)
