"""Everything a worker needs to do a run, as one value that is written once and never changed."""

from __future__ import annotations

from dataclasses import field
from functools import cache
from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

from tonnage.errors import InputError
from tonnage.values import dataclass
from tonnage.workload.jobs import Attention, Lora, Method, Optimizer, Recompute, Sharding, TrainPrecision
from tonnage.workload.run_terms import (
    DataFormat,
    Device,
    LearningRateSchedule,
    RunnerName,
    TabularObjective,
    Task,
)

__all__ = [
    "ChargeSpec",
    "CheckpointSpec",
    "DataFormat",
    "DataSource",
    "DataSpec",
    "Device",
    "FilePrint",
    "GenerationSpec",
    "GuardSpec",
    "LaunchSpec",
    "LearningRateSchedule",
    "RunSpec",
    "RunnerName",
    "TabularSpec",
    "Task",
    "TrackingSpec",
    "TrainingSpec",
    "dump_spec",
    "load_spec",
]

SCHEMA: Final = "tonnage/run@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """Where rows come from: a path or pattern, `hf://name`, a remote URL, or a SQLAlchemy URL with a query.

    A secret in a URL is written as `${NAME}`: the worker takes it from its environment, and it is never written down.
    """

    location: str
    format: DataFormat
    query: str | None = None  # sql: the statement whose rows are the data
    split: str | None = None  # hf: the split's name
    more: tuple[str, ...] = ()  # further locations, read after the first, of the same format


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePrint:
    """One file as it was when the run began; of a very large one the hash is of parts (runs/data_prints.py)."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSpec:
    """What is learned from. `columns` names, for each role a task has, the column that plays it."""

    train: DataSource
    validation: DataSource | None = None  # None: `validation_fraction` of train is held out
    test: DataSource | None = None
    columns: tuple[tuple[str, str], ...] = ()  # role -> column: ("text", "description"), ("label", "section")
    features: tuple[str, ...] = ()  # tabular: columns to learn from; empty: every column but the label
    validation_fraction: float = 0.1
    group: str | None = None  # rows of one group stay on one side of the split
    seed: int = 0  # of the split
    prints: tuple[FilePrint, ...] | None = None  # of local files; None: not taken


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpec:
    """How it learns. `micro_batch` and `recompute` are what the plan chose for this machine."""

    epochs: float = 1.0
    max_steps: int | None = None  # optimizer steps; ends earlier than `epochs` would
    global_batch: int = 32  # samples per optimizer step over all processes, whatever the micro-batch
    micro_batch: int | None = None  # samples one device holds; None: global_batch over the processes
    max_tokens: int | None = None  # texts are cut here; None: the model's own limit
    method: Method = "full"
    lora: Lora = field(default_factory=Lora)
    precision: TrainPrecision = "auto"
    optimizer: Optimizer = "adamw"
    learning_rate: float = 2e-5
    schedule: LearningRateSchedule = "linear"
    warmup_fraction: float = 0.0
    weight_decay: float = 0.01
    clip_norm: float | None = 1.0
    recompute: Recompute = "none"  # gradient checkpointing
    attention: Attention = "sdpa"
    compile: bool = False
    sharding: Sharding = "ddp"
    seed: int = 0  # of new weights, dropout and the order of the data
    packing: bool = True  # causal-lm: texts follow one another in blocks of `max_tokens`; False: one text, padded
    stride: int = 128  # question-answering: tokens that two windows over a long context share
    log_every_steps: int = 10
    evaluate_every_steps: int | None = None  # None: at the end only
    keep_best: bool = False  # the finished model is that of the best evaluation
    best_by: str | None = None  # the figure it is the best by; None: the task's first
    early_stopping: int | None = None  # evaluations in a row without gain that end the training


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularSpec:
    """Boosted trees or a multi-layer perceptron over a table."""

    objective: TabularObjective = "auto"
    trees: int = 500
    depth: int = 6
    bins: int = 256
    hidden_layers: tuple[int, ...] = (512, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSpec:
    """Synthetic text: how much, and how it is sampled."""

    prompts: int = 1000
    max_new_tokens: int = 64
    temperature: float = 0.8
    top_p: float = 0.95
    batch: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec:
    """When a checkpoint is written. With both limits the earlier counts; with neither, by Daly's formula."""

    every_steps: int | None = None
    every_s: float | None = None
    ends_per_hour: float | None = None  # how often the machine is taken back; None: it is not
    keep: int = 3  # newest valid ones
    asynchronous: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSpec:
    """Limits the supervisor holds a run to."""

    max_cost_usd: float | None = None
    usd_per_hour: float | None = None  # of the whole run's machines; None: not known, and `max_cost_usd` is refused
    billing_quantum_s: float = 60.0
    max_s: float | None = None
    idle_s: float | None = None  # no step for this long: stop


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """Where and how the worker processes are started."""

    runner: RunnerName = "local"
    processes: int = 1
    threads: int | None = None  # per process; None: the cores shared out
    device: Device = "auto"
    device_map: str | None = None  # transformers' own: "auto" spreads one model over the devices
    max_restarts: int = 3
    notices: tuple[str, ...] = ()  # clouds whose interruption notice is watched: aws, gcp, azure
    metrics_port: int | None = None  # where Prometheus finds the run; 0: any free port


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingSpec:
    """MLflow: where runs are tracked, and under which name the model is registered."""

    uri: str | None = None  # None: MLFLOW_TRACKING_URI, else SQLite at home
    experiment: str = "tonnage"
    register_as: str | None = None
    alias: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeSpec:
    """Whose money it is: budgets that name these values apply to the run."""

    project: str | None = None
    team: str | None = None
    environment: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run. `weights` is a folder, a hub name (`hf://org/name`) or None: new weights from the model's shape."""

    name: str
    task: Task
    data: DataSpec
    model: str = ""  # in words: the name measurements carry
    weights: str | None = None
    config: str | None = None  # a config.json or its folder: the shape of new weights, where `weights` is None
    tokenizer: str | None = None  # None: beside the weights, or the config
    program: str | None = None  # of task `own`: an entry point of the group `tonnage.tasks`
    training: TrainingSpec = field(default_factory=TrainingSpec)
    tabular: TabularSpec = field(default_factory=TabularSpec)
    generation: GenerationSpec = field(default_factory=GenerationSpec)
    checkpoint: CheckpointSpec = field(default_factory=CheckpointSpec)
    guard: GuardSpec = field(default_factory=GuardSpec)
    launch: LaunchSpec = field(default_factory=LaunchSpec)
    tracking: TrackingSpec = field(default_factory=TrackingSpec)
    charge: ChargeSpec = field(default_factory=ChargeSpec)
    workload_file: str | None = None
    sweep: str | None = None  # the sweep it is a trial of; its values are then not those of the file
    schema: Literal["tonnage/run@1"] = SCHEMA

    def column(self, role: str) -> str | None:
        """The column that plays a role, or None where the file names none."""
        return dict(self.data.columns).get(role)


@cache
def _adapter() -> TypeAdapter[RunSpec]:
    """Made on first use: many processes that know a run by its folder read no specification."""
    return TypeAdapter(RunSpec)


def dump_spec(spec: RunSpec) -> str:
    """The specification as JSON, the same bytes for the same value."""
    return _adapter().dump_json(spec, indent=2).decode() + "\n"


def load_spec(text: str, *, where: str) -> RunSpec:
    """A specification read back; InputError names the key of what cannot be used."""
    try:
        return _adapter().validate_json(text, strict=False)
    except ValidationError as error:
        first: Any = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{where}: {key}: {first['msg']}", hint="start a new run from its workload file") from error
