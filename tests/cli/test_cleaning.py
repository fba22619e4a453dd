"""`dumbwaiter prune`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli


def test_prune_says_what_it_removed(shop: Path, cli: Cli) -> None:
    assert "there are no tasks yet" in cli("--app", "shop:waiter", "prune").stderr
    task_id = cli("--app", "shop:waiter", "enqueue", "greet", "name=Ann").stdout.strip()
    cli("--app", "shop:waiter", "cancel", task_id)

    assert cli("--app", "shop:waiter", "prune").stdout == "removed nothing\n"
    told = json.loads(cli("--app", "shop:waiter", "prune", "--json").stdout)
    assert told == {"files": 0, "leftovers": 0, "records": 0, "uploads": 0, "work_directories": 0}
