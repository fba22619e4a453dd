"""The JSON schema of a task type's arguments, for OpenAPI: from the signature, and whole in itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

from pydantic.errors import PydanticInvalidForJsonSchema

from dumbwaiter.executors.registry import TaskType
from dumbwaiter.store.rows import OnDuplicate

DEFINED = "#/$defs/"


KEY = {"type": "string", "minLength": 1, "maxLength": 200}
PARAMETERS = [
    {
        "name": "business_key",
        "in": "query",
        "description": "the page's own name for the work, such as `order-42`",
        "schema": KEY,
    },
    {
        "name": "on_duplicate",
        "in": "query",
        "description": "what to do if a task with this business_key is active",
        "schema": {"type": "string", "enum": list(get_args(OnDuplicate)), "default": "return"},
    },
    {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "the same key with the same body is the same task",
        "schema": KEY,
    },
]
IN_PATH = {"name": "task_type", "in": "path", "required": True, "schema": {"type": "string"}}


def asking(entry: TaskType | None) -> dict[str, Any]:
    """The OpenAPI entries of what asks for a task of this type, or of the type that the path names."""
    if entry is None:
        return {"parameters": [IN_PATH, *PARAMETERS], "requestBody": body({"type": "object"})}
    try:
        schema = whole(entry.signature.schema())
    except PydanticInvalidForJsonSchema:
        schema = {"type": "object"}  # of a parameter's own type that only Python can check
    return {"parameters": PARAMETERS, "requestBody": body(schema)}


def body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def operation_id(entry: TaskType) -> str:
    """What a generated client calls the function that asks for it."""
    return "enqueue_" + re.sub(r"\W", "_", entry.name)


def whole(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with its definitions in the places that refer to them: in OpenAPI a `#/$defs/…` would lead elsewhere.

    Where a definition refers to itself, anything is said to go; what does not is still refused when it is asked for.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})

    def put(part: Any, within: tuple[str, ...]) -> Any:
        if isinstance(part, list):
            return [put(one, within) for one in part]
        if not isinstance(part, dict):
            return part
        reference = part.get("$ref")
        if not isinstance(reference, str) or not reference.startswith(DEFINED):
            return {name: put(one, within) for name, one in part.items() if name != "$defs"}
        name = reference.removeprefix(DEFINED)
        beside = {word: put(one, within) for word, one in part.items() if word != "$ref"}
        return beside if name in within else put(definitions[name], (*within, name)) | beside

    found: dict[str, Any] = put(schema, ())
    return found
