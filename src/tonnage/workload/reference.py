"""The reference of the workload file, rendered from the models that read it (docs/workload-file.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from inspect import cleandoc
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tonnage.workload.file.fields import Spelled
from tonnage.workload.file.inline_shape import ConvolutionFields, InlineShape
from tonnage.workload.file.job_fields import (
    BatchFields,
    DataFields,
    EngineLimitFields,
    LoraFields,
    ServeFields,
    SpeculativeFields,
    TabularFields,
    TrafficFields,
    TrainFields,
)
from tonnage.workload.file.kinds import KINDS
from tonnage.workload.file.layout_fields import ServingLayoutFields, TrainLayoutFields
from tonnage.workload.file.length_fields import LengthFields
from tonnage.workload.file.money_fields import DataPlaceFields, OwnPrices, Schedule
from tonnage.workload.file.run_fields import (
    CheckpointFields,
    GenerateRunFields,
    LimitFields,
    RunDataFields,
    SourceFields,
    TableDataFields,
    TableRunFields,
    TrackingFields,
    TrainRunFields,
)
from tonnage.workload.file.sweep_fields import ObjectiveFields, ParameterFields, SweepFields, SweepLimitFields
from tonnage.workload.file.terms_fields import (
    BuyFields,
    ConstraintFields,
    SharedFields,
    TeamFields,
)
from tonnage.workload.host import HostTerms

EXAMPLES: Final[Mapping[str, str]] = {
    "train": """\
kind: train
model: bert-base-uncased
data: {samples: 67_000, seq_len: {mean: 48, max: 128}, epochs: 3}
train: {global_batch: 32}
constraints: {deadline: 8h, budget_usd: 50}
""",
    "serve": """\
kind: serve
model: gpt2
serve:
  rate_per_s: 1000
  input_tokens: {mean: 64, max: 256}
  output_tokens: {mean: 20, max: 40}
  p95_latency: 500ms
""",
    "batch": """\
kind: batch
model: gpt-j-6b
batch: {items: 240_000, input_tokens: 200, output_tokens: 120}
constraints: {deadline: 2026-12-01T00:00Z}
buy: {purchases: [spot, on_demand]}
""",
    "tabular": """\
kind: tabular
tabular: {rows: 5_000_000, features: 310, trees: 1_000}
constraints: {providers: [aws, gcp]}
""",
}

_TITLES: Final[Mapping[type[BaseModel], str]] = {
    DataFields: "`data`",
    HostTerms: "`host`",
    TrainFields: "`train`",
    LoraFields: "`train.lora`",
    TrainLayoutFields: "`layout` of a training",
    ServingLayoutFields: "`layout` of a service or batch",
    ServeFields: "`serve`",
    TrafficFields: "`serve.traffic`",
    BatchFields: "`batch`",
    SpeculativeFields: "Speculative decoding",
    EngineLimitFields: "Engine limits",
    TabularFields: "`tabular`",
    TrainRunFields: "`run` of a training",
    TableRunFields: "`run` of a table",
    GenerateRunFields: "`run` that writes text",
    RunDataFields: "`run.data`",
    TableDataFields: "`run.data` of a table",
    CheckpointFields: "`run.checkpoint`",
    LimitFields: "`run.limits`",
    TrackingFields: "`run.tracking`",
    SourceFields: "Rows",
    SweepFields: "`sweep`",
    ParameterFields: "A parameter of a sweep",
    ObjectiveFields: "`sweep.objective`",
    SweepLimitFields: "`sweep.limits`",
    ConstraintFields: "`constraints`",
    BuyFields: "`buy`",
    Schedule: "`buy.schedule`",
    OwnPrices: "`buy.prices`",
    DataPlaceFields: "Data place",
    TeamFields: "`team`",
    LengthFields: "Lengths",
    InlineShape: "Inline shape",
    ConvolutionFields: "Convolutions",
}

_INTRODUCTION: Final = """\
# The workload file

<!-- Generated: python -m tonnage.workload.reference docs/workload-file.md -->

`NAME.tonnage.yaml` says what someone wants to run and what a plan for it must hold. `kind` sets which other
keys there are. An unknown key is an error that names the file, the line and the nearest key that exists.

How values are written:

- Numbers are plain: `67000`, `67_000`, `0.5`, `1e6`. `67k` and `67,000` are text and refused, with the
  number to write instead. `.nan` and `.inf` are refused.
- Durations carry their unit: `500ms`, `90s`, `30m`, `24h`, `1h30m`, `7d`, `2w`. Instants carry their time
  zone: `2026-12-01T00:00Z`; a date alone is 00:00 UTC of that day.
- True and false are `true` and `false`; `yes`, `no`, `on`, `off` are understood where one of them is meant.
- A list of names may be a single name: `gpus: H100` is `gpus: [H100]`.
- A key with nothing behind it counts as left out.
- One file is one YAML document of at most 1 MB, in UTF-8, without tags, aliases or repeated keys.
"""


def render_workload_reference() -> str:
    """Markdown: each kind with an example; every section with key, type, unit, default, meaning, example."""
    parts = [_INTRODUCTION]
    for kind, model in KINDS.items():
        parts.append(f"## `kind: {kind}`\n\n{_summary(model)}\n\n```yaml\n{EXAMPLES[kind]}```\n")
        parts.append(render_table(model, but=SharedFields))
        parts += [_render_section(section) for section in _sections(model) if section not in _SHARED]
    parts.append("## Keys of every kind\n\n" + render_table(SharedFields))
    parts += [_render_section(section) for section in (ConstraintFields, BuyFields, TeamFields)]
    parts.append("## Values with keys of their own\n")
    parts += [_render_section(section) for section in _OF_RUNS]
    parts += [_render_section(section) for section in (Schedule, OwnPrices, DataPlaceFields)]
    parts += [
        _render_section(section)
        for section in (HostTerms, SpeculativeFields, EngineLimitFields, LengthFields, InlineShape)
    ]
    parts.append(_render_section(ConvolutionFields))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


_OF_RUNS: Final = (
    RunDataFields, SourceFields, CheckpointFields, LimitFields, TrackingFields, SweepFields, ParameterFields,
    ObjectiveFields, SweepLimitFields,
)  # fmt: skip
_SHARED: Final = (
    *_OF_RUNS,
    ConstraintFields,
    BuyFields,
    Schedule,
    OwnPrices,
    TeamFields,
    DataPlaceFields,
    HostTerms,
    LengthFields,
    InlineShape,
    ConvolutionFields,
)


def _sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Section models under `model`, each before those inside it."""
    for field in model.model_fields.values():
        for inner in _models_in(field.annotation):
            if inner in _TITLES:
                yield inner
                yield from _sections(inner)


def _render_section(model: type[BaseModel]) -> str:
    return f"### {_TITLES[model]}\n\n{_summary(model)}\n\n{render_table(model)}"


def _summary(model: type[BaseModel]) -> str:
    return cleandoc(model.__doc__ or "")


def render_sections(
    introduction: str, whole: type[BaseModel], sections: Iterable[tuple[str, type[BaseModel]]], *after: str
) -> str:
    """Markdown for another file: the keys of `whole`, a section for each (title, model), then what comes `after`."""
    parts = [introduction, render_table(whole)]
    parts += [f"## {title}\n\n{_summary(model)}\n\n{render_table(model)}" for title, model in sections]
    return "\n".join(part.rstrip("\n") + "\n" for part in (*parts, *after))


def render_table(model: type[BaseModel], *, but: type[BaseModel] | None = None) -> str:
    """Markdown: a row a key of a model, without those of `but`."""
    skipped = but.model_fields if but is not None else {}
    fields = [
        (name, field)
        for name, field in model.model_fields.items()
        if name not in skipped or field.annotation != skipped[name].annotation
    ]
    fields.sort(key=lambda entry: {"kind": 0, "model": 1}.get(entry[0], 2))
    head = "| key | type | unit | default | meaning | example |\n| --- | --- | --- | --- | --- | --- |\n"
    return head + "".join(_render_row(field.alias or name, field) for name, field in fields)


def _render_row(name: str, field: FieldInfo) -> str:
    facts = field.json_schema_extra
    assert isinstance(facts, dict)
    example = f"`{facts['example']}`" if facts["example"] else ""
    cells = (f"`{name}`", _type_of(field), str(facts["unit"]), _default_of(field), field.description, example)
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def _default_of(field: FieldInfo) -> str:
    facts = field.json_schema_extra
    if field.is_required():
        return "required"
    if isinstance(facts, dict) and facts["shown"]:
        return str(facts["shown"])
    if field.default is None or field.default_factory is not None:
        return "none"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


def _type_of(field: FieldInfo) -> str:
    for note in field.metadata:
        if isinstance(note, Spelled):
            return _linked(note.type)
    return _linked(_type_name(field.annotation))


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if isinstance(annotation, type) and annotation in _TITLES:
        return f"mapping, see {_TITLES[annotation]}"
    for note in getattr(annotation, "__metadata__", ()):
        if isinstance(note, Spelled):
            return note.type
    names = [_type_name(part) for part in get_args(annotation) if part is not type(None)]
    return next((name for name in names if name), "")


def _linked(text: str) -> str:
    """Names of sections inside a type become links to them."""
    for title in sorted(_TITLES.values(), key=len, reverse=True):
        if f"see {title}" in text:
            anchor = title.casefold().replace("`", "").replace(".", "").replace(" ", "-")
            return text.replace(f"see {title}", f"see [{title}](#{anchor})")
    return text


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


if __name__ == "__main__":
    import sys
    from pathlib import Path

    Path(sys.argv[1]).write_text(render_workload_reference(), encoding="utf-8")
