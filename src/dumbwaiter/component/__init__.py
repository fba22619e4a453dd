"""The elements `<dumbwaiter-task>` and `<dumbwaiter-list>`: hand-written files, and the addresses they are served at."""

from __future__ import annotations

from dumbwaiter.browser_files import BrowserFiles

FILES = BrowserFiles(
    __name__, {name: name for name in ("dumbwaiter.js", "dumbwaiter-list.js", "dumbwaiter.d.ts")}
)


def address(name: str = "dumbwaiter.js") -> str:
    """Where a file is under the prefix of the routes, with the content in the address: browsers may keep it for good.

    Raises KeyError for a name that is none of `FILES`.

    Example:
        >>> f'<script type="module" src="/jobs/{address()}"></script>'  # doctest: +ELLIPSIS
        '<script type="module" src="/jobs/dumbwaiter-.../dumbwaiter.js"></script>'
    """
    return FILES.address(name)
