"""The program as process 1 of a container: it runs in a child, and process 1 does what only process 1 can.

Process 1 ignores TERM until a handler is there, and is given every process whose parent died, which it must wait for or
they stay as zombies until no more can be started. The worker itself cannot wait for what it did not start: it would take
the status of a process from a task that is about to ask for it.
"""

from __future__ import annotations

import contextlib
import os
import signal

PASSED_ON = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)


def run_in_child() -> None:
    """Returns in the child, which is to do the work; process 1 stays in here, and ends as the child does."""
    # blocked from here on, so that none is lost between the fork and the first wait
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        lead_the_terminal()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    os._exit(until_ended(child))


def lead_the_terminal() -> None:
    """Move to a process group of our own, and into the foreground with it if that is where we were.

    Otherwise Ctrl-C would reach us twice, from the terminal and from process 1, and twice means: hurry.
    """
    foreground = False
    with contextlib.suppress(OSError):  # there is no terminal
        foreground = os.tcgetpgrp(0) == os.getpgrp()
    os.setpgid(0, 0)
    with contextlib.suppress(OSError):
        if foreground:
            # who takes the terminal from the background is stopped for it otherwise
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            os.tcsetpgrp(0, os.getpgrp())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)


def until_ended(child: int) -> int:
    """Pass on signals, wait for whatever ends; the exit status of the child, as a shell gives it, once it has ended."""
    while True:
        heard = signal.sigwait({*PASSED_ON, signal.SIGCHLD})
        if heard != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, heard)
            continue
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = ended
                if pid == child:
                    code = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else 128 - code
