"""Whether this machine can draw the letters that recordings contain."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection

from dumbwaiter.jobs.video.processes import environment

NEEDED = {
    "Chinese, Japanese and Korean": (":lang=zh-cn", "fonts-noto-cjk"),
    "emoji": (":lang=und-zsye", "fonts-noto-color-emoji"),
}
# How JSON writes characters of these kinds: CJK from U+2E80 to U+9FFF, Hangul, letters of full width, and the surrogates of planes 2 and 3;
# emoji as the surrogates of U+1F000 to U+1FAFF, and those of before, which are pictures by themselves or for a selector after them.
WRITTEN = {
    "Chinese, Japanese and Korean": re.compile(
        rb"\\u(?:2e[89a-f]|2f|[3-9]|a[c-f]|[bc]|d[0-7]|f[9a]|ff[0-6])[0-9a-f]|\\ud8[4-8]"
    ),
    "emoji": re.compile(
        rb"\\ud83[c-e]|\\ufe0f|\\u(?:2705|270[a-b]|2728|274c|274e|275[3-5]|2757|279[5-7]|27b0|2b50|2b55|2b1[bc]|231[ab]|23e9)"
    ),
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
            env=environment(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return bool(listed.stdout.strip())
