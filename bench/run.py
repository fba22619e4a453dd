"""`./dev bench`: measures Dumbwaiter beside other queues, in one run; see docs/explanation/performance.md for the method.

./dev bench queue                       everything, three rounds: some hours
./dev bench queue --measures drain,nap --queues dumbwaiter,pgqueuer --databases postgresql --rounds 3
./dev bench queue --quick               sees that all of it works, with numbers that mean nothing
./dev bench show .dev/bench/results/X.json   the tables and the chart of an earlier run
./dev bench eta                         how far off the estimates of the time left are
./dev bench api                         POST /tasks/noop beside a bare route that inserts a row
./dev bench sse                         500 clients follow 50 tasks a second for ten minutes
./dev bench plans                       the plans of the hot statements on a million rows
./dev bench prune                       old records and expired files go while tasks flow
./dev bench files                       large files go to a disk and to object stores, in little memory
./dev bench video --recordings DIR      how fast, exact and sturdy the export of recordings is; the better part of an hour
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import api, chart, environments, files, plans, prune, report, results, servers, sse
from bench.contestants import OURS, QUEUES, SERVERS, Contestant, chosen
from bench.measures import MEASURES, Counts, Measure
from bench.results import Result, Results
from bench.servers import Server
from bench.sizes import FULL, QUICK, Sizes
from bench.trials import Failed, Trial

RESULTS = environments.ROOT / ".dev" / "bench" / "results"
RECORDINGS = Path(__file__).parents[1] / "tests" / "jobs" / "video" / "recordings"
SESSIONS = RECORDINGS / "own"
VIDEO_LINES = (
    "speed", "recordvideo", "every-frame", "twice", "kills", "file", "truth", "frames", "memory", "hostile",
)  # fmt: skip
DATABASES = [name for name in SERVERS if name != "rabbitmq"]
# The bare route, against which the others are measured, speaks to these.
WEB = ["postgresql", "sqlite"]


def main(words: Sequence[str]) -> int:
    """Do what the words say."""
    # told to end, it ends what it started first
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = parser().parse_args(words)
    status: int = given.word(given)
    return status


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    words = top.add_subparsers(required=True, metavar="WORD")

    queue = words.add_parser("queue", help="measure queues")
    queue.set_defaults(word=measure_queues)
    queue.add_argument("--measures", type=several(MEASURES), default=list(MEASURES), metavar="NAME,…")
    queue.add_argument(
        "--queues", "--peers", type=several(QUEUES), default=list(QUEUES), metavar="NAME,…", dest="queues",
        help="who is measured beside us, which is always",
    )  # fmt: skip
    queue.add_argument("--databases", type=several(SERVERS), default=list(SERVERS), metavar="NAME,…")
    queue.add_argument("--rounds", type=int, default=3)
    queue.add_argument("--quick", action="store_true", help="few tasks: to see that it works")
    queue.add_argument(
        "--here",
        action="store_true",
        help="measure ourselves in this Python, not in an environment of its own",
    )
    queue.add_argument("--out", type=Path, help="where the JSON goes (.dev/bench/results/DATE.json)")
    queue.add_argument("--chart", type=Path, help="where the chart goes (beside the JSON)")

    shown = words.add_parser("show", help="the tables and the chart of an earlier run")
    shown.set_defaults(word=show_earlier)
    shown.add_argument("path", type=Path)
    shown.add_argument("--chart", type=Path)

    planned = words.add_parser("plans", help="the plans of the hot statements on a million rows")
    planned.set_defaults(word=show_plans)
    planned.add_argument("--databases", type=several(DATABASES), default=DATABASES, metavar="NAME,…")
    planned.add_argument("--quick", action="store_true", help="few rows: to see that it works")

    estimated = words.add_parser("eta", help="how far off the estimates of the time left are")
    estimated.set_defaults(word=show_estimates)
    estimated.add_argument(
        "--recordings", type=Path, nargs="*", default=[SESSIONS], metavar="DIRECTORY",
        help="where to look for recordings of 20 s and more (those of the tests)",
    )  # fmt: skip
    estimated.add_argument("--rounds", type=int, default=2, help="of exports; 0 for none")
    estimated.add_argument("--seeds", type=int, default=60, help="how often each shape is simulated")

    cleaning = words.add_parser("prune", help="old records and expired files go while tasks flow")
    cleaning.set_defaults(word=measure_pruning)
    cleaning.add_argument("--databases", type=several(DATABASES), default=DATABASES, metavar="NAME,…")
    cleaning.add_argument(
        "--only", type=several(prune.DUE), default=list(prune.DUE), metavar="NAME,…", help="files, records"
    )
    cleaning.add_argument("--quick", action="store_true", help="few of them: to see that it works")

    stored = words.add_parser("files", help="large files go to a disk and to object stores, in little memory")
    stored.set_defaults(word=measure_files)
    stored.add_argument("--places", type=several(files.PLACES), default=list(files.PLACES), metavar="NAME,…")
    stored.add_argument("--quick", action="store_true", help="64 MiB each: to see that it works")

    drawn = words.add_parser("video", help="how fast, exact and sturdy the export of recordings is")
    drawn.set_defaults(word=measure_exports)
    drawn.add_argument(
        "--recordings", type=Path, default=RECORDINGS, metavar="DIR",
        help="a folder with own/, real/ and broken/; what is missing there is said (those of the tests)",
    )  # fmt: skip
    drawn.add_argument("--only", type=several(VIDEO_LINES), default=list(VIDEO_LINES), metavar="NAME,…")
    drawn.add_argument("--rounds", type=int, help="of what takes less than a minute (3)")
    drawn.add_argument("--seed", type=int, help="of the random moments, as an earlier run told it")
    drawn.add_argument("--quick", action="store_true", help="two seconds of each: to see that it works")
    drawn.add_argument("--out", type=Path, help="where the JSON goes (.dev/bench/results/video-DATE.json)")

    add_web(words)
    return top


def add_web(words: Any) -> None:
    """The words that measure a web application."""
    asking = words.add_parser("api", help="POST /tasks/noop beside a bare route that inserts a row")
    asking.set_defaults(word=measure_api)
    asking.add_argument("--databases", type=several(WEB), default=WEB, metavar="NAME,…")
    asking.add_argument("--quick", action="store_true", help="a second each: to see that it works")

    following = words.add_parser("sse", help="many clients follow tasks that end all the time")
    following.set_defaults(word=measure_streams)
    following.add_argument("--databases", type=several(WEB), default=WEB, metavar="NAME,…")
    following.add_argument("--seconds", type=float, help="for how long (600)")
    following.add_argument("--quick", action="store_true", help="few, for 8 s: to see that it works")


def several(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Names out of these, with commas between them."""

    def names(text: str) -> list[str]:
        given = text.split(",")
        if unknown := [name for name in given if name not in known]:
            raise argparse.ArgumentTypeError(
                f"there is no {', '.join(unknown)}; there are {', '.join(known)}"
            )
        return given

    return names


def measure_queues(given: argparse.Namespace) -> int:
    """All measures of all contestants, round after round, so that a slow drift of the machine hits everybody alike."""
    sizes = QUICK if given.quick else FULL
    wanted = chosen({OURS, *given.queues}, set(given.databases))
    pythons = interpreters(wanted, here=given.here)
    out = given.out or RESULTS / f"{datetime.now(UTC):%Y-%m-%d-%H%M}.json"
    with servers.started({one.server for one in wanted if one.queue in pythons}) as running:
        contestants = [one for one in wanted if one.queue in pythons and one.server in running]
        versions = {name: server.version for name, server in running.items()}
        machine = results.machine(versions, dataclasses.asdict(sizes))
        found = Results(out, machine, {one.name: one.settings for one in contestants})
        run = Run(running, pythons, sizes)
        for number in range(1, given.rounds + 1):
            for measure in (MEASURES[name] for name in given.measures):
                for one in contestants:
                    if measure.takes_part(one):
                        result = run.taken(number, measure, one)
                        found.add(result)
                        tell(result)
    return shown_and_drawn(found, given.chart or out.with_suffix(".svg"))


@dataclass
class Run:
    """What every measurement of a run shares: servers, interpreters, sizes."""

    servers: Mapping[str, Server]
    pythons: Mapping[str, Path]
    sizes: Sizes
    counts: Counts = field(default_factory=dict)

    def taken(self, number: int, measure: Measure, one: Contestant) -> Result:
        """One measurement. Whatever goes wrong in it is its result, and the run goes on."""
        with tempfile.TemporaryDirectory(prefix="dumbwaiter-bench-", dir=servers.big_directory()) as home:
            trial = Trial(one, self.servers[one.server], self.pythons[one.queue], Path(home))
            try:
                values = measure.take(trial, self.sizes, self.counts)
            except Exception as error:  # noqa: BLE001 - a queue of somebody else's may fail in any way
                return Result(number, one.name, measure.name, failure=told(error))
            finally:
                trial.close()
        return Result(number, one.name, measure.name, values, load=os.getloadavg()[0])


def told(error: Exception) -> str:
    """Why a measurement does not count."""
    name = "" if isinstance(error, Failed) else f"{type(error).__name__}: "
    return f"{name}{error}"[:500]


def tell(result: Result) -> None:
    """A line for who waits."""
    said = f"does not count: {result.failure}" if result.failure else report.line(result.values)
    print(
        f"round {result.round}  {result.contestant:24} {result.measure:9} {said}", file=sys.stderr, flush=True
    )


def interpreters(wanted: Sequence[Contestant], *, here: bool) -> dict[str, Path]:
    """The Python of each queue; those that cannot be had are told and left out."""
    pythons: dict[str, Path] = {}
    for queue in dict.fromkeys(one.queue for one in wanted):
        if queue == OURS and here:
            pythons[queue] = Path(sys.executable)
            continue
        try:
            pythons[queue] = environments.python_of(queue)
        except environments.Unavailable as error:
            print(f"bench: without {queue}: {error}", file=sys.stderr)
    return pythons


def show_earlier(given: argparse.Namespace) -> int:
    found = results.read(given.path)
    if "video" in found.machine["sizes"]:
        from bench.video import table

        return 1 if table.show(found) or found.failures else 0
    return shown_and_drawn(found, given.chart)


def shown_and_drawn(found: Results, picture: Path | None) -> int:
    """Print the tables, draw the chart. A measurement that does not count makes the run fail; a must that is missed does not."""
    report.show(found)
    if picture is not None:
        picture.write_text(chart.svg(found.medians), encoding="utf-8")
        print(f"bench: {found.path}, {picture}", file=sys.stderr)
    return 1 if found.failures else 0


def show_estimates(given: argparse.Namespace) -> int:
    from bench import eta  # the exports are not needed for the rest

    return 1 if eta.show(given.seeds, given.recordings, given.rounds) else 0


def show_plans(given: argparse.Namespace) -> int:
    sizes = QUICK if given.quick else FULL
    with servers.started(set(given.databases)) as running:
        return 1 if plans.show(plans.look(running, sizes.planned)) else 0


def measure_pruning(given: argparse.Namespace) -> int:
    amounts = prune.QUICK if given.quick else prune.FULL
    with servers.started(set(given.databases)) as running:
        found = (one for server in running.values() for one in prune.measure(server, amounts, given.only))
        return 1 if prune.show(found) else 0


def measure_api(given: argparse.Namespace) -> int:
    with servers.started(set(given.databases)) as running:
        return 1 if api.show(api.all_of(running.values(), api.QUICK if given.quick else api.FULL)) else 0


def measure_streams(given: argparse.Namespace) -> int:
    crowd = sse.QUICK if given.quick else sse.FULL
    if given.seconds is not None:
        crowd = dataclasses.replace(crowd, seconds=given.seconds)
    with servers.started(set(given.databases)) as running:
        return 1 if sse.show(sse.all_of(running.values(), crowd)) else 0


def measure_exports(given: argparse.Namespace) -> int:
    from bench.video import measuring  # it needs what draws pictures, and the rest does not

    seed = secrets.randbelow(2**31) if given.seed is None else given.seed
    sizes = measuring.sizes(quick=given.quick, rounds=given.rounds)
    out = given.out or RESULTS / f"video-{datetime.now(UTC):%Y-%m-%d-%H%M}.json"
    return 1 if measuring.measure(given.recordings, given.only, sizes, seed, out) else 0


def measure_files(given: argparse.Namespace) -> int:
    sizes = {name: 64 * files.MIB if given.quick else size for name, (_, size) in files.PLACES.items()}
    return 1 if files.show(files.measure(name, sizes[name]) for name in given.places) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
