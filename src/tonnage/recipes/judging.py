"""How good the finished model of a run is: on its test rows, or on rows of one's own with labels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.recipes.data.rows import DatasetRows
from tonnage.recipes.data.splits import Splits, read_split
from tonnage.recipes.out_of_memory import is_out_of_memory, release_memory
from tonnage.recipes.task import Evaluation
from tonnage.recipes.trained import Trained, TrainedTable, finished_folder, load_finished
from tonnage.runs.folder import RunFolder
from tonnage.runs.locations import absolute
from tonnage.runs.secrets import recall_secrets
from tonnage.runs.spec import DataSource, Device, RunSpec
from tonnage.values import dataclass
from tonnage.workload.run_terms import ROLES, format_of

_MODULES: Final = "tonnage.recipes.tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Figures of a finished model, and what they were taken on."""

    run: str
    task: str
    split: str  # test, validation, or file
    data: str  # where the rows are from
    samples: int
    metrics: Mapping[str, float]
    baseline: Mapping[str, float] | None
    seconds: float  # of judging alone: without loading, without the baseline
    device: str
    precision: str


def judge_run(
    folder: RunFolder,
    *,
    data: str | None = None,
    columns: Mapping[str, str] | None = None,
    batch: int | None = None,
    device: Device = "auto",
    baseline: bool = False,
) -> Judgement:
    """Judge the finished model of a run on its test rows (validation where it has none), or on those of `data`.

    `columns` are roles whose column has another name in `data`. `baseline` also judges the simple models, which
    learn from the run's training rows again.
    """
    finished_folder(folder)
    spec = with_columns(folder.spec(), columns or {})
    recall_secrets(spec)
    split, where, rows = _rows(spec, data)
    trained = load_finished(folder, device=device, spec=spec)
    began = time.monotonic()
    found = _judge(trained, rows, batch or default_batch(trained))
    seconds = time.monotonic() - began
    return Judgement(
        run=folder.path.name,
        task=spec.task,
        split=split,
        data=where,
        samples=found.samples,
        metrics=dict(found.metrics),
        baseline=dict(_baseline(spec, data).metrics) if baseline else None,
        seconds=seconds,
        device=trained.device,
        precision=trained.precision,
    )


def default_batch(trained: Trained) -> int:
    """Samples at once: enough to fill a GPU, little enough to stay in a CPU's cache; tables are small."""
    if isinstance(trained, TrainedTable):
        return 4096
    return 128 if trained.device == "cuda" else 32


def with_columns(spec: RunSpec, columns: Mapping[str, str]) -> RunSpec:
    """The specification with other columns for some roles. InputError for a role that its task does not have."""
    known = ROLES[spec.task]
    for role in columns:
        if role not in known:
            raise InputError(f"{spec.task} has no role '{role}'", hint=f"its roles: {', '.join(known)}")
    return replace(spec, data=replace(spec.data, columns=tuple({**dict(spec.data.columns), **columns}.items())))


def source_of(location: str) -> DataSource:
    """Rows by the name of a file, a pattern, a URL or `hf://` data set."""
    form = format_of(location)
    if form is None:
        hint = "a name that ends in .jsonl, .csv, .tsv or .parquet (also with .gz) is expected"
        raise InputError(f"{location}: its name does not tell its format", hint=hint)
    split = "test" if form == "hf" else None
    return DataSource(location=absolute(location, Path.cwd()), format=form, split=split)


def _rows(spec: RunSpec, data: str | None) -> tuple[str, str, DatasetRows]:
    """Which split, where from, its rows."""
    if data is not None:
        return "file", data, _read(spec, source_of(data), data)
    for name in ("test", "validation"):
        source = getattr(spec.data, name)
        if source is not None:
            return name, source.location, _read(spec, source, f"`run.data.{name}`")
    splits: Splits = _module(spec).read(spec)
    return "validation", f"{spec.data.train.location} (held out)", splits.validation


def _read(spec: RunSpec, source: DataSource, name: str) -> DatasetRows:
    names = dict(spec.data.columns)
    table = "label" in names and set(ROLES[spec.task]) == {"label"}
    return read_split(source, name, names, None if table else frozenset(names.values()))


def _judge(trained: Trained, rows: DatasetRows, batch: int) -> Evaluation:
    """Figures; where memory runs out, with half as many samples at once."""
    if isinstance(trained, TrainedTable):
        return _judge_table(trained, rows)
    judge: Callable[[Any, DatasetRows, int], Evaluation] = _module(trained.spec).judge
    while True:
        try:
            with trained.arithmetic():
                return judge(trained, rows, batch)
        except (MemoryError, RuntimeError) as error:
            if batch == 1 or not is_out_of_memory(error):
                raise
        batch //= 2
        release_memory(trained.device == "cuda")


def _judge_table(trained: TrainedTable, rows: DatasetRows) -> Evaluation:
    from tonnage.recipes.tasks import boosted_trees, mlp
    from tonnage.recipes.tasks.tables import judge, known_part

    part, coder = known_part(trained.coder, rows), trained.coder
    if trained.network is None:
        return judge(coder, part.labels, boosted_trees.predict_rows(trained.booster, coder, rows.columns))
    return judge(coder, part.labels, mlp.predict_rows(trained.network, coder, rows.columns))


def _baseline(spec: RunSpec, data: str | None) -> Evaluation:
    """The task's own simple models, on the same rows."""
    if data is not None:
        spec = replace(spec, data=replace(spec.data, test=source_of(data)))
    if spec.task == "boosted-trees":
        from tonnage.recipes.tasks.tables import load_table, table_baseline

        return table_baseline(load_table(spec))
    from tonnage.recipes.tasks import program

    baseline = program(spec.task)(spec).baseline
    if baseline is None:
        raise InputError(f"{spec.task} has no baseline", hint="leave --baseline out")
    return baseline()


def _module(spec: RunSpec) -> Any:
    name = "tables" if set(ROLES[spec.task]) == {"label"} else spec.task.replace("-", "_")
    return import_module(f"{_MODULES}.{name}")
