"""Places as verbs: `tonnage.api.places`, `check_place`, `orphans`, `exec_in_run`, `collect_run`, `place_terraform`."""

from __future__ import annotations

from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.api.answers import Answer
from tonnage.api.home_runs import find_run, runs_folder
from tonnage.api.place_prices import price_at
from tonnage.api.placing import collect_at, executor_at, executor_of, known_places
from tonnage.api.run_listing import run_listing
from tonnage.errors import InputError, PlanRefused, TonnageError
from tonnage.files import save_for_user
from tonnage.reports.blocks import Block, Bullets, Heading, Page, Paragraph
from tonnage.reports.listing import Field, Listing, listing_report
from tonnage.reports.rendering import Report
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tonnage.api.place_prices import HourlyPrice
    from tonnage.places.contract import Executor, Orphan, PlaceFinding
    from tonnage.places.file import AnyPlace
    from tonnage.reports.rendering import Report
    from tonnage.runs.folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPlace:
    """A place as places.toml has it; None where its table is wrong, with what is wrong in `fault`."""

    name: str
    place: AnyPlace | None
    fault: str = ""
    price: HourlyPrice | None = None  # of all machines of a run, as places.toml or else the catalog has it


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPlace:
    """What a place said when it was asked. It can be used where nothing is `refused`."""

    name: str
    findings: tuple[PlaceFinding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOrphan:
    """A job that no run waits for, and where it is."""

    place: str
    orphan: Orphan


def places(*, settings: Settings | None = None) -> Answer[tuple[NamedPlace, ...]]:
    """Every place of the project's and the home's places.toml, those whose table is wrong too. InputError where a file
    is no TOML."""
    chosen = settings or current_settings()
    read = known_places(chosen)
    found = [
        *(NamedPlace(name=name, place=one, price=price_at(chosen, one)) for name, one in read.places.items()),
        *(
            NamedPlace(name=name, place=None, fault=f"{fault.message} ({fault.hint})")
            for name, fault in read.faults.items()
        ),
    ]
    return Answer(tuple(sorted(found, key=lambda one: one.name)), partial(_listed, today=chosen.today))


def check_place(name: str, *, settings: Settings | None = None) -> Answer[CheckedPlace]:
    """Ask a place whether it could carry a run now; nothing is started. A refusal is the answer's fault.

    Raises UnknownName where there is no such place, TonnageError where it does not answer.
    """
    from tonnage.runs.folder import RunFolder

    chosen = settings or current_settings()
    executor = executor_at(chosen, name)
    found = executor.check(RunFolder(runs_folder(chosen.home) / "check"))
    refused = [one for one in found if one.kind == "refused"]
    fault = None
    if refused:
        said = "this refusal" if len(refused) == 1 else f"these {len(refused)} refusals"
        fault = PlanRefused(f"a run at {executor.name} would not start: {said}", hint=refused[0].hint or None)
    return Answer(CheckedPlace(name=executor.name, findings=found), _checked, fault=fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTerraform:
    """Files that were written."""

    name: str
    folder: Path
    files: tuple[str, ...]


def place_terraform(
    name: str, folder: Path | str, *, nat: bool = False, settings: Settings | None = None
) -> Answer[WrittenTerraform]:
    """Write the Terraform files of what a place needs; nothing is asked or made. `nat`: machines reach the internet.

    Raises UnknownName where there is no such place, InputError where its kind has no files or the folder has them.
    """
    from tonnage.places.file import find_place
    from tonnage.places.terraform.files import terraform_files

    chosen = settings or current_settings()
    found, place = find_place(name, known_places(chosen), home=chosen.home)
    files, into = terraform_files(found, place, nat=nat), Path(folder)
    if there := [one for one in files if (into / one).exists()]:
        raise InputError(f"{into / there[0]} is there already", hint="--to names an empty folder")
    into.mkdir(parents=True, exist_ok=True)
    for one, text in files.items():
        save_for_user(into / one, text)
    return Answer(WrittenTerraform(name=found, folder=into, files=tuple(files)), _terraform)


def orphans(*, end: bool = False, settings: Settings | None = None) -> Answer[tuple[FoundOrphan, ...]]:
    """Jobs of this home, at every place, that no run waits for; `end`: end them.

    Every place is asked, whatever another answers. Where one does not answer, or its table is wrong, what it holds is
    not known: that is the answer's fault, after what the others hold.
    """
    chosen = settings or current_settings()
    read = known_places(chosen)
    found: list[FoundOrphan] = []
    faults: list[TonnageError] = list(read.faults.values())
    for name in sorted(read.places):
        try:
            left = executor_at(chosen, name).orphans(runs_folder(chosen.home), end=end)
        except TonnageError as error:
            kind = InputError if isinstance(error, InputError) else TonnageError
            faults.append(kind(f"{name} was not asked: {error.message.removeprefix(f'{name}: ')}", hint=error.hint))
            continue
        found += [FoundOrphan(place=name, orphan=one) for one in left]
    remarks = [("ended" if end else "`tonnage places orphans --end` ends them")] if found else []
    remarks += [str(one) for one in faults[1:]]
    return Answer(tuple(found), _orphans, remarks=tuple(remarks), fault=faults[0] if faults else None)


def exec_in_run(run: str, argv: Sequence[str], *, settings: Settings | None = None) -> int:
    """Run a command on the machine where a run runs, in its folder there; the command's exit code.

    Raises UnknownName where there is no such run, GapError where its place cannot do it, TonnageError where it does not
    answer or has no job of the run.
    """
    executor, folder = _place_of(settings or current_settings(), run)
    from tonnage.places.contract import must_have

    must_have(executor, "exec")
    return executor.exec(folder, argv)


def collect_run(run: str, *, teardown: bool = False, settings: Settings | None = None) -> Answer[RunFolder]:
    """Bring a run's journal, log, measurements, checkpoints and model here; `teardown`: then remove all of it there.

    Raises UnknownName where there is no such run, InputError where it has not ended and is to be removed.
    """
    chosen = settings or current_settings()
    executor, folder = _place_of(chosen, run)
    if fault := collect_at(chosen, folder):
        raise TonnageError(fault, hint=f"`tonnage places check {executor.name}`")
    if teardown:
        if not folder.state().state.ended:
            raise InputError(f"'{run}' has not ended: nothing is removed", hint=f"`tonnage stop {run}` first")
        executor.teardown(folder)
    return Answer(folder, lambda found: run_listing([found], title="Collected"))


def _place_of(settings: Settings, run: str) -> tuple[Executor, RunFolder]:
    """A run's executor (this machine's, of a run that went nowhere) and its folder."""
    from tonnage.places.file import LOCAL

    folder = find_run(settings, run)
    return executor_of(settings, folder) or executor_at(settings, LOCAL), folder


def _listed(found: tuple[NamedPlace, ...], *, today: date) -> Report:
    def of(name: str) -> Callable[[NamedPlace], Any]:
        return lambda one: getattr(one.place, name, None)

    fields: list[Field[NamedPlace]] = [
        Field(key="name", title="place", read=lambda one: one.name),
        Field(key="kind", title="kind", read=of("kind")),
        Field(key="where", title="where", read=of("where")),
        Field(key="gpus", title="GPUs", read=of("gpus"), right=True),
        Field(key="gpu", title="of", read=of("gpu")),
        Field(key="cores", title="cores", read=of("cores"), right=True),
        Field(key="memory_gib", title="GiB", read=of("memory_gib"), right=True),
        Field(
            key="usd_per_hour",
            title="USD/h",
            read=lambda one: one.price and round(one.price.usd_per_hour, 4),
            right=True,
        ),
        Field(key="price_from", title="price from", read=lambda one: one.price and one.price.described(today)),
        Field(key="fault", read=lambda one: one.fault or None),
    ]
    remarks = [f"{one.name} cannot be used: {one.fault}" for one in found if one.fault]
    remarks += [] if found else ["no places.toml names a place: docs/places.md shows one"]
    return listing_report(
        Listing(schema="tonnage/places@1", title="Places", name="places", head={}, fields=fields, items=found,
                remarks=remarks)
    )  # fmt: skip


def _checked(found: CheckedPlace) -> Report:
    fields: list[Field[PlaceFinding]] = [
        Field(key="kind", title="", read=lambda one: one.kind),
        Field(key="message", title="what", read=lambda one: one.message),
        Field(key="hint", title="what mends it", read=lambda one: one.hint),
    ]
    remarks = [] if found.findings else ["a run can start there"]
    return listing_report(
        Listing(schema="tonnage/place-check@1", title=f"Check of {found.name}", name="findings", head={}, fields=fields,
                items=found.findings, remarks=remarks)
    )  # fmt: skip


def _terraform(made: WrittenTerraform) -> Report:
    steps = (f"terraform -chdir={made.folder} init", f"terraform -chdir={made.folder} plan",
             f"terraform -chdir={made.folder} apply",
             f"write what `terraform output` says into [places.{made.name}], then `tonnage places check {made.name}`",
             )  # fmt: skip
    wrote = Paragraph(text=f"Wrote {', '.join(made.files)} to {made.folder}. Nothing was asked or made.")
    blocks: list[Block] = [wrote, Heading(text="Next"), Bullets(items=steps)]
    return Report(
        page=lambda: Page(title=f"Terraform of {made.name}", blocks=tuple(blocks)),
        document=lambda: {"schema": "tonnage/terraform@1", "place": made.name, "folder": str(made.folder),
                          "files": list(made.files), "next": list(steps)},
        columns=("file",), rows=lambda: [[one] for one in made.files],
    )  # fmt: skip


def _orphans(found: tuple[FoundOrphan, ...]) -> Report:
    fields: list[Field[FoundOrphan]] = [
        Field(key="place", title="place", read=lambda one: one.place),
        Field(key="job_id", title="job", read=lambda one: one.orphan.job_id),
        Field(key="run", title="run", read=lambda one: one.orphan.run),
        Field(key="word", title="state there", read=lambda one: one.orphan.word),
        Field(key="why", title="why", read=lambda one: one.orphan.why),
    ]
    return listing_report(
        Listing(schema="tonnage/orphans@1", title="Orphans", name="orphans", head={}, fields=fields, items=found,
                remarks=[] if found else ["every job has a run that waits for it"])
    )  # fmt: skip
