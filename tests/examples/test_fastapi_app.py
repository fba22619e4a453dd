"""The example that the README shows, run as it says."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx

from tests.support.programs import program, python
from tests.support.waiting import until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fastapi_app.py"


def test_the_fastapi_example_makes_its_report(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    with program(*python("-m", "uvicorn", "fastapi_app:app", "--port", "0"), cwd=tmp_path) as server:
        address = server.says(r"running on (http://127\.0\.0\.1:\d+)")[1]
        with httpx.Client(base_url=address, headers={"X-User": "ada"}) as client:
            url = (
                client.post("/tasks/sales-report", json={"month": "2026-11"})
                .raise_for_status()
                .headers["Location"]
            )
            task = until(lambda: found if (found := client.get(url).json())["finished_at"] else None)
            report = client.get(task["files"][0]["url"])
            stranger = client.get(url, headers={"X-User": "eve"})
            no_month = client.post("/tasks/sales-report", json={"month": "November"})

    assert (task["status"], task["result"]) == ("success", {"rows": 1000})
    assert len(report.text.splitlines()) == 1000
    assert stranger.status_code == 404
    assert (no_month.status_code, no_month.json()["errors"][0]["path"]) == (422, "month")
