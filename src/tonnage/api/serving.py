"""A service's replica rendered and started: `tonnage.planned_replica`, `tonnage.serve`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.api.reading import read_range, read_seconds
from tonnage.errors import InputError, NothingFits, PlanRefused
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.catalog import Catalog
    from tonnage.planning.plan import MachineOption
    from tonnage.runs.preflight import LocalMachine
    from tonnage.scaling.schedules import Schedule
    from tonnage.serving.encoder.service import Number, Runtime, Task
    from tonnage.serving.engines.engine import EnginePlace, ServingEngine
    from tonnage.serving.engines.processes import EngineProcess
    from tonnage.serving.report import PlannedReplica
    from tonnage.workload.jobs import EngineName, ServeJob

TASKS: Final = ("classification", "token-classification", "embedding", "reranking", "question-answering")
NUMBERS: Final = ("fp32", "bf16", "fp16", "int8")
RUNTIMES: Final = ("onnx", "torch")
DRAIN_S: Final = 60.0
WATCH_S: Final = 0.5
_TASKS: Final = "What an encoder does; by default what its weights were saved for. " + ", ".join(TASKS) + "."


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions(Options):
    """How `serve` starts a replica: of a planned service, or of an encoder by itself."""

    model: str | None = option("--model", "The weights of a workload file: a folder, a GGUF file or a name on a hub.",
                               default=None, metavar="MODEL")  # fmt: skip
    engine: str | None = option(
        "--engine", "vllm, sglang, tensorrt-llm or llama.cpp; by default the workload's.", default=None, metavar="NAME"
    )
    rank: int = option("--option", "Follow the plan's option of this rank.", default=1, least=1)
    name: str | None = option("--name", "The model's name in requests.", default=None)
    host: str = option("--host", "Listen here.", default="127.0.0.1")
    port: int = option("--port", "Listen on this port.", default=8000, least=1, most=65535)
    api_key: bool = option("--api-key", "Requests must carry the key in the engine's own variable.", default=False)
    draft_model: str | None = option("--draft-model", "Weights of the small model that guesses.", default=None)
    quantized: bool = option("--quantized", "The weights are stored in the planned number format.", default=False)
    engine_args: tuple[str, ...] = option(
        "--engine-arg", "One more argument of the engine, as NAME or NAME=VALUE.", default=(), metavar="ARG",
        repeated=True, read=lambda _, texts: tuple(texts),
    )  # fmt: skip
    task: str | None = option("--task", _TASKS, default=None)
    dtype: str | None = option(
        "--dtype", "An encoder's number format: fp32, fp16, int8; with torch bf16. [default: the plan's, else fp32]",
        default=None,
    )  # fmt: skip
    runtime: str = option("--runtime", "An encoder's: onnx or torch.", default="onnx")
    workers: int | None = option("--workers", "Batches computed at a time. [default: measured]", default=None, least=1)
    batch_tokens: int | None = option("--batch-tokens", "Of one batch. [default: measured]", default=None, least=1)
    truncate: bool = option("--truncate", "Cut texts that are longer than the model takes.", default=False)
    queue: int = option("--queue", "Texts that may wait; more are turned away.", default=1024, least=1)
    p95_s: float | None = option("--p95", "Seconds promised; batches are held to half of it. [default: the file's]",
                                 default=None, least=0.001, metavar="SECONDS")  # fmt: skip
    cache: int = option("--cache", "Answers that an encoder keeps, for the same text again.", default=0, least=0)
    cache_url: str | None = option("--cache-url", "A Redis that keeps answers for all replicas: redis://HOST:PORT/0.",
                                   default=None, metavar="URL")  # fmt: skip
    fallback: str | None = option(
        "--fallback", "An encoder that answers where the first cannot be loaded or has too much waiting.", default=None,
        metavar="MODEL",
    )  # fmt: skip
    ready_timeout_s: float = option(
        "--ready-timeout", "Seconds until it must take requests.", default=900.0, least=1.0, metavar="SECONDS"
    )
    replicas: tuple[int, int] | None = option(
        "--replicas", "Fewest and most replicas: a balancer listens, and replicas follow the load (docs/scaling.md).",
        default=None, metavar="N..M", read=read_range,
    )  # fmt: skip
    slots: int | None = option("--slots", "Requests at a time for each of the replicas. [default: as planned, or 16]",
                               default=None, least=1, metavar="N")  # fmt: skip
    start_up_s: float = option("--start-up", "How long a replica takes to start, until it is measured.", default=30.0,
                               metavar="TIME", read=read_seconds, text="30s")  # fmt: skip
    promise_s: float = option("--promise", "The longest wait for a slot of a replica, kept for 99 % of requests.",
                              default=2.0, metavar="TIME", read=read_seconds, text="2s")  # fmt: skip
    to_zero_after_s: float | None = option("--to-zero-after", "Without a request for so long, no replica stays.",
                                           default=None, metavar="TIME", read=read_seconds)  # fmt: skip
    at_least: tuple[str, ...] = option(
        "--at-least", "At least so many replicas at these hours: 8-20=4, mon-fri:22-6=1.", default=(),
        metavar="HOURS=N", repeated=True, read=lambda _, texts: tuple(texts),
    )  # fmt: skip
    prefix_bytes: int | None = option(
        "--prefix-bytes", "Requests whose first bytes are alike go to the same replica, for its prefix cache.",
        default=None, least=1, metavar="N",
    )  # fmt: skip


def planned_replica(
    target: Path | str, options: ServeOptions | None = None, *, settings: Settings | None = None
) -> Answer[PlannedReplica]:
    """The command of one replica; nothing is started.

    `target`: a workload file of kind serve, which is planned; or an encoder: a run, a folder, `hf://org/name`. Raises
    NothingFits where the plan has no machine, InputError for what the engine cannot be told.
    """
    from tonnage.serving.report import replica_report

    asked, settings = options or ServeOptions(), settings or current_settings()
    if not str(target).endswith((".yaml", ".yml")):
        return Answer(_encoder_alone(str(target), asked, settings), replica_report)
    job, name, found, catalog = _planned(target, asked, settings)
    if asked.model is None:
        raise InputError(f"where are the weights of {job.model.name}?", hint="--model FOLDER, or a name on a hub")
    name = asked.name or name
    if job.requests.output_tokens is None:
        return Answer(_planned_encoder(asked.model, job, name, found, asked, settings), replica_report)
    return Answer(_planned_decoder(asked.model, job, name, found, catalog, asked, settings), replica_report)


def _planned_decoder(
    model: str,
    job: ServeJob,
    name: str,
    found: MachineOption,
    catalog: Catalog,
    asked: ServeOptions,
    settings: Settings,
) -> PlannedReplica:
    from tonnage.serving.engines.planned import planned_service
    from tonnage.serving.engines.registry import command_engine
    from tonnage.serving.report import PlannedReplica

    engine = command_engine(asked.engine or job.engine or "vllm")
    service = planned_service(
        job, found, catalog, model=_place(model), name=name, draft_model=asked.draft_model,
        quantized=asked.quantized or model.endswith(".gguf"), extra=tuple(_engine_arguments(asked.engine_args)),
    )  # fmt: skip
    place = _engine_place(name, asked, settings)
    gpus = tuple(range(service.tensor_parallel)) if found.gpu else None
    return PlannedReplica(
        option=found, folder=Path(place.folder), command=engine.render(service, place),
        container=engine.in_container(service, place, gpus=gpus), render=partial(engine.render, service),
        slots=service.most_requests,
    )  # fmt: skip


def _planned_encoder(
    model: str, job: ServeJob, name: str, found: MachineOption, asked: ServeOptions, settings: Settings
) -> PlannedReplica:
    """Promise and number format are those of file and plan; workers and batches are measured where it starts."""
    dtype = asked.dtype or str(dict(found.run.layout_fields)["weights"])
    made = _encoder(model, replace(asked, name=name, dtype=dtype, p95_s=asked.p95_s or job.p95_latency_s), settings)
    return replace(made, option=found)


def _encoder_alone(target: str, asked: ServeOptions, settings: Settings) -> PlannedReplica:
    if asked.model is not None or asked.engine is not None:
        raise InputError("--model and --engine belong to a workload file", hint="tonnage serve FILE.tonnage.yaml")
    return _encoder(target, asked, settings)


def _encoder(target: str, asked: ServeOptions, settings: Settings) -> PlannedReplica:
    from tonnage.api.served_models import model_folder
    from tonnage.serving.encoder.folders import read_folder
    from tonnage.serving.encoder.service import EncoderService
    from tonnage.serving.engines.encoder import EncoderEngine
    from tonnage.serving.report import PlannedReplica

    engine: ServingEngine[EncoderService] = EncoderEngine()
    if asked.cache_url is not None and urlsplit(asked.cache_url).password:
        raise InputError("the URL of --cache-url has a password, which the service's file would hold",
                         hint="export TONNAGE_SERVE_CACHE_URL=... and leave --cache-url out")  # fmt: skip
    folder, trained_for = model_folder(target, settings)
    task = cast("Task | None", _one_of("--task", asked.task, TASKS) or trained_for)
    read_folder(folder, task=task)
    name = asked.name or (folder.parent.name if folder.name == "model" else folder.name)
    service = EncoderService(
        model=str(folder), name=name, task=task, runtime=cast("Runtime", _one_of("--runtime", asked.runtime, RUNTIMES)),
        weights=cast("Number", _one_of("--dtype", asked.dtype or "fp32", NUMBERS)), workers=asked.workers,
        batch_tokens=asked.batch_tokens, truncate=asked.truncate, queue_items=asked.queue, p95_s=asked.p95_s,
        exports=str(settings.home / "exported"), cache_items=asked.cache, cache_url=asked.cache_url,
        fallback=None if asked.fallback is None else str(model_folder(asked.fallback, settings)[0]),
    )  # fmt: skip
    place = _engine_place(name, asked, settings)
    return PlannedReplica(
        option=None, folder=Path(place.folder), command=engine.render(service, place),
        render=partial(engine.render, service),
    )  # fmt: skip


def _one_of(flag: str, given: str | None, known: Sequence[str]) -> str | None:
    if given is not None and given not in known:
        raise InputError(f"found '{given}' for {flag}", hint=f"one of {', '.join(known)}")
    return given


def _engine_place(name: str, asked: ServeOptions, settings: Settings) -> EnginePlace:
    from tonnage.serving.engines.engine import EnginePlace

    folder = str(settings.home / "services" / name)
    return EnginePlace(folder=folder, host=asked.host, port=asked.port, api_key=asked.api_key)


def serve(
    planned: PlannedReplica,
    options: ServeOptions | None = None,
    *,
    say: Callable[[str], None] | None = None,
) -> int:
    """Start the replica here and stay until it ends or SIGINT or SIGTERM comes; it then finishes what it answers.

    Returns the engine's exit code. Raises PlanRefused where this machine has not the GPUs of a replica, InputError or
    TonnageError where the engine does not start.
    """
    from tonnage.runners.machine import look_at_machine
    from tonnage.serving.engines.processes import start_engine, stop_engine, wait_ready
    from tonnage.serving.report import served_words

    asked, tell = options or ServeOptions(), say or (lambda _: None)
    if asked.replicas is not None:
        serve_replicated(planned, asked, tell)
        return 0
    _check_machine(planned, look_at_machine())
    running = start_engine(planned.command, planned.folder)
    tell(f"starting {planned.command.engine}; its log: {running.log_file}")
    ready = False
    with _interrupting():
        try:
            ready_s = wait_ready(running, timeout_s=asked.ready_timeout_s)
            ready = True
            for line in served_words(planned.command, ready_s):
                tell(line)
            while running.process.poll() is None:
                time.sleep(WATCH_S)
        except KeyboardInterrupt:
            if not ready:
                raise
            _finish(running, tell)
            return 0
        finally:
            stop_engine(running, grace_s=DRAIN_S if ready else 0.0)
    return running.process.wait()


@contextmanager
def served_here(target: Path | str, options: ServeOptions, *, settings: Settings | None = None) -> Iterator[str]:
    """The URL of a replica on a free port of this machine, which ends with the block. Raises as `serve` does."""
    import socket

    from tonnage.runners.machine import look_at_machine
    from tonnage.serving.engines.processes import drain_engine, start_engine, stop_engine, wait_ready

    with socket.socket() as free:
        free.bind((options.host, 0))
        port = int(free.getsockname()[1])
    planned = planned_replica(target, replace(options, port=port), settings=settings).checked()
    _check_machine(planned, look_at_machine())
    running = start_engine(planned.command, planned.folder)
    try:
        wait_ready(running, timeout_s=options.ready_timeout_s)
        yield planned.command.url
        if not planned.command.drains:
            drain_engine(running, timeout_s=DRAIN_S)
    finally:
        stop_engine(running)


def serve_replicated(planned: PlannedReplica, asked: ServeOptions, tell: Callable[[str], None]) -> None:
    """Serve with replicas behind a balancer until SIGINT or SIGTERM; SIGHUP replaces all replicas, one by one.

    Raises InputError for an engine whose replicas need GPUs of their own.
    """
    from tonnage.scaling.service import ScaledService
    from tonnage.serving.engines.engine import EngineCommand, EnginePlace
    from tonnage.serving.replicas.service import ReplicatedService, run_service

    render, (least, most) = planned.render, asked.replicas or (1, 1)
    if render is None or not _runs_on_cores(planned):
        raise InputError(f"replicas of {planned.command.engine} on GPUs are not started here yet",
                         hint="leave out --replicas, or render its files for a cluster")  # fmt: skip
    scaled = ScaledService(
        slots=asked.slots or planned.slots or 16, start_up_s=asked.start_up_s, promise_s=asked.promise_s, least=least,
        most=most, to_zero_after_s=asked.to_zero_after_s,
    )  # fmt: skip
    service = ReplicatedService(
        scaled=scaled, host=asked.host, port=asked.port, most_waiting=asked.queue, prefix_bytes=asked.prefix_bytes,
        ready_timeout_s=asked.ready_timeout_s, schedule=_schedule(asked.at_least),
    )  # fmt: skip

    def place(name: str, port: int) -> EngineCommand:
        folder = str(planned.folder / name)
        return render(EnginePlace(folder=folder, host="127.0.0.1", port=port, api_key=asked.api_key))

    run_service(service, place, planned.folder, tell)


def _schedule(hours: Sequence[str]) -> Schedule | None:
    """The hours on the clock of this machine, in its own time zone."""
    from datetime import datetime

    from tonnage.scaling.schedules import Schedule, parse_hours

    if not hours:
        return None
    now = datetime.now().astimezone()
    since_monday_s = now.weekday() * 86_400.0 + now.hour * 3600.0 + now.minute * 60.0 + now.second
    return Schedule(hours=tuple(map(parse_hours, hours)), offset_s=since_monday_s - time.monotonic())


def _finish(running: EngineProcess, tell: Callable[[str], None]) -> None:
    from tonnage.serving.engines.processes import drain_engine

    tell(f"finishing what is being answered, for at most {DRAIN_S:g} s; Ctrl-C again ends it at once")
    if not running.command.drains:
        drain_engine(running, timeout_s=DRAIN_S)


@contextmanager
def _interrupting() -> Iterator[None]:
    """SIGTERM ends the work as Ctrl-C does."""
    import signal

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _planned(file: Path | str, asked: ServeOptions, settings: Settings) -> tuple[ServeJob, str, MachineOption, Catalog]:
    """The job, its name and the option that is followed, planned for the engine that will serve it."""
    from tonnage.api.inputs import load_workload, market_of
    from tonnage.api.plans import plan
    from tonnage.planning.plan import MachineOption
    from tonnage.workload.jobs import ServeJob

    catalog = market_of(None, settings)
    workload = load_workload(file, catalog=catalog, settings=settings)
    job = workload.job
    if not isinstance(job, ServeJob):
        raise InputError(f"{file} is of kind {workload.kind}, not serve", hint="tonnage run carries out training")
    if asked.engine is not None:
        job = replace(job, engine=_engine_name(asked.engine))
        workload = replace(workload, job=job)
    made = plan(workload, catalog=catalog, settings=settings).plan
    machines = [one for one in made.options if isinstance(one, MachineOption)]
    if not machines:
        raise NothingFits(f"no machine serves {workload.name} as asked", hint=f"tonnage plan {file} says why")
    followed = next((one for one in machines if one.rank == asked.rank), None)
    if followed is None:
        raise InputError(f"the plan has no machines of rank {asked.rank}", hint=f"tonnage plan {file} lists them")
    return job, workload.name, followed, catalog


def _engine_name(name: str) -> EngineName:
    from tonnage.serving.engines.registry import command_engine

    return cast("EngineName", command_engine(name).name)


def _place(model: str) -> str:
    """A folder or file as an absolute path; a name on a hub as it is."""
    return str(Path(model).resolve()) if Path(model).exists() else model.removeprefix("hf://")


def _engine_arguments(given: Sequence[str]) -> Iterator[str]:
    for one in given:
        name, equals, value = one.partition("=")
        yield "--" + name.removeprefix("--")
        if equals:
            yield value


def _runs_on_cores(planned: PlannedReplica) -> bool:
    gpu = None if planned.option is None else planned.option.gpu
    return gpu is None or planned.command.engine in ("llama.cpp", "encoder")


def _check_machine(planned: PlannedReplica, machine: LocalMachine) -> None:
    """PlanRefused where a replica's GPUs are not here. llama.cpp and encoders run on cores too, more slowly than on the
    planned GPU."""
    option = planned.option
    if option is None or _runs_on_cores(planned):
        return
    needed = dict(option.run.layout_fields).get("tensor_parallel", 1)
    if len(machine.gpus) >= int(needed):
        return
    raise PlanRefused(f"a replica takes {needed} x {option.gpu}; this machine has {len(machine.gpus)} GPUs",
                      hint="--dry-run prints the command to start there, as a process and as a container")  # fmt: skip
