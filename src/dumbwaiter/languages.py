"""Which of the languages that the package speaks a browser likes best."""

from __future__ import annotations

LANGUAGES = ("en", "zh")


def language_of(accept: str | None) -> str:
    """The one of LANGUAGES that an Accept-Language header (RFC 9110, 12.5.4) likes best; English where it names none of them.

    Example:
        >>> language_of("fr, zh-CN;q=0.9, en;q=0.8")
        'zh'
    """
    best, most = "en", 0.0
    for choice in (accept or "").split(","):
        tag, _, weight = choice.partition(";")
        name, liked = tag.strip().lower().partition("-")[0], quality(weight)
        if name in LANGUAGES and liked > most:
            best, most = name, liked
    return best


def quality(weight: str) -> float:
    """The number of `q=0.8`; 1 where there is none, 0 for what is no number."""
    name, _, number = weight.strip().partition("=")
    if not name:
        return 1.0
    try:
        return float(number) if name.strip() == "q" else 0.0
    except ValueError:
        return 0.0
