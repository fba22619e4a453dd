"""Files of a package that are made for browsers, and the addresses that they are served at."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from importlib.resources import files

MEDIA_TYPES = {".js": "text/javascript", ".d.ts": "text/plain"}


class BrowserFiles:
    """Some files of one package, which are served side by side, since they name each other by their plain names.

    `paths` gives the place of each in the package by the name that it is served under. All methods raise KeyError for
    another name.
    """

    def __init__(self, package: str, paths: Mapping[str, str]) -> None:
        self._package = package
        self._paths = dict(paths)
        self._texts: dict[str, bytes] = {}
        self._compressed: dict[str, bytes] = {}
        self._digest = ""
        self.media_types = {
            name: next(kind for suffix, kind in MEDIA_TYPES.items() if name.endswith(suffix))
            for name in paths
        }

    def address(self, name: str) -> str:
        """Where the file is under the prefix of the routes, with the content in the address: browsers may keep it for good."""
        self.text(name)
        return f"dumbwaiter-{self.digest()}/{name}"

    def text(self, name: str) -> bytes:
        """The file."""
        if name not in self._texts:
            self._texts[name] = (files(self._package) / self._paths[name]).read_bytes()
        return self._texts[name]

    def compressed(self, name: str) -> bytes:
        """The same as gzip; the same bytes each time."""
        if name not in self._compressed:
            self._compressed[name] = gzip.compress(self.text(name), 9, mtime=0)
        return self._compressed[name]

    def digest(self) -> str:
        """Changes when any of the files does."""
        if not self._digest:
            together = b"\0".join(self.text(name) for name in sorted(self._paths))
            self._digest = hashlib.sha256(together).hexdigest()[:12]
        return self._digest
