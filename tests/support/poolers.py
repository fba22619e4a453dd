"""A PgBouncer of a test's own, in transaction mode."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import sqlalchemy as sa

from tests.support import servers
from tests.support.waiting import until

SETTINGS = """
[databases]
* = host={host} port={port} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
server_reset_query =
pidfile = {directory}/pgbouncer.pid
"""


@contextlib.contextmanager
def pooled(url: str, directory: Path, *, size: int = 3) -> Iterator[str]:
    """The database's address through a pooler that has so many connections to the server."""
    address, listen = sa.make_url(url), servers.free_port()
    settings = SETTINGS.format(
        host=address.host or "127.0.0.1",
        port=address.port or 5432,
        user=address.username or "postgres",
        listen=listen,
        size=size,
        directory=directory,
    )
    user = servers.servant("postgres")  # it refuses root, as the servers do
    servers.owned_empty(directory, user)
    (directory / "pgbouncer.ini").write_text(settings, encoding="utf-8")
    (directory / "pgbouncer.ini").chmod(0o644)
    found = servers.program("pgbouncer")
    assert found is not None, "there is no pgbouncer"
    process = servers.spawn([found, str(directory / "pgbouncer.ini")], user, directory)
    through = address.set(host="127.0.0.1", port=listen).render_as_string(hide_password=False)

    def answers() -> bool:
        assert process.poll() is None, (directory.parent / f"{directory.name}.log").read_text()
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(through, connect_timeout=3).close()
            return True
        return False

    try:
        until(answers)
        yield through
    finally:
        process.send_signal(signal.SIGTERM)  # it closes its connections
        process.wait()
