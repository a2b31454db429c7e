"""A workload and a place as a Databricks Asset Bundle: `tonnage.places_bundle`, `tonnage.write_bundle`."""

from __future__ import annotations

from collections.abc import Iterator
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.places.databricks.bundle import Bundled
    from tonnage.reports.rendering import Report
    from tonnage.runs.spec import RunSpec

UNCHECKED: Final = "not held to Databricks' own models: `pip install 'tonnage[databricks]'`"
HEAD: Final = "# Written by `tonnage places bundle`: write it again rather than change it here.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleOptions(Options):
    """Which place, and on what the model is served."""

    on: str = option("--on", "The place of places.toml, of kind databricks.", metavar="PLACE")
    served_on: str = option(
        "--served-on", "What the endpoint runs on: CPU, GPU_SMALL, GPU_MEDIUM, ...; Databricks lists them.",
        default="CPU", metavar="TYPE",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetBundle:
    """The files, by their path from the folder of the bundle, and the commands that make use of them."""

    name: str
    place: str
    files: dict[str, str]
    commands: tuple[str, ...]


def places_bundle(
    file: Path | str, options: BundleOptions, *, settings: Settings | None = None
) -> Answer[AssetBundle]:  # fmt: skip
    """Render the bundle; nothing is written or asked. The same bytes for the same file and place.

    Raises InputError where the place is of another kind, keeps runs in no volume, or rows lie on this machine; and with
    every member that Databricks' own models do not know.
    """
    chosen = settings or current_settings()
    made, checked = _bundle(chosen, Path(file), options)
    return Answer(made, _report, remarks=() if checked else (UNCHECKED,))


def write_bundle(
    folder: Path | str, file: Path | str, options: BundleOptions, *, settings: Settings | None = None
) -> tuple[Path, ...]:  # fmt: skip
    """Write the files into a folder; those of these names are replaced. TonnageError where that cannot be done."""
    from tonnage.files import write_whole

    made, _ = _bundle(settings or current_settings(), Path(file), options)
    written = []
    try:
        for name, text in made.files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
            written.append(path)
    except OSError as error:
        raise TonnageError(f"{folder} cannot be written: {error.strerror}", hint="--into another folder") from error
    return tuple(written)


def _bundle(settings: Settings, file: Path, options: BundleOptions) -> tuple[AssetBundle, bool]:
    """The bundle, and whether it was held to Databricks' own models."""
    import yaml

    from tonnage.places.databricks.bundle import bundle_faults, bundle_of

    bundled = _bundled(settings, file, options)
    bodies = bundle_of(bundled)
    try:
        faults = list(bundle_faults(bodies))
        checked = True
    except MissingExtra:
        faults, checked = [], False
    if faults:
        raise InputError(f"Databricks knows no such bundle: {'; '.join(faults)}", hint=f"correct places.{options.on}")
    files = {
        name: HEAD + yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=120)
        for name, body in bodies.items()
    }  # fmt: skip
    files[bundled.file] = file.read_text(encoding="utf-8")
    commands = tuple(_commands(bundled))
    return AssetBundle(name=bundled.key, place=options.on, files=files, commands=commands), checked


def _bundled(settings: Settings, file: Path, options: BundleOptions) -> Bundled:
    from tonnage.api.placing import executor_at
    from tonnage.places.bucket.cloud import Work
    from tonnage.places.databricks.bundle import Bundled
    from tonnage.places.databricks.place import DatabricksPlace
    from tonnage.runs.secrets import hide_secrets, named_secrets

    executor = executor_at(settings, options.on)
    place = executor.place
    if not isinstance(place, DatabricksPlace):
        raise InputError(
            f"the place '{executor.name}' has kind {executor.kind}",
            hint='a bundle needs a place with kind = "databricks"',
        )
    if file.suffix == ".json":
        raise InputError("a bundle carries a workload file out, no spec.json", hint="name the file it was made from")
    spec, secrets = hide_secrets(_read(file))
    if secrets:
        raise InputError(f"{file}: a secret is written into it, and the file goes into the workspace",
                         hint="write ${NAME} in its place")  # fmt: skip
    _refuse_here(spec)
    work = Work(
        name=spec.name, run=spec.name, token="", home="", tag="", owner=place.owner or getuser(), command=(),
        env={"TONNAGE_HOME": place.mount, "HF_HOME": f"{place.mount}/cache/huggingface", "PYTHONUNBUFFERED": "1"},
        tags={"tonnage-run": spec.name, **place.labels}, max_cost_usd=spec.guard.max_cost_usd,
        secrets=named_secrets(spec),
    )  # fmt: skip
    return Bundled(
        place=place, run=spec.name, file=file.name, model=spec.tracking.register_as, work=work,
        served_on=options.served_on,
    )  # fmt: skip


def _read(file: Path) -> RunSpec:
    from tonnage.runs.reading import load_run_spec

    return load_run_spec(file, there=lambda path: path.startswith("/Volumes/"))


def _refuse_here(spec: RunSpec) -> None:
    """InputError where the run reads files of this machine: a bundle brings the workload file alone."""
    from tonnage.runs.locations import is_remote

    sources = [one for one in (spec.data.train, spec.data.validation, spec.data.test) if one is not None]
    named = [where for one in sources if one.format not in {"hf", "sql"} for where in (one.location, *one.more)]
    named += [one for one in (spec.weights, spec.config, spec.tokenizer) if one is not None]
    here = [one for one in named if not is_remote(one) and not one.startswith("/Volumes/")]
    if here:
        hint = f"`databricks fs cp --recursive {here[0]} dbfs:/Volumes/CATALOG/SCHEMA/VOLUME/...`, and name it there"
        raise InputError(f"the workspace does not see {', '.join(here)}", hint=hint)


def _commands(one: Bundled) -> Iterator[str]:
    """From the check to the endpoint. A scope that the bundle makes has its values once it is deployed."""
    secrets = [f"databricks secrets put-secret {one.place.secret or one.key} {name}" for name in one.work.secrets]
    yield "databricks bundle validate"
    yield "databricks bundle deploy"
    yield from secrets
    yield f"databricks bundle run {one.key}"
    if one.model is not None:
        yield "(cd serving && databricks bundle deploy --var model_version=1)"


def _report(found: AssetBundle) -> Report:
    from tonnage.reports.blocks import Block, Code, Heading, Page
    from tonnage.reports.rendering import Report

    def page() -> Page:
        blocks: list[Block] = []
        for name, text in found.files.items():
            blocks += [Heading(text=name), Code(lines=tuple(text.splitlines()))]
        blocks += [Heading(text="Commands"), Code(lines=found.commands)]
        return Page(title=f"{found.name} as an asset bundle of {found.place}", blocks=tuple(blocks))

    def document() -> dict[str, Any]:
        return {"schema": "tonnage/bundle@1", "name": found.name, "place": found.place, "files": found.files,
                "commands": list(found.commands)}  # fmt: skip

    rows = [[name, text] for name, text in found.files.items()]
    return Report(page=page, document=document, columns=("file", "text"), rows=lambda: rows)
