"""Files that a user writes for `compare`: YAML text -> pydantic model; errors with line, key, hint."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.secret_references import parse_reference
from tonnage.workload.file.fields import Spelled, as_names, refusal, secret_refusal
from tonnage.workload.file.problems import Problem, explain_validation, raise_problem, raise_problems
from tonnage.workload.file.yaml_lines import KeyPath, YamlDocument, read_yaml

MONTHS: Final = {"month": 1.0, "year": 12.0}
_USD_A_MONTH: Final = re.compile(
    r"(?P<before>USD|\$)?\s*(?P<number>\d[\d,_]*(\.\d+)?)\s*(?P<after>USD|\$)?\s*(/|per|an?)\s*(?P<span>month|year)",
    re.IGNORECASE,
)
Entries = TypeVar("Entries", bound=BaseModel)


def _day(value: Any) -> date:
    if isinstance(value, date):
        return value
    if not isinstance(value, str):
        raise refusal("a date such as 2026-11-20")
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise refusal("a date such as 2026-11-20", "leave the key out where the date is not known") from None


def _link(value: str) -> str:
    if not value.startswith(("https://", "http://")) or any(letter.isspace() for letter in value):
        raise refusal("a web address that starts with https://")
    return value


def _with_names(value: Any) -> Any:
    """Each entry of a mapping with its key as its `name`."""
    if not isinstance(value, dict):
        return value
    named = [name for name, entry in value.items() if isinstance(entry, dict) and "name" in entry]
    if named:
        hint = "the key above an entry is its name"
        unknown_key = PydanticCustomError("extra_forbidden", "unknown key", {"hint": hint})
        faults = [InitErrorDetails(type=unknown_key, loc=(name, "name"), input=value[name]["name"]) for name in named]
        raise ValidationError.from_exception_data("entries", faults)
    return {name: {**entry, "name": name} if isinstance(entry, dict) else entry for name, entry in value.items()}


def _usd_per_month(value: Any) -> float:
    """Dollars a month from a text with its unit.

    >>> _usd_per_month("500 USD/month"), _usd_per_month("$6,000 a year")
    (500.0, 500.0)
    """
    match = _USD_A_MONTH.fullmatch("" if isinstance(value, bool) else str(value).strip())
    if match is None or not (match["before"] or match["after"]):
        raise refusal("dollars with their unit, such as 500 USD/month", "say per month or per year: 500 USD/month")
    return float(re.sub(r"[,_]", "", match["number"])) / MONTHS[match["span"].lower()]


def checked_reference(value: Any) -> str:
    """A secret by reference; one that is in the file itself is refused without being shown."""
    try:
        parse_reference(value if isinstance(value, str) else "")
    except InputError as error:
        raise secret_refusal(error.message.removeprefix("expected "), error.hint or "") from None
    return str(value)


Day = Annotated[date, BeforeValidator(_day), Spelled("date")]
Link = Annotated[str, Field(max_length=500), AfterValidator(_link), Spelled("web address")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,60}$"), Spelled("name in lower case")]
Names = Annotated[tuple[Name, ...], BeforeValidator(as_names), Spelled("name or list of names")]
Reference = Annotated[str, BeforeValidator(checked_reference), Spelled("secret by reference")]
UsdPerMonth = Annotated[float, BeforeValidator(_usd_per_month), Spelled("dollars a month, such as 500 USD/month")]
Entry = TypeVar("Entry")
Named = Annotated[dict[Name, Entry], BeforeValidator(_with_names)]
Text = Annotated[str, Field(min_length=1, max_length=2000), Spelled("text")]


def parse_entries(text: str, model: type[Entries], *, file: str | None, page: str) -> tuple[Entries, YamlDocument]:
    """What a text says, checked against `model`; `page` is the document that lists its keys."""
    document = read_yaml(text, file=file)
    if not isinstance(document.value, dict):
        raise_problem((), "expected keys and values at the top", document, f"{page} has an example")
    try:
        return model.model_validate(document.value), document
    except ValidationError as error:
        problems = [_with_page(one, page) for one in explain_validation(error, model, document)]
        raise_problems(problems, document)
        raise


def _with_page(problem: Problem, page: str) -> Problem:
    if problem.message == "is missing" or problem.hint is None:
        return replace(problem, hint=f"{page} lists every key with an example")
    return problem


def unknown(path: KeyPath, what: str, name: str, known: Iterable[str]) -> Problem:
    """A name that is in no table."""
    names = list(known)
    listed = f"known: {', '.join(names)}" if len(names) <= 40 else f"{len(names)} are known"
    if not names:
        listed = f"no {what} is named in this file yet"
    return Problem(path, f"no {what} is named '{name}'", did_you_mean(nearest(name, names, count=1), listed))
