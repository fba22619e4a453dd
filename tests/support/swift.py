"""OpenStack Swift on loopback, with its S3 interface: an object store that checks signatures, their ends and the length of bodies.

Debian and Ubuntu have it: `apt install swift-proxy swift-account swift-container swift-object`. Its four servers run with the
system's own Python, which has its modules, in a directory of their own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support.servers import ServiceMissing, free_port

PACKAGES = ("swift-proxy", "swift-account", "swift-container", "swift-object")
PYTHON = "/usr/bin/python3"
BUCKET = "exports"
KEY, SECRET = "test:tester", "testing"
SECONDS = 60.0

SWIFT = """
[swift-hash]
swift_hash_path_suffix = dumbwaiter
[storage-policy:0]
name = only
default = yes
"""
STORAGE = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
swift_dir = {home}
devices = {home}/devices
mount_check = false
workers = 0
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
PROXY = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
swift_dir = {home}
workers = 0
[pipeline:main]
pipeline = catch_errors gatekeeper proxy-logging cache listing_formats bulk s3api tempauth copy slo dlo versioned_writes symlink proxy-logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
# a server that did not answer in its first moments would otherwise be left alone for a minute
error_suppression_limit = 1000000
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = {secret} .admin
[filter:s3api]
use = egg:swift#s3api
s3_acl = false
allow_multipart_uploads = true
"""
FILTERS = (
    "catch_errors",
    "gatekeeper",
    "listing_formats",
    "bulk",
    "copy",
    "slo",
    "dlo",
    "versioned_writes",
    "symlink",
)
PROXY += "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in FILTERS)
PROXY += "[filter:cache]\nuse = egg:swift#memcache\n[filter:proxy-logging]\nuse = egg:swift#proxy_logging\n"
# swift.conf is read from /etc by all of its modules, at their import: so it is said before any other is imported.
START = """
import sys
import swift.common.utils as utils
utils.SWIFT_CONF_FILE = sys.argv[1]
from swift.common.wsgi import run_wsgi
sys.exit(run_wsgi(sys.argv[2], sys.argv[3]))
"""
RINGS = """
import sys
from swift.common.ring import RingBuilder
for kind, port in zip(sys.argv[1::2], sys.argv[2::2]):
    builder = RingBuilder(4, 1, 0)
    place = {"ip": "127.0.0.1", "port": int(port), "replication_ip": "127.0.0.1", "replication_port": int(port)}
    builder.add_dev({"id": 0, "region": 1, "zone": 1, "weight": 1.0, "device": "d1", "meta": "", **place})
    builder.rebalance()
    builder.get_ring().save(f"{kind}.ring.gz")
"""


@dataclass(frozen=True)
class Swift:
    """A running server with an empty bucket."""

    endpoint: str

    @property
    def url(self) -> str:
        """What `FileStore` takes."""
        return f"s3://{BUCKET}/results?endpoint={self.endpoint}&region=us-east-1"

    @cached_property
    def client(self) -> Any:
        """boto3's, as many another program would use."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, proxies={}),
        )

    def keys(self) -> list[str]:
        """What lies in the bucket, below `results/`."""
        listed = self.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return sorted(one["Key"].removeprefix("results/") for one in listed)

    def uploads(self) -> int:
        """How many uploads in parts have begun and not ended."""
        return len(self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []))


@contextlib.contextmanager
def swift() -> Iterator[Swift]:
    """A running Swift. Raises ServiceMissing if it does not start."""
    with tempfile.TemporaryDirectory(prefix="dumbwaiter-swift-") as place, contextlib.ExitStack() as stack:
        home = Path(place)
        (home / "devices" / "d1").mkdir(parents=True)
        (home / "swift.conf").write_text(SWIFT)
        about = {"home": place, "user": owner(), "secret": SECRET}
        ports = {kind: free_port() for kind in ("account", "container", "object")}
        rings(home, ports)
        for kind, port in ports.items():
            (home / f"{kind}.conf").write_text(STORAGE.format(kind=kind, port=port, **about))
            stack.enter_context(running(home, kind))
        port = free_port()
        (home / "proxy.conf").write_text(PROXY.format(port=port, **about))
        stack.enter_context(running(home, "proxy"))
        server = Swift(f"http://127.0.0.1:{port}")
        with_bucket(server, home)
        yield server


def owner() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def rings(home: Path, ports: Mapping[str, int]) -> None:
    """Say where everything lies: on the one device there is."""
    given = [word for kind, port in ports.items() for word in (kind, str(port))]
    done = subprocess.run(
        [PYTHON, "-c", RINGS, *given], capture_output=True, text=True, cwd=home, env=environment()
    )
    if done.returncode:
        raise ServiceMissing(f"Swift's rings could not be made: {done.stderr}")


@contextlib.contextmanager
def running(home: Path, kind: str) -> Iterator[None]:
    words = [PYTHON, "-c", START, str(home / "swift.conf"), str(home / f"{kind}.conf"), f"{kind}-server"]
    with (home / "log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=home, env=environment())
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def environment() -> Mapping[str, str]:
    """Without what belongs to the Python of these tests."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }


def with_bucket(server: Swift, home: Path) -> None:
    """Make the bucket, with a request that is signed like any other; wait until the server answers."""
    from botocore.exceptions import BotoCoreError, ClientError

    deadline = time.monotonic() + SECONDS
    while True:
        try:
            server.client.create_bucket(Bucket=BUCKET)
        except (BotoCoreError, ClientError) as error:
            if time.monotonic() > deadline:
                told = (home / "log").read_text(errors="replace")[-2_000:]
                raise ServiceMissing(f"Swift does not answer: {error}\n{told}") from error
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    with swift() as found:
        print(found.url, flush=True)
        sys.stdin.read()
