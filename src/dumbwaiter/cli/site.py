"""The web site that `dumbwaiter serve` and the demo show: the page, the task routes, a worker."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dumbwaiter.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from dumbwaiter.app import Dumbwaiter
    from dumbwaiter.dashboard.views import Offer, Player
    from dumbwaiter.integrations.fastapi import Authorize

# How long open requests hold up a stop: a download may go on for ever.
OPEN_REQUESTS = 3
PORTS_TRIED = 100


def site(
    waiter: Dumbwaiter, offers: Iterable[Offer], *, authorize: Authorize | None = None, worker: bool = True
) -> FastAPI:
    """The page at `/` and the task routes beside it."""
    try:
        from fastapi import FastAPI
        from starlette.middleware.trustedhost import TrustedHostMiddleware

        from dumbwaiter.dashboard.views import page
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name), "api") from None
    from dumbwaiter import __version__
    from dumbwaiter.integrations.fastapi import lifespan, owner_of, router

    app = FastAPI(title="Dumbwaiter", version=__version__, lifespan=lifespan(waiter, worker=worker))
    if authorize is None:
        # A strange page may point its own host name at 127.0.0.1 and then read what stands here; the name gives it away.
        # "[" is what the middleware takes for the host of http://[::1]:8000.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", "["])
    app.include_router(router(waiter, authorize=authorize, public=authorize is None))
    app.include_router(page(waiter, offers, owner_of(authorize), player=replayer()))
    return app


def offered(waiter: Dumbwaiter) -> list[Offer]:
    """What the page offers: the bundled recordings, if this application can make videos."""
    from dumbwaiter.dashboard.views import Offer

    if waiter.registry.get("video-export") is None:
        return []
    from dumbwaiter.jobs.video import sample, sample_names

    offers = []
    for name in sample_names():
        recording = sample(name)
        offers.append(
            Offer(
                name,
                recording.title or name,
                "video-export",
                {"recording": f"sample:{name}"},
                about_recording(recording),
                recording=partial(events_of_sample, name),
            )
        )
    return offers


def events_of_sample(name: str) -> bytes:
    from dumbwaiter.jobs.video import sample

    return sample(name).events


def replayer() -> Player:
    """What the page replays recordings with: what the videos are made with."""
    from importlib.resources import files

    from dumbwaiter.dashboard.views import Player

    vendor = files("dumbwaiter.jobs.video") / "vendor"
    return Player((vendor / "rrweb.umd.min.cjs").read_bytes(), (vendor / "rrweb.min.css").read_bytes())


def about_recording(recording: object) -> str:
    """A line about a recording: how long, how large."""
    seconds = int(float(getattr(recording, "duration_ms", 0)) / 1000)  # players round down
    width, height = getattr(recording, "viewport", (0, 0))
    return f"{seconds // 60}:{seconds % 60:02d} · {width}\u00a0×\u00a0{height}"


def server(app: FastAPI, *, quiet: bool = False) -> uvicorn.Server:
    import uvicorn

    config = uvicorn.Config(
        app,
        timeout_graceful_shutdown=OPEN_REQUESTS,
        log_config=None,
        access_log=not quiet,
        log_level="error" if quiet else "info",
        server_header=False,
    )
    return uvicorn.Server(config)


def listening(host: str, port: int) -> tuple[socket.socket, int]:
    """A socket at that address, on the next free port if that one is taken. Raises ConfigurationError if there is none."""
    family, address = resolved(host)
    for candidate in range(port, min(port + PORTS_TRIED, 65_536)):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, candidate))
            listener.listen(2048)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise ConfigurationError(
                    f"cannot listen on {host} port {candidate}: {error.strerror}"
                ) from None
            continue
        listener.set_inheritable(False)
        return listener, listener.getsockname()[1]
    raise ConfigurationError(
        f"ports {port} to {port + PORTS_TRIED - 1} on {host} are all taken; name another with --port"
    )


def resolved(host: str) -> tuple[socket.AddressFamily, str]:
    try:
        found: Sequence[tuple[socket.AddressFamily, int, int, str, tuple[object, ...]]]
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"--host {host}: {error.strerror}") from None
    family, *_, address = found[0]
    return family, str(address[0])


def is_loopback(host: str) -> bool:
    return ipaddress.ip_address(resolved(host)[1].partition("%")[0]).is_loopback


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
