"""A program whose processes do not want to end. Run by path: `hostile.py PIDS OUTPUT TRAITS`.

It grows seven processes: three times one that left its parent's session and a child of that whose parent is given up by a
double fork. Each writes its pid down, and then, by the traits, ignores TERM and HUP ("deaf"), stops itself ("stopped"), goes
on writing ("busy"), or leaves its child alone ("orphans").
"""

from __future__ import annotations

import os
import signal
import sys
import time

SIZE = 7


def main(pids: str, output: str, traits: str) -> None:
    if "deaf" in traits:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def note() -> None:
        with open(pids, "a", encoding="ascii") as file:  # noqa: PTH123 - a bare program
            file.write(f"{os.getpid()}\n")

    def stay() -> None:
        note()
        if "stopped" in traits:
            os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            if "busy" in traits:
                with open(output, "a", encoding="ascii") as file:  # noqa: PTH123
                    file.write("still here\n")
            time.sleep(0.1)

    def grow(depth: int) -> None:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                if depth:
                    grow(depth - 1)
                stay()
            if "orphans" in traits:
                note()
                os._exit(0)
            stay()

    grow(2)
    stay()


if __name__ == "__main__":
    main(*sys.argv[1:])
