"""A chart of the rates as SVG, drawn by hand: one bar for each contestant, in a panel for each measure."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.contestants import CONTESTANTS
from bench.musts import Figure, Medians

PANELS: Sequence[tuple[str, str, str, str]] = (
    ("drain", "per_s", "No-op tasks drained, per second", "more is better"),
    ("nap", "per_s", "Tasks of 10 ms, per second", "more is better"),
    ("enqueue", "per_s", "Enqueued one by one, per second", "more is better"),
    ("many", "per_s", "Enqueued a thousand a call, per second", "more is better"),
    ("latency", "p50_ms", "Pick-up by an idle worker, p50 in ms", "less is better"),
)
TITLES = {
    "dumbwaiter": "Dumbwaiter",
    "pgqueuer": "PgQueuer",
    "oban": "oban-py",
    "procrastinate": "Procrastinate",
    "celery": "Celery",
    "huey": "Huey",
    "postgresql": "PostgreSQL",
    "sqlite": "SQLite",
    "mariadb": "MariaDB",
    "rabbitmq": "RabbitMQ",
}
WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 760, 230, 70, 18, 8, 46
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.head{font-weight:600}.note{fill:#6e7781}.ours{fill:#0969da}.other{fill:#8c959f}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#8d96a0}.ours{fill:#4493f8}.other{fill:#6e7681}}"
)


def svg(figures: Medians) -> str:
    """The chart of what was measured; a panel without figures is left out."""
    parts: list[str] = []
    top = 0
    for measure, value, title, note in PANELS:
        bars = rates(figures, measure, value)
        if bars:
            parts += panel(bars, title, note, top)
            top += HEAD + len(bars) * (BAR + GAP) + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" role="img">\n'
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def rates(figures: Medians, measure: str, value: str) -> list[tuple[str, bool, float]]:
    """For each contestant that has this figure: how it is called, whether it is ours, the figure."""
    found = [(one, figures.get(Figure(one.name, measure, value))) for one in CONTESTANTS]
    return [
        (f"{TITLES[one.queue]} on {TITLES[one.server]}", one.ours, figure)
        for one, figure in found
        if figure is not None
    ]


def panel(bars: Sequence[tuple[str, bool, float]], title: str, note: str, top: int) -> list[str]:
    most = max(figure for *_, figure in bars) or 1.0
    parts = [
        f'<text x="8" y="{top + 26}"><tspan class="head">{escape(title)}</tspan> <tspan class="note">({note})</tspan></text>'
    ]
    for row, (name, ours, figure) in enumerate(bars):
        y = top + HEAD + row * (BAR + GAP)
        length = max(1.0, (WIDTH - LEFT - RIGHT) * figure / most)
        shown = f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}"
        parts += [
            f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{"ours" if ours else "other"}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>',
            f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}">{shown}</text>',
        ]
    return parts
