"""The base of this package's modules: it checks values, and sends them just as they were given."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from copy import deepcopy
from functools import cache
from typing import Annotated, Any, ClassVar

from ipybox_arguments import plain, without_refused
from ipybox_modules import ToolModule, call_of, nearest
from ipybox_results import ToolResult, show
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticCustomError

from ._results import WithToolResult, parsed, reply
from ._rules import key
from ._values import (
    AnyEnum,
    Float,
    FromList,
    Int,
    IntEnum,
    Null,
    Nullable,
    Rule,
    StrEnum,
    as_json,
)

# Names that the modules of tools import from here, beside those defined here.
__all__ = [
    "AnyEnum",
    "Float",
    "FromList",
    "Int",
    "IntEnum",
    "Nullable",
    "Rule",
    "StrEnum",
    "ToolModule",
    "ToolResult",
    "parsed",
    "reply",
]

CONFIG = ConfigDict(
    strict=True,
    populate_by_name=True,
    allow_inf_nan=False,
    # A value that cannot be sent is refused, not sent as null.
    ser_json_inf_nan="constants",
    regex_engine="python-re",
    defer_build=True,
    protected_namespaces=(),
)


class UnknownArgumentWarning(UserWarning):
    """An argument is sent that the tool did not declare. It may be misspelt."""


class _ShownModel(type(BaseModel)):  # type: ignore[misc]
    # `help` and `dir` show the generated members of a class, and not those that pydantic adds.

    def __dir__(cls) -> list[str]:
        own = [name for name in super().__dir__() if not name.startswith("_")]
        return [
            *cls.model_fields,
            *(name for name in own if not hasattr(BaseModel, name)),
        ]

    @property
    def __doc__(cls) -> str | None:  # type: ignore[override]
        if cls.__module__ == __name__:
            return cls.__dict__.get("__doc__")
        try:
            return inspect.getsource(cls)
        except (OSError, TypeError):
            return cls.__dict__.get("__doc__")


class _LateModel:
    @classmethod
    def model_rebuild(cls, **options: Any) -> bool | None:
        # Models are built when they are first used, and an annotation means what its module has of the name: not what
        # the code has that uses it first.
        options["_types_namespace"] = {}
        return super().model_rebuild(**options)  # type: ignore[misc]


class ToolModel(_LateModel, WithToolResult, BaseModel, metaclass=_ShownModel):
    """An object. Fields can be given by their name here or by their name in JSON.

    None for an optional field whose JSON cannot be null means that the field is not sent.
    """

    __slots__ = ("__tool_result__",)
    model_config = CONFIG | ConfigDict(extra="allow")
    _rules: ClassVar[Rule | None] = None

    @model_validator(mode="wrap")
    @classmethod
    def _validate(cls, data: Any, handler: Any) -> ToolModel:
        model = _validated(cls, data, handler)
        for name, adapter in _typed_defaults(cls):
            if name not in model.model_fields_set:
                vars(model)[name] = _typed((cls, name), adapter, vars(model)[name])
        return cls._rules.check(model) if cls._rules else model

    def __init_subclass__(
        cls, rules: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        cls._rules = Rule(rules) if rules else None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if value is None and name in _never_null(type(self)):
            self.__pydantic_fields_set__.discard(name)

    def __repr_args__(self) -> Any:
        return _with_attachments(self, super().__repr_args__())

    def _ipython_display_(self) -> None:
        _show(self)


class OpenModel(ToolModel):
    """An object that expects properties beyond those declared."""


class ToolRoot(_LateModel, WithToolResult, RootModel[Any], metaclass=_ShownModel):
    """A value that has a name in the tool's schema but is no object. A list or a dict can be used through it."""

    __slots__ = ("__tool_result__",)
    model_config = CONFIG

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return iter(self.root)

    def __getitem__(self, key: Any) -> Any:
        return self.root[key]

    def __len__(self) -> int:
        return len(self.root)

    def __repr_args__(self) -> Any:
        return _with_attachments(self, super().__repr_args__())

    def _ipython_display_(self) -> None:
        _show(self)


def _validated(model: type[BaseModel], data: Any, handler: Any) -> Any:
    """The model of `data`. Values that are refused, and that are no JSON, become what JSON has for them."""
    while True:
        if isinstance(data, dict) and any(value is None for value in data.values()):
            unset = _never_null(model)
            data = {
                name: value
                for name, value in data.items()
                if value is not None or name not in unset
            }
        try:
            return handler(data)
        except ValidationError as error:
            simpler = _simpler(model, data, error)
            if simpler is data:
                raise _with_hints(model, data, error) from None
            data = simpler


def _simpler(model: type[BaseModel], data: Any, error: ValidationError) -> Any:
    """`data` with forms nearer to JSON for what was refused in it; itself if there are none."""
    # They keep what was refused alive: no other value gets its id.
    faults = error.errors(include_url=False, include_context=False)
    if type(data) is not dict:
        return without_refused(data, {id(fault["input"]) for fault in faults})
    refused: dict[Any, set[int]] = {}
    for fault in faults:
        place = fault["loc"][0] if fault["loc"] else None
        refused.setdefault(place, set()).add(id(fault["input"]))
    changed = {}
    for name, value in data.items():
        field = model.model_fields.get(name)
        wire = _wire_name(name, field) if field else name
        ids = refused.get(name, set()) | refused.get(wire, set())
        changed[name] = without_refused(value, ids)
    is_same = all(data[name] is value for name, value in changed.items())
    return data if is_same else changed


def _attachments(model: Any) -> Any:
    return model.tool_result.attachments if model.tool_result is not None else ()


def _with_attachments(model: Any, shown: Any) -> Iterator[Any]:
    yield from shown
    if attachments := _attachments(model):
        yield "tool_result.attachments", attachments


def _show(model: Any) -> None:
    if not _attachments(model):
        # So says IPython's protocol that it shall display the value in another way.
        raise NotImplementedError
    show(model.tool_result, repr(model))


# The name that pydantic gives every model in a union, between the union and the model's field.
_BRANCH = "function-wrap[_validate()]"


def _with_hints(
    model: type[BaseModel], data: Any, error: ValidationError
) -> ValidationError:
    """The same error, with names that may have been meant where a name is wrong."""
    given = data if isinstance(data, dict) else {}
    fields = _wire_names(model)
    unknown = [name for name in given if name not in fields | set(model.model_fields)]
    faults = []
    found = error.errors(include_url=False)
    call = _call(model)
    for fault in found:
        message = fault["msg"]
        if fault["type"] == "model_type" and not fault["loc"]:
            # Such as the value of the only field, without its name.
            message += f"; {_or_all('', fields)}"
        elif len(fault["loc"]) == 1:
            name = str(fault["loc"][0])
            if fault["type"] == "extra_forbidden":
                message += f"; {_or_all(name, fields)}"
            elif fault["type"] == "missing":
                similar = nearest(name, unknown, 1)
                message += f"; {similar[0]!r} is no field" if similar else ""
        if call and fault is found[-1]:
            message += f"; it is called by {call}"
        kind = PydanticCustomError(fault["type"], message)
        place = tuple(part for part in fault["loc"] if part != _BRANCH)
        faults.append({"type": kind, "loc": place, "input": fault["input"]})
    return ValidationError.from_exception_data(error.title, faults)


def _call(model: type[BaseModel]) -> str | None:
    """The call of the tool whose arguments these are, in one line."""
    module = sys.modules.get(model.__module__)
    is_of_tool = module is not None and vars(module).get("Params") is model
    return call_of(module) if is_of_tool else None


def _wire_name(name: str, field: Any) -> str:
    return name if field.alias is None else field.alias


def _wire_names(model: type[BaseModel]) -> set[str]:
    return {_wire_name(*field) for field in model.model_fields.items()}


def _or_all(name: str, names: Any) -> str:
    similar = nearest(name, names, 1)
    listed = ", ".join(sorted(names)) or "none"
    return f"did you mean {similar[0]!r}?" if similar else f"the fields are: {listed}"


@cache
def _never_null(model: type[BaseModel]) -> frozenset[str]:
    # A nested model may not be complete yet although the one around it is.
    model.model_rebuild()
    names: set[str] = set()
    for name, field in model.model_fields.items():
        is_nullable = field.annotation in (Any, type(None)) or any(
            isinstance(mark, Null) for mark in field.metadata
        )
        if not field.is_required() and not is_nullable:
            names.update((name, _wire_name(name, field)))
    return frozenset(names)


class _JsonDefault:
    """Makes the default of a field, as it stands in the schema."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return deepcopy(self.value)


def json_default(value: Any, alias: str | None = None) -> Any:
    """The default that the tool applies if a field is not sent. Where it is one of the field's type, it is given that."""
    return Field(default_factory=_JsonDefault(value), alias=alias)


class _TagDefault(_JsonDefault):
    pass


def tag_default(value: Any, alias: str | None = None) -> Any:
    """The default of a field by which a server knows of which type an object is. It is sent."""
    return Field(default_factory=_TagDefault(value), alias=alias)


def _json_defaults(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        if isinstance(field.default_factory, _JsonDefault):
            yield name, field


@cache
def _typed_defaults(model: type[BaseModel]) -> list[tuple[str, TypeAdapter[Any]]]:
    # As in `_never_null`. `Annotated` wants one mark at least: None is one that says nothing.
    model.model_rebuild()
    return [
        (name, _adapter(Annotated[(field.annotation, *field.metadata, None)]))
        for name, field in _json_defaults(model)
        if _has_object(field.default_factory.value)
    ]


def _has_object(value: Any) -> bool:
    # Only objects become something else than what they are in JSON.
    if isinstance(value, list):
        return any(map(_has_object, value))
    return isinstance(value, dict)


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation, config=CONFIG)
    except PydanticUserError:
        # A model has its own.
        return TypeAdapter(annotation)


def _typed(field: tuple[type, str], adapter: TypeAdapter[Any], value: Any) -> Any:
    around = _being_typed.get()
    if field in around:
        # The default is in itself, without end.
        return value
    token = _being_typed.set(around | {field})
    try:
        return adapter.validate_python(value, strict=True)
    except ValidationError:
        # Some servers declare defaults that they would not accept.
        return value
    finally:
        _being_typed.reset(token)


# The fields of which the defaults are being typed.
_being_typed: ContextVar[frozenset[tuple[type, str]]] = ContextVar(
    "_being_typed", default=frozenset()
)


def _keep_defaults_to_send(value: Any) -> bool:
    """Let defaults be sent that were changed in place, and those that distinguish types.

    Return whether there are models of others, whose defaults are all sent.
    """
    if isinstance(value, (list, tuple)):
        return True in [_keep_defaults_to_send(item) for item in value]
    if isinstance(value, dict):
        return _keep_defaults_to_send(list(value.values()))
    if not isinstance(value, BaseModel):
        return False
    if not isinstance(value, WithToolResult):
        return True
    held = {**vars(value), **(value.model_extra or {})}
    has_others = _keep_defaults_to_send(held)
    for name, field in _json_defaults(type(value)):
        is_tag = isinstance(field.default_factory, _TagDefault)
        if name not in value.model_fields_set and (
            is_tag
            or key(as_json(getattr(value, name))) != key(field.default_factory.value)
        ):
            value.__pydantic_fields_set__.add(name)
    return has_others


def arguments(
    model: type[BaseModel], params: Any, fields: dict[str, Any]
) -> dict[str, Any]:
    """The arguments to send for `run(params)`, `run(params=params)` or `run(**fields)`."""
    named = fields.get("params")
    is_params = isinstance(named, model) or not _declares(model, "params")
    if params is None and set(fields) == {"params"} and is_params:
        params, fields = named, {}
    if params is None:
        params = model(fields) if issubclass(model, RootModel) else model(**fields)
    elif fields:
        raise TypeError("run() takes Params or keyword arguments, not both")
    elif not isinstance(params, model):
        params = model.model_validate(params)
    for name, known in _unknown(params):
        similar = nearest(name, known, 1)
        hint = f"; did you mean {similar[0]!r}?" if similar else ""
        call = _call(type(params))
        calls = f" {call}" if call else ""
        warnings.warn(
            f"sending {name!r}, which the tool does not declare{hint}{calls}",
            UnknownArgumentWarning,
            stacklevel=3,
        )
    if _keep_defaults_to_send(params):
        return plain(params)
    try:
        return params.model_dump(mode="json", by_alias=True, exclude_unset=True)
    except (TypeError, ValueError):
        # A value of a library, where the tool takes any value.
        return plain(params)


def _declares(model: type[BaseModel], name: str) -> bool:
    return any(
        name in (field, info.alias) for field, info in model.model_fields.items()
    )


def _unknown(value: Any) -> Iterator[tuple[str, set[str]]]:
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
                yield name, _wire_names(type(value))
        for field in fields:
            yield from _unknown(getattr(value, field))
