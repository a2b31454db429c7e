"""From a workload file with a `run` section to the specification of a run.

`load_run_spec(path)` is what `tonnage run` starts from. One fact has one home: how much is trained and how is in
`data`, `train`, `tabular` or `batch`, where the plan reads it too; `run` adds only what a plan does not need.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from tonnage.errors import InputError, WorkloadError
from tonnage.runs.locations import absolute, files_at, is_remote
from tonnage.runs.spec import (
    ChargeSpec,
    CheckpointSpec,
    DataSource,
    DataSpec,
    GenerationSpec,
    GuardSpec,
    LaunchSpec,
    RunSpec,
    TabularSpec,
    TrackingSpec,
    TrainingSpec,
)
from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.file.kinds import BatchFile, ServeFile, TabularFile, TrainFile
from tonnage.workload.file.length_fields import freeze_lengths
from tonnage.workload.file.model_reference import FetchConfig, is_path
from tonnage.workload.file.problems import line_of
from tonnage.workload.file.run_checks import NEW_WEIGHTS, task_of
from tonnage.workload.file.run_fields import (
    GenerateRunFields,
    LearningFields,
    RunDataFields,
    SharedRunFields,
    SourceFields,
    TableDataFields,
    TableRunFields,
    TrainRunFields,
)
from tonnage.workload.file.train_program import freeze_lora, program_terms
from tonnage.workload.file.yaml_lines import KeyPath, dotted
from tonnage.workload.loading import CheckedFile, load_checked
from tonnage.workload.run_terms import ROLES, Task, format_of
from tonnage.workload.shapes import ModelShape

Found = TypeVar("Found")
There = Callable[[str], bool]
RunnableFile = TrainFile | BatchFile | TabularFile
LEARNING_RATE = {"boosted-trees": 0.1, "mlp": 1e-3}


def load_run_spec(
    path: Path, *, as_of: datetime | None = None, fetch_config: FetchConfig | None = None, there: There | None = None
) -> RunSpec:
    """The run a workload file describes. WorkloadError (file, line, key, hint) for whatever is wrong with it.

    Local rows must be there: a missing file or shard is reported now, not by a worker. `as_of` (None: now) is the clock
    a deadline is held against; `fetch_config` reads the config.json of an `hf://` model; `there` tells paths of the
    place where the run will be, which nothing here can look into.
    """
    checked = load_checked(Path(path), as_of=as_of or datetime.now(UTC), fetch_config=fetch_config)
    return run_spec_of(checked, Path(path), there=there)


def run_spec_of(checked: CheckedFile, path: Path, *, there: There | None = None) -> RunSpec:
    """The run of a checked file; relative paths start from the folder of `path`."""
    file = checked.entries
    if isinstance(file, ServeFile):
        raise WorkloadError(
            "`kind: serve` is no run", hint="write a file of kind train, tabular or batch", file=str(path)
        )
    if file.run is None:
        hint = "add `run:` with the rows (and task and weights); docs/run-tasks.md shows each task"
        raise WorkloadError("says nothing of how to run it", hint=hint, file=str(path), key="run")
    return _SpecReader(checked, path.absolute(), there or (lambda _: False)).spec(file)


class _SpecReader:
    """Turns the entries of one file into a specification; knows the file for its errors and relative paths."""

    def __init__(self, checked: CheckedFile, path: Path, there: There) -> None:
        self.checked, self.path, self.folder, self.there = checked, path, path.parent, there

    def spec(self, file: RunnableFile) -> RunSpec:
        run, task = file.run, task_of(file)
        assert run is not None
        return RunSpec(
            name=self.checked.name,
            task=task,
            data=self._data(run.data, task),
            model=task if isinstance(file, TabularFile) else self._model_name(),
            weights=self._weights(run),
            config=self._config(file),
            tokenizer=None if isinstance(run, TableRunFields) else self._place(run.tokenizer, "tokenizer"),
            program=run.program if isinstance(run, TrainRunFields) else None,
            training=_training(file, self.checked.shape),
            tabular=_tabular(file),
            generation=_generation(file),
            checkpoint=_checkpoint(file, run),
            guard=_guard(run),
            launch=_launch(run),
            tracking=TrackingSpec(**run.tracking.model_dump()),
            charge=_charge(run),
            workload_file=str(self.path),
        )

    def _model_name(self) -> str:
        assert self.checked.shape is not None
        return self.checked.shape.name

    def _weights(self, run: SharedRunFields) -> str | None:
        if not isinstance(run, (TrainRunFields, GenerateRunFields)) or run.weights == NEW_WEIGHTS:
            return None
        return self._place(run.weights, "weights")

    def _config(self, file: RunnableFile) -> str | None:
        if not isinstance(file, TrainFile) or file.run is None or file.run.weights != NEW_WEIGHTS:
            return None
        assert isinstance(file.model, str)
        return absolute(file.model, self.folder) if is_path(file.model) else file.model

    def _place(self, reference: str | None, name: str) -> str | None:
        """A folder of weights or a tokenizer, made absolute; hub names stay."""
        if reference is None or reference.startswith("hf://"):
            return reference
        found = self._located(("run", name), absolute, reference, self.folder)
        if not is_remote(found) and not self.there(found) and not Path(found).exists():
            hint = "give a folder (from this file), hf://org/name or pkg://package/folder"
            self._located(("run", name), _refuse, f"no such folder: {found}", hint)
        return found

    def _data(self, data: RunDataFields, task: Task) -> DataSpec:
        train = self._source(data.train, "train")
        columns = {role: role for role, needed in ROLES[task].items() if needed} | data.columns
        return DataSpec(
            train=train,
            validation=None if data.validation is None else self._source(data.validation, "validation"),
            test=None if data.test is None else self._source(data.test, "test"),
            columns=tuple(columns.items()),
            features=data.features if isinstance(data, TableDataFields) else (),
            validation_fraction=0.1 if data.validation_fraction is None else data.validation_fraction,
            group=data.group,
            seed=data.seed,
        )

    def _source(self, source: SourceFields, name: str) -> DataSource:
        path: KeyPath = ("run", "data", name)
        form = source.format or ("sql" if source.query is not None else format_of(source.location[0]))
        assert form is not None
        first, *more = (self._located(path, absolute, one, self.folder) for one in source.location)
        for location in (first, *more):
            if form not in ("hf", "sql") and not is_remote(location) and not self.there(location):
                self._located(path, files_at, location)
        split = (source.split or "train") if form == "hf" else None
        return DataSource(location=first, format=form, query=source.query, split=split, more=tuple(more))

    def _located(self, path: KeyPath, work: Callable[..., Found], *arguments: Any) -> Found:
        """The work's result; what it refuses is reported with file, line and key."""
        try:
            return work(*arguments)
        except InputError as error:
            line = line_of(path, self.checked.document)
            raise WorkloadError(
                error.message, hint=error.hint, file=self.checked.document.file, line=line, key=dotted(path)
            ) from error


def _refuse(message: str, hint: str) -> None:
    raise InputError(message, hint=hint)


def _training(file: RunnableFile, shape: ModelShape | None) -> TrainingSpec:
    run = file.run
    assert run is not None
    if isinstance(file, TrainFile):
        assert isinstance(run, TrainRunFields)
        assert shape is not None
        return _train_training(file, run, shape)
    if isinstance(file, TabularFile):
        assert isinstance(run, TableRunFields)
        rate = LEARNING_RATE[file.tabular.method] if run.learning_rate is None else run.learning_rate
        return TrainingSpec(
            epochs=float(file.tabular.epochs),
            global_batch=file.tabular.global_batch,
            learning_rate=rate,
            precision="fp32",
            **_learning(run),
        )
    return TrainingSpec(seed=run.seed, max_tokens=freeze_lengths(file.batch.input_tokens).maximum)  # type: ignore[arg-type]


def _train_training(file: TrainFile, run: TrainRunFields, shape: ModelShape) -> TrainingSpec:
    train, terms = file.train, program_terms(file, shape)
    longest = None if file.data.seq_len is None else freeze_lengths(file.data.seq_len).maximum
    return TrainingSpec(
        epochs=float(file.data.epochs),
        global_batch=train.global_batch,
        micro_batch=train.micro_batch,
        max_tokens=longest,
        method=train.method,
        lora=freeze_lora(train),
        precision=train.precision,
        optimizer=terms["optimizer"],
        learning_rate=float(run.learning_rate),
        recompute=train.recompute or "none",
        attention=terms["attention"],
        compile=terms["compile"],
        sharding=train.sharding or "ddp",
        packing=run.packing,
        stride=min(128, (longest or 384) // 3) if run.stride is None else run.stride,
        **_learning(run),
    )


def _learning(run: LearningFields) -> dict[str, Any]:
    return {
        "max_steps": run.max_steps,
        "schedule": run.schedule,
        "warmup_fraction": float(run.warmup),
        "weight_decay": float(run.weight_decay),
        "clip_norm": float(run.clip_norm) if run.clip_norm else None,
        "seed": run.seed,
        "log_every_steps": run.log_every,
        "evaluate_every_steps": run.evaluate_every,
        "keep_best": run.keep_best,
        "best_by": run.best_by,
        "early_stopping": run.early_stopping,
    }


def _tabular(file: RunnableFile) -> TabularSpec:
    if not isinstance(file, TabularFile):
        return TabularSpec()
    assert file.run is not None
    table = file.tabular
    return TabularSpec(
        objective=file.run.objective,
        trees=table.trees,
        depth=table.depth,
        bins=table.bins,
        hidden_layers=tuple(table.hidden_layers),
    )


def _generation(file: RunnableFile) -> GenerationSpec:
    if not isinstance(file, BatchFile):
        return GenerationSpec()
    run, batch = file.run, file.batch
    assert run is not None
    assert batch.output_tokens is not None  # checked: the model generates
    count = batch.items if batch.items is not None else round((batch.items_per_hour or 0) * (batch.hours or 0))
    return GenerationSpec(
        prompts=count,
        max_new_tokens=freeze_lengths(batch.output_tokens).maximum,
        temperature=float(run.temperature),
        top_p=float(run.top_p),
        batch=run.texts_at_once,
    )


def _checkpoint(file: RunnableFile, run: SharedRunFields) -> CheckpointSpec:
    """As asked; else the plan's interval, where the file states it, else what it takes to find the best one."""
    asked, taken_back = run.checkpoint, None
    every_s = asked.every
    if every_s is None and asked.every_steps is None:
        every_s = file.buy.checkpoint_interval
    if run.notices:  # who watches for them is on machines that are taken back
        from tonnage.spot_instances.knowledge import other_machines  # numpy, which few runs need before their worker

        rate = file.buy.interruptions_per_hour
        taken_back = other_machines().per_h if rate is None else float(rate)
    return CheckpointSpec(
        every_steps=asked.every_steps, every_s=every_s, ends_per_hour=taken_back, keep=asked.keep,
        asynchronous=asked.asynchronous,
    )  # fmt: skip


def _guard(run: SharedRunFields) -> GuardSpec:
    limits = run.limits
    return GuardSpec(
        max_cost_usd=None if limits.max_cost_usd is None else float(limits.max_cost_usd),
        usd_per_hour=None if limits.usd_per_hour is None else float(limits.usd_per_hour),
        billing_quantum_s=limits.billing_quantum,
        max_s=None if limits.max_hours is None else limits.max_hours * SECONDS_PER_HOUR,
        idle_s=limits.idle,
    )


def _charge(run: SharedRunFields) -> ChargeSpec:
    asked = run.charge
    return ChargeSpec(
        project=asked.project, team=asked.team, environment=asked.environment, labels=tuple(asked.labels.items())
    )


def _launch(run: SharedRunFields) -> LaunchSpec:
    return LaunchSpec(
        runner=run.runner,
        processes=run.processes,
        threads=run.threads,
        device=run.device,
        device_map=run.device_map if isinstance(run, TrainRunFields) else None,
        max_restarts=run.restarts,
        notices=run.notices,
    )
