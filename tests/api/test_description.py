"""What OpenAPI says of the routes, and that it is so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel, Field

from dumbwaiter import Dumbwaiter
from dumbwaiter.api.schemas import whole
from dumbwaiter.integrations.fastapi import lifespan, router
from tests.support.serving import serving

HERE = Path(__file__).parent


class Size(BaseModel):
    width: int = Field(ge=1, le=4000)
    height: int = Field(ge=1, le=4000)


@pytest.fixture
def shop(waiter: Dumbwaiter) -> Iterator[httpx.Client]:
    """Task types with arguments of many kinds; nothing runs."""

    @waiter.task("draw.shapes", http=True)
    def shapes(
        size: Size,
        sizes: list[Size],
        since: datetime | None = None,
        kind: Literal["round", "square"] = "round",
        weights: dict[str, float] | None = None,
        *,
        filled: bool = False,
    ) -> None:
        """Draw shapes.

        As many as there are sizes.
        """

    app = FastAPI(lifespan=lifespan(waiter, worker=False))
    app.include_router(router(waiter, public=True))
    with serving(app) as client:
        yield client


def described(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").raise_for_status().json()
    return found


def test_each_open_task_type_has_a_path_with_the_schema_of_its_arguments(shop: httpx.Client) -> None:
    paths = described(shop)["paths"]
    asking = paths["/tasks/draw.shapes"]["post"]
    schema = asking["requestBody"]["content"]["application/json"]["schema"]

    assert asking["operationId"] == "enqueue_draw_shapes"
    assert asking["description"].startswith("Draw shapes.")
    assert schema["required"] == ["size", "sizes"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["kind"]["enum"] == ["round", "square"]
    assert schema["properties"]["size"]["properties"]["width"]["maximum"] == 4000
    assert schema["properties"]["sizes"]["items"]["required"] == ["width", "height"]
    assert "/tasks/private" not in paths
    assert "$ref" not in str(schema)


def test_what_a_client_may_be_answered_is_told(shop: httpx.Client) -> None:
    responses = described(shop)["paths"]["/tasks/greet"]["post"]["responses"]

    assert {"200", "202", "400", "401", "403", "404", "408", "409", "413", "415", "422", "429", "503"} == set(
        responses
    )
    assert "application/problem+json" in responses["422"]["content"]


def test_a_type_that_is_registered_after_the_routes_can_be_asked_for_too(
    shop: httpx.Client, waiter: Dumbwaiter
) -> None:
    @waiter.task("late", http=True)
    def late(number: int) -> None: ...

    assert shop.post("/tasks/late", json={"number": 1}).status_code == 202
    assert shop.post("/tasks/late", json={"number": "x"}).status_code == 422


def test_before_any_type_is_there_the_path_of_all_is_described(tmp_path: Path) -> None:
    app = FastAPI()
    app.include_router(router(Dumbwaiter(f"sqlite:///{tmp_path / 'tasks.db'}"), public=True))

    assert app.openapi()["paths"]["/tasks/{task_type}"]["post"]["operationId"] == "enqueue"


def test_a_schema_has_its_definitions_in_place_and_an_endless_one_ends() -> None:
    folder = {
        "type": "object",
        "properties": {"inside": {"type": "array", "items": {"$ref": "#/$defs/Folder"}}},
    }
    schema = {"properties": {"top": {"$ref": "#/$defs/Folder", "title": "Top"}}, "$defs": {"Folder": folder}}

    inside = {"type": "object", "properties": {"inside": {"type": "array", "items": {}}}}
    assert whole(schema) == {"properties": {"top": inside | {"title": "Top"}}}


@pytest.mark.timeout(180)
def test_schemathesis_finds_nothing_that_the_description_does_not_say(
    shop: httpx.Client, tmp_path: Path
) -> None:
    program = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--config-file",
        str(HERE / "schemathesis.toml"),
        "run",
    ]
    options = [
        "--max-examples",
        "5",
        "--seed",
        "1",
        "--no-color",
        "--exclude-path-regex",
        "/events$",
    ]
    environ = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
    }
    found = subprocess.run(
        [*program, f"{shop.base_url}/openapi.json", *options],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    assert found.returncode == 0, found.stdout[-6_000:] + found.stderr[-2_000:]
    assert "Tested:" in found.stdout
