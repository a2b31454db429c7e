"""A service's replica, planned and rendered: `tonnage.planned_replica`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, get_args
from urllib.parse import urlsplit

from tonnage.api.answers import Answer
from tonnage.api.charging import charge_option, label_option
from tonnage.api.declaring import Options, option
from tonnage.api.reading import read_range, read_seconds
from tonnage.errors import InputError, NothingFits, WorkloadError
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass
from tonnage.workload.encoder_terms import Number, Runtime, Task

if TYPE_CHECKING:
    from tonnage.catalog import Catalog
    from tonnage.planning.plan import MachineOption
    from tonnage.serving.engines.engine import EnginePlace, ServingEngine
    from tonnage.serving.report import PlannedReplica
    from tonnage.workload.jobs import EngineName, ServeJob
    from tonnage.workload.shapes import ModelShape

TASKS: Final = get_args(Task)
NUMBERS: Final = get_args(Number)
PLACES: Final = ("here", "ray")
RUNTIMES: Final = get_args(Runtime)
BATCHER_SLOTS: Final = 16  # requests at once of a replica whose own batcher decides
_TASKS: Final = "What the model does; by default what its weights were saved for. " + ", ".join(TASKS) + "."


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
    calibrate: str | None = option(
        "--calibrate", "With int8: texts, one a line (JSON in .jsonl), to fix its scales with, so that batches may be "
        "formed; `run`: the run's own.", default=None, metavar="FILE",
    )  # fmt: skip
    runtime: str = option("--runtime", "An encoder's: onnx or torch.", default="onnx")
    workers: int | None = option("--workers", "Batches computed at a time. [default: measured]", default=None, least=1)
    batch_tokens: int | None = option(
        "--batch-tokens", "Of one batch; rows of a table. [default: measured]", default=None, least=1
    )
    trust: bool = option("--trust", "A pickle of trees may be read, though it can run any program.", default=False)
    truncate: bool = option("--truncate", "Cut texts that are longer than the model takes.", default=False)
    queue: int = option("--queue", "Texts (or rows) that may wait; more are turned away.", default=1024, least=1)
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
    replicas_per_gpu: int = option(
        "--replicas-per-gpu", "So many replicas share a GPU, or the GPUs of one of them, and their memory.", default=1,
        least=1, most=64, metavar="N",
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
    on: str = option("--on", "Where replicas run: here, or on the machines of a Ray cluster (ray; encoders).",
                     default="here", metavar="PLACE")  # fmt: skip
    usd_per_hour: float | None = option(
        "--usd-per-hour", "What an hour of this machine costs, which replicas share. [default: the planned machines']",
        default=None, metavar="USD", least=0.0,
    )  # fmt: skip
    files: str | None = option(
        "--files", "Write what puts an existing balancer before the replicas to this folder: nginx.conf, envoy.yaml, "
        "kserve.yaml.", default=None, metavar="FOLDER",
    )  # fmt: skip
    backends: tuple[str, ...] = option(
        "--backend", "A replica that nginx and Envoy pass requests to. [default: 127.0.0.1, the ports after --port]",
        default=(), metavar="HOST:PORT", repeated=True, read=lambda _, texts: tuple(texts),
    )  # fmt: skip
    smoke: str | None = option(
        "--smoke", 'A request that each replica must answer with 200 before it takes others: {"path": …, "body": …}.',
        default=None, metavar="FILE",
    )  # fmt: skip
    project: str | None = charge_option("project")
    team: str | None = charge_option("team")
    environment: str | None = charge_option("environment")
    labels: tuple[str, ...] = label_option()


def planned_replica(
    target: Path | str, options: ServeOptions | None = None, *, settings: Settings | None = None
) -> Answer[PlannedReplica]:
    """The command of one replica; nothing is started.

    `target`: a workload file of kind serve, which is planned; or an encoder or a model of a table: a run, a folder, a
    file of trees, `hf://org/name`. Raises NothingFits where the plan has no machine, InputError for what the engine
    is unknown.
    """
    from tonnage.serving.report import replica_report

    asked, settings = options or ServeOptions(), settings or current_settings()
    _one_of("--on", asked.on, PLACES)
    if not str(target).endswith((".yaml", ".yml")):
        alone = replace(_encoder_alone(str(target), asked, settings), target=absolute_target(str(target)))
        return Answer(alone, replica_report)
    job, name, found, catalog = _planned(target, asked, settings)
    if asked.model is None:
        raise InputError(f"where are the weights of {job.model.name}?", hint="--model FOLDER, or a name on a hub")
    name = asked.name or name
    remarks: tuple[str, ...] = ()
    if job.requests.output_tokens is None:
        made = _planned_encoder(asked.model, job, name, found, asked, settings)
        made, remarks = on_this_machine(made, job, settings)
    else:
        made = _planned_decoder(asked.model, job, name, found, catalog, asked, settings)
    made = replace(
        made, workload_file=Path(target).absolute(), requests_per_month=job.requests_per_bill,
        hours_per_month=job.hours_per_month, rate_varies=job.traffic is not None,
        target=absolute_target(str(target)), p95_latency_s=job.p95_latency_s,
    )  # fmt: skip
    return Answer(made, replica_report, remarks=(*_unlike(asked.model, job.model), *remarks))


def absolute_target(target: str) -> str:
    """A path as it reads from anywhere; other targets as they are."""
    path = Path(target)
    return str(path.absolute()) if path.exists() else target


def slots_of(planned: PlannedReplica, asked: ServeOptions) -> int:
    """Requests that a replica gets at once."""
    return asked.slots or planned.slots or BATCHER_SLOTS


def _unlike(model: str, planned: ModelShape) -> Iterator[str]:
    """The remark where the weights in a folder are not of the shape that was planned: its figures are another's."""
    file = Path(model) / "config.json"
    if not file.is_file():
        return
    from tonnage.workload.huggingface.config import load_huggingface_config

    try:
        found = load_huggingface_config(file)
    except WorkloadError as error:
        yield f"whether the model in {model} is the one that was planned is not known: {error}"
        return
    if (found.layers, found.hidden) != (planned.layers, planned.hidden):
        yield (
            f"the plan is of {planned.name} ({planned.layers} layers, {planned.hidden} wide), the model in {model} has "
            f"{found.layers} and {found.hidden}: the predicted figures are not this model's"
        )


def _planned_decoder(
    model: str,
    job: ServeJob,
    name: str,
    found: MachineOption,
    catalog: Catalog,
    asked: ServeOptions,
    settings: Settings,
) -> PlannedReplica:
    from tonnage.serving.engines.kserve_file import render_kserve
    from tonnage.serving.engines.planned import planned_service, shared_memory
    from tonnage.serving.engines.registry import command_engine
    from tonnage.serving.report import PlannedReplica

    engine = command_engine(asked.engine or job.engine or "vllm")
    service = planned_service(
        job, found, catalog, model=_place(model), name=name, draft_model=asked.draft_model,
        quantized=asked.quantized or model.endswith(".gguf"), extra=tuple(_engine_arguments(asked.engine_args)),
    )  # fmt: skip
    service = shared_memory(engine.name, service, asked.replicas_per_gpu)
    place = _engine_place(name, asked, settings)
    gpus = tuple(range(service.tensor_parallel)) if found.gpu else None
    return PlannedReplica(
        option=found, folder=Path(place.folder), command=engine.render(service, place),
        container=engine.in_container(service, place, gpus=gpus), render=partial(engine.render, service),
        cluster_file=partial(render_kserve, engine, service, vendor=_vendor(found, catalog)),
        slots=service.most_requests,
        speculates=service.draft is not None or any("speculative" in one for one in service.extra),
        devices=0 if gpus is None else len(gpus),
    )  # fmt: skip


def _vendor(found: MachineOption, catalog: Catalog) -> str:
    """The maker of the planned GPU; of a machine without one it does not matter."""
    return "NVIDIA" if found.gpu is None else catalog.accelerator(found.gpu).vendor


def _planned_encoder(
    model: str, job: ServeJob, name: str, found: MachineOption, asked: ServeOptions, settings: Settings
) -> PlannedReplica:
    """Promise and number format are those of file and plan; workers and batches are measured where it starts."""
    dtype = asked.dtype or str(dict(found.run.layout_fields)["weights"])
    made = _encoder(model, replace(asked, name=name, dtype=dtype, p95_s=asked.p95_s or job.p95_latency_s), settings)
    return replace(made, option=found, devices=1 if found.gpu else 0)


def on_this_machine(made: PlannedReplica, job: ServeJob, settings: Settings) -> tuple[PlannedReplica, tuple[str, ...]]:
    """The replica with what this machine's profile predicts of it, or why it does not."""
    from tonnage.api.local_service import predict_here
    from tonnage.serving.encoder.service import parse_service

    served = parse_service(made.command.files[0].text)
    if served.runtime != "onnx":
        return made, (f"not predicted on this machine: its profile is of ONNX Runtime, not {served.runtime}",)
    local = replace(job, weights=served.weights, engine="onnxruntime", p95_latency_s=served.p95_s)
    try:
        known = predict_here(local, settings)
    except InputError as error:
        return made, (f"not predicted on this machine: {error.message}",)
    return replace(made, here=known.found, benches=known.own), ()


def _encoder_alone(target: str, asked: ServeOptions, settings: Settings) -> PlannedReplica:
    if asked.model is not None or asked.engine is not None:
        raise InputError("--model and --engine belong to a workload file", hint="tonnage serve FILE.tonnage.yaml")
    return _encoder(target, asked, settings)


def _encoder(target: str, asked: ServeOptions, settings: Settings) -> PlannedReplica:
    from tonnage.api.served_models import calibration_texts, model_folder
    from tonnage.serving.encoder.kinds import kind_of
    from tonnage.serving.encoder.service import EncoderService
    from tonnage.serving.engines.engine import EncoderEngine
    from tonnage.serving.report import PlannedReplica

    engine: ServingEngine[EncoderService] = EncoderEngine()
    if asked.cache_url is not None and urlsplit(asked.cache_url).password:
        raise InputError("the URL of --cache-url has a password, which the service's file would hold",
                         hint="export TONNAGE_SERVE_CACHE_URL=... and leave --cache-url out")  # fmt: skip
    folder, trained_for = model_folder(target, settings)
    task = cast(Task | None, _one_of("--task", asked.task, TASKS) or trained_for)
    kind_of(folder, task=task, trust=asked.trust)
    name = asked.name or (folder.parent.name if folder.name == "model" else folder.stem)
    service = EncoderService(
        model=str(folder), name=name, task=task, runtime=cast(Runtime, _one_of("--runtime", asked.runtime, RUNTIMES)),
        weights=cast(Number, _one_of("--dtype", asked.dtype or "fp32", NUMBERS)), workers=asked.workers,
        batch_tokens=asked.batch_tokens, truncate=asked.truncate, queue_items=asked.queue, p95_s=asked.p95_s,
        calibration=None if asked.calibrate is None else calibration_texts(
            asked.calibrate, target, settings, Path(_engine_place(name, asked, settings).folder)
        ),
        trust=asked.trust, exports=str(settings.home / "exported"), cache_items=asked.cache, cache_url=asked.cache_url,
        fallback=None if asked.fallback is None else str(model_folder(asked.fallback, settings)[0]),
    )  # fmt: skip
    place = _engine_place(name, asked, settings)
    return PlannedReplica(
        option=None, folder=Path(place.folder), command=engine.render(service, place),
        render=partial(engine.render, service), devices=1,
    )  # fmt: skip


def _one_of(flag: str, given: str | None, known: Sequence[str]) -> str | None:
    if given is not None and given not in known:
        raise InputError(f"found '{given}' for {flag}", hint=f"one of {', '.join(known)}")
    return given


def _engine_place(name: str, asked: ServeOptions, settings: Settings) -> EnginePlace:
    from tonnage.serving.engines.engine import EnginePlace

    folder = str(settings.home / "services" / name)
    return EnginePlace(folder=folder, host=asked.host, port=asked.port, api_key=asked.api_key)


def _planned(file: Path | str, asked: ServeOptions, settings: Settings) -> tuple[ServeJob, str, MachineOption, Catalog]:
    """The job, its name and the option that is followed, planned for the engine that will serve it."""
    from tonnage.api.catalogs import market_of
    from tonnage.api.inputs import load_workload
    from tonnage.api.plans import plan
    from tonnage.planning.plan import MachineOption
    from tonnage.workload.engine_models import not_run
    from tonnage.workload.jobs import ServeJob

    catalog = market_of(None, settings)
    workload = load_workload(file, catalog=catalog, settings=settings)
    job = workload.job
    if not isinstance(job, ServeJob):
        raise InputError(f"{file} is of kind {workload.kind}, not serve", hint="tonnage run carries out training")
    if asked.engine is not None:
        job = replace(job, engine=_engine_name(asked.engine))
        rule = not_run(_engine_name(asked.engine), job.model)
        if rule is not None:
            fault = f"--engine {asked.engine} does not run {rule.kind}: {job.model.name} is one"
            raise InputError(fault, hint=rule.instead)
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
    """An engine that plans know too: what is served is what was planned."""
    from tonnage.serving.engines.registry import command_engine
    from tonnage.workload import jobs

    found, planned = command_engine(name).name, get_args(jobs.EngineName)
    if found not in planned:
        raise InputError(f"no plan is made for {found}", hint=f"--engine takes {', '.join(planned)}")
    return cast("EngineName", found)


def _place(model: str) -> str:
    """A folder or file as an absolute path; a name on a hub as it is."""
    return str(Path(model).resolve()) if Path(model).exists() else model.removeprefix("hf://")


def _engine_arguments(given: Sequence[str]) -> Iterator[str]:
    for one in given:
        name, equals, value = one.partition("=")
        yield "--" + name.removeprefix("--")
        if equals:
            yield value
