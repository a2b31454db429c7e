"""The `run` section of a workload file: what a run of it needs beyond what a plan does."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tonnage.workload.file.fields import (
    Amount,
    Count,
    CountOrZero,
    Duration,
    Flag,
    Positive,
    PositiveOrZero,
    Spelled,
    StrictModel,
    Usd,
    Word,
    Words,
    as_names,
    key,
)
from tonnage.workload.run_terms import (
    DataFormat,
    Device,
    LearningRateSchedule,
    NetworkTask,
    RunnerName,
    TabularObjective,
)

Share = Annotated[float, Field(ge=0, le=1), Spelled("number, 0 to 1")]
ShareAboveZero = Annotated[float, Field(gt=0, le=1), Spelled("number above 0, to 1")]
HeldOut = Annotated[float, Field(gt=0, lt=1), Spelled("number above 0, below 1")]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1), Spelled("whole number, 0 or more")]
Text = Annotated[str, Field(min_length=1, max_length=100_000), Spelled("text")]
Notices = Annotated[
    tuple[Literal["aws", "gcp", "azure"], ...], BeforeValidator(as_names), Spelled("list of `aws`, `gcp`, `azure`")
]
Labels = Annotated[dict[Word, Word], Spelled("name: value")]
Columns = Annotated[dict[Word, Word], Spelled("role: column")]


class SourceFields(StrictModel):
    """Where rows come from. One text is short for `{location: ...}`; a list of texts is read in that order."""

    location: Words = key(
        "A path or pattern from this file (`rows/*.jsonl.gz`, `images/*/*.png`: a folder for each class), a URL "
        "(`s3://`, `https://`), `hf://data-set`, or the SQLAlchemy URL of a database. `${NAME}` is taken from the "
        "environment when the run starts.",
        example="rows/train-*.jsonl",
    )
    format: DataFormat | None = key("Form of the rows.", default=None, shown="as the name ends", example="csv")
    split: Word | None = key("Split of a Hugging Face data set.", default=None, shown="`train`", example="test")
    query: Text | None = key("Statement whose rows are the data, for a database.", default=None, shown="none")


def _spread(value: Any) -> Any:
    return {"location": value} if isinstance(value, (str, list)) else value


Source = Annotated[
    SourceFields, BeforeValidator(_spread), Spelled("text, list of texts, or mapping, see [Rows](#rows)")
]


class RunDataFields(StrictModel):
    """The rows a run reads, and which column plays which role (docs/run-tasks.md lists the roles)."""

    train: Source = key("Rows to learn from.", example="rows/train.jsonl")
    validation: Source | None = key("Rows to measure on.", default=None, shown="held out of `train`")
    test: Source | None = key("Rows to measure on once, at the end.", default=None, shown="none")
    columns: Columns = key("The column of each role.", default=dict, shown="named as the role", example="{text: body}")
    validation_fraction: HeldOut | None = key(
        "Share of `train` that is held out, where `validation` is not given.", default=None, shown="0.1", example="0.2"
    )
    group: Word | None = key(
        "A column: rows with one value of it stay on one side of the split.",
        default=None,
        shown="rows with the same text",
        example="customer",
    )
    seed: Seed = key("Seed of the split.", default=0, example="0")


class TableDataFields(RunDataFields):
    """The rows of a table, which column is learned, and from which others."""

    features: Words = key("Columns to learn from.", default=(), shown="all but label and group", example="[age, city]")


class CheckpointFields(StrictModel):
    """When a checkpoint is saved. With both limits the earlier counts."""

    every: Duration | None = key("Time between checkpoints.", default=None, shown="from the plan", example="15m")
    every_steps: Count | None = key(
        "Steps (or boosting rounds) between checkpoints.", default=None, shown="no such limit", example="500"
    )
    keep: Count = key("Newest checkpoints that are kept.", default=3, example="3")
    asynchronous: Flag = key("Whether the run goes on while a checkpoint is written.", default=True, example="false")


class LimitFields(StrictModel):
    """Limits at which a run saves and stops."""

    max_cost_usd: Usd | None = key("Most a run may cost.", default=None, shown="none", unit="USD", example="20")
    usd_per_hour: Usd | None = key(
        "What the machines of the run cost together; needed for `max_cost_usd`.",
        default=None,
        shown="not known",
        unit="USD per hour",
        example="3.06",
    )
    billing_quantum: Duration = key("Time is billed in steps of this.", default=60.0, shown="`60s`", example="1h")
    max_hours: Positive | None = key("Longest a run may take.", default=None, shown="none", unit="hours", example="8")
    idle: Duration | None = key("Stop after so long without a step.", default=None, shown="never", example="20m")


class TrackingFields(StrictModel):
    """Where MLflow keeps the run, and under which name its model is registered."""

    uri: Word | None = key(
        "Tracking store.", default=None, shown="MLFLOW_TRACKING_URI, else SQLite at home", example="http://mlflow:5000"
    )
    experiment: Word = key("Experiment.", default="tonnage", example="sentiment")
    register_as: Word | None = key("Name in the model registry.", default=None, shown="not registered")
    alias: Word | None = key("Alias of the registered version.", default=None, shown="none", example="champion")


class ChargeFields(StrictModel):
    """Whose money a run spends: budgets of these names apply to it (docs/budgets.md)."""

    project: Word | None = key("Project.", default=None, shown="none", example="search")
    team: Word | None = key("Team.", default=None, shown="none", example="ranking")
    environment: Word | None = key("Environment.", default=None, shown="none", example="staging")
    labels: Labels = key("Further names and values.", default=dict, shown="none", example="{cost-center: a42}")


class SharedRunFields(StrictModel):
    """Keys of every `run`."""

    runner: RunnerName = key("What starts the worker processes.", default="local", example="torchrun")
    processes: Count = key("Worker processes.", default=1, example="2")
    threads: Count | None = key("Threads of each process.", default=None, shown="the cores shared out", example="4")
    device: Device = key("Where it computes; `auto` takes a GPU where there is one.", default="auto", example="cpu")
    seed: Seed = key("Seed of new weights, dropout, sampling and the order of the rows.", default=0, example="0")
    checkpoint: CheckpointFields = key("When a checkpoint is saved.", default=CheckpointFields, shown="from the plan")
    limits: LimitFields = key("Limits at which the run stops.", default=LimitFields, shown="none")
    restarts: CountOrZero = key("Most restarts after lost workers.", default=3, example="10")
    notices: Notices = key("Clouds whose notice of interruption is watched.", default=(), shown="none", example="[aws]")
    tracking: TrackingFields = key("MLflow.", default=TrackingFields, shown="its defaults")
    charge: ChargeFields = key("Whose money it spends.", default=ChargeFields, shown="not attributed")


class LearningFields(SharedRunFields):
    """Keys of a `run` that follows gradients."""

    schedule: LearningRateSchedule = key("Course of the learning rate after warm-up.", default="linear")
    warmup: Share = key("Share of the steps over which the learning rate rises.", default=0.0, example="0.1")
    weight_decay: PositiveOrZero = key("Weight decay.", default=0.01, example="0.01")
    clip_norm: PositiveOrZero | None = key("Largest norm of the gradient; 0: no limit.", default=1.0, example="1.0")
    max_steps: Amount | None = key(
        "End after so many optimizer steps.", default=None, shown="after `epochs`", unit="steps", example="200"
    )
    log_every: Count = key("Steps between lines of metrics.", default=10, unit="steps", example="10")
    evaluate_every: Count | None = key(
        "Steps between evaluations.", default=None, shown="at the end only", unit="steps", example="500"
    )
    keep_best: Flag = key(
        "Whether the finished model is that of the best evaluation; needs `evaluate_every`.",
        default=False,
        example="true",
    )
    best_by: Word | None = key(
        "The figure of the evaluations that says which is the best.",
        default=None,
        shown="the task's first",
        example="macro_f1",
    )
    early_stopping: Count | None = key(
        "Training ends after so many evaluations in a row without gain; needs `evaluate_every`.",
        default=None,
        shown="it does not",
        example="3",
    )


class TrainRunFields(LearningFields):
    """How `tonnage run` carries out a training: task, weights, rows. docs/run-tasks.md tells each task."""

    task: NetworkTask = key(
        "What is learned; `own`: by a program of an installed package.", example="sequence-classification"
    )
    program: Word | None = key(
        "The program of `task: own`: the name of an entry point in the group `tonnage.tasks`.",
        default=None,
        shown="none",
        example="my-task",
    )
    weights: Word = key(
        "Where training starts: a folder, from this file; `hf://org/name`; `pkg://package/folder` inside an installed "
        "Python package; or `new`: random weights of the shape in `model`, which is then a path to a `config.json` or "
        "`hf://org/name`.",
        example="hf://google-bert/bert-base-uncased",
    )
    tokenizer: Word | None = key("The same for the tokenizer.", default=None, shown="beside the weights (or config)")
    data: RunDataFields = key("The rows.")
    learning_rate: Positive = key("Peak learning rate.", default=2e-5, example="2e-5")
    packing: Flag = key(
        "`causal-lm`: whether texts follow one another in full blocks; else each is padded.",
        default=True,
        example="false",
    )
    stride: CountOrZero | None = key(
        "`question-answering`: tokens that two windows over a long context share.",
        default=None,
        shown="128, at most a third of the longest sequence",
        unit="tokens",
        example="128",
    )
    device_map: Word | None = key(
        "transformers' own: `auto` spreads one model over the devices.", default=None, shown="one device a process"
    )


class TableRunFields(LearningFields):
    """How `tonnage run` learns from a table."""

    data: TableDataFields = key("The rows.")
    objective: TabularObjective = key(
        "What the label is; `auto`: text, true/false and few whole numbers are classes.", default="auto"
    )
    learning_rate: Positive | None = key(
        "Learning rate, or shrinkage of each tree.", default=None, shown="0.1 for trees, 0.001 for `mlp`"
    )


class GenerateRunFields(SharedRunFields):
    """How `tonnage run` writes synthetic text: `batch.items` texts of at most `batch.output_tokens` (its `max`)."""

    task: Literal["text-generation"] = key("What is done.", example="text-generation")
    weights: Word = key("As in a training; `new` is refused.", example="hf://openai-community/gpt2")
    tokenizer: Word | None = key("The same for the tokenizer.", default=None, shown="beside the weights")
    data: RunDataFields = key("The rows; the role `prompt` is what each text starts from.")
    temperature: PositiveOrZero = key("Temperature of sampling; 0 takes the likeliest token.", default=0.8)
    top_p: ShareAboveZero = key("Tokens are drawn from the likeliest that make up this share.", default=0.95)
    texts_at_once: Count = key("Texts written at a time.", default=16, unit="texts", example="16")
