"""What is wrong with a table of a TOML file, all of it at once: unknown keys first, with the nearest that there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from tonnage.errors import WorkloadError, nearest
from tonnage.workload.file.mapping_values import as_document
from tonnage.workload.file.problems import explain_each, raise_problems


def refuse_table(
    error: ValidationError, model: type[BaseModel], values: Mapping[str, Any], *, file: str, table: tuple[str, str],
    page: str,
) -> WorkloadError:  # fmt: skip
    """The refusal of `[table]`, whose `values` do not fit `model`; `page` is the document that lists its keys.

    A required key that is missing because it is misspelt is reported once, as the unknown key that is there.
    """
    document = as_document(values)
    errors = error.errors(include_url=False)
    unknown = [one for one in errors if one["type"] == "extra_forbidden"]
    meant = {near for one in unknown for near in nearest(str(one["loc"][-1]), model.model_fields, count=1)}
    others = [
        one for one in errors if one not in unknown and not (one["type"] == "missing" and one["loc"][-1] in meant)
    ]
    problems = [
        replace(one, path=(*table, *one.path)) for one in explain_each([*unknown, *others], model, document, page=page)
    ]
    try:
        raise_problems(problems, replace(as_document({table[0]: {table[1]: values}}), file=file))
    except WorkloadError as refusal:
        refusal.hint = refusal.hint or f"{page} lists every key"
        return refusal
    raise AssertionError("a validation error has problems")
