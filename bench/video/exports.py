"""One export in a process of its own (job.py), looked at from outside: what it made, what it took, what it left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Self, cast

from bench import processes
from bench.environments import ROOT
from bench.trials import Failed
from bench.video.job import Job, Made
from tests.jobs.video.support import Peak, Tag, wait_for

# The longest that any export here may take: a frozen one shall not freeze the run.
LONGEST_SECONDS = 3600.0


class Export:
    """An export that goes on, and ends with the `with` block however it stands."""

    def __init__(self, job: Job, home: Path) -> None:
        """Start it; what it writes on its own goes below `home`."""
        self._tag, self._made = Tag(), cast(Made | None, None)
        self._temporary = home / "tmp"
        self._temporary.mkdir(parents=True, exist_ok=True)
        for place in (home, self._temporary):
            place.chmod(0o711)  # the browser runs as somebody else
        self._workdir = Path(job.workdir)
        environment = os.environ | {"TMPDIR": str(self._temporary), "DUMBWAITER_TAG": self._tag.word}
        self._errors = (home / "stderr").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.video.job", json.dumps(asdict(job))],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.end_what_is_left()
        self._errors.close()

    def kill(self) -> None:
        """Kill the exporter's own process group; browsers and encoders must notice by themselves."""
        self._tag.processes()  # they are known from here on
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def progress(self) -> Iterator[float]:
        """How far it is, again and again, until it has ended."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                # one that was killed may not have finished its last word
                told = json.loads(line) if line.endswith(b"\n") else {}
                if "at" in told:
                    yield told["at"]
                elif told:
                    self._made = Made(**told | {"pictures": tuple(map(tuple, told["pictures"]))})

    def made(self) -> Made:
        """What came of it.

        Raises:
            Failed: nothing did.
        """
        timer = threading.Timer(LONGEST_SECONDS, self.kill)
        timer.start()
        try:
            for _ in self.progress():
                pass
        finally:
            timer.cancel()
        status = self.process.wait()
        if self._made is None:
            self._errors.seek(0)
            said = self._errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
            raise Failed(f"the export ended with status {status}: {' '.join(said)}")
        return self._made

    def processes_left(self) -> int:
        """How many of its processes have not ended two seconds after it."""
        return 0 if self._tag.gone() else len(self._tag.processes())

    def files_left(self) -> list[str]:
        """What it left in its work directory and in the temporary one."""
        return [str(path) for place in (self._workdir, self._temporary) for path in place.rglob("*")]

    def end_what_is_left(self) -> None:
        for process in self._tag.processes():
            with contextlib.suppress(*processes.GONE):
                process.kill()
        wait_for(lambda: not self._tag.processes(), 5.0)

    def watching(self) -> contextlib.AbstractContextManager[Peak]:
        """Look at the memory of all of it."""
        return self._tag.watching()


def exported(job: Job, home: Path) -> Made:
    """Export, and have a video.

    Raises:
        Failed: there is none.
    """
    with Export(job, home) as running:
        made = running.made()
    if made.error:
        raise Failed(f"{made.error}: {made.message}")
    return made
