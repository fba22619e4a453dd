"""Arguments of a task as they are written on a command line: `name=value`, `name=@path`, or one JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dumbwaiter import strict_json
from dumbwaiter.errors import InvalidArguments
from dumbwaiter.executors.upload import FORMAT

Schema = Mapping[str, Any]

JSON_TYPES: Mapping[type, tuple[str, ...]] = {
    type(None): ("null",),
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    list: ("array",),
    dict: ("object",),
}


def read_arguments(task_type: str, pairs: Sequence[str], whole: str | None, schema: Schema) -> dict[str, Any]:
    """The arguments of a call. Raises InvalidArguments for what cannot be read."""
    given = {} if whole is None else read_object(task_type, whole)
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise InvalidArguments(task_type, [(pair, "write name=value, or --json '{…}'")])
        if name in given:
            raise InvalidArguments(task_type, [(name, "given twice")])
        wanted = parameter(schema, name)
        path = path_to_upload(text, wanted, schema)
        given[name] = read_value(text, wanted, schema) if path is None else there(task_type, name, path)
    return given


def path_to_upload(text: str, wanted: Schema, root: Schema) -> Path | None:
    """The file that is meant where the parameter takes an upload: `@path`, or the path alone where no text will do."""
    if not takes_upload(wanted, root):
        return None
    if text.startswith("@"):
        return Path(text[1:])
    return None if takes(wanted, "string", root) or text.startswith("{") else Path(text)


def there(task_type: str, name: str, path: Path) -> Path:
    if not path.is_file():
        raise InvalidArguments(task_type, [(name, f"there is no file {path} to upload")])
    return path


def takes_upload(wanted: Schema, root: Schema) -> bool:
    """Whether a schema takes a file that was uploaded."""
    if "$ref" in wanted:
        return takes_upload(root.get("$defs", {}).get(str(wanted["$ref"]).rpartition("/")[2], {}), root)
    several = [*wanted.get("anyOf", ()), *wanted.get("oneOf", ()), *wanted.get("allOf", ())]
    return wanted.get("format") == FORMAT or any(takes_upload(one, root) for one in several)


def read_object(task_type: str, text: str) -> dict[str, Any]:
    try:
        value = strict_json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(task_type, [("--json", f"this is not JSON: {error}")]) from None
    if not isinstance(value, dict):
        raise InvalidArguments(task_type, [("--json", "write an object: the arguments by their names")])
    return value


def read_value(text: str, wanted: Schema, root: Schema) -> Any:
    """JSON if it parses and the parameter takes such a value; else the text as it stands."""
    if takes(wanted, "string", root) and not text.startswith(("[", "{")):
        # "7" for a text parameter is the text; for `int | str` it is the number.
        try:
            value = strict_json.loads(text)
        except (ValueError, RecursionError):
            return text
        return text if isinstance(value, str) or not fits(value, wanted, root) else value
    try:
        value = strict_json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if fits(value, wanted, root) else text


def parameter(schema: Schema, name: str) -> Schema:
    """What the schema says of a parameter; an empty schema takes everything."""
    found: Schema = schema.get("properties", {}).get(name, {})
    return found


def fits(value: Any, wanted: Schema, root: Schema) -> bool:
    return any(takes(wanted, kind, root) for kind in JSON_TYPES[type(value)])


def takes(wanted: Schema, kind: str, root: Schema) -> bool:
    """Whether a schema takes values of that JSON type; one that does not say takes all."""
    if "$ref" in wanted:
        return takes(root.get("$defs", {}).get(str(wanted["$ref"]).rpartition("/")[2], {}), kind, root)
    for several in ("anyOf", "oneOf"):
        if several in wanted:
            return any(takes(one, kind, root) for one in wanted[several])
    if "allOf" in wanted:
        return all(takes(one, kind, root) for one in wanted["allOf"])
    said = wanted.get("type")
    if said is None:
        return "enum" not in wanted or any(kind in JSON_TYPES.get(type(one), ()) for one in wanted["enum"])
    return kind in said if isinstance(said, list) else kind == said
