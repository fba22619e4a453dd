"""A task function's signature: what arguments it takes, checked at enqueue and given back at run time."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from dumbwaiter.errors import ConfigurationError, InvalidArguments
from dumbwaiter.executors.context import TaskContext
from dumbwaiter.executors.upload import Upload
from dumbwaiter.strict_json import dumps, faults, simple

# Values of these annotations are the same in Python and in JSON, so running a task with them needs no conversion (and no
# import of pydantic, which costs an isolated child some 200 ms).
PLAIN = frozenset({str, int, float, bool, type(None), inspect.Parameter.empty, Any, dict, list, object})
# What pydantic adds to the path of a fault in a union, for one that is checked by a function.
UNION_MEMBER = "function-plain[upload()]"
Settle = Callable[[Sequence[Upload]], None]
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Signature:
    """The parameters of a task function, without the context.

    Raises ConfigurationError for a function that no payload can be stored for: `*args`, positional-only parameters, an
    annotation that pydantic cannot make a schema of.
    """

    def __init__(self, task_type: str, function: Callable[..., Any]) -> None:
        self.task_type = task_type
        self.function = function
        try:
            self._hints = typing.get_type_hints(function, include_extras=True)
        except Exception as error:
            raise ConfigurationError(
                f"task {task_type!r}: the annotations of {function.__qualname__} cannot be read: {error}"
            ) from error
        parameters = list(inspect.signature(function).parameters.values())
        self.takes_context = bool(parameters) and self._is_context(parameters[0])
        self.parameters = parameters[1:] if self.takes_context else parameters
        for parameter in self.parameters:
            self._refuse_unstorable(parameter)

    @classmethod
    def of_command(cls, task_type: str, names: tuple[str, ...]) -> Signature:
        """The signature of a command: one text parameter for each placeholder."""

        def command(**arguments: str) -> None: ...

        keyword_only = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter(name, keyword_only, annotation=str) for name in names]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = dict.fromkeys(names, str)
        return cls(task_type, command)

    def _is_context(self, parameter: inspect.Parameter) -> bool:
        hint = self._hints.get(parameter.name)
        if hint is None:
            return parameter.name == "ctx"
        return isinstance(hint, type) and issubclass(hint, TaskContext)

    def _refuse_unstorable(self, parameter: inspect.Parameter) -> None:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise ConfigurationError(
                f"task {self.task_type!r}: *{parameter.name} has no names to store values under; take a list instead"
            )
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigurationError(
                f"task {self.task_type!r}: {parameter.name} is positional-only, but arguments are stored by name"
            )
        if self._is_context(parameter) and self._hints.get(parameter.name) is not None:
            raise ConfigurationError(f"task {self.task_type!r}: the context must be the first parameter")

    @cached_property
    def plain(self) -> bool:
        """True if the stored values can be handed to the function as they are."""
        return all(
            parameter.kind not in VARIADIC and self._hints.get(parameter.name, Any) in PLAIN
            for parameter in self.parameters
            if _hashable(self._hints.get(parameter.name, Any))
        ) and all(_hashable(self._hints.get(parameter.name, Any)) for parameter in self.parameters)

    @cached_property
    def _mistaken(self) -> type[Exception]:
        """What pydantic raises for values that do not fit. An import at each call costs more than the check."""
        from pydantic import ValidationError

        return ValidationError

    @cached_property
    def _model(self) -> Any:
        """A pydantic model of the parameters; made at the first call, since that costs some 50 ms."""
        from pydantic import ConfigDict, create_model

        fields: dict[str, Any] = {}
        extra: typing.Literal["allow", "forbid"] = "forbid"
        for parameter in self.parameters:
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                extra = "allow"
                continue
            hint = self._hints.get(parameter.name, Any)
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[_field(parameter.name)] = (hint, _with_alias(default, parameter.name))
        config = ConfigDict(
            extra=extra,
            ser_json_bytes="base64",
            val_json_bytes="base64",
            protected_namespaces=(),
            validate_default=False,
        )
        try:
            return create_model(f"Arguments of {self.task_type}", __config__=config, **fields)
        except Exception as error:
            raise ConfigurationError(
                f"task {self.task_type!r}: its parameters cannot be described as JSON: {error}"
            ) from error

    def prepare(self) -> None:
        """Make the model now, so that a wrong annotation is refused at registration rather than at the first call."""
        self._model  # noqa: B018 - a cached property, made here on purpose

    def bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, options: Collection[str] = ()
    ) -> dict[str, Any]:
        """Positional and named arguments under their names. Raises InvalidArguments.

        `options` are names that belong to `using(…)`; among the arguments they are a slip that is told as one.
        """
        named = dict(kwargs)
        self._refuse_misplaced(named, options)
        names = [
            parameter.name
            for parameter in self.parameters
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        ]
        names = [name for name in names if name not in self._variadic]
        if len(args) > len(names):
            raise InvalidArguments(
                self.task_type, [("", f"takes {len(names)} positional arguments, {len(args)} given")]
            )
        for name, value in zip(names, args, strict=False):
            if name in named:
                raise InvalidArguments(self.task_type, [(name, "given twice")])
            named[name] = value
        return named

    def _refuse_misplaced(self, named: Mapping[str, Any], options: Collection[str]) -> None:
        misplaced = [name for name in named if name in options and not self._takes(name)]
        if misplaced:
            raise InvalidArguments(
                self.task_type,
                [(name, f"{self._no_such()}; give options with .using({name}=…)") for name in misplaced],
            )

    def _takes(self, name: str) -> bool:
        return any(
            parameter.name == name or parameter.kind is inspect.Parameter.VAR_KEYWORD
            for parameter in self.parameters
        )

    def _no_such(self) -> str:
        names = ", ".join(parameter.name for parameter in self.parameters)
        return f"there is no such parameter; the parameters are: {names or 'none'}"

    @cached_property
    def _variadic(self) -> frozenset[str]:
        return frozenset(parameter.name for parameter in self.parameters if parameter.kind in VARIADIC)

    def payload(
        self, arguments: Mapping[str, Any], *, strict: bool = False, settle: Settle | None = None
    ) -> dict[str, Any]:
        """The arguments as they are stored: validated against the annotations, converted to JSON, defaults left out.

        `strict` refuses what JSON clients get wrong (a text where a number belongs). `settle` is called with the uploads that
        are among them, if there are any, to complete what is known of each. Raises InvalidArguments, naming every
        parameter that is missing, unknown, of another type, or not JSON.
        """
        if self._is_stored_as_given(arguments):
            return dict(arguments)
        unstorable = [
            fault
            for name, value in arguments.items()
            if not simple(value)
            for fault in self._faults(name, value)
        ]
        if unstorable:
            raise InvalidArguments(self.task_type, unstorable)
        try:
            checked = (
                self._model.model_validate_json(dumps(dict(arguments)), strict=True)
                if strict
                else self._model.model_validate(dict(arguments))
            )
        except self._mistaken as error:
            raise InvalidArguments(self.task_type, self._told(error)) from None
        return self._stored(checked, settle)

    def _is_stored_as_given(self, arguments: Mapping[str, Any]) -> bool:
        """Every value is of just the class that its annotation names, and JSON: pydantic would take them and give them back.

        That is what most calls are, and takes a sixth of the time.
        """
        exact = self._exact
        for name, value in arguments.items():
            if exact.get(name) is not type(value) or not simple(value):
                return False
        return self._required <= arguments.keys()

    @cached_property
    def _exact(self) -> Mapping[str, type]:
        """The parameters whose values are JSON as they are if their class is the annotated one."""
        return {
            parameter.name: hint
            for parameter in self.parameters
            if parameter.kind not in VARIADIC
            and _hashable(hint := self._hints.get(parameter.name))
            and hint in (str, int, bool)
        }

    def _faults(self, name: str, value: Any) -> list[tuple[str, str]]:
        """What in an argument cannot be JSON although its annotation does not say how to convert it."""
        if _hashable(hint := self._hints.get(name, Any)) and hint in PLAIN:
            return list(faults(value, name))
        return []

    def _stored(self, checked: Any, settle: Settle | None) -> dict[str, Any]:
        # the uploads are those that are written: to validate a union may mean to try what is not taken
        uploads: list[Upload] = []
        stored = self._dumped(checked, uploads)
        if uploads and settle is not None:
            settle(uploads)
            stored = self._dumped(checked, [])
        return stored

    def _dumped(self, checked: Any, uploads: list[Upload]) -> dict[str, Any]:
        try:
            stored: dict[str, Any] = checked.model_dump(
                mode="json", by_alias=True, exclude_unset=True, context={"uploads": uploads}
            )
        except ValueError as error:  # pydantic's are such too
            raise InvalidArguments(self.task_type, [("", str(error))]) from None
        left = [fault for name, value in stored.items() if not simple(value) for fault in faults(value, name)]
        if left:
            raise InvalidArguments(self.task_type, left)
        return stored

    def arguments(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The stored arguments as the function takes them. Raises InvalidArguments if they no longer fit its signature."""
        if self.plain:
            return self._known(payload)
        try:
            checked = self._model.model_validate_json(dumps(dict(payload)), context={"stored": True})
        except self._mistaken as error:
            raise InvalidArguments(self.task_type, self._told(error)) from None
        given = {
            name: getattr(checked, _field(name))
            for name in payload
            if _field(name) in type(checked).model_fields
        }
        return given | dict(checked.model_extra or {})

    def _known(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        if self._required <= payload.keys() <= self._names:
            return dict(payload)
        missing = [
            (parameter.name, "missing")
            for parameter in self.parameters
            if parameter.name in self._required - payload.keys()
        ]
        unknown = [(name, self._no_such()) for name in payload if name not in self._names]
        raise InvalidArguments(self.task_type, missing + unknown)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(parameter.name for parameter in self.parameters)

    @cached_property
    def _required(self) -> frozenset[str]:
        return frozenset(
            parameter.name
            for parameter in self.parameters
            if parameter.default is inspect.Parameter.empty and parameter.kind not in VARIADIC
        )

    def _told(self, error: Any) -> list[tuple[str, str]]:
        """Every fault that pydantic found: (path, sentence)."""
        return [
            (_path(entry["loc"]), self._sentence(entry))
            for entry in error.errors(include_url=False, include_context=False)
        ]

    def _sentence(self, entry: Mapping[str, Any]) -> str:
        if entry["type"] == "extra_forbidden" and len(entry["loc"]) == 1:
            return self._no_such()
        if entry["type"] == "missing":
            return "missing"
        return str(entry["msg"]).removeprefix("Value error, ")

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, for forms and API documentation."""
        schema: dict[str, Any] = self._model.model_json_schema(by_alias=True)
        return schema


def _hashable(hint: Any) -> bool:
    try:
        hash(hint)
    except TypeError:
        return False
    return True


def _field(name: str) -> str:
    """A field name that pydantic takes: it refuses leading underscores and shadowed methods."""
    return f"p_{name}"


def _with_alias(default: Any, name: str) -> Any:
    from pydantic import Field

    return Field(default, alias=name)


def _path(place: tuple[int | str, ...]) -> str:
    path = ""
    for part in place:
        if isinstance(part, str) and part == UNION_MEMBER:
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
