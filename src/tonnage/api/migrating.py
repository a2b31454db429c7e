"""A run of one place as another's: `tonnage.migrate`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, PlanRefused, TonnageError
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.launching import Launch
    from tonnage.places.contract import Executor
    from tonnage.places.file import AnyPlace
    from tonnage.planning.plan import MachineOption, Option
    from tonnage.relocation.relocation import (
        Copied,
        Moved,
        PlaceSide,
        PredictedCost,
        Relocation,
        TermChange,
        WrittenTerms,
    )
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.spec import RunSpec
    from tonnage.sizing.estimates import Figure
    from tonnage.workload.jobs import Workload

FACTS: Final = frozenset({"kind", "machine", "region", "purchase", "spot", "gpus", "gpu", "gpu_memory_gib", "cores",
                          "memory_gib", "nodes", "instance_type", "usd_per_hour"})  # fmt: skip
# keys of places.toml that the facts of a side say in the same words for every kind


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateOptions(Options):
    """From where to where, and what copies go at."""

    to: str = option("--to", "The place of places.toml that it goes to; local: this machine.", metavar="PLACE")
    origin: str | None = option(
        "--from", "The place it leaves. [default: where the run is; of a file this machine]", default=None,
        metavar="PLACE",
    )  # fmt: skip
    gbit_per_s: float = option(
        "--gbit-per-s", "What every copy goes at, assumed.", default=1.0, metavar="RATE", least=0.001, most=10_000.0
    )
    data_gb: float | None = option(
        "--data-gb", "How large the rows at a cloud are. [default: the file's `data.size_gb`]", default=None,
        metavar="GB", least=0.0,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """What is moved."""

    target: str  # FILE or RUN, as it was asked for
    spec: RunSpec
    folder: RunFolder
    begun: bool
    file: str | None  # its workload file, which plans read
    options: MigrateOptions


def migrate(target: Path | str, options: MigrateOptions, *, settings: Settings | None = None) -> Answer[Relocation]:
    """Render a workload file, or a run by its name, of one place as another's; nothing is asked, copied or started.

    A place that cannot carry it is the answer's fault. Raises UnknownName where there is no such place or run,
    InputError where both places are one or neither can be rendered.
    """
    from tonnage.api.placing import executor_at
    from tonnage.reports.relocation import relocation_report

    chosen = settings or current_settings()
    asked = _read(chosen, str(target), options)
    before = executor_at(chosen, options.origin or _origin_of(asked))
    after = executor_at(chosen, options.to)
    if before.name == after.name:
        raise InputError(f"'{before.name}' is where it is already", hint="--to another place, or --from another")
    found = _relocation(chosen, asked, before, after)
    fault = None
    if found.after.refused:
        fault = PlanRefused(f"{after.name}: {found.after.refused}", hint=found.after.hint or None)
    taken = not asked.begun and asked.folder.path.exists()
    remark = f"a run has that name: `tonnage migrate {found.run} --to {after.name}` moves it with what it has saved"
    return Answer(found, relocation_report, fault=fault, remarks=(remark,) if taken else ())


def _read(settings: Settings, target: str, options: MigrateOptions) -> _Move:
    """A run of that name, else a file. InputError where it is neither."""
    from tonnage.api.home_runs import find_run, runs_folder
    from tonnage.api.launching import read_spec
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.liveness import observed_state
    from tonnage.runs.states import RunStatus

    if not Path(target).exists() and Path(target).suffix not in {".yaml", ".yml", ".json"}:
        folder = find_run(settings, target)
        if observed_state(folder).state is RunStatus.SUCCEEDED:
            hint = "name its workload file to render the same work again"
            raise InputError(f"'{target}' has succeeded: nothing of it is left to move", hint=hint)
        spec = folder.spec()
        file = spec.workload_file if spec.workload_file and Path(spec.workload_file).is_file() else None
        return _Move(target=target, spec=spec, folder=folder, begun=True, file=file, options=options)
    ends = [one for one in (options.origin, options.to) if one is not None]
    spec = read_spec(target, there=partial(_held_by_one, settings, ends))
    folder = RunFolder(runs_folder(settings.home) / spec.name)
    file = None if target.endswith(".json") else target
    return _Move(target=target, spec=spec, folder=folder, begun=False, file=file, options=options)


def _held_by_one(settings: Settings, names: list[str], path: str) -> bool:
    from tonnage.api.placing import executor_at

    return any(executor_at(settings, name).place.holds(path) for name in names)


def _origin_of(asked: _Move) -> str:
    from tonnage.api.failover import place_of
    from tonnage.places.file import LOCAL

    return place_of(asked.folder) if asked.begun else LOCAL


def _relocation(settings: Settings, asked: _Move, before: Executor, after: Executor) -> Relocation:
    from tonnage.api.migrated_bytes import copies_of
    from tonnage.relocation.relocation import Relocation, body_diff, steps_of

    adapted, words = _adapted(asked.spec, after.place)
    was, now = _rendered(settings, asked.spec, asked, before), _rendered(settings, adapted, asked, after)
    if isinstance(was, TonnageError) and isinstance(now, TonnageError):
        raise now  # what is wrong with the run itself is wrong at both
    workload = _workload(settings, asked)
    copies = copies_of(
        settings, asked.spec, asked.folder if asked.begun else None, before.place, after.place, workload=workload,
        data_gb=asked.options.data_gb, gbit_per_s=asked.options.gbit_per_s,
    )  # fmt: skip
    rows_move = any(one.what == "rows" and one.how == "copied" for one in copies)
    left = _side(before, was, _planned(settings, workload, before, moved=False))
    right = _side(after, now, _planned(settings, workload, after, moved=rows_move))
    moved = _moved(asked, words, before, after, copies)
    return Relocation(
        run=asked.spec.name, before=left, after=right,
        changes=tuple(_changes(asked, adapted, before, after)),
        copies=copies, steps=steps_of(moved, left, right, copies),
        diff=body_diff(left.script, right.script, names=(left.place, right.place)),
        gbit_per_s=asked.options.gbit_per_s,
    )  # fmt: skip


def _rendered(settings: Settings, spec: RunSpec, asked: _Move, executor: Executor) -> Launch | TonnageError:
    """What would be sent, or why the place cannot carry the run."""
    from tonnage.api.launching import render_at

    try:
        return render_at(settings, spec, asked.folder, executor.name)
    except (PlanRefused, InputError) as error:
        return error


def _side(executor: Executor, found: Launch | TonnageError, predicted: PredictedCost | str) -> PlaceSide:
    from tonnage.relocation.relocation import PlaceSide
    from tonnage.runs.secrets import masked

    launch = None if isinstance(found, TonnageError) else found
    sent = None if launch is None else launch.submission
    cost = {} if launch is None or launch.cost is None else launch.cost
    return PlaceSide(
        place=executor.name, kind=executor.kind,
        usd_per_hour=cost.get("usd_per_hour"), most_usd_a_job=cost.get("most_usd_a_job"),
        predicted=None if isinstance(predicted, str) else predicted,
        why_unpredicted=predicted if isinstance(predicted, str) else "",
        commands=() if sent is None else sent.commands, script="" if sent is None else masked(sent.script),
        refused=found.message if isinstance(found, TonnageError) else "",
        hint=(found.hint or "") if isinstance(found, TonnageError) else "",
    )  # fmt: skip


def _adapted(spec: RunSpec, place: AnyPlace) -> tuple[RunSpec, tuple[str, ...]]:
    """The run with no more processes than the place has GPUs for, and the options that ask for it.

    The global batch stays: the same steps on fewer devices.
    """
    devices = place.gpus * place.machines
    if spec.launch.device == "cpu" or not devices or spec.launch.processes <= devices:
        return spec, ()
    runner = spec.launch.runner if devices > 1 else "local"
    words = ("--processes", str(devices), *(() if runner == spec.launch.runner else ("--runner", runner)))
    return replace(spec, launch=replace(spec.launch, processes=devices, runner=runner)), words


def _changes(asked: _Move, adapted: RunSpec, before: Executor, after: Executor) -> Iterator[TermChange]:
    """What of the run, of its machines and of its place's terms differs."""
    from tonnage.relocation.relocation import TermChange, term_changes

    facts = ((before, asked.spec), (after, adapted))
    left, right = (_facts(executor, spec, asked.folder) for executor, spec in facts)
    for name, was in left.items():
        if was != right[name]:
            yield TermChange(name=name, before=was, after=right[name])
    yield from term_changes(_written(before.place), _written(after.place), apart=FACTS)
    for gap in after.gaps:
        if gap.whole and not any(one.verb == gap.verb and one.whole for one in before.gaps):
            yield TermChange(name=f"`{gap.verb}`", before="kept", after=None, note=gap.reason)


def _facts(executor: Executor, spec: RunSpec, folder: RunFolder) -> dict[str, str | None]:
    """The remarks that hold for every place."""
    from tonnage.reports.wording import plural, render_purchase

    place = executor.place
    machine = place.catalog_machine
    gpus = f"{place.gpus} x {place.gpu or 'GPU'}" if place.gpus else "none"
    memory = "" if place.gpu_memory_gib is None else f" of {place.gpu_memory_gib:g} GiB"
    return {
        "kind of place": executor.kind,
        "machine": None if machine is None else f"{machine.provider}/{machine.instance_type}",
        "region": None if machine is None else machine.region,
        "bought": None if machine is None or machine.purchase is None else render_purchase(machine.purchase),
        "machines": str(place.machines),
        "GPUs of each": f"{gpus}{memory}",
        "processors of each": f"{plural(place.cores, 'core')}, {place.memory_gib:g} GiB",
        "processes": f"{spec.launch.processes} by {spec.launch.runner}",
        "run's folder there": str(executor.folder_there(folder).path),
    }


def _written(place: AnyPlace) -> WrittenTerms:
    from tonnage.relocation.relocation import WrittenTerms

    values: dict[str, Any] = json.loads(place.model_dump_json())
    return WrittenTerms(kind=place.kind, values=values, written=frozenset(place.model_fields_set))


def _workload(settings: Settings, asked: _Move) -> Workload | None:
    """The workload that plans read; None where there is no file of it."""
    from tonnage.api.inputs import load_workload

    return None if asked.file is None else load_workload(asked.file, settings=settings)


def _planned(
    settings: Settings, workload: Workload | None, executor: Executor, *, moved: bool
) -> PredictedCost | str:  # fmt: skip
    """What the plan says of the machines of a place, or why it says nothing. `moved`: the rows lie there by then."""
    from tonnage.api.plans import plan
    from tonnage.workload.jobs import DataPlace

    machine = executor.place.catalog_machine
    if workload is None:
        return "there is no workload file to plan"
    if machine is None:
        return "places.toml does not say which machine of the catalog it is"
    if moved and workload.data is not None and machine.region is not None:
        there = DataPlace(provider=machine.provider, region=machine.region, size_gb=workload.data.size_gb)
        workload = replace(workload, data=there)
    found = plan(workload, settings=settings, platforms=(machine.platform,), providers=(machine.provider,))
    return _predicted(executor.place, found.options, workload.file or workload.name)


def _predicted(place: AnyPlace, options: tuple[Option, ...], file: str) -> PredictedCost | str:
    from tonnage.api.planned_places import bought_words, has_option
    from tonnage.planning.plan import MachineOption
    from tonnage.relocation.relocation import PredictedCost

    machine = place.catalog_machine
    if machine is None:
        return "places.toml does not say which machine of the catalog it is"
    for one in options:
        if isinstance(one, MachineOption) and has_option(place, one):
            if place.usd_per_hour is not None:
                line = f"the plan's hours at the place's own price: {bought_words(one)}"
                return PredictedCost(line=line, cost_usd=_at_own_price(one, place.usd_per_hour), time_s=one.time_s)
            return PredictedCost(line=f"by the plan: {bought_words(one)}", cost_usd=one.cost_usd, time_s=one.time_s)
    alike = [one for one in options if isinstance(one, MachineOption) and one.instance_type == machine.instance_type]
    if alike:
        asked = " ".join(word for word in (machine.region, machine.purchase) if word)
        there = "; ".join(dict.fromkeys(f"{one.region} {one.purchase}" for one in alike))
        return f"the plan has {machine.instance_type} in {there}, and not in {asked or 'the region of this place'}"
    scope = f"--platform {machine.platform} --provider {machine.provider}"
    return f"the plan has no such option: `tonnage explain {file} {machine.instance_type} {scope}` says why"


def _at_own_price(option: MachineOption, usd_per_hour: float) -> Figure:
    """The option's cost with its machine hours (waiting for spot is not billed) at a price of one's own; the interval
    keeps its ends' share of the cost."""
    machines = [line for line in option.ledger.lines if line.unit == "instance-hour"]
    hours = float(sum(line.quantity for line in machines))
    total = float(option.ledger.total_usd)
    other = total - float(sum(line.usd for line in machines))
    return option.cost_usd.scaled((other + hours * usd_per_hour) / total)


def _moved(
    asked: _Move, words: tuple[str, ...], before: Executor, after: Executor, copies: tuple[Copied, ...]
) -> Moved:  # fmt: skip
    from tonnage.relocation.relocation import Moved
    from tonnage.runs.liveness import has_supervisor
    from tonnage.runs.secrets import hide_secrets, named_secrets

    was, now = (getattr(one.place, "image", None) for one in (before, after))
    same = was is not None and now is not None and was != now and was.partition("@")[2] == now.partition("@")[2]
    secrets = named_secrets(hide_secrets(asked.spec)[0])
    return Moved(
        target=asked.target, run=asked.spec.name, begun=asked.begun,
        alive=asked.begun and has_supervisor(asked.folder), options=words,
        rewritten=tuple((one.origin, one.target) for one in copies if one.how == "copied" and one.what == "rows"),
        images=(str(was), str(now)) if same else None, builds=now is not None and was is None,
        secrets=secrets, secret_commands=_secret_commands(after, secrets),
    )  # fmt: skip


def _secret_commands(after: Executor, names: tuple[str, ...]) -> tuple[str, ...]:
    """What stores a run's variables where a place has them from."""
    from tonnage.places.bucket.secrets import secret_of, storing

    given = getattr(after.place, "secret", None)
    if given is None:
        return ()
    if after.kind == "databricks":
        return tuple(f"databricks secrets put-secret {given} {name}" for name in names)
    if after.kind == "kubernetes":
        return (f"kubectl create secret generic {given} --from-env-file=keys.env",)
    asked = secret_of(getattr(after.place, "secret_address", None))
    found = None if asked is None else storing(asked)
    return () if found is None else (found,)
