"""Writes `docs/explanation/states.md` from the legal moves in `dumbwaiter.task`, so that it cannot say anything else.

python scripts/states.py           writes the file
python scripts/states.py --check   exits with 1 if the file is not what it would write
"""

from __future__ import annotations

import sys
from pathlib import Path

from dumbwaiter.task import MOVES, AttemptOutcome, Move, Status

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "states.md"

STATUSES = {
    Status.PENDING: "It waits: for its time, for a free slot, for the one before it under its key, or for its next try.",
    Status.RUNNING: "A worker has claimed it. Its attempt number is the fence that every write of that attempt must pass.",
    Status.SUCCESS: "The function returned; its result and its files were committed in one transaction.",
    Status.FAILED: "It will not be tried again by itself; two texts say why, one for the person, one for the operator.",
    Status.CANCELLED: "Somebody allowed to said stop, or it was not started before its `start_before`.",
}
OUTCOMES = {
    AttemptOutcome.SUCCESS: "the function returned (kept only if another attempt ended before it)",
    AttemptOutcome.FAILED: "it raised; costs a retry",
    AttemptOutcome.TIMED_OUT: "it took longer than its timeout and was ended; costs a retry",
    AttemptOutcome.CANCELLED: "it was asked to stop, and stopped or was ended",
    AttemptOutcome.CRASHED: "its worker fell silent for a lease; costs one of its crash budget",
    AttemptOutcome.INTERRUPTED: "the worker was being stopped (at most 20 times), or could start no process; costs nothing",
    AttemptOutcome.NOT_BEGUN: "it was claimed ahead of a free slot, and got none soon enough, or its worker stopped or died before; "
    "costs nothing",
    AttemptOutcome.SNOOZED: "it asked to come back later; costs nothing",
    AttemptOutcome.LOST: "it lost its task to a later attempt before its own end was known",
}
PHASES = (
    ("queued", "`pending` and due"),
    ("scheduled", "`pending`, and `run_at` is still to come"),
    ("retrying", "`pending` after a failure, waiting for the next try"),
    ("running", "`running`"),
    ("cancelling", "`running`, and somebody asked for it to stop"),
    ("success, failed, cancelled", "the final status itself"),
)
DISPLAYS = (
    ("none", "there is no task yet"),
    ("working", "not final: show the progress"),
    ("ready", "`success`, and every file is still there: show the download"),
    ("retry", "failed, cancelled, or a file expired: offer to make it again"),
)


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            "# The states of a task",
            "",
            "<!-- Written by scripts/states.py from dumbwaiter.task.MOVES. Change those, then run it. -->",
            "",
            "A task is one row, and its `status` is one of five words. These are all the moves there are; every one is a",
            "conditional update that names the status it starts from, so that of two that race exactly one happens, and the",
            "conformance suite checks on each database that the store makes no other.",
            "",
            "```mermaid",
            *drawing(),
            "```",
            "",
            *table(("status", "what it means"), [(f"`{status}`", text) for status, text in STATUSES.items()]),
            "",
            "`success`, `failed` and `cancelled` are final: such a row never changes again. Making it again makes a new row,",
            "whose `retry_of` names the old one.",
            "",
            "## Every move: who makes it, and on what",
            "",
            *table(("from", "to", "who", "on what"), [told(move) for move in MOVES]),
            "",
            "The **claimer**, **finisher**, **stager** and **rescuer** are duties of every worker; none of them needs an",
            "elected leader. Whatever the finisher writes must still pass the fence: this row, `running`, this worker, this",
            "attempt. A late worker passes none of them, changes nothing, and stops.",
            "",
            "## How an attempt ends",
            "",
            "The status says where the task stands. Its history says how each attempt ended:",
            "",
            *table(("outcome", "meaning"), [(f"`{outcome}`", text) for outcome, text in OUTCOMES.items()]),
            "",
            "An attempt is charged when it is claimed, so a task that kills its worker each time is stopped by its crash",
            "budget (3 unless said otherwise) and not tried for ever.",
            "",
            "## What people see",
            "",
            "A person waits for a *phase*, computed from the row and the time by `Task.phase(now)`:",
            "",
            *table(
                ("phase", "when"), [(f"`{word}`" if "," not in word else word, when) for word, when in PHASES]
            ),
            "",
            "and a page shows one of four things, `Task.display(now)`:",
            "",
            *table(("display", "when"), [(f"`{word}`", when) for word, when in DISPLAYS]),
            "",
        ]
    )


def drawing() -> list[str]:
    """The moves as a Mermaid state diagram, one arrow for each pair of states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for move in MOVES:
        label = move.when.split(":")[0].replace("`", "")
        arrows.setdefault((str(move.before or "[*]"), str(move.after)), []).append(label)
    lines = [f"    {before} --> {after}: {'<br>'.join(labels)}" for (before, after), labels in arrows.items()]
    ends = [f"    {status} --> [*]" for status in STATUSES if status.final]
    return ["stateDiagram-v2", "    direction LR", *lines, *ends]


def told(move: Move) -> tuple[str, ...]:
    return (f"`{move.before}`" if move.before else "(no row)", f"`{move.after}`", move.by, move.when)


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """A Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (heads, ("---",) * len(heads), *rows)]


def main() -> int:
    if "--check" in sys.argv:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page()
        if not current:
            print(
                f"{PAGE} is not what dumbwaiter.task.MOVES says: run python scripts/states.py",
                file=sys.stderr,
            )
        return 0 if current else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
