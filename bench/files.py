"""`./dev bench files`: large files go to each kind of store, and how much memory that takes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.servers import big_directory
from dumbwaiter.files import FileStore
from tests.support.moto import moto
from tests.support.swift import KEY, SECRET, swift

MIB = 1024 * 1024
MOST_GROWTH = 64 * MIB
LOOK = 0.01
PIECE = 4 * MIB


@dataclass(frozen=True)
class Published:
    """A file that was stored: how large, how fast, and how much the process grew meanwhile; bytes and seconds."""

    place: str
    size: int
    seconds: float
    growth: int
    whole: bool

    @property
    def good(self) -> bool:
        return self.whole and self.growth <= MOST_GROWTH


Place = Callable[[], contextlib.AbstractContextManager[str]]


@contextlib.contextmanager
def a_disk() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dumbwaiter-files-", dir=big_directory()) as home:
        yield home


@contextlib.contextmanager
def a_moto() -> Iterator[str]:
    with moto() as server:
        yield server.url


@contextlib.contextmanager
def a_swift() -> Iterator[str]:
    with swift() as server:
        yield server.url


PLACES: dict[str, tuple[Place, int]] = {
    "disk": (a_disk, 5_000 * MIB),
    "moto": (a_moto, 1_024 * MIB),
    "swift": (a_swift, 1_024 * MIB),
}


def measure(name: str, size: int) -> Published:
    """Publish a file of that size to a store of that kind, in a process of its own that is watched."""
    place, _ = PLACES[name]
    with place() as url, tempfile.TemporaryDirectory(prefix="dumbwaiter-files-", dir=big_directory()) as home:
        source = Path(home) / "large"
        written(source, size)
        return published(name, url, source, size)


def written(path: Path, size: int) -> None:
    """Bytes that no disk can leave out."""
    piece = os.urandom(PIECE)
    with path.open("wb") as file:
        for start in range(0, size, PIECE):
            file.write(piece[: min(PIECE, size - start)])


def published(name: str, url: str, source: Path, size: int) -> Published:
    words = [sys.executable, "-m", "bench.files", url, str(source)]
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "NO_PROXY": "127.0.0.1",
    }
    with subprocess.Popen(
        words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            heard(child)  # it has stored a small one, so all that is needed is there
            watched = psutil.Process(child.pid)
            before = largest = watched.memory_info().rss
            child.stdin.write("go\n")
            child.stdin.flush()
            began = time.monotonic()
            os.set_blocking(child.stdout.fileno(), False)
            while not (line := child.stdout.readline()):
                largest = max(largest, watched.memory_info().rss)
                time.sleep(LOOK)
            seconds = time.monotonic() - began
            done = json.loads(line)
        finally:
            child.kill()
    return Published(name, size, seconds, largest - before, whole=done["size"] == size and done["whole"])


def heard(child: subprocess.Popen[str]) -> Any:
    assert child.stdout is not None
    return json.loads(child.stdout.readline())


def publish(url: str, source: Path) -> None:
    """What the watched process does."""
    files = FileStore(url)
    small = source.with_name("small")
    small.write_bytes(os.urandom(10 * MIB))
    files.put(small, "t/1/small", filename="small")
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    stored = files.put(source, "t/1/large", filename="large")
    print(json.dumps({"size": stored.size, "whole": files.size("t/1/large") == stored.size}), flush=True)
    sys.stdin.read()


def show(found: Iterator[Published]) -> int:
    """Print what was seen; how many took more memory than they may."""
    missed = 0
    for one in found:
        missed += not one.good
        print(
            f"{one.place}: {one.size / MIB:,.0f} MiB in {one.seconds:.1f} s, {one.size / MIB / one.seconds:,.0f} MiB/s, "
            f"grew by {one.growth / MIB:.0f} MiB: {'good' if one.good else 'MISSED'}",
            flush=True,
        )
    return missed


if __name__ == "__main__":
    publish(sys.argv[1], Path(sys.argv[2]))
