"""The type of a parameter that is a file somebody sent: `Upload`, as a task function takes it and as it is stored."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
# What is stored beside the id, so that a task knows it without a look.
TOLD = ("filename", "content_type", "size", "sha256")
# How a schema says that it takes one.
FORMAT = "upload"
SCHEMA: dict[str, Any] = {
    "title": "Upload",
    "description": "a file that was uploaded before: see POST /uploads",
    "type": "object",
    "format": FORMAT,
    "properties": {"upload": {"type": "string", "format": "uuid", "description": "the upload's id"}},
    "required": ["upload"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Upload:
    """A file that somebody sent as input, as the type of a parameter.

        @waiter.task("count-lines", http=True)
        def count_lines(ctx: TaskContext, text: Upload) -> int:
            with ctx.open(text) as file:
                return sum(1 for _ in file)

    Over HTTP it is `{"upload": "<id>"}`, of an upload that the same owner has completed. In Python it is a `pathlib.Path` or
    bytes, which become an upload first, or what `waiter.upload(…)` returned. The task keeps it for as long as its record is
    there. `size` is in bytes, `sha256` in hexadecimal; both, the name and the content type (as the sender told it) are known
    while the task runs.
    """

    id: str
    filename: str = ""
    content_type: str = ""
    size: int = 0
    sha256: str = ""
    # what is to be uploaded first
    source: Path | bytes | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, value: Any, *, told: bool) -> Upload:
        """What an argument stands for. `told`: it may say more than the id, since we have stored it ourselves.

        Raises ValueError.
        """
        match value:
            case Upload():
                return value
            case {"upload": str(id_), **others} if ID.fullmatch(id_):
                rest: dict[str, Any] = {str(name): one for name, one in others.items()}
                if rest.keys() - (set(TOLD) if told else set()):
                    raise ValueError(
                        f'give {{"upload": "<id>"}} and nothing else, not {", ".join(map(repr, rest))}'
                    )
                return cls(id_, **rest)
        raise ValueError('give {"upload": "<id>"}, the id of an upload')

    @classmethod
    def from_python(cls, value: Any) -> Upload:
        """The same in Python, where a path or bytes may stand for what is to be uploaded. Raises ValueError."""
        if isinstance(value, Path | bytes):
            from uuid_utils import uuid7

            return cls(str(uuid7()), source=value)
        if isinstance(value, str):
            raise ValueError("a text is no upload: give a pathlib.Path, bytes, or {'upload': id}")  # noqa: TRY004 - pydantic wants it
        return cls.of(value, told=False)

    def stored(self) -> dict[str, Any]:
        """As it stands in the arguments of a task."""
        told = {name: getattr(self, name) for name in TOLD} if self.filename else {}
        return {"upload": self.id, **told}

    def know(self, other: Upload) -> None:
        """Take over what is known of it by now; before anybody but us has seen this value."""
        for name in (*TOLD, "id", "source"):
            object.__setattr__(self, name, getattr(other, name))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        from pydantic_core import PydanticSerializationUnexpectedValue, core_schema

        def upload(value: Any, info: core_schema.ValidationInfo) -> Upload:
            if info.mode == "python":
                return cls.from_python(value)
            return cls.of(value, told=bool((info.context or {}).get("stored")))

        def serialised(value: Any, info: core_schema.SerializationInfo) -> dict[str, Any]:
            if not isinstance(value, Upload):
                raise PydanticSerializationUnexpectedValue("no upload")  # a union tries its types in turn
            seen = (info.context or {}).get("uploads", [])
            if not any(value is one for one in seen):
                seen.append(value)
            return value.stored()

        return core_schema.with_info_plain_validator_function(
            upload,
            serialization=core_schema.plain_serializer_function_ser_schema(serialised, info_arg=True),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> dict[str, Any]:
        return SCHEMA
