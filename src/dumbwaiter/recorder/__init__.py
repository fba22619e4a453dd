"""`dumbwaiter-recorder.js`, which records what a visitor does as the video export takes it, with rrweb's recorder beside it."""

from __future__ import annotations

from dumbwaiter.browser_files import BrowserFiles

FILES = BrowserFiles(
    __name__,
    {
        "dumbwaiter-recorder.js": "dumbwaiter-recorder.js",
        "rrweb-record.js": "vendor/rrweb-record.umd.min.cjs",
    },
)


def address(name: str = "dumbwaiter-recorder.js") -> str:
    """Where a file is under the prefix of the routes, with the content in the address: browsers may keep it for good.

    Raises KeyError for a name that is none of `FILES`.

    Example:
        >>> f'import {{ DumbwaiterRecorder }} from "/jobs/{address()}";'  # doctest: +ELLIPSIS
        'import { DumbwaiterRecorder } from "/jobs/dumbwaiter-.../dumbwaiter-recorder.js";'
    """
    return FILES.address(name)
