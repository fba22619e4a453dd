"""The Chrome DevTools Protocol over a pair of pipes: JSON messages that end in a zero byte, every wait bounded."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable
from typing import Any

from dumbwaiter.jobs.video.errors import BrowserCrashed, BrowserStuck, ProtocolError

Message = dict[str, Any]
READ_BYTES = 1 << 20


class Connection:
    """One conversation with one browser; used by one thread."""

    def __init__(self, orders: int, answers: int) -> None:
        os.set_blocking(orders, False)
        os.set_blocking(answers, False)
        self._orders, self._answers = orders, answers
        self._received = bytearray()
        self._scanned = 0
        self._replies: dict[int, Message] = {}
        self._last_id = 0
        self._writing = False
        self._heard: list[Message] = []
        self.on: dict[str, Callable[[Message], None]] = {}
        self.closed = False

    def call(
        self, method: str, params: Message | None = None, *, session: str | None = None, within: float
    ) -> Message:
        """Send a command and return its result.

        Raises:
            BrowserStuck: no answer within `within` seconds.
            BrowserCrashed: the browser closed the connection.
            ProtocolError: the browser refused.
        """
        return self.result(self.send(method, params, session=session, within=within), method, within)

    def send(
        self, method: str, params: Message | None = None, *, session: str | None = None, within: float
    ) -> int:
        """Send a command; its reply can be had later under the id returned."""
        self._last_id += 1
        number = self._last_id
        message: Message = {"id": number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        self._writing = True
        try:
            self._write(json.dumps(message).encode() + b"\0", time.monotonic() + within, method)
        finally:
            self._writing = False
        while self._heard:
            self._handle(self._heard.pop(0))
        return number

    def result(self, number: int, method: str, within: float) -> Message:
        """Wait for the reply to a command sent before."""
        deadline = time.monotonic() + within
        while number not in self._replies:
            if not self._wait(deadline, method, writing=False):
                self._read()
        reply = self._replies.pop(number)
        if "error" in reply:
            raise ProtocolError(f"{method}: {reply['error'].get('message', reply['error'])}")
        result: Message = reply["result"]
        return result

    def listen(self, seconds: float) -> None:
        """Take what comes within `seconds`, and no more."""
        ready, _, _ = select.select([self._answers], [], [], seconds)
        if ready:
            self._read()

    def close(self) -> None:
        """Close both pipes: Chromium leaves when its controller does."""
        if not self.closed:
            self.closed = True
            os.close(self._orders)
            os.close(self._answers)

    def _write(self, data: bytes, deadline: float, method: str) -> None:
        # The browser may be waiting for us to read before it reads on, so both directions are served.
        left = memoryview(data)
        while left:
            if self._wait(deadline, method, writing=True):
                try:
                    left = left[os.write(self._orders, left) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise BrowserCrashed(f"the browser is gone ({error.strerror}, during {method})") from None
            else:
                self._read()

    def _wait(self, deadline: float, method: str, *, writing: bool) -> bool:
        """Wait until the pipe can be read (False) or, if asked for, written (True)."""
        left = deadline - time.monotonic()
        readable, writable, _ = select.select(
            [self._answers], [self._orders] if writing else [], [], max(0.0, left)
        )
        if not readable and not writable:
            raise BrowserStuck(f"the browser did not answer {method} in time")
        return bool(writable) and not readable

    def _read(self) -> None:
        try:
            part = os.read(self._answers, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise BrowserCrashed(f"the browser is gone ({error.strerror})") from None
        if not part:
            raise BrowserCrashed("the browser is gone (it closed its pipe)")
        self._received += part
        while (end := self._received.find(b"\0", self._scanned)) >= 0:
            message = json.loads(self._received[:end])
            del self._received[: end + 1]
            self._scanned = 0
            self._take(message)
        self._scanned = len(self._received)

    def _take(self, message: Message) -> None:
        if "id" in message:
            self._replies[message["id"]] = message
        elif self._writing:
            # whoever handles it may send something, which must not come into the middle of what is being written
            self._heard.append(message)
        else:
            self._handle(message)

    def _handle(self, message: Message) -> None:
        if handle := self.on.get(message["method"]):
            handle(message)
