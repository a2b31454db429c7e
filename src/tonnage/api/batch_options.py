"""The options of `tonnage.batch`, and which of them go together."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, get_args

from tonnage.api.bench import read_seconds
from tonnage.api.charging import charge_option, label_option
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError
from tonnage.traffic.batch import Task
from tonnage.values import dataclass

Service = AbstractContextManager[str]  # gives the URL of a service, and ends it afterwards
TASKS: Final = get_args(Task)
PLACES: Final = ("here", "ray", "bedrock", "openai-batch")
JOBS: Final = ("bedrock", "openai-batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions(Options):
    """Where the rows go, how they are asked, and when to stop."""

    url: str | None = option(
        "--url", "The service: http://localhost:8000, https://api.example.com/v1.", default=None, metavar="URL"
    )
    serve: str | None = option(
        "--serve", "Start this service for the batch, and end it afterwards: what `tonnage serve` takes.", default=None,
        metavar="TARGET",
    )  # fmt: skip
    weights: str | None = option(
        "--weights", "Of --serve with a workload file: its weights, as `tonnage serve --model` takes them.",
        default=None, metavar="MODEL",
    )  # fmt: skip
    api_key_env: str | None = option(
        "--api-key-env", "The environment variable that holds the service's key.", default=None, metavar="NAME"
    )
    task: str = option(
        "--task", "What plain rows ask for: chat, completions, embeddings or classify.", default="chat", metavar="TASK"
    )
    model: str | None = option(
        "--model", "The model of rows that name none. [default: the service's first]", default=None, metavar="NAME"
    )
    concurrency: int | None = option(
        "--concurrency", "Requests at a time. [default: found by feedback]", default=None, metavar="N", least=1,
        most=10_000,
    )  # fmt: skip
    tries: int = option("--tries", "Of one row, before it goes to the errors.", default=5, metavar="N", least=1,
                        most=100)  # fmt: skip
    timeout_s: float = option(
        "--timeout", "For one answer.", default=600.0, text="10m", metavar="TIME", read=read_seconds
    )
    patience_s: float = option(
        "--patience", "That the service may give no answer, before the batch stops.", default=300.0, text="5m",
        metavar="TIME", read=read_seconds,
    )  # fmt: skip
    usd_per_million_input: float | None = option(
        "--input-usd", "Price of a million tokens read, for forecast and limit.", default=None, metavar="USD", least=0.0
    )
    usd_per_million_output: float | None = option(
        "--output-usd", "Price of a million tokens written.", default=None, metavar="USD", least=0.0
    )
    most_usd: float | None = option(
        "--max-cost", "Stop before so much is spent, earlier runs of the command included.", default=None,
        metavar="USD", least=0.0,
    )  # fmt: skip
    project: str | None = charge_option("project")
    team: str | None = charge_option("team")
    environment: str | None = charge_option("environment")
    labels: tuple[str, ...] = label_option()
    plan: str | None = option(
        "--plan", "What `tonnage plan -o json` said, shown beside: PLAN.json, or PLAN.json:N for option N.",
        default=None, metavar="FILE",
    )  # fmt: skip
    deadline_s: float | None = option(
        "--deadline", "Stop sending after this time.", default=None, metavar="TIME", read=read_seconds
    )
    on: str = option(
        "--on",
        "What carries the requests: this process (here), a Ray cluster (ray), batch jobs of Bedrock (bedrock) or of "
        "OpenAI's batch API at --url (openai-batch).",
        default="here",
        metavar="PLACE",
    )
    workers: int | None = option(
        "--workers", "Of --on ray. [default: as many as the cluster has processors, less one]", default=None,
        metavar="N", least=1, most=10_000,
    )  # fmt: skip
    jobs_at: str | None = option(
        "--jobs-at", "Of --on bedrock: where its records and results lie, s3://BUCKET/PREFIX.", default=None,
        metavar="URL",
    )  # fmt: skip
    role: str | None = option(
        "--role", "Of --on bedrock: the ARN of the role that reads and writes there.", default=None, metavar="ARN"
    )
    poll_s: float = option(
        "--poll", "Of jobs: between two looks at them.", default=30.0, text="30s", metavar="TIME", read=read_seconds
    )
    shared: bool = option(
        "--shared", "Work on the input together with other processes and machines that see the same folder.",
        default=False,
    )  # fmt: skip
    lease_s: float = option(
        "--lease", "Of --shared: a worker that gives no sign for so long loses its part.", default=60.0, text="1m",
        metavar="TIME", read=read_seconds,
    )  # fmt: skip
    retry_errors: bool = option(
        "--retry-errors", "Ask the rows of OUT.errors.jsonl again; that file starts empty.", default=False
    )


def check_options(options: BatchOptions, service: Service | None) -> None:
    """InputError for options that do not go together."""
    if options.task not in TASKS:
        raise InputError(f"'{options.task}' is not a task", hint=f"--task takes {', '.join(TASKS)}")
    if options.on not in PLACES:
        raise InputError(f"'{options.on}' is not a place", hint=f"--on takes {', '.join(PLACES)}")
    if options.on != "here" and options.shared:
        raise InputError(f"--shared and --on {options.on} are two ways to use several machines", hint="choose one")
    if options.on == "bedrock" and (options.role is None or not str(options.jobs_at).startswith("s3://")):
        raise InputError("--on bedrock needs --jobs-at and --role", hint="--jobs-at s3://BUCKET/PREFIX --role ARN")
    if options.on == "bedrock" and [options.url, options.serve, service].count(None) == 3:
        return
    if options.on in JOBS and (options.on == "bedrock" or options.url is None):
        raise InputError(f"--on {options.on} takes no service of its own", hint="--url is of --on openai-batch")
    if options.on != "ray" and options.workers is not None:
        raise InputError("--workers is of --on ray", hint="--concurrency sets the requests at a time of one process")
    if [options.url, options.serve, service].count(None) != 2:
        raise InputError("a batch needs one service", hint="--url http://localhost:8000, or --serve MODEL")
    priced = options.usd_per_million_input is not None or options.usd_per_million_output is not None
    if options.shared and options.retry_errors:
        raise InputError("--retry-errors is for one process", hint="run it without --shared once all parts are merged")
    if options.most_usd is not None and not priced and options.on != "bedrock":
        raise InputError("--max-cost needs the price of tokens", hint="--input-usd 0.5 --output-usd 1.5")
