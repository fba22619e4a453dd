"""A pool that waits a moment for a connection to come back before it opens one more."""

from __future__ import annotations

from sqlalchemy.pool import ConnectionPoolEntry, QueuePool
from sqlalchemy.util import queue

# Seconds. Most statements take a millisecond or two; to connect takes several, at the server too.
SOON = 0.1


class PatientPool(QueuePool):
    """SQLAlchemy's pool, but for floods of short statements.

    Beyond its size SQLAlchemy opens a connection for whoever finds none free, and closes it when it comes back: sixteen requests at a time on a
    pool of five spent more on connecting than on what they asked. Here they wait `SOON` first; who holds a connection for longer than that, as a
    request that waits for a contended key does, makes room for others by an additional one as before.
    """

    # SQLAlchemy names a pool's log after its class: what it has to say is not ours
    __module__ = QueuePool.__module__

    def _do_get(self) -> ConnectionPoolEntry:
        if self.overflow() >= 0:
            try:
                return self._pool.get(True, SOON)
            except queue.Empty:
                pass
        return super()._do_get()
