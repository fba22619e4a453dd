"""The table of `./dev bench video`: what must be, what is; and below it what was measured of each recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bench.report import COLOURS, bound, shown
from bench.results import Results
from bench.video.musts import ALWAYS, EVERY, FULL_ONLY, Line, by_measure, lines

# Lines of the command that measure several things, or under another name.
MEASURES = {"kills": ("killed", "emptied"), "memory": ("memory", "large")}
WIDTH = 150


def verdicts(found: Results) -> list[Line]:
    """All lines, as far as they were measured. The figures of a quick run say nothing of speed and memory."""
    sizes, medians, present = found.machine["sizes"], found.medians, {*found.settings, EVERY}
    measures = {measure for name in sizes["video"] for measure in MEASURES.get(name, (name,))}
    return [
        line
        for musts, judged in ((FULL_ONLY, not sizes["quick"]), (ALWAYS, True))
        for line in lines(musts, medians, present, judged=judged)
        if line.must.figure.measure in measures
    ]


def show(found: Results, console: Console | None = None) -> int:
    """Print all that is known; how many musts are missed."""
    out = console or Console(width=max(Console().width, WIDTH))
    for table in measured(by_measure(found.medians)):
        out.print(table)
    judged = verdicts(found)
    out.print(kept(judged))
    for one in found.failures:
        out.print(f"{one.contestant}, {one.measure}: [red]does not count[/red]: ", end="")
        out.print(one.failure, markup=False)
    high = max((one.load for one in found.all), default=0.0)
    out.print(
        f"seed {found.machine['sizes']['seed']}; the load was up to {high:.1f} on {found.machine['cores']} cores"
    )
    return sum(line.verdict == "missed" for line in judged)


def measured(figures: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[Table]:
    """A table for each measure, with a row for each recording."""
    for measure, rows in figures.items():
        columns: Sequence[str] = list(dict.fromkeys(value for row in rows.values() for value in row))
        table = Table(title=measure, title_justify="left", header_style="bold")
        table.add_column("", no_wrap=True)
        for column in columns:
            table.add_column(column.replace("_", " "), justify="right")
        for name, row in rows.items():
            table.add_row(name, *(shown(row[column]) if column in row else "–" for column in columns))
        yield table


def kept(judged: Iterable[Line]) -> Table:
    """A row for each thing that must be."""
    table = Table(title="What must be", title_justify="left", header_style="bold")
    for head in ("", "must", "aim", "is", "", "worst"):
        table.add_column(head, justify="left" if not head or head == "worst" else "right")
    for line in judged:
        must, colour = line.must, COLOURS.get(line.verdict, "dim")
        table.add_row(
            must.title,
            bound(must, must.bound),
            "" if must.aim is None else bound(must, must.aim),
            "" if line.value is None else f"{close(line.value)}{must.unit}",
            f"[{colour}]{line.verdict}{', aim too' if line.aimed else ''}[/{colour}]",
            line.worst,
        )
    return table


def close(value: float) -> str:
    """A likeness near 1 needs more digits than others."""
    return f"{value:.5f}" if 0.9 < value < 1 else shown(value)
