"""What is wrong with a workload file, reported all at once: each with line, key, value and hint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final, NoReturn, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tonnage.errors import WorkloadError, did_you_mean, nearest
from tonnage.values import dataclass
from tonnage.workload.file.kinds import KINDS
from tonnage.workload.file.terms_fields import SharedFields
from tonnage.workload.file.yaml_lines import KeyPath, Value, YamlDocument, dotted

MOST_SHOWN: Final = 20
WORKLOAD_PAGE: Final = "docs/workload-file.md"
_SCALES: Final = {"": 1, "k": 10**3, "m": 10**6, "mio": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
_SCALED: Final = re.compile(r"([-+]?[\d.,_' ]*\d)\s*([a-z]{0,3})", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its place, its description, what to do about it."""

    path: KeyPath
    message: str
    hint: str | None = None


def shorten(value: Any, limit: int = 60) -> str:
    """A value as an error message shows it."""
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def line_of(path: KeyPath, document: YamlDocument) -> int | None:
    """The line of a key, or of the nearest key around it."""
    for end in range(len(path), -1, -1):
        if path[:end] in document.lines:
            return document.lines[path[:end]]
    return None


def raise_problems(problems: Iterable[Problem], document: YamlDocument) -> None:
    """Nothing when there are none; else one WorkloadError: the first in the file, the others a line each."""
    placed = (replace(problem, path=_named(problem.path, document)) for problem in problems)
    found = sorted(dict.fromkeys(placed), key=lambda problem: line_of(problem.path, document) or 0)
    if not found:
        return
    first, *others = found
    lines = [first.message]
    lines += [_as_line(problem, document) for problem in others[: MOST_SHOWN - 1]]
    if len(found) > MOST_SHOWN:
        lines.append(f"... and {len(found) - MOST_SHOWN} more")
    aim = f"for `{dotted(first.path)}`: " if others and first.path else ""
    raise WorkloadError(
        "\n".join(lines),
        hint=aim + first.hint if first.hint else None,
        file=document.file,
        line=line_of(first.path, document),
        key=dotted(first.path) or None,
    )


def _named(path: KeyPath, document: YamlDocument) -> KeyPath:
    """The path without a list's index where the file has a single name instead of a list."""
    while path and isinstance(path[-1], int) and path not in document.lines:
        path = path[:-1]
    return path


def raise_problem(path: KeyPath, message: str, document: YamlDocument, hint: str | None = None) -> NoReturn:
    """One problem, at once."""
    raise_problems([Problem(path, message, hint)], document)
    raise AssertionError("raise_problems returned")


def _as_line(problem: Problem, document: YamlDocument) -> str:
    where = ":".join(str(part) for part in (document.file, line_of(problem.path, document)) if part is not None)
    what = f"`{dotted(problem.path)}`: {problem.message}" if problem.path else problem.message
    hint = f" (hint: {problem.hint})" if problem.hint else ""
    return f"{where}: {what}{hint}" if where else what + hint


def explain_validation(error: ValidationError, model: type[BaseModel], document: YamlDocument) -> Iterator[Problem]:
    """Pydantic's findings in this file's own words."""
    yield from explain_each(error.errors(include_url=False), model, document)


def explain_each(
    found: Iterable[ErrorDetails], model: type[BaseModel], document: YamlDocument, *, page: str = WORKLOAD_PAGE
) -> Iterator[Problem]:
    """Each of pydantic's findings in this file's own words; `page` is the document that lists the file's keys."""
    for details in found:
        path = _path_in(document, details["loc"])
        if details["type"] == "missing":
            yield Problem((*path, details["loc"][-1]), "is missing", _hint_if_missing(details, page))
        elif details["type"] == "extra_forbidden":
            problem = _unknown_key(path, model)
            yield replace(problem, hint=details.get("ctx", {}).get("hint", problem.hint))  # a validator's own hint
        elif details["type"] == "value_error":  # a validator's own sentence
            yield Problem(path, str(details["ctx"]["error"]), f"{page} lists every key")
        else:
            yield _wrong_value(path, details)


def _path_in(document: YamlDocument, loc: Sequence[str | int]) -> KeyPath:
    """The part of pydantic's location that is in the file: tags and implied keys are left out."""
    path: KeyPath = ()
    for part in loc:
        if (*path, part) in document.lines:
            path = (*path, part)
    return path


def _hint_if_missing(details: ErrorDetails, page: str) -> str:
    section = {"data": "data: {samples: 67_000, seq_len: {mean: 48, max: 128}, epochs: 3}"}.get(str(details["loc"][-1]))
    example = section is not None and page == WORKLOAD_PAGE
    return f"for example `{section}`" if example else f"{page} lists every key with an example"


def _unknown_key(path: KeyPath, model: type[BaseModel]) -> Problem:
    name = str(path[-1])
    owner = model_at(model, path[:-1]) or model
    fields = sorted(owner.model_fields, key=lambda field: field in SharedFields.model_fields)
    known = [owner.model_fields[field].alias or field for field in fields]
    homes = [dotted((*where, name)) for where in _homes(model, name)]
    if name in KINDS and model in KINDS.values():
        hint = f"`{name}:` belongs to `kind: {name}`; this file has another kind"
    elif homes:
        hint = f"did you mean `{homes[0]}`?"
    else:
        hint = did_you_mean(nearest(name, known, count=1), f"known here: {', '.join(known)}")
    return Problem(path, f"unknown key {shorten(name)}", hint)


def _homes(model: type[BaseModel], name: str, above: KeyPath = ()) -> Iterator[KeyPath]:
    """Sections in which `name` is a key."""
    if name in model.model_fields and above:
        yield above
    for field_name, field in model.model_fields.items():
        if (inner := _model_within(field.annotation)) is not None and len(above) < 3:
            yield from _homes(inner, name, (*above, field_name))


def model_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    """The pydantic model that a key path leads to, through optional values, unions, lists and mappings by name."""
    current: type[BaseModel] | None = model
    by_name = False  # whether the next part is a name that the file's author gave, as of a route
    for part in path:
        if isinstance(part, int) or by_name:
            by_name = False
            continue
        field = current.model_fields.get(str(part)) if current else None
        current = _model_within(field.annotation) if field else None
        by_name = field is not None and _maps_names(field.annotation)
    return current


def _maps_names(annotation: Any) -> bool:
    """Whether values of the field are mappings with names of the author's own."""
    if get_origin(annotation) in (dict, Mapping):
        return True
    return any(_maps_names(part) for part in get_args(annotation)) if not isinstance(annotation, type) else False


def _model_within(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        if (found := _model_within(part)) is not None:
            return found
    return None


def _wrong_value(path: KeyPath, details: ErrorDetails) -> Problem:
    context = details.get("ctx", {})
    expected = str(context["expected"]) if details["type"] == "refused" else _expected(details, context)
    found = details["input"]
    hint = context.get("hint") or _hint_for(found, details["type"], context)
    shown = "a value in the clear" if context.get("secret") else shorten(found)
    return Problem(path, f"found {shown}, expected {expected}", hint or None)


def _expected(details: ErrorDetails, context: dict[str, Any]) -> str:
    kind = details["type"]
    plain = {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "decimal_type": "a number",
        "finite_number": "a finite number",
        "string_type": "text",
        "bool_type": "true or false",
        "list_type": "a list",
        "tuple_type": "a name or a list of names",
        "string_too_short": "text that is not empty",
    }
    bounds = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
    words = {"gt": "a number above", "ge": "a number of at least", "lt": "a number below", "le": "at most"}
    if kind in plain:
        return plain[kind]
    if kind in bounds:
        sign = bounds[kind]
        return f"{words[sign]} {_number(context[sign])}"
    if kind == "literal_error":
        return f"{'one of ' if ' or ' in context['expected'] else ''}{context['expected']}"
    if kind == "string_pattern_mismatch":
        return f"text of the form {context['pattern']}"
    if kind == "decimal_max_places":
        return f"at most {context['decimal_places']} decimal places"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return "a mapping of keys and values"
    return details["msg"][0].lower() + details["msg"][1:]


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def _hint_for(found: Value, kind: str, context: dict[str, Any]) -> str | None:
    if kind in ("int_type", "float_type") and isinstance(found, str):
        number = plain_number(found)
        if number and kind == "int_type" and not float(number).is_integer():
            return f"write {int(float(number))} or {int(float(number)) + 1}"
        return f"write {number}" if number else "write digits only, such as 67000 or 67_000"
    if kind == "literal_error" and isinstance(found, str):
        choices = [choice.strip(" '") for choice in str(context["expected"]).replace(" or ", ",").split(",")]
        close = nearest(found, choices, count=1)
        return f"did you mean '{close[0]}'?" if close else None
    if kind == "finite_number":
        return "leave the key out where there is no limit"
    return None


def plain_number(text: str) -> str | None:
    """The digits someone meant by `67k`, `1.5M` or `67,000`; None where that is not clear.

    >>> plain_number("67k"), plain_number("1.5M"), plain_number("67,000"), plain_number("lots")
    ('67000', '1500000', '67000', None)
    """
    match = _SCALED.fullmatch(text.strip())
    if match is None or match[2].casefold() not in _SCALES or len(match[1]) > 40:
        return None
    try:
        value = float(re.sub(r"[,_' ]", "", match[1])) * _SCALES[match[2].casefold()]
    except ValueError:
        return None
    return f"{value:.0f}" if value.is_integer() else f"{value:g}"
