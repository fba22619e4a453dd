"""A proxy before a database server that loses the answer to one message, or falls silent."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import sqlalchemy as sa


class Swallower:
    """Passes everything on, until `swallow` is set: then the answer to the next message with that text is lost.

    The server has done what it was asked by then; the client's connection is reset before it hears of it.
    Once it is `silent` no connection breaks, but nothing comes through any more.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self.server = server
        self.swallow: bytes | None = None
        self.silent = False
        self.swallowed = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.sockets: list[socket.socket] = []

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(self.server)
            self.sockets += [client, upstream]
            threading.Thread(target=self.requests, args=(client, upstream), daemon=True).start()
            threading.Thread(target=self.answers, args=(client, upstream), daemon=True).start()

    def requests(self, client: socket.socket, upstream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                if self.silent:
                    continue
                # neither BEGIN ISOLATION LEVEL READ COMMITTED nor SET AUTOCOMMIT is a COMMIT
                if self.swallow is not None and self.swallow in data.replace(b"READ COMMITTED", b"").replace(
                    b"AUTOCOMMIT", b""
                ):
                    self.swallow = None
                    self.lost = client
                upstream.sendall(data)
            upstream.shutdown(socket.SHUT_RDWR)

    lost: socket.socket | None = None

    def answers(self, client: socket.socket, upstream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := upstream.recv(65_536):
                if self.lost is client:
                    self.lost = None
                    self.swallowed.set()
                    break
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def swallower(url: str) -> Iterator[tuple[Swallower, str]]:
    """The proxy, and the database's address through it."""
    address = sa.make_url(url)
    usual = 5432 if address.get_backend_name() == "postgresql" else 3306
    proxy = Swallower((address.host or "127.0.0.1", address.port or usual))
    accepting = threading.Thread(target=proxy.serve)
    accepting.start()
    try:
        yield proxy, address.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    finally:
        with contextlib.suppress(OSError):
            proxy.listener.shutdown(socket.SHUT_RDWR)
        proxy.listener.close()
        accepting.join()
        for one in proxy.sockets:
            one.close()
