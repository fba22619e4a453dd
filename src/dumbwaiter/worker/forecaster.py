"""The forecaster: how long what runs will still take, and when that is worth writing."""

from __future__ import annotations

import time
from datetime import timedelta

from dumbwaiter.executors.base import Running
from dumbwaiter.store.rows import Report
from dumbwaiter.task import Progress
from dumbwaiter.worker.durations import Durations

# A task that says nothing is looked at so often, from so long after its start.
SILENT = 2.0
# Its estimate is written anew when the end that was written is off by so many seconds, and by such a part of what is left.
OFF_SECONDS, OFF_PART = 2.0, 0.15
NOTHING = Progress()


class Forecaster:
    """Makes reports of what running attempts said, and of what their silence means."""

    def __init__(self, durations: Durations) -> None:
        self._durations = durations

    def report(self, one: Running) -> Report | None:
        """What is to be written of this attempt now, or None."""
        progress = one.fresh_progress()
        seconds = time.monotonic() - one.started
        if progress is None and seconds < one.forecast_after:
            return None
        one.forecast_after = max(seconds, 0.0) + SILENT
        estimate = (
            one.forecast(seconds, self._durations.of(one.task.task_type)) if known(one, seconds) else None
        )
        if estimate is None:
            return None if progress is None else Report(one.task, progress)
        end = seconds + estimate.seconds
        near = max(OFF_SECONDS, OFF_PART * estimate.seconds)
        if progress is None and one.told_end is not None and abs(end - one.told_end) <= near:
            return None
        one.told_end = end
        return Report(
            one.task, progress or NOTHING, timedelta(seconds=estimate.seconds), spread=estimate.spread
        )


def known(one: Running, seconds: float) -> bool:
    """Whether it is worth a look: a task that is over in a moment never says when."""
    return one.fraction is not None or seconds >= SILENT
