"""Who is measured, on what, and how one sees from outside that nothing is left to do."""

from __future__ import annotations

from dataclasses import dataclass

OURS = "dumbwaiter"


@dataclass(frozen=True)
class Copied:
    """How to put many rows behind a queue of somebody else's: copies of one row that it wrote itself."""

    pending: str
    finished: str


@dataclass(frozen=True)
class Contestant:
    """A queue on a server. `left` is SQL for how many tasks wait or run; without it, what was seen from outside decides."""

    queue: str
    server: str
    settings: str
    left: str = ""
    copied: Copied | None = None

    @property
    def name(self) -> str:
        return f"{self.queue}/{self.server}"

    @property
    def ours(self) -> bool:
        return self.queue == OURS


def ours(server: str) -> Contestant:
    """Both of the look's questions have an index: with a million finished rows it must not cost what is being measured."""
    left = (
        f"SELECT (SELECT count(*) FROM {OURS}_tasks WHERE status = 'pending' AND ready)"
        f" + (SELECT count(*) FROM {OURS}_tasks WHERE heartbeat_at IS NOT NULL)"
    )
    return Contestant(OURS, server, "100 slots, coroutines; everything else as it comes", left)


CONTESTANTS = (
    ours("postgresql"),
    ours("sqlite"),
    ours("mariadb"),
    Contestant(
        "pgqueuer",
        "postgresql",
        "asyncpg pool of 10, batch_size=100, no limit on what runs at once (its default)",
        "SELECT count(*) FROM pgqueuer WHERE status IN ('queued', 'picked')",
        Copied("pgqueuer", "pgqueuer_log"),
    ),
    Contestant(
        "oban",
        "postgresql",
        "pool of 10, one queue with a limit of 100; everything else as it comes",
        "SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'scheduled', 'executing', 'retryable')",
        Copied("oban_jobs", "oban_jobs"),
    ),
    Contestant(
        "procrastinate",
        "postgresql",
        "psycopg pool of 10, concurrency 20 for no-ops and 100 for sleepers",
        "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        Copied("procrastinate_jobs", "procrastinate_jobs"),
    ),
    Contestant(
        "celery",
        "rabbitmq",
        "no-ops: 2 processes, prefetch 64; sleepers: 100 greenlets; results ignored, early acknowledgement (its default)",
    ),
    Contestant(
        "huey",
        "sqlite",
        "no results, no fsync (its default); no-ops: 1 thread; sleepers: 20; looks every 10 to 50 ms",
        "SELECT count(*) FROM task",
    ),
)
QUEUES = tuple(dict.fromkeys(one.queue for one in CONTESTANTS))
SERVERS = ("postgresql", "sqlite", "mariadb", "rabbitmq")


def chosen(queues: set[str], servers: set[str]) -> list[Contestant]:
    """Ourselves on these databases, and of the others those that were asked for."""
    return [one for one in CONTESTANTS if one.queue in queues and one.server in servers]
