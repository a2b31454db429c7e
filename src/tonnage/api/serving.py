"""A planned service's replica rendered and started: `tonnage.planned_replica`, `tonnage.serve`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, NothingFits, PlanRefused
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.catalog import Catalog
    from tonnage.planning.plan import MachineOption
    from tonnage.runs.preflight import LocalMachine
    from tonnage.serving.engines.processes import EngineProcess
    from tonnage.serving.report import PlannedReplica
    from tonnage.workload.jobs import EngineName, ServeJob

DRAIN_S: Final = 60.0
WATCH_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions(Options):
    """How `serve` starts a replica of a planned service."""

    model: str | None = option("--model", "The weights: a folder, a GGUF file or a name on a hub.", default=None,
                               metavar="MODEL")  # fmt: skip
    engine: str | None = option(
        "--engine", "vllm, sglang, tensorrt-llm or llama.cpp; by default the workload's.", default=None, metavar="NAME"
    )
    rank: int = option("--option", "Follow the plan's option of this rank.", default=1, least=1)
    name: str | None = option("--name", "The model's name in requests; by default the file's.", default=None)
    host: str = option("--host", "Listen here.", default="127.0.0.1")
    port: int = option("--port", "Listen on this port.", default=8000, least=1, most=65535)
    draft_model: str | None = option("--draft-model", "Weights of the small model that guesses.", default=None)
    quantized: bool = option("--quantized", "The weights are stored in the planned number format.", default=False)
    api_key: bool = option("--api-key", "Requests must carry the key in the engine's own variable.", default=False)
    engine_args: tuple[str, ...] = option(
        "--engine-arg", "One more argument of the engine, as NAME or NAME=VALUE.", default=(), metavar="ARG",
        repeated=True, read=lambda _, texts: tuple(texts),
    )  # fmt: skip
    ready_timeout_s: float = option(
        "--ready-timeout", "Seconds until it must take requests.", default=900.0, least=1.0, metavar="SECONDS"
    )


def planned_replica(
    file: Path | str, options: ServeOptions | None = None, *, settings: Settings | None = None
) -> Answer[PlannedReplica]:
    """The command of one replica of the service that `file` plans; nothing is started.

    Raises NothingFits where the plan has no machine, InputError for what the engine cannot be told.
    """
    from tonnage.serving.engines.engine import EnginePlace
    from tonnage.serving.engines.planned import planned_service
    from tonnage.serving.engines.registry import command_engine
    from tonnage.serving.report import PlannedReplica, replica_report

    asked, settings = options or ServeOptions(), settings or current_settings()
    job, name, found, catalog = _planned(file, asked, settings)
    if asked.model is None:
        raise InputError(f"where are the weights of {job.model.name}?", hint="--model FOLDER, or a name on a hub")
    engine = command_engine(asked.engine or job.engine or "vllm")
    service = planned_service(
        job, found, catalog, model=_place(asked.model), name=asked.name or name,
        draft_model=asked.draft_model, quantized=asked.quantized or asked.model.endswith(".gguf"),
        extra=tuple(_engine_arguments(asked.engine_args)),
    )  # fmt: skip
    folder = settings.home / "services" / (asked.name or name)
    place = EnginePlace(folder=str(folder), host=asked.host, port=asked.port, api_key=asked.api_key)
    gpus = tuple(range(service.tensor_parallel)) if found.gpu else None
    made = PlannedReplica(
        option=found, folder=folder, command=engine.render(service, place),
        container=engine.in_container(service, place, gpus=gpus),
    )  # fmt: skip
    return Answer(made, replica_report)


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
    from tonnage.serving.engines.processes import start_engine, wait_ready
    from tonnage.serving.report import served_words

    asked, tell = options or ServeOptions(), say or (lambda _: None)
    _check_machine(planned, look_at_machine())
    running = start_engine(planned.command, planned.folder)
    tell(f"starting {planned.command.engine}; its log: {running.log_file}")
    with _ended_after(running):
        ready_s = wait_ready(running, timeout_s=asked.ready_timeout_s)
        for line in served_words(planned.command, ready_s):
            tell(line)
        while running.process.poll() is None:
            time.sleep(WATCH_S)
    return running.process.wait()


@contextmanager
def _ended_after(running: EngineProcess) -> Iterator[None]:
    """Drain and end the replica whatever happens, SIGTERM too."""
    import signal

    from tonnage.serving.engines.processes import drain_engine, stop_engine

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        drain_engine(running, timeout_s=DRAIN_S)
    finally:
        signal.signal(signal.SIGTERM, before)
        stop_engine(running)


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


def _check_machine(planned: PlannedReplica, machine: LocalMachine) -> None:
    """PlanRefused where a replica's GPUs are not here. llama.cpp serves on cores too, more slowly than is predicted."""
    option, engine = planned.option, planned.command.engine
    needed = dict(option.run.layout_fields).get("tensor_parallel", 1) if option.gpu else 0
    if len(machine.gpus) >= int(needed) or engine == "llama.cpp":
        return
    raise PlanRefused(f"a replica takes {needed} x {option.gpu}; this machine has {len(machine.gpus)} GPUs",
                      hint="--dry-run prints the command to start there, as a process and as a container")  # fmt: skip
