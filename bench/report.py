"""The results as tables: what was measured, beside what must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bench.contestants import CONTESTANTS
from bench.musts import MUSTS, Figure, Medians, Must
from bench.results import Results

TABLES: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "Tasks a second": (
        ("enqueue", "per_s", "one by one"),
        ("many", "per_s", "1,000 a call"),
        ("drain", "per_s", "no-ops"),
        ("nap", "per_s", "of 10 ms"),
        ("raw", "insert_per_s", "raw insert"),
        ("raw", "batch_per_s", "raw batch"),
    ),
    "Pick-up in ms; processor seconds for 1,000 no-ops; memory of the worker at its peak": (
        ("latency", "p50_ms", "p50"),
        ("latency", "p99_ms", "p99"),
        ("drain", "worker_cpu", "worker"),
        ("drain", "server_cpu", "server"),
        ("drain", "peak_mb", "MB"),
    ),
    "With many rows, or several workers, beside the same without; claims beside an old snapshot": (
        ("behind", "finished", "finished"),
        ("behind", "backlog", "backlog"),
        ("behind", "future", "future"),
        ("workers", "two", "2 workers"),
        ("workers", "four", "4 workers"),
        ("snapshot", "times", "snapshot"),
    ),
    "A worker at rest": (
        ("idle", "statements_per_s", "statements/s"),
        ("idle", "cpu_percent", "% of a core"),
        ("idle", "pss_mb", "MB"),
    ),
}
COLOURS = {"met": "green", "missed": "red", "not measured": "dim"}


def show(results: Results, console: Console | None = None) -> None:
    """Print all that is known."""
    out = console or Console()
    figures = results.medians
    for table in (*measured(figures), kept(figures)):
        out.print(table)
    for one in results.failures:
        out.print(f"round {one.round}, {one.contestant}, {one.measure}: [red]does not count[/red]: ", end="")
        out.print(one.failure, markup=False)
    high = max((one.load for one in results.all), default=0.0)
    out.print(
        f"{max((one.round for one in results.all), default=0)} rounds; medians; the load was up to {high:.1f} "
        f"on {results.machine['cores']} cores"
    )


def measured(figures: Medians) -> Iterator[Table]:
    """Tables with a row for each contestant and a column for each value that anybody has."""
    for title, columns in TABLES.items():
        there = [column for column in columns if any(figure[1:] == column[:2] for figure in figures)]
        rows = {
            one.name: [figures.get(Figure(one.name, measure, value)) for measure, value, _ in there]
            for one in CONTESTANTS
        }
        if not there:
            continue
        table = Table(title=title, title_justify="left", header_style="bold")
        table.add_column("", no_wrap=True, min_width=max(len(name) for name in rows))
        for *_, head in there:
            table.add_column(head, justify="right")
        for name, row in rows.items():
            if any(value is not None for value in row):
                table.add_row(name, *("–" if value is None else shown(value) for value in row))
        yield table


def kept(figures: Medians) -> Table:
    """A row for each thing that must be."""
    table = Table(title="What must be", title_justify="left", header_style="bold")
    for head in ("", "is", "must", "aim", ""):
        table.add_column(head, justify="left" if not head else "right")
    for must in MUSTS:
        value, verdict = must.value(figures), must.verdict(figures)
        if value is not None:
            colour = COLOURS[verdict]
            table.add_row(
                must.title,
                shown(value) + must.unit,
                bound(must, must.bound),
                "" if must.aim is None else bound(must, must.aim),
                f"[{colour}]{verdict}[/{colour}]",
            )
    missing = sum(must.value(figures) is None for must in MUSTS)
    table.caption = f"{missing} of {len(MUSTS)} were not measured" if missing else None
    return table


def bound(must: Must, value: float) -> str:
    return f"{'≤' if must.at_most else '≥'} {value:g}{must.unit}"


def shown(value: float) -> str:
    """Three digits that matter, or a whole number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def line(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in values.items())
