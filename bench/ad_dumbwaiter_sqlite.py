"""Dumbwaiter on SQLite as an adapter of a bench that is not ours; everything but the address is ad_dumbwaiter.py's."""

from __future__ import annotations

import common  # type: ignore[import-not-found, unused-ignore]
from ad_dumbwaiter import Adapter  # type: ignore[import-not-found, unused-ignore]

META = {
    "venv": "dumbwaiter",
    "backend": "sqlite",
    "left": "select (select count(*) from dumbwaiter_tasks where status = 'pending' and ready) + (select count(*) from dumbwaiter_tasks where heartbeat_at is not null)",
    "settings": "1 process, worker({'default': 100}), coroutines; synchronous=NORMAL; everything else as it comes",
}

# That bench looks for the words `def bulk` in the file to learn whether many tasks can be enqueued at once.
adapter = Adapter(f"sqlite:///{common.SQLITE}")
setup, session, worker = adapter.setup, adapter.session, adapter.worker
