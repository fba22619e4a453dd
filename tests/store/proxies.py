"""A proxy before a database server that misbehaves as networks and servers do, from one moment to the next."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

import sqlalchemy as sa

AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: close with a RST instead of a FIN


class Mode(Enum):
    """What happens to bytes and to new connections."""

    PASS = "pass"
    # each piece comes `Proxy.late` seconds later
    DELAY = "delay"
    # nobody listens, as while a server restarts; connections that there were are reset
    REFUSE = "refuse"
    # every connection is reset, new ones as soon as they are made
    RESET = "reset"
    # nothing comes through, and nothing says so. A connection on which something was lost stays mute for ever, as behind a
    # firewall that forgot it; one that was idle meanwhile lives on
    BLACKHOLE = "blackhole"
    # one byte a second in each direction
    DRIP = "drip"
    # requests reach the server and are carried out; what it answers is lost
    SWALLOW = "swallow"


@dataclass
class Link:
    """One connection through the proxy."""

    client: socket.socket
    server: socket.socket
    mute: bool = False
    lost: bool = False

    def reset(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            # close() alone would leave a thread in recv(), and the connection with it
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@dataclass
class Proxy:
    """Passes everything on, until its `mode` is set.

    Besides, `swallow` loses one single answer: that to the next message with this text. The server has done what it was
    asked by then; the client's connection is reset before it hears of it, and `swallowed` is set.
    """

    server: tuple[str, int]
    late: float = 0.2
    swallow: bytes | None = None
    swallowed: threading.Event = field(default_factory=threading.Event)
    links: list[Link] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    """When connections were made, by time.monotonic(); those that were refused are not here."""

    _then: tuple[bytes, Mode] | None = None
    _mode: Mode = Mode.PASS
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False

    def __post_init__(self) -> None:
        self._listener: socket.socket | None = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, name="proxy", daemon=True).start()

    @property
    def mode(self) -> Mode:
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        with self._changed:
            self._mode = mode
            if mode is Mode.REFUSE and self._listener is not None:
                with contextlib.suppress(OSError):
                    self._listener.shutdown(socket.SHUT_RDWR)
                self._listener.close()
                self._listener = None
            elif mode is not Mode.REFUSE and self._listener is None and not self._closed:
                self._listener = socket.create_server(("127.0.0.1", self.port))
            self._changed.notify_all()
        if mode in (Mode.REFUSE, Mode.RESET):
            self.reset()

    def after(self, said: bytes, mode: Mode) -> None:
        """Switch to that mode with the next request that has this text; with SWALLOW that one is carried out."""
        self._then = (said, mode)

    def reset(self) -> None:
        """Reset the connections that there are, once."""
        for link in list(self.links):
            link.reset()
            self._forget(link)

    def close(self) -> None:
        self._closed = True
        self.mode = Mode.REFUSE

    def _serve(self) -> None:
        while not self._closed:
            with self._changed:
                while self._listener is None and not self._closed:
                    self._changed.wait()
                listener = self._listener
            if listener is None:
                return
            try:
                client, _ = listener.accept()
            except OSError:
                continue
            self.accepted.append(time.monotonic())
            try:
                link = Link(client, socket.create_connection(self.server))
            except OSError:
                client.close()
                continue
            if self._mode in (Mode.RESET, Mode.REFUSE):
                link.reset()
                continue
            self.links.append(link)
            for way in (self._requests, self._answers):
                threading.Thread(target=way, args=(link,), name="proxy-link", daemon=True).start()

    def _requests(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.client.recv(65_536):
                # neither BEGIN ISOLATION LEVEL READ COMMITTED nor SET AUTOCOMMIT is a COMMIT
                said = data.replace(b"READ COMMITTED", b"").replace(b"AUTOCOMMIT", b"")
                if self.swallow is not None and self.swallow in said:
                    self.swallow, link.lost = None, True
                if self._then is not None and self._then[0] in said:
                    (_, self.mode), self._then = self._then, None
                self._pass_on(link, data, link.server, losing=(Mode.BLACKHOLE,))
        self._end(link, link.server)

    def _answers(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(65_536):
                if link.lost:
                    self.swallowed.set()
                    break
                self._pass_on(link, data, link.client, losing=(Mode.BLACKHOLE, Mode.SWALLOW))
        self._end(link, link.client)

    def _pass_on(self, link: Link, data: bytes, to: socket.socket, *, losing: tuple[Mode, ...]) -> None:
        if self._mode is Mode.DELAY:
            time.sleep(self.late)
        while data:
            if self._mode in losing:
                link.mute = True
            if link.mute:
                return
            if self._mode is not Mode.DRIP:
                to.sendall(data)
                return
            to.sendall(data[:1])
            data = data[1:]
            with self._changed:
                self._changed.wait_for(lambda: self._mode is not Mode.DRIP, 1.0)

    def _end(self, link: Link, other: socket.socket) -> None:
        """One side has closed: so does the other, unless the news is lost as well."""
        if self._mode is Mode.BLACKHOLE:
            link.mute = True
        if link.mute and not self._closed:
            return
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)
        self._forget(link)

    def _forget(self, link: Link) -> None:
        with contextlib.suppress(ValueError):
            self.links.remove(link)
            link.client.close()
            link.server.close()


@contextlib.contextmanager
def proxied(url: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy, and the database's address through it."""
    address = sa.make_url(url)
    usual = 5432 if address.get_backend_name() == "postgresql" else 3306
    proxy = Proxy((address.host or "127.0.0.1", address.port or usual))
    try:
        yield proxy, address.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    finally:
        proxy.close()
