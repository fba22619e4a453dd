"""A server process on a core of its own, and clients of it on another: what `bench api` and `bench sse` have in common."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from dumbwaiter import Dumbwaiter
from tests.support.programs import Program, program, python

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Site:
    """A server that answers."""

    host: str
    port: int
    process: psutil.Process

    @property
    def megabytes(self) -> float:
        """What the server's process has in memory."""
        return float(self.process.memory_info().rss / 1024**2)


@contextlib.contextmanager
def served(database: str, home: Path) -> Iterator[Site]:
    """The shop under uvicorn, on the first core; this process and what it starts from here on have the others."""
    with contextlib.closing(Dumbwaiter(database, env="bench")) as waiter:
        waiter.migrate()
    cores = sorted(os.sched_getaffinity(0))
    argv = python("-m", "uvicorn", "bench.shop:app", "--port", "0", "--no-access-log")
    with program(*argv, cwd=ROOT, **environ(database, home)) as server:
        # before it says anything, so that all its threads are on that core
        process = psutil.Process(server.process.pid)
        process.cpu_affinity(cores[:1])
        os.sched_setaffinity(0, cores[1:] or cores)
        allow_connections()
        try:
            server.says("Application startup complete", 60)
            host, port = server.says(r"running on http://([\d.]+):(\d+)").groups()
            yield Site(str(host), int(port), process)
            assert server.process.poll() is None, f"the server ended:\n{server.said[-2_000:]}"
        finally:
            os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def working(database: str, home: Path, slots: int) -> Iterator[Program]:
    """A worker in a process of its own."""
    argv = python("-m", "dumbwaiter", "--app", "bench.shop:waiter", "worker", "-q", f"default={slots}")
    with program(*argv, cwd=ROOT, **environ(database, home)) as worker:
        yield worker


def environ(database: str, home: Path) -> dict[str, str]:
    return {
        "DUMBWAITER_DATABASE": database,
        "DUMBWAITER_FILES": str(home / "files"),
        "DUMBWAITER_WORKDIR": str(home / "work"),
    }


def allow_connections() -> None:
    """Each stream is an open file, here and there."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Line:
    """A connection that is kept open: no client library, so that the load costs less than what it loads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, site: Site) -> Line:
        return cls(*await asyncio.open_connection(site.host, site.port))

    async def post(self, path: str, body: Any) -> tuple[int, bytes]:
        text = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        self._writer.write(head.encode() + text)
        status, headers = await self._head()
        return status, await self._reader.readexactly(int(headers["content-length"]))

    async def events(self, path: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """The events of a stream, by name and data, until the server ends it."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: shop\r\n\r\n".encode())
        status, _ = await self._head()
        if status != 200:
            raise ConnectionError(f"{path}: {status}")
        name, data = "", ""
        async for line in self._chunked_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data = line.removeprefix("data: ")
            elif not line and data:
                yield name, json.loads(data)
                data = ""

    async def _head(self) -> tuple[int, dict[str, str]]:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        return int(lines[0].split(" ")[1]), headers

    async def _chunked_lines(self) -> AsyncIterator[str]:
        rest = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            rest += (await self._reader.readexactly(size + 2))[:-2]
            *lines, rest = rest.split(b"\n")
            for line in lines:
                yield line.decode().rstrip("\r")
        await self._reader.readexactly(2)

    def close(self) -> None:
        self._writer.close()


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of them lies; 0 of none."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0
