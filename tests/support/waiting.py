"""Waiting for an event, with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(look: Callable[[], Found | None], seconds: float = 30, every: float = 0.02) -> Found:
    """What `look` gives as soon as it gives something true; AssertionError after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        time.sleep(every)
