"""The small forms of `./dev bench prune` and `./dev bench files`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench import files, prune
from bench.servers import SQLite

Tell = Callable[[str], None]


SMALL = prune.Amounts(files=500, records=20_000, tasks=500)


@pytest.mark.parametrize("due", ["files", "records"])
def test_twenty_thousand_records_go_by_themselves_while_tasks_flow_and_so_do_expired_files(
    tmp_path: Path, tell: Tell, due: prune.Due
) -> None:
    done = prune.cleaned(SQLite(tmp_path), SMALL, due, tmp_path)

    tell(
        f"{due}: {done.seconds:.1f} s, {done.statements} statements, p50 {done.p50:.1f} ms, p99 {done.p99:.1f} ms"
    )
    assert done.left == 0
    # in batches of a thousand at most: a look at them, at what belongs to them, and what removes them
    assert done.statements >= (2 * SMALL.files if due == "files" else 6 * SMALL.records) / 1_000
    # the p99 is for a machine that does nothing else
    assert done.p50 <= prune.MOST_MS


ON_SWIFT = pytest.param("swift", marks=(pytest.mark.swift, pytest.mark.service("swift")))


@pytest.mark.parametrize("place", ["disk", "moto", ON_SWIFT])
def test_a_file_of_64_mib_is_stored_in_little_memory(place: str, tell: Tell) -> None:
    done = files.measure(place, 64 * files.MIB)

    tell(f"{place}: grew by {done.growth / files.MIB:.0f} MiB, {done.seconds:.1f} s")
    assert done.whole
    assert done.growth <= files.MOST_GROWTH
