"""Says in the log that tasks wait and no worker is at work: a web application that starts none would wait in silence."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from dumbwaiter.app import Dumbwaiter
from dumbwaiter.outlook import Outlook
from dumbwaiter.task import Task

log = logging.getLogger("dumbwaiter")

# A worker that is being started anew is no news.
PATIENCE = timedelta(seconds=5)
EVERY = timedelta(minutes=10)

_told: WeakKeyDictionary[Dumbwaiter, dict[str, datetime]] = WeakKeyDictionary()


def warn_of_unserved(
    waiter: Dumbwaiter, tasks: Sequence[Task], outlooks: Sequence[Outlook], now: datetime
) -> None:
    """A line for each queue in which one of these has been due for a while and that nobody serves; again after ten minutes."""
    for task, outlook in zip(tasks, outlooks, strict=True):
        if outlook.place is None or outlook.place.served or now - task.run_at < PATIENCE:
            continue
        told = _told.setdefault(waiter, {})
        if task.queue in told and now - told[task.queue] < EVERY:
            continue
        told[task.queue] = now
        log.warning(
            "tasks wait in queue %s, and no worker is at work on it: give the application lifespan=lifespan(waiter), "
            "or start one with dumbwaiter worker",
            task.queue,
        )
