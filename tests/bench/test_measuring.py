"""The measurements: what counts, what must be, and that a quick run goes through."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest
import sqlalchemy as sa

from bench import chart, results, rows
from bench.contestants import CONTESTANTS
from bench.environments import ROOT
from bench.musts import MUSTS, Figure, Must
from bench.records import RECORD, VARIABLE, Records
from bench.results import Result
from bench.servers import SQLite
from tests.store.world import store_of
from tests.support.filling import fill, finished
from tests.support.waiting import until

OURS, THEIRS = Figure("dumbwaiter/postgresql", "drain"), Figure("pgqueuer/postgresql", "drain")


def recorded(path: Path, *numbers: int) -> Records:
    path.write_bytes(b"".join(RECORD.pack(number, 1, 2) for number in numbers))
    return Records(path)


def test_a_drain_in_which_each_number_was_seen_once_is_right(tmp_path):
    assert recorded(tmp_path / "records", 2, 0, 1).wrong(range(3)) == ""


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        ((0, 1), "1 lost, such as 2"),
        ((0, 1, 2, 1), "1 run twice, such as 1"),
        ((0, 1, 2, 7), "1 never asked for, such as 7"),
        ((0, 0), "2 lost, such as 1; 1 run twice, such as 0"),
    ],
)
def test_a_drain_that_lost_or_repeated_a_number_says_so(tmp_path, numbers, fault):
    assert recorded(tmp_path / "records", *numbers).wrong(range(3)) == fault


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, ""),
        ({"attempt": 2}, "9 rows are successes at their first attempt, and 10 tasks ran; 1 rows are neither"),
        (
            {"status": "failed"},
            "9 rows are successes at their first attempt, and 10 tasks ran; 1 rows are neither",
        ),
        (
            {"status": "pending", "attempt": 0, "finished_at": None},
            "9 rows are successes at their first attempt, and 10 tasks ran",
        ),
    ],
)
def test_a_drain_counts_only_if_every_row_is_a_success_at_its_first_attempt(tmp_path, change, fault):
    server = SQLite(tmp_path)
    with closing(store_of(server.fresh())) as store:
        store.schema.migrate()
        fill(store, 9, finished())
        fill(store, 1, finished() | change, first=9)

    found = rows.wrong(server, 10, among=10)

    assert found.startswith(fault)
    assert bool(found) == bool(fault)


def test_filled_rows_are_claimed_in_the_order_of_their_numbers_before_the_backlog_behind_them(tmp_path):
    address = SQLite(tmp_path).fresh()
    with closing(store_of(address)) as store:
        store.schema.migrate()
        rows.fill_ours(address, "noop", 20, "backlog", 500)
        tasks = store.tables.tasks
        with store.connections.reading() as connection:
            first = connection.execute(
                sa.select(tasks.c.payload)
                .where(tasks.c.ready, tasks.c.run_at <= datetime.now(UTC))
                .order_by(tasks.c.priority.desc(), tasks.c.run_at, tasks.c.id)
                .limit(20)
            ).scalars()
            assert [{"number": number} for number in range(20)] == list(first)


def test_a_must_is_met_missed_or_not_measured():
    must = Must("drain, × theirs", OURS, 1.5, beside=THEIRS)
    slow = Must("claim", OURS, 3.0, at_most=True)

    assert must.verdict({OURS: 30.0, THEIRS: 20.0}) == "met"
    assert must.verdict({OURS: 29.0, THEIRS: 20.0}) == "missed"
    assert must.verdict({OURS: 30.0}) == "not measured"
    assert slow.verdict({OURS: 3.0}) == "met"
    assert slow.verdict({OURS: 3.1}) == "missed"


def test_every_must_speaks_of_contestants_that_there_are():
    names = {one.name for one in CONTESTANTS}

    spoken_of = {must.figure.contestant for must in MUSTS}
    spoken_of |= {must.beside.contestant for must in MUSTS if must.beside is not None}
    assert spoken_of - names == set()


def test_what_counts_is_the_median_of_the_rounds_that_count():
    seen = [
        Result(number, OURS.contestant, "drain", {"per_s": value})
        for number, value in enumerate((9.0, 1.0, 3.0, 5.0), start=1)
    ]

    assert results.medians([*seen, Result(5, OURS.contestant, "drain", failure="1 lost")]) == {OURS: 4.0}


def test_the_chart_has_a_bar_for_each_contestant_as_long_as_its_figure():
    drawn = ElementTree.fromstring(chart.svg({OURS: 300.0, THEIRS: 100.0}))

    bars = [one for one in drawn.iter() if one.tag.endswith("rect")]
    ours, theirs = (float(bar.attrib["width"]) for bar in bars)
    assert ours == pytest.approx(3 * theirs, abs=0.3)
    assert [bar.attrib["class"] for bar in bars] == ["ours", "other"]


def measured(out: Path, *measures: str) -> dict[str, dict[str, float]]:
    """The values of a quick run of ourselves on SQLite, by measure."""
    words = ("queue", "--quick", "--here", "--queues", "dumbwaiter", "--databases", "sqlite", "--rounds", "1")
    done = subprocess.run(
        [sys.executable, "-m", "bench.run", *words, "--measures", ",".join(measures), "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert out.with_suffix(".svg").read_text().startswith("<svg")
    return {one["measure"]: one["values"] for one in json.loads(out.read_text())["results"]}


def test_a_quick_run_goes_through_and_keeps_what_it_saw(tmp_path):
    [drain] = measured(tmp_path / "run.json", "drain").values()

    assert drain["number"] == 300
    assert drain["per_s"] > 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_quick_run_of_what_needs_more_than_a_drain_goes_through(tmp_path):
    measures = ("enqueue", "latency", "inside", "idle", "raw")
    values = measured(tmp_path / "run.json", *measures)

    assert values.keys() == set(measures)
    assert values["idle"].keys() == {"cpu_percent", "pss_mb", "statements_per_s"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process when its parent dies")
def test_a_worker_does_not_outlive_a_run_that_was_killed(tmp_path):
    address, records = SQLite(tmp_path).fresh(), Records(tmp_path / "records")
    with closing(store_of(address)) as store:
        store.schema.migrate()
    rows.fill_ours(address, "noop", 1)
    child = (
        "import subprocess, sys; "
        "print(subprocess.Popen([sys.executable, '-m', 'bench.hand', 'dumbwaiter', 'work', sys.argv[1]]).pid, flush=True); "
        "sys.stdin.read()"
    )
    words = [sys.executable, "-c", child, '{"task": "noop"}']
    ours = {"BENCH_ADDRESS": address, VARIABLE: str(records.path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        words, cwd=tmp_path, env=os.environ | ours, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        worker = psutil.Process(int(run.stdout.readline()))
        until(lambda: records.count() == 1)
        run.kill()

    until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
