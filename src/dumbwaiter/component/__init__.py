"""The elements `<dumbwaiter-task>` and `<dumbwaiter-list>`: hand-written files, and the addresses they are served at."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files

MEDIA_TYPES = {
    "dumbwaiter.js": "text/javascript",
    "dumbwaiter-list.js": "text/javascript",
    "dumbwaiter.d.ts": "text/plain",
}


def address(name: str = "dumbwaiter.js") -> str:
    """Where a file is under the prefix of the routes, with the content in the address: browsers may keep it for good.

    All files are in one directory, since they import each other by their plain names.

    Raises KeyError for a name that is none of `MEDIA_TYPES`.

    Example:
        >>> f'<script type="module" src="/jobs/{address()}"></script>'  # doctest: +ELLIPSIS
        '<script type="module" src="/jobs/dumbwaiter-.../dumbwaiter.js"></script>'
    """
    text(name)
    return f"dumbwaiter-{digest()}/{name}"


@cache
def text(name: str) -> bytes:
    """The file. Raises KeyError."""
    if name not in MEDIA_TYPES:
        raise KeyError(name)
    return (files(__name__) / name).read_bytes()


@cache
def compressed(name: str) -> bytes:
    """The same as gzip; the same bytes each time."""
    return gzip.compress(text(name), 9, mtime=0)


@cache
def digest() -> str:
    """Changes when any of the files does."""
    return hashlib.sha256(b"\0".join(text(name) for name in sorted(MEDIA_TYPES))).hexdigest()[:12]
