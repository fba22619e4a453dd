"""The stager: makes due tasks ready, at the latest a second after they are due, and sees what waits to run alone."""

from __future__ import annotations

from collections.abc import Callable

from dumbwaiter.store.claiming import Concern
from dumbwaiter.store.store import Store

REST = 1.0
BATCH = 500


def stage(store: Store, concern: Concern, suspects: Callable[[bool], None]) -> float:
    """One round; comes again when the next task is due, in a second at the latest (one may be enqueued meanwhile).

    Looks before it writes: on SQLite a write holds up everybody. The same look tells the claimer whether a suspect waits
    that is its concern, so that it need not ask.
    """
    ahead = store.ahead(concern)
    suspects(ahead.suspect)
    left = ahead.next_due
    if left is None or left.total_seconds() > 0:
        return REST if left is None else min(left.total_seconds(), REST)
    return 0.0 if store.stage(limit=BATCH) else REST
