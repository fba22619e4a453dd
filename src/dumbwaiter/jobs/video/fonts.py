"""Whether this machine can draw the letters that recordings contain."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection

NEEDED = {
    "Chinese, Japanese and Korean": (":lang=zh-cn", "fonts-noto-cjk"),
    "emoji": (":lang=und-zsye", "fonts-noto-color-emoji"),
}
# How JSON writes characters of these kinds: CJK from U+2E80 to U+9FFF and Hangul; emoji as the surrogates of planes 1F0-1FF.
WRITTEN = {
    "Chinese, Japanese and Korean": re.compile(rb"\\u(?:2e[89a-f]|2f|[3-9]|a[c-f]|[bc]|d[0-7])[0-9a-f]"),
    "emoji": re.compile(rb"\\ud83[c-e]"),
}
LIST_SECONDS = 20.0


def missing_for(events: bytes) -> list[str]:
    """The sentences of `missing_fonts` about letters that this recording (JSON in ASCII) has."""
    kinds = [letters for letters, written in WRITTEN.items() if written.search(events)]
    return missing_fonts(kinds) if kinds else []


def missing_fonts(kinds: Collection[str] = tuple(NEEDED)) -> list[str]:
    """One sentence for each kind of letters that would be drawn as boxes; empty when all is well, or nobody can tell.

    Example:
        >>> missing_fonts()
        ['no font for emoji: `apt-get install fonts-noto-color-emoji`']
    """
    if shutil.which("fc-list") is None:
        return []
    return [
        f"no font for {letters}: `apt-get install {package}`"
        for letters, (pattern, package) in NEEDED.items()
        if letters in kinds and not has_font(pattern)
    ]


def has_font(pattern: str) -> bool:
    """Whether fontconfig knows a font for the pattern."""
    try:
        listed = subprocess.run(
            ["fc-list", pattern, "family"],
            capture_output=True,
            timeout=LIST_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return bool(listed.stdout.strip())
