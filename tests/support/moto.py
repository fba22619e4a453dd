"""moto's S3 server in a process of its own: an object store that somebody else wrote, with uploads in parts and conditions.

It checks no signatures; Swift's does, see `swift.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

import httpx

BUCKET = "exports"
SECONDS = 60


@dataclass(frozen=True)
class Moto:
    """A server with an empty bucket; its credentials are any."""

    endpoint: str
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        """What `FileStore` takes."""
        return f"s3://{BUCKET}/results?endpoint={self.endpoint}&region=us-east-1"

    def keys(self) -> list[str]:
        """What lies in the bucket, below `results/`."""
        listed = self._asked("list-type=2&encoding-type=url")
        return sorted(
            unquote(key).removeprefix("results/") for key in re.findall(r"<Key>([^<]*)</Key>", listed)
        )

    def uploads(self) -> int:
        """How many uploads in parts have begun and not ended."""
        return self._asked("uploads").count("<UploadId>")

    def _asked(self, query: str) -> str:
        answer = httpx.get(f"{self.endpoint}/{BUCKET}?{query}", headers=SIGNED, timeout=SECONDS)
        answer.raise_for_status()
        return answer.text


# Nobody looks at the signature, but without one the caller is a stranger.
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=anybody/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=00"
}


@contextmanager
def moto() -> Iterator[Moto]:
    """A running server."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.moto"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        server = Moto(process.stdout.readline().strip(), process)
        httpx.put(f"{server.endpoint}/{BUCKET}", headers=SIGNED, timeout=SECONDS).raise_for_status()
        yield server
    finally:
        process.kill()
        process.communicate()


def serve() -> None:
    """Until whoever started this closes its pipe, or dies."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve()
