from __future__ import annotations

import pytest

from dumbwaiter.cli.show import COLUMNS, fitting

ROW = ("0" * 36, "steps", "default", "cancelled", "36 %", "7.6 s", "1.2 s ago", "1 min 35 s ago", "e" * 200)


@pytest.mark.parametrize(
    ("width", "missing"),
    [
        (200, set()),
        (160, set()),
        (140, {"REMARKS"}),
        (115, {"REMARKS", "LAST PROGRESS"}),
        (80, {"REMARKS", "LAST PROGRESS", "QUEUE", "RUN TIME", "CREATED"}),
    ],
)
def test_a_narrow_terminal_goes_without_columns_and_never_cuts_an_id(width: int, missing: set[str]) -> None:
    shown = {COLUMNS[index] for index in fitting(COLUMNS, [ROW], width)}

    assert set(COLUMNS) - shown == missing
