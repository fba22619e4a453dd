"""The stager: makes due tasks ready, at the latest a second after they are due."""

from __future__ import annotations

from dumbwaiter.store.store import Store

REST = 1.0
BATCH = 500


def stage(store: Store) -> float:
    """One round. Looks before it writes: on SQLite a write holds up everybody."""
    if store.next_due() is None:
        return REST
    return 0.0 if store.stage(limit=BATCH) == BATCH else REST
