"""What the keys of a workload file are made of: strict numbers, durations, names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_plain_validator_function

from tonnage.values import dataclass
from tonnage.workload.durations import DURATION_EXPECTED, Deadline, parse_deadline, parse_duration_s


@dataclass(frozen=True, slots=True)
class Spelled:
    """How the reference names a field's type."""

    type: str


class StrictModel(BaseModel):
    """A mapping in a user's file: no unknown key, no silent conversion, no NaN; an empty key is absent."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: entry for key, entry in value.items() if entry is not None}
        return value


class WhenGiven:
    """Marks a section whose validator is built when a file has the section: few files have most of them."""

    def __get_pydantic_core_schema__(self, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        del handler  # it would build the section's schema now
        return no_info_plain_validator_function(source.model_validate)


_Model = TypeVar("_Model", bound=BaseModel)
Section = Annotated[_Model, WhenGiven()]


def key(
    meaning: str, *, default: Any = ..., unit: str = "", example: str = "", shown: str = "", alias: str | None = None
) -> Any:
    """One key of the file: its meaning, default, unit and example are what the reference prints.

    `shown` is the default in words, where the bare value says too little; `alias` the key, where Python has the word.
    """
    facts: dict[str, Any] = {"unit": unit, "example": example, "shown": shown}
    if isinstance(default, type) and issubclass(default, BaseModel):
        default = default.model_construct  # what is left out is not validated
    if callable(default):
        return Field(default_factory=default, description=meaning, json_schema_extra=facts)
    return Field(default, alias=alias, description=meaning, json_schema_extra=facts)


def refusal(expected: str, hint: str = "") -> PydanticCustomError:
    """The error of a validator of ours: what was expected and, maybe, what to write instead."""
    return PydanticCustomError("refused", "expected {expected}", {"expected": expected, "hint": hint})


def secret_refusal(expected: str, hint: str) -> PydanticCustomError:
    """The same for a place where a secret may be: what was found is not shown."""
    return PydanticCustomError("refused", "expected {expected}", {"expected": expected, "hint": hint, "secret": True})


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _flag(value: Any) -> Any:
    words = {"yes": True, "on": True, "no": False, "off": False}
    return words.get(value.casefold(), value) if isinstance(value, str) else value


def _duration(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise refusal(DURATION_EXPECTED, f"a bare number has no unit: write {value}h or {value}s")
    if not isinstance(value, str):
        raise refusal(DURATION_EXPECTED)
    try:
        return parse_duration_s(value)
    except ValueError as error:
        raise refusal(str(error).removeprefix("expected ")) from None


def _deadline(value: Any) -> Deadline:
    if not isinstance(value, str):
        _duration(value)
    try:
        return parse_deadline(str(value))
    except ValueError as error:
        raise refusal(str(error).removeprefix("expected ")) from None


def as_names(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Count = Annotated[int, Field(gt=0, le=10**6), BeforeValidator(_whole), Spelled("whole number, 1 or more")]
CountOrZero = Annotated[int, Field(ge=0, le=10**6), BeforeValidator(_whole), Spelled("whole number, 0 or more")]
Amount = Annotated[int, Field(gt=0, le=10**13), BeforeValidator(_whole), Spelled("whole number, 1 or more")]
TokenTotal = Annotated[int, Field(gt=0, le=10**16), BeforeValidator(_whole), Spelled("whole number, 1 or more")]
TokenLength = Annotated[int, Field(gt=0, le=10**7), BeforeValidator(_whole), Spelled("whole number, 1 or more")]
Positive = Annotated[float, Field(gt=0, le=1e7), Spelled("number above 0")]
PositiveOrZero = Annotated[float, Field(ge=0, le=1e7), Spelled("number, 0 or more")]
MeanLength = Annotated[float, Field(gt=0, le=1e7), Spelled("number above 0")]
Usd = Annotated[float, Field(gt=0, le=1e12), Spelled("number above 0")]
Percent = Annotated[float, Field(ge=0, lt=100), Spelled("number, 0 to below 100")]
Flag = Annotated[bool, BeforeValidator(_flag), Spelled("true or false")]
Duration = Annotated[float, Field(gt=0), BeforeValidator(_duration), Spelled("duration")]
DurationOrZero = Annotated[float, Field(ge=0), BeforeValidator(_duration), Spelled("duration")]
When = Annotated[Deadline, BeforeValidator(_deadline), Spelled("duration or instant")]
Word = Annotated[str, Field(min_length=1, max_length=200), Spelled("text")]
Words = Annotated[tuple[Word, ...], BeforeValidator(as_names), Spelled("name or list of names")]
