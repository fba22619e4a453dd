"""An object store on loopback: as much of S3's protocol as result files use, with faults on request."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "exports"


class ObjectServer(ThreadingHTTPServer):
    """Objects and uploads in memory; `faults` is a list of (method, part of the URL, status) that each answer once."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: list[str] = []
        self.faults: list[tuple[str, str, int]] = []
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def url(self) -> str:
        """What `FileStore` takes."""
        return f"s3://{BUCKET}/results?endpoint={self.endpoint}&region=eu-central-1"


class Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one(self) -> None:
        server = cast("ObjectServer", self.server)
        url = urlsplit(self.path)
        query = parse_qs(url.query, keep_blank_values=True)
        key = unquote(url.path.removeprefix(f"/{BUCKET}").lstrip("/"))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with server.lock:
            server.requests.append(f"{self.command} {self.path}")
            for fault in server.faults:
                if fault[0] == self.command and fault[1] in self.path:
                    server.faults.remove(fault)
                    return self.answer(fault[2], error("SlowDown" if fault[2] >= 500 else "AccessDenied"))
            getattr(self, f"on_{self.command.lower()}")(server, key, query, body)
        return None

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one  # noqa: N815

    def on_put(self, server: ObjectServer, key: str, query: dict[str, list[str]], body: bytes) -> None:
        if "uploadId" in query:
            server.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
        else:
            headers = {name: self.headers[name] for name in ("Content-Type", "Content-Disposition")}
            server.objects[key] = (body, headers)
        self.answer(200, headers={"ETag": '"1"'})

    def on_post(self, server: ObjectServer, key: str, query: dict[str, list[str]], body: bytes) -> None:
        if "delete" in query:
            keys = [unquote(found.decode()) for found in re.findall(rb"<Key>(.*?)</Key>", body)]
            for one in keys:
                server.objects.pop(one, None)
            gone = "".join(f"<Deleted><Key>{escape(one)}</Key></Deleted>" for one in keys)
            return self.answer(200, f"<DeleteResult>{gone}</DeleteResult>")
        if "uploads" in query:
            upload = f"upload-{len(server.requests)}"
            server.uploads[upload] = {}
            named = f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            return self.answer(200, f"<InitiateMultipartUploadResult>{named}</InitiateMultipartUploadResult>")
        parts = server.uploads.pop(query["uploadId"][0])
        server.objects[key] = (b"".join(parts[number] for number in sorted(parts)), {})
        done = f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><ETag>1</ETag><Location>x</Location>"
        return self.answer(200, f"<CompleteMultipartUploadResult>{done}</CompleteMultipartUploadResult>")

    def on_get(self, server: ObjectServer, key: str, query: dict[str, list[str]], body: bytes) -> None:
        if not key:
            prefix = query.get("prefix", [""])[0]
            entries = "".join(
                f"<Contents><Key>{escape(name)}</Key><Size>{len(data)}</Size>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>1</ETag></Contents>"
                for name, (data, _) in sorted(server.objects.items())
                if name.startswith(prefix)
            )
            return self.answer(
                200, f"<ListBucketResult>{entries}<IsTruncated>false</IsTruncated></ListBucketResult>"
            )
        if key not in server.objects:
            return self.answer(404, error("NoSuchKey"))
        data, _ = server.objects[key]
        headers = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if span := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, last = int(span[1]), min(int(span[2] or len(data)), len(data) - 1)
            headers["Content-Range"] = f"bytes {start}-{last}/{len(data)}"
            return self.answer(206, data[start : last + 1], headers)
        return self.answer(200, data, headers)

    on_head = on_get

    def on_delete(self, server: ObjectServer, key: str, query: dict[str, list[str]], body: bytes) -> None:
        if "uploadId" in query:
            server.uploads.pop(query["uploadId"][0], None)
        else:
            server.objects.pop(key, None)
        self.answer(204)

    def answer(self, status: int, body: bytes | str = b"", headers: dict[str, str] | None = None) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """The tests look at `requests`."""


def error(code: str) -> str:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    """A running object store; its credentials are any."""
    with ObjectServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
