"""Dumbwaiter: durable background tasks for slow work that people wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dumbwaiter.errors import Fail, RetryLater, Snooze
from dumbwaiter.retry import Retry
from dumbwaiter.task import Status, Task

if TYPE_CHECKING:
    from dumbwaiter.app import Dumbwaiter
    from dumbwaiter.executors.context import TaskContext
    from dumbwaiter.executors.upload import Upload

__version__ = "0.1.0"
__all__ = [
    "Dumbwaiter",
    "Fail",
    "Retry",
    "RetryLater",
    "Snooze",
    "Status",
    "Task",
    "TaskContext",
    "Upload",
    "__version__",
]

LATER = {
    "Dumbwaiter": "dumbwaiter.app",
    "TaskContext": "dumbwaiter.executors.base",
    "Upload": "dumbwaiter.executors.upload",
}


def __getattr__(name: str) -> Any:
    """The heavier names are imported at first use, so that `import dumbwaiter` stays light."""
    if name in LATER:
        from importlib import import_module

        return getattr(import_module(LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
