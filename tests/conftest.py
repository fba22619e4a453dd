"""Fixtures and flags of the whole suite: databases, services, what is left out and why."""

from __future__ import annotations

import os
import random
import secrets
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support import servers, services
from tests.support.databases import KINDS, Database, Databases, Kind

# Two cores are shared by everything that runs here, so a slow example proves nothing.
hypothesis.settings.register_profile("dumbwaiter", deadline=None)
# Whether a mutant is found is all that is asked, not the shortest way to it; and nothing of it is to be remembered.
hypothesis.settings.register_profile(
    "mutants", deadline=None, phases=[hypothesis.Phase.generate], database=None
)
hypothesis.settings.load_profile("dumbwaiter")

# The tests of a group run one at a time, in one process: the first three and the mutants start many processes and measure times,
# and none of their tests shall meet the load of another of its group; the others share the videos that they made, or a browser.
GROUPS = {
    # these wait most of the time, for answers that are late, for the end of outages and of leases
    "waiting": (
        "tests/faults/campaigns/test_hours.py",
        "tests/faults/test_coming_back.py",
        "tests/faults/test_final.py",
    ),
    # fifty processes for one key take half of the connections that a server has
    "faults": ("tests/faults/", "tests/store/test_contention.py"),
    "workers": ("tests/worker/", "tests/api/test_uvicorn.py"),
    "videos": ("tests/jobs/video/",),
    "browser": ("tests/browser/",),
    "mutants": ("tests/mutants/",),
}
# Without --faults nothing there fills the machine, and so the fast set of faults, which takes four minutes, is two halves.
HALF = "tests/faults/test_kill.py"
# Each statement is tried on every database by the tests of the store, and every way to run a task by this file; what else whole
# worker processes go through takes minutes. So of what names no database --faults tries it on all of them, and without that flag
# no worker is tried on MariaDB, and none is killed but on PostgreSQL.
PROCESSES = ("tests/faults/", "tests/worker/")
KILLED = "tests/faults/"
ON_EVERY_DATABASE = "tests/worker/test_running.py"
FLAGGED = {
    "long": ("--faults",),
    "overnight": ("--faults", "--long"),
    "mutants": ("--mutants",),
    "swift": ("--swift",),
}

left_out: Counter[str] = Counter()
seconds: defaultdict[str, float] = defaultdict(float)
figures: defaultdict[str, list[str]] = defaultdict(list)


@pytest.fixture(params=KINDS)
def database_kind(request: pytest.FixtureRequest) -> Kind:
    """Runs a test once on each database: `sqlite`, `postgresql`, `mysql`."""
    kind: Kind = request.param
    return kind


@pytest.fixture
def database(database_kind: Kind, make_database: Callable[[Kind], Database]) -> Database:
    """A fresh empty database of each kind."""
    return make_database(database_kind)


@pytest.fixture
def database_url(database: Database) -> str:
    """The address of a fresh empty database of each kind."""
    return database.url


@pytest.fixture
def make_database(databases: Databases) -> Iterator[Callable[[Kind], Database]]:
    """Makes fresh empty databases, `make_database("mysql")`, that are dropped when the test ends."""
    made: list[Database] = []

    def make(kind: Kind) -> Database:
        try:
            made.append(databases.make(kind))
        except servers.ServiceMissing as missing:
            sentence = str(missing)
        else:
            return made[-1]
        pytest.fail(sentence, pytrace=False)

    yield make
    for one in made:
        databases.drop(one)


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Takes a figure that the test measured; all of them stand in the summary, whether the test passes or not."""

    def told(figure: str) -> None:
        print(figure, flush=True)  # at once with -s, for trials that take hours
        record_property("figure", figure)

    return told


@pytest.fixture
def chance(request: pytest.FixtureRequest, tell: Callable[[str], None]) -> random.Random:
    """The random choices of a trial. Their seed is told; `--seed` gives it, and the same choices are made again."""
    given: int | None = request.config.option.seed
    seed = secrets.randbelow(2**31) if given is None else given
    tell(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """The maker behind `make_database`, for fixtures that live longer than a test."""
    databases = Databases(tmp_path_factory.mktemp("databases"))
    yield databases
    databases.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--without NAME`, `--faults`, `--long`, `--seed N`, `--mutants`, `--swift`."""
    group = parser.getgroup("dumbwaiter")
    group.addoption(
        "--without",
        action="append",
        default=[],
        choices=sorted(services.SERVICES),
        help="leave out the tests that need this service",
    )
    group.addoption("--faults", action="store_true", help="run the long fault tests too")
    group.addoption("--long", action="store_true", help="with --faults: the trials that take hours, too")
    group.addoption("--seed", type=int, help="the seed of the random trials, as an earlier run told it")
    group.addoption("--mutants", action="store_true", help="run the tests of the tests too")
    group.addoption("--swift", action="store_true", help="try OpenStack Swift too, which checks signatures")
    group.addoption("--only-services", action="store_true", help="start what the tests need, and run none")


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs that tests start, even where the tests run in a shell's background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A busy machine is no outage; tests of one say how long a request may take.
    os.environ.setdefault("DUMBWAITER_REQUEST_TIMEOUT", "30s")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the flags say, and count it for the summary."""
    kept = []
    for item in items:
        if reason := _reason_to_leave_out(config, item):
            left_out[reason] += 1
        else:
            kept.append(item)
    if len(kept) < len(items):
        gone = set(items) - set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item in gone])
        items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the services that the chosen tests need, and no others."""
    only = session.config.option.only_services
    if session.config.option.collectonly and not only:
        return
    missing = []
    for name in sorted({name for item in session.items for name in _services(item)}):
        try:
            address = services.ensure(name)
            if only:
                print(f"services: {name} at {address}")
        except servers.ServiceMissing as sentence:
            missing.append(str(sentence))  # without --only-services the tests that need it fail with it
    if only:
        pytest.exit("\n".join(missing) or "services: ready", returncode=1 if missing else 0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share out the tests singly, after the groups."""
    from xdist.scheduler import LoadScopeScheduling

    # Not by marks of xdist_group: pytest-xdist 3.8 loses them with pytest 9.2.
    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(HALF) and not config.option.faults:
                return "waiting"
            return next((group for group, paths in GROUPS.items() if nodeid.startswith(paths)), nodeid)

    return Scheduling(config, log)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the time of each part, which is a folder of tests, and keep what was measured."""
    seconds[_part(report.nodeid)] += report.duration
    if report.when == "teardown":
        figures[report.nodeid] += [str(told) for name, told in report.user_properties if name == "figure"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist tells its controller what it left out."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["left_out"] = dict(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear what a worker left out; each of them collects everything, so the counts are equal."""
    left_out.update(Counter(getattr(node, "workeroutput", {}).get("left_out", {})) - left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was measured, the time of each part, and what was left out."""
    if any(figures.values()):
        terminalreporter.section("figures")
        for nodeid, told in sorted(figures.items()):
            for figure in told:
                terminalreporter.write_line(f"{nodeid.split('::')[-1]}: {figure}")
    if seconds:
        terminalreporter.section("time of each part")
        for part, spent in sorted(seconds.items()):
            terminalreporter.write_line(f"{part:<12} {spent:7.1f} s")
    for reason, count in sorted(left_out.items()):
        terminalreporter.write_line(f"left out: {count} tests ({reason})")


def _reason_to_leave_out(config: pytest.Config, item: pytest.Item) -> str | None:
    for name in _services(item):
        if name in config.option.without:
            return f"--without {name}"
    for marker, flags in FLAGGED.items():
        if item.get_closest_marker(marker) and not all(config.getoption(flag) for flag in flags):
            return f"run only with {' '.join(flags)}"
    if not config.option.faults and _on_one_database_too_many(config, item):
        return "run only with --faults"
    return None


def _on_one_database_too_many(config: pytest.Config, item: pytest.Item) -> bool:
    chosen = getattr(item, "callspec", None)
    if chosen is None or not item.nodeid.startswith(PROCESSES) or item.nodeid.startswith(ON_EVERY_DATABASE):
        return False
    named = any("database_kind" in str(marker.args[0]) for marker in item.iter_markers("parametrize"))
    killed = item.nodeid.startswith(KILLED) and "postgresql" not in config.option.without
    kind = chosen.params.get("database_kind")
    return "mysql" in chosen.params.values() or (killed and not named and kind == "sqlite")


def _services(item: pytest.Item) -> list[str]:
    return [str(marker.args[0]) for marker in item.iter_markers("service")]


def _part(nodeid: str) -> str:
    parts = Path(nodeid.split("::")[0]).parts
    return parts[1] if len(parts) > 2 else "tests"
