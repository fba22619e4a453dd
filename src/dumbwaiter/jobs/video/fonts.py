"""Whether this machine can draw the letters that recordings contain."""

from __future__ import annotations

import shutil
import subprocess

NEEDED = {
    "Chinese, Japanese and Korean": (":lang=zh-cn", "fonts-noto-cjk"),
    "emoji": (":lang=und-zsye", "fonts-noto-color-emoji"),
}
LIST_SECONDS = 20.0


def missing_fonts() -> list[str]:
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
        if not has_font(pattern)
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
