"""The task types of an application."""

from __future__ import annotations

import types
from datetime import timedelta
from typing import Any

import pytest

from dumbwaiter.errors import ConfigurationError, UnknownTaskType
from dumbwaiter.executors.registry import PROCESS, Registry, TaskType, placeholders, reference_of
from dumbwaiter.executors.signature import Signature


def work(a: int) -> None: ...


async def coroutine(a: int) -> None: ...


def entry(name: str = "t", function: Any = work, **options: Any) -> TaskType:
    reference = options.pop("reference", reference_of(function))
    return TaskType(name, function, Signature(name, function), reference=reference, **options)


def test_a_task_type_is_found_by_its_name():
    registry = Registry()
    added = registry.add(entry("video-export"))

    assert registry["video-export"] is registry.get("video-export") is added
    assert (len(registry), [one.name for one in registry], registry.get("other")) == (
        1,
        ["video-export"],
        None,
    )


def test_an_unknown_task_type_is_told_with_those_that_there_are():
    registry = Registry()
    registry.add(entry("b"))
    registry.add(entry("a"))

    with pytest.raises(UnknownTaskType, match="no task type 'c'; registered here: a, b"):
        registry["c"]


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "é", "a" * 101, "a\n"])
def test_a_name_that_cannot_stand_in_an_address_is_refused(name):
    with pytest.raises(ConfigurationError, match="task type name"):
        Registry().add(entry(name))


@pytest.mark.parametrize("queue", ["", "a\0b", "\ud800", "q" * 101])
def test_a_queue_that_no_worker_could_ask_for_is_refused(queue):
    with pytest.raises(ConfigurationError, match="queue="):
        Registry().add(entry("t", queue=queue))


def test_two_functions_under_one_name_are_refused_and_the_same_one_again_is_not():
    registry = Registry()
    registry.add(entry("t", work))
    registry.add(entry("t", work))

    with pytest.raises(ConfigurationError, match="two task types named 't'"):
        registry.add(entry("t", coroutine))


def test_functions_of_one_name_in_two_modules_are_not_the_same_task_type():
    registry = Registry()
    registry.add(entry("t", work))
    other = types.FunctionType(work.__code__, {}, "work")
    other.__module__ = "shop.mails"

    with pytest.raises(
        ConfigurationError, match=r"two task types named 't', .*test_registry:work and shop\.mails:work"
    ):
        registry.add(entry("t", other))

    other.__module__ = "__main__"  # the module was started, and is imported by its name as well
    assert registry.add(entry("t", other)) is registry["t"]


def test_two_commands_under_one_name_are_refused_and_the_same_one_again_is_not():
    registry = Registry()
    registry.add(entry("t", argv=("ls",)))
    registry.add(entry("t", argv=("ls",)))

    with pytest.raises(ConfigurationError, match="two task types named 't'"):
        registry.add(entry("t", argv=("rm", "-r")))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"priority": 101}, "not within"),
        ({"timeout": timedelta(0)}, "not more than nothing"),
        ({"needs": {"chromium": 0}}, "must be more than nothing"),
        ({"max_memory": 2**30}, "max_memory= needs a function with isolate=True"),
        ({"max_memory": 1_000, "isolate": True}, "must be a number of bytes, at least 33,554,432"),
        ({"isolate": True, "reference": "__main__:work"}, "__main__"),
        ({"isolate": True, "reference": "m:f.<locals>.work"}, "made inside a function"),
        ({"isolate": True, "reference": "m:<lambda>"}, "made inside a function"),
    ],
)
def test_a_task_type_that_cannot_run_as_declared_is_refused(options, said):
    with pytest.raises(ConfigurationError, match=said):
        Registry().add(entry(**options))


@pytest.mark.parametrize(
    ("options", "executor", "needs"),
    [
        ({}, "thread", {}),
        ({"function": coroutine}, "coroutine", {}),
        ({"isolate": True, "needs": {"chromium": 1}}, "process", {PROCESS: 1, "chromium": 1}),
        ({"argv": ("ls",)}, "command", {PROCESS: 1}),
    ],
)
def test_what_a_task_type_runs_on_and_needs_follows_from_how_it_was_declared(options, executor, needs):
    made = entry(**options)

    assert (made.executor, dict(made.all_needs)) == (executor, needs)


def test_the_queues_are_those_of_the_types_and_the_default():
    registry = Registry()
    registry.add(entry("a", queue="mail"))

    assert registry.queues == ("default", "mail")


def test_a_commands_parameters_are_the_names_in_its_braces():
    assert placeholders("t", ["ffmpeg", "-i", "{source}", "{workdir}/x{size}.mp4", "{{}}"]) == (
        "source",
        "size",
    )


@pytest.mark.parametrize("word", ["{", "{0}", "{}", "{a.b}", "{a b}"])
def test_braces_that_name_no_parameter_are_refused(word):
    with pytest.raises(ConfigurationError, match="task 't'"):
        placeholders("t", [word])


@pytest.mark.parametrize(
    "terms",
    [
        {"version": 0},
        {"version": 1.5},
        {"version": "2"},
        {"version": 32_768},
        {"upgrade": lambda arguments, version: arguments},
        {"version": 2, "upgrade": {"to": "ann"}},
    ],
    ids=["0", "1.5", "text", "too many", "upgrade of the first", "upgrade that is none"],
)
def test_a_version_that_is_none_is_refused(terms):
    with pytest.raises(ConfigurationError, match="version="):
        Registry().add(entry("t", work, **terms))
