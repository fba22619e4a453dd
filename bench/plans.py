"""How each database goes about our hot statements with a million analysed rows: the same look that the tests have at fewer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import closing

from bench.servers import Server
from dumbwaiter.settings import Settings
from dumbwaiter.store.store import Store
from tests.store.plans import Plan, filled, generic_plans, plans


def look(servers: Mapping[str, Server], rows: int) -> Iterator[tuple[str, Plan]]:
    """Each plan with the server that made it."""
    for name, server in servers.items():
        with closing(Store(Settings.load({"database": server.fresh()}, environ={}))) as store:
            store.schema.migrate()
            filled(store, rows)
            unknowing = generic_plans(store) if store.kind == "postgresql" else ()
            for plan in itertools.chain(plans(store), unknowing):
                yield name, plan


def show(found: Iterator[tuple[str, Plan]]) -> int:
    """Print every plan; how many are at fault."""
    faulty = 0
    for server, plan in found:
        faulty += bool(plan.faults)
        verdict = f"AT FAULT: {', '.join(plan.faults)}" if plan.faults else "good"
        print(f"{server}, {plan.name}: {verdict}")
        print("\n".join(f"    {line}" for line in plan.text.splitlines()), flush=True)
    return faulty
