"""Results of tools, as instances of the models that the tools declare, or that were inferred for them."""

from __future__ import annotations

from typing import Any, TypeVar

from ipybox_batch import BatchCall
from ipybox_results import ToolResult, json_values
from ipybox_runtime import UnexpectedResultError
from pydantic import BaseModel, ValidationError

from ._values import RESULT

M = TypeVar("M", bound=BaseModel)


class WithToolResult:
    """Gives a tool's model the whole result. It is no field: `dict` and `vars` have the fields only."""

    # Python refuses two bases with slots: each model has the slot `__tool_result__`.
    __slots__ = ()

    @property
    def tool_result(self) -> ToolResult | None:
        """All that the tool has returned, where this is a tool's result."""
        return getattr(self, "__tool_result__", None)

    def __copy__(self) -> Any:
        return _keep_result(super().__copy__(), self.tool_result)  # type: ignore[misc]

    def __deepcopy__(self, memo: Any = None) -> Any:
        return _keep_result(super().__deepcopy__(memo), self.tool_result)  # type: ignore[misc]

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "__tool_result__": self.tool_result}  # type: ignore[misc]

    def __setstate__(self, state: Any) -> None:
        _keep_result(self, state.get("__tool_result__"))
        super().__setstate__(state)  # type: ignore[misc]


def _keep_result(model: Any, result: ToolResult | None) -> Any:
    object.__setattr__(model, "__tool_result__", result)
    return model


def reply(
    answer: Any, model: type[M] | None = None, *, is_nullable: bool = False
) -> Any:
    """A tool's result: an instance of the model that it declares, or a ToolResult where it declares none.

    is_nullable: the result may be null, which is None
    """
    if isinstance(answer, BatchCall):
        return answer.then(lambda whole: reply(whole, model, is_nullable=is_nullable))
    result = ToolResult.of(answer)
    if model is None:
        return result
    if result.structured is None:
        if is_nullable and not result.attachments and result.strip() in ("", "null"):
            return None
        values = json_values(result)
        if len(values) != 1:
            raise _unexpected("it has no structured value", result, _DECLARED)
        value = values[0]
    else:
        value = result.structured
    return _instance(model, value, result, _DECLARED)


def parsed(answer: Any, model: type[M], *, is_sequence: bool = False) -> M:
    """The JSON in a tool's result, as an instance of the model that was inferred for it."""
    if isinstance(answer, BatchCall):
        return answer.then(lambda whole: parsed(whole, model, is_sequence=is_sequence))
    result = ToolResult.of(answer)
    values = json_values(result)
    if is_sequence and values:
        return _instance(model, values, result, _INFERRED)
    if len(values) == 1:
        return _instance(model, values[0], result, _INFERRED)
    reason = f"it holds {len(values) or 'no'} JSON objects or arrays"
    raise _unexpected(reason, result, _INFERRED)


_DECLARED = (
    "the result is not what the tool declares",
    "do not repeat the call for its sake",
)
_INFERRED = (
    "the result is not what earlier ones were like",
    "give it to `infer_result` with the tool's module, so that the type admits it",
)


def _instance(model: type[M], value: Any, result: ToolResult, words: Any) -> M:
    try:
        instance = model.model_validate(value, context=RESULT)
    except ValidationError as error:
        raise _unexpected(_summary(error), result, words) from None
    except Exception as error:
        # The tool has run, whatever is wrong with the model.
        raise _unexpected(repr(error), result, words) from error
    return _keep_result(instance, result)


def _unexpected(reason: str, result: ToolResult, words: Any) -> Exception:
    what, advice = words
    hint = (
        f"hint: the tool has run, and its result is this exception's `result`; {advice}"
    )
    return UnexpectedResultError(f"{what}: {reason}\n{hint}", result)


# The most faults of a result that are shown.
_SHOWN_FAULTS = 3


def _summary(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [
        f"{'.'.join(map(str, fault['loc'])) or 'the value'}: {fault['msg']}"
        for fault in faults[:_SHOWN_FAULTS]
    ]
    if len(faults) > _SHOWN_FAULTS:
        shown.append(f"and {len(faults) - _SHOWN_FAULTS} more")
    return "; ".join(shown)
