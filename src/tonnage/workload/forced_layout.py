"""A layout given as text, `tp=2,pp=2,micro_batch=4`, in place of the one a workload has or leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeVar

from pydantic import ValidationError

from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.workload.file.fields import StrictModel
from tonnage.workload.file.layout_checks import LayoutFault, find_train_faults
from tonnage.workload.file.layout_fields import ServingLayoutFields, TrainLayoutFields
from tonnage.workload.file.mapping_values import as_document
from tonnage.workload.file.problems import explain_validation
from tonnage.workload.file.serving_layout_checks import LayoutContext, find_serving_faults
from tonnage.workload.jobs import BatchJob, Job, ServeJob, TabularJob, TrainJob, Workload

SHORT: Final[Mapping[str, str]] = MappingProxyType(
    {"dp": "data_parallel", "tp": "tensor_parallel", "pp": "pipeline_parallel", "cp": "context_parallel",
     "vp": "virtual_stages", "mb": "micro_batch", "ep": "expert_parallel", "dp_attention": "attention_data_parallel",
     "prefill": "prefill_replicas", "decode": "decode_replicas"}
)  # fmt: skip
EXAMPLE: Final = "such as 'tp=2,pp=2,micro_batch=4'"
Fields = TypeVar("Fields", bound=StrictModel)


def force_layout(workload: Workload, text: str) -> Workload:
    """`workload` with the layout of `text`; the keys it names go before the workload's own.

    Raises InputError, naming the limit, on a layout that cannot be.
    """
    job = workload.job
    if isinstance(job, TabularJob):
        raise InputError("--layout: a table has no layout to choose", hint="leave --layout out")
    kind = TrainLayoutFields if isinstance(job, TrainJob) else ServingLayoutFields
    stated = _validated(parse_layout(text, kind), kind).model_dump(exclude_none=True)
    for name, message, hint in _faults(job, stated, workload.constraints.max_gpus):
        raise InputError(f"--layout: {name}: {message}", hint=hint)
    return replace(workload, job=replace(job, **stated))


def parse_layout(text: str, fields: type[StrictModel]) -> dict[str, int | str]:
    """Key -> value, short forms written out; InputError on an unknown key and on one that occurs twice.

    >>> parse_layout("tp=2, mb=4,recompute=full", TrainLayoutFields)
    {'tensor_parallel': 2, 'micro_batch': 4, 'recompute': 'full'}
    """
    found: dict[str, int | str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        name = SHORT.get(name, name)
        if not equals or not value:
            raise InputError(f"--layout: found '{part}', expected key=value", hint=EXAMPLE)
        if name not in fields.model_fields:
            known = f"known: {', '.join(fields.model_fields)}"
            hint = did_you_mean(nearest(name, fields.model_fields, count=1), known)
            raise InputError(f"--layout: no key '{name}'", hint=hint)
        if name in found:
            raise InputError(f"--layout: {name} is given twice", hint=EXAMPLE)
        found[name] = _number(value)
    if not found:
        raise InputError("--layout: names no key", hint=EXAMPLE)
    return found


def _number(text: str) -> int | str:
    """The whole number that a text stands for, also as `1e3`; else the text.

    >>> _number("1e9"), _number("2.5"), _number("zero3")
    (1000000000, '2.5', 'zero3')
    """
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else text


def layout_keys() -> list[str]:
    """Every key a layout may have, of training or of serving."""
    return list(dict.fromkeys([*TrainLayoutFields.model_fields, *ServingLayoutFields.model_fields]))


def _validated(stated: Mapping[str, int | str], fields: type[Fields]) -> Fields:
    try:
        return fields.model_validate(dict(stated))
    except ValidationError as error:
        problem = next(iter(explain_validation(error, fields, as_document(stated))))
        raise InputError(f"--layout: {problem.path[-1]}: {problem.message}", hint=problem.hint) from None


def _faults(job: Job, stated: Mapping[str, int | str], max_gpus: int | None) -> Iterator[LayoutFault]:
    """Faults of the layout that results: what is stated now, over what the job has."""
    if isinstance(job, TrainJob):
        own = {name: getattr(job, name) for name in TrainLayoutFields.model_fields}
        layout = TrainLayoutFields.model_validate({**own, **stated})
        yield from find_train_faults(
            layout, global_batch=job.global_batch, shape=job.model, max_gpus=max_gpus, program=job.program.name,
            method=job.method,
        )  # fmt: skip
    elif isinstance(job, ServeJob | BatchJob):
        own = {name: getattr(job, name) for name in ServingLayoutFields.model_fields}
        serving = ServingLayoutFields.model_validate({**own, **stated})
        asked = LayoutContext(
            shape=job.model, engine=job.engine, max_gpus=max_gpus, service=isinstance(job, ServeJob),
            latency=isinstance(job, ServeJob) and job.p95_latency_s is not None,
        )  # fmt: skip
        yield from find_serving_faults(serving, asked)
