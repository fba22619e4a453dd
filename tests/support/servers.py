"""Starts database servers as the right user, in a directory of their own, and knows whether a process is still one of them."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import pymysql

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60


class ServiceMissing(Exception):
    """A server, a program or a right that cannot be had; its text says why and how to go on without it."""


@dataclass(frozen=True)
class Running:
    """A server that we started: its address, and how to stop it again."""

    url: str
    how: str
    pid: int | None = None
    data: str | None = None


# The servers


def postgresql_answers(url: str) -> None:
    import psycopg

    psycopg.connect(url, connect_timeout=3).close()


def postgresql_programs() -> Path | None:
    """Where the newest installed PostgreSQL has its programs."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not programs and (found := shutil.which("initdb")):
        return Path(found).parent
    return programs[-1] if programs else None


def serve_postgresql(programs: Path, data: Path, settings: Mapping[str, object]) -> Running:
    """A server of its own with an empty directory for its data; `settings` beside PostgreSQL's defaults."""
    user = servant("postgres")
    owned_empty(data, user)
    initdb = ["--no-locale", "--encoding=UTF8", "--auth=trust", "--username=postgres", "--no-sync"]
    run(str(programs / "initdb"), "-D", str(data), *initdb, user=user)
    return start_postgresql(programs, data, settings, free_port())


def start_postgresql(programs: Path, data: Path, settings: Mapping[str, object], port: int) -> Running:
    """A server on the data that is there."""
    user = servant("postgres")
    place = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": ""}
    arguments = [word for name, value in {**place, **settings}.items() for word in ("-c", f"{name}={value}")]
    process = spawn([str(programs / "postgres"), "-D", str(data), *arguments], user, data)
    running = Running(
        f"postgresql://postgres@127.0.0.1:{port}/postgres", f"{programs / 'postgres'}", process.pid, str(data)
    )
    return answering(running, postgresql_answers, process)


def mysql_connection(url: str) -> pymysql.Connection[pymysql.cursors.Cursor]:
    """A connection of the driver's own, from an address as the program takes it."""
    import pymysql

    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        autocommit=True,
        connect_timeout=5,
    )


def mysql_answers(url: str) -> None:
    mysql_connection(url).close()


def mariadb_programs() -> tuple[str, str] | None:
    """MariaDB's server and what makes its first tables."""
    server, installer = program("mariadbd"), program("mariadb-install-db")
    return (server, installer) if server and installer else None


def serve_mariadb(programs: tuple[str, str], data: Path, options: Sequence[str]) -> Running:
    """A server of its own with an empty directory for its data; `options` beside MariaDB's defaults."""
    user = servant("mysql")
    owned_empty(data, user)
    first = [
        "--no-defaults",
        f"--datadir={data}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
    ]
    run(programs[1], *first, user=user)
    return start_mariadb(programs[0], data, options, free_port())


def start_mariadb(server: str, data: Path, options: Sequence[str], port: int) -> Running:
    """A server on the data that is there."""
    user = servant("mysql")
    place = [
        "--no-defaults",
        f"--datadir={data}",
        f"--port={port}",
        "--bind-address=127.0.0.1",
        # A socket's path may have 107 characters at most, and a checkout's path may be longer.
        f"--socket=/tmp/dumbwaiter-test-{port}.sock",
        "--character-set-server=utf8mb4",
    ]
    process = spawn([server, *place, *options], user, data)
    running = Running(f"mysql://root@127.0.0.1:{port}", server, process.pid, str(data))
    return answering(running, mysql_answers, process)


# A process of a server's own


def servant(name: str) -> str | None:
    """The user that runs a server: ourselves, or for root (which both servers refuse) one without rights."""
    if os.geteuid() != 0:
        return None
    for candidate in (name, "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(candidate).pw_name
    raise ServiceMissing("root may not run a database server, and there is no user 'nobody' to run it as")


def owned_empty(directory: Path, user: str | None) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    directory.chmod(0o700)
    if user is not None:
        shutil.chown(directory, user, pwd.getpwnam(user).pw_gid)


def spawn(command: list[str], user: str | None, data: Path) -> subprocess.Popen[bytes]:
    with (data.parent / f"{data.name}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **as_user(user),  # type: ignore[call-overload, unused-ignore]
        )


def run(*command: str, user: str | None = None) -> str:
    return subprocess.run(
        command,
        check=True,
        cwd="/" if user else ROOT,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        **as_user(user),  # type: ignore[call-overload, unused-ignore]
    ).stdout


def as_user(user: str | None) -> dict[str, object]:
    environment = {**os.environ, "LC_ALL": "C", "HOME": "/"}
    if user is None:
        return {"env": environment}
    return {"env": environment, "user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def answering(running: Running, answers: Callable[[str], None], process: subprocess.Popen[bytes]) -> Running:
    def answered() -> bool:
        if process.poll() is not None:
            log = Path(f"{running.data}.log").read_text(errors="replace").split("\n")
            raise ServiceMissing(f"{running.how} ended at once: {' '.join(log[-4:])}")
        try:
            answers(running.url)
        except Exception:  # noqa: BLE001 - whatever a driver raises: not yet
            return False
        return True

    wait_for(answered, f"{running.how} to answer")
    # It outlives this process on purpose; without this, Popen's destructor warns about it.
    process.returncode = 0
    return running


def wait_for(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise ServiceMissing(f"waited {START_SECONDS} s for {what}")
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def program(name: str) -> str | None:
    return shutil.which(
        name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/opt/homebrew/bin"
    )


def end(running: Running) -> None:
    """Stop a server that we started, if it still runs, and remove its data."""
    stop(running)
    if running.data is not None:
        shutil.rmtree(running.data, ignore_errors=True)


def stop(running: Running, *, crash: bool = False) -> None:
    """Stop a server that we started, if it still runs: as an operator does, or as a power failure does."""
    pid, data = running.pid, running.data
    if pid is None or data is None or not is_ours(pid, data):
        return
    # SIGINT is PostgreSQL's fast shutdown, SIGQUIT its immediate one, of which it recovers; MariaDB ends on TERM only.
    ways = (
        (signal.SIGINT, signal.SIGQUIT)
        if running.url.startswith("postgresql")
        else (signal.SIGTERM, signal.SIGKILL)
    )
    os.kill(pid, ways[crash])
    wait_for(lambda: not is_ours(pid, data), "the server to stop")


def is_ours(pid: int, data: str) -> bool:
    """Whether the process is still the server that we started, and not a later one with the same number."""
    if Path("/proc/self/cmdline").exists():
        # a dead one has no file; one that nobody has waited for has an empty one
        with contextlib.suppress(OSError):
            return data in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        return False
    listed = subprocess.run(
        ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True
    ).stdout
    return data in listed and not listed.lstrip().startswith("Z")
