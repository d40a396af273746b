"""What the modules of this package share: how values are checked, and how they are sent just as they were given."""

from __future__ import annotations

import difflib
import enum
import json
import re
import warnings
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar

from ipybox_runtime import UnexpectedResultError
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema, to_jsonable_python

from ._rules import violation

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

CONFIG = ConfigDict(
    strict=True,
    populate_by_name=True,
    allow_inf_nan=False,
    regex_engine="python-re",
    defer_build=True,
    protected_namespaces=(),
)


class UnknownArgumentWarning(UserWarning):
    """An argument is sent that the tool did not declare. It may be misspelt."""


class ToolModel(BaseModel):
    """An object. Fields can be given by their name here or by their name in JSON.

    None for an optional field whose JSON cannot be null means that the field is not sent.
    """

    model_config = CONFIG | ConfigDict(extra="allow")
    _rules: ClassVar[Rule | None] = None

    @model_validator(mode="before")
    @classmethod
    def _none_is_unset(cls, data: Any) -> Any:
        if isinstance(data, dict) and any(value is None for value in data.values()):
            unset = _never_null(cls)
            return {
                key: value
                for key, value in data.items()
                if value is not None or key not in unset
            }
        return data

    def __init_subclass__(
        cls, rules: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        cls._rules = Rule(rules) if rules else None

    @model_validator(mode="after")
    def _obey_rules(self) -> ToolModel:
        return self._rules.check(self) if self._rules else self

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if value is None and name in _never_null(type(self)):
            self.__pydantic_fields_set__.discard(name)


class OpenModel(ToolModel):
    """An object that expects properties beyond those declared."""


class ToolRoot(RootModel[Any]):
    """A value that has a name in the tool's schema but is no object. A list or a dict can be used through it."""

    model_config = CONFIG

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return iter(self.root)

    def __getitem__(self, key: Any) -> Any:
        return self.root[key]

    def __len__(self) -> int:
        return len(self.root)


class _Null:
    """Marks an optional field that may be null: None is sent."""


Nullable = Annotated[T | None, _Null()]


@cache
def _never_null(model: type[BaseModel]) -> frozenset[str]:
    # A nested model may not be complete yet although the one around it is.
    model.model_rebuild()
    names: set[str] = set()
    for name, field in model.model_fields.items():
        is_nullable = field.annotation in (Any, type(None)) or any(
            isinstance(mark, _Null) for mark in field.metadata
        )
        if not field.is_required() and not is_nullable:
            names.update((name, field.alias or name))
    return frozenset(names)


class _Enum(enum.Enum):
    def __str__(self) -> str:
        return str(self._value_)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: Any
    ) -> core_schema.CoreSchema:
        # Fields hold the plain value, however it was given: `Sort.stars` or "stars".
        values = core_schema.literal_schema([member._value_ for member in cls])
        return core_schema.no_info_wrap_validator_function(_one_of, values)


class StrEnum(str, _Enum):
    """One of some strings."""


class IntEnum(int, _Enum):
    """One of some integers."""


class AnyEnum(_Enum):
    """One of some values."""


def _one_of(value: Any, check: Any) -> Any:
    value = _plain(value)
    admitted = check(value)
    # For Python, 1 and True are equal; for JSON they are not.
    is_same = isinstance(admitted, bool) == isinstance(value, bool)
    return admitted if is_same else check(repr(value))


def _plain(value: Any) -> Any:
    return value._value_ if isinstance(value, enum.Enum) else value


class _Integer:
    def __get_pydantic_core_schema__(
        self, source: Any, handler: Any
    ) -> core_schema.CoreSchema:
        def integral(value: Any) -> Any:
            return (
                int(value) if isinstance(value, float) and value.is_integer() else value
            )

        return core_schema.no_info_before_validator_function(
            integral, core_schema.int_schema(strict=True)
        )


class _Number:
    def __get_pydantic_core_schema__(
        self, source: Any, handler: Any
    ) -> core_schema.CoreSchema:
        def number(value: Any, check: Any) -> Any:
            return value if type(value) is int else check(value)

        return core_schema.no_info_wrap_validator_function(
            number,
            core_schema.float_schema(strict=True, allow_inf_nan=False),
            serialization=core_schema.plain_serializer_function_ser_schema(_plain),
        )


Int = Annotated[int, _Integer()]
Float = Annotated[float, _Number()]


class Rule:
    """What the type does not say about a value: a JSON Schema that it satisfies."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Any
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def check(self, value: Any) -> Any:
        broken = violation(self.schema, _as_json(value))
        if broken:
            raise PydanticCustomError(
                "rule", "Input should satisfy {rule}", {"rule": broken}
            )
        return value


def _as_json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {name: _as_json(member) for name, member in value.items()}
    return to_jsonable_python(value)


FromList = BeforeValidator(
    lambda items: tuple(items) if isinstance(items, list) else items
)


def json_default(value: Any, alias: str | None = None) -> Any:
    """The default that the tool applies if a field is not sent, as it stands in the schema."""
    return Field(default_factory=lambda: deepcopy(value), alias=alias)


def arguments(
    model: type[BaseModel], params: Any, fields: dict[str, Any]
) -> dict[str, Any]:
    """What is sent for `run(params)`, `run(params=params)` or `run(**fields)`."""
    named = fields.get("params")
    is_params = isinstance(named, model) or not _declares(model, "params")
    if params is None and set(fields) == {"params"} and is_params:
        params, fields = named, {}
    if params is None:
        params = (
            model(**fields) if fields or not issubclass(model, RootModel) else model({})
        )
    elif fields:
        raise TypeError("run() takes Params or keyword arguments, not both")
    elif not isinstance(params, model):
        params = model.model_validate(params)
    for name, known in _unknown(params):
        similar = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {similar[0]!r}?" if similar else ""
        warnings.warn(
            f"sending {name!r}, which the tool does not declare{hint}",
            UnknownArgumentWarning,
            stacklevel=3,
        )
    return params.model_dump(mode="json", by_alias=True, exclude_unset=True)


def reply(answer: Any, model: type[BaseModel] | None = None) -> Any:
    """The result of a tool: an instance of its model if it has one and answered with an object, else the answer."""
    return (
        model.model_validate(answer) if model and isinstance(answer, dict) else answer
    )


def parsed(answer: Any, model: type[M], *, is_sequence: bool = False) -> M:
    """What the JSON in the result of a tool says, as an instance of the model that was inferred for it."""
    values = _json_values(answer)
    try:
        if is_sequence and values:
            return model.model_validate(values)
        if len(values) == 1:
            return model.model_validate(values[0])
        reason = f"it holds {len(values) or 'no'} JSON objects or arrays"
    except ValidationError as error:
        reason = str(error)
    raise UnexpectedResultError(reason, answer)


def _json_values(answer: Any) -> list[Any]:
    """The JSON objects and arrays in a result, found in the way in which those were that the model was inferred from."""
    if isinstance(answer, dict) and set(answer) == {"result"}:
        content = answer["result"]
        answer = content if isinstance(content, str) else answer
    if not isinstance(answer, str):
        return [answer]
    for text in _candidates(answer):
        values = _all_json(text)
        if values:
            return values
    return []


def _candidates(text: str) -> Iterator[str]:
    yield text
    fenced = re.search(r"```json\n(.*?)\n```", text, re.DOTALL)
    if fenced:
        yield fenced[1]
    tail = re.search(r"^[{\[]", text, re.MULTILINE)
    if tail:
        yield text[tail.start() :]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


_SPACE = re.compile(r"[ \t\r\n]*")


def _all_json(text: str) -> list[Any]:
    """The objects and arrays of which a text consists; none if it holds anything else."""
    values = []
    at = _after_space(text, 0)
    while at < len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        if not isinstance(value, (dict, list)):
            return []
        values.append(value)
        at = _after_space(text, end)
    return values


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _declares(model: type[BaseModel], name: str) -> bool:
    return any(
        name in (field, info.alias) for field, info in model.model_fields.items()
    )


def _unknown(value: Any) -> Iterator[tuple[str, list[str]]]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _unknown(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _unknown(item)
    elif isinstance(value, BaseModel):
        fields = type(value).model_fields
        if fields and not isinstance(value, OpenModel):
            for name in value.model_extra or ():
                yield name, [info.alias or field for field, info in fields.items()]
        for field in fields:
            yield from _unknown(getattr(value, field))
