"""The two kinds of measured facts, training and inference, behind one shape: read, judge, fit, what to leave out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.reading import in_batches, read_inference_rows, read_training_rows
from tonnage.catalog.catalog import Catalog
from tonnage.errors import InputError, UnknownAccelerator
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.fitting import room
from tonnage.values import dataclass

KindName = Literal["training", "inference"]
KINDS: Final[tuple[KindName, ...]] = ("training", "inference")
KEYS: Final = ("family", "gpu", "engine")
DISTANCE_KEYS: Final = ("gpu", "engine")  # a name that no fitted row had lies further from the data
MOST_ROWS_TO_FIT: Final = 200_000

Results = Sequence[JudgedRow | SkippedRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactKind:
    """What differs between the two tables. Rows and fits are opaque here."""

    name: KindName
    read: Callable[[Path, Catalog], Iterator[Any]]
    judge: Callable[[list[Any], Catalog, Any], Results]
    fit: Callable[[list[Any], Catalog, Any], Any]  # rows, catalog, where to start (or None)
    keys: Mapping[str, Callable[[Any], str]]
    prints_peak: Callable[[Any], bool] = lambda _: False
    unstated: Callable[[Any], Any] = lambda row: row  # the row with nothing said of its program

    def key(self, name: str) -> Callable[[Any], str]:
        """How a row says its family, GPU or engine; InputError where the table does not."""
        if name not in self.keys:
            raise InputError(
                f"{self.name} rows do not name their {name}",
                hint=f"--leave-out takes {' or '.join(self.keys)} here",
            )
        return self.keys[name]


def kind_named(name: str) -> FactKind:
    """The kind of that name, with the code that judges and fits it."""
    if name == "training":
        return _training()
    if name == "inference":
        return _inference()
    raise InputError(f"'{name}' is not a kind of measured facts", hint="training or inference")


def _training() -> FactKind:
    from tonnage.calibration.row_facts import with_facts
    from tonnage.calibration.training_doubts import doubt_repeated_formats
    from tonnage.calibration.training_fit import fit_training
    from tonnage.calibration.training_judge import judge_training
    from tonnage.calibration.training_memory_rows import prints_peak, with_program_unstated

    return FactKind(
        name="training",
        read=lambda path, catalog: doubt_repeated_formats(
            (row if isinstance(row, SkippedRow) else with_facts(row) for row in read_training_rows(path)), catalog
        ),
        judge=judge_training,
        fit=lambda rows, catalog, start: fit_training(rows, catalog, start=start),
        keys={"family": family_of, "gpu": lambda row: row.gpu},
        prints_peak=prints_peak,
        unstated=with_program_unstated,
    )


def _inference() -> FactKind:
    from tonnage.calibration.inference_contradictions import doubt_contradicted
    from tonnage.calibration.inference_doubts import doubt_repeated
    from tonnage.calibration.inference_facts import with_inference_facts
    from tonnage.calibration.inference_fit import fit_inference
    from tonnage.calibration.inference_judge import judge_inference

    def read(path: Path, catalog: Catalog) -> Iterator[Any]:
        rows = (row if isinstance(row, SkippedRow) else with_inference_facts(row) for row in read_inference_rows(path))
        return doubt_repeated(rows, catalog)

    return FactKind(
        name="inference",
        read=lambda path, catalog: (
            doubt_contradicted(lambda: read(path, catalog)) if path.is_file() else read(path, catalog)
        ),
        judge=judge_inference,
        fit=lambda rows, catalog, start: fit_inference(rows, catalog, start=getattr(start, "engines", start)),
        keys={"family": family_of, "gpu": lambda row: row.gpu, "engine": lambda row: row.engine},
    )


def family_of(row: Any) -> str:
    """The family a row states; its model where it states none."""
    return row.family or row.model  # type: ignore[no-any-return]


def judged_rows(
    kind: FactKind,
    items: Iterable[Any],
    catalog: Catalog,
    fitted: Any,
    *,
    seen: Mapping[str, frozenset[str]] | None = None,
    on_rows: Callable[[int], None] | None = None,
) -> Iterator[JudgedRow | SkippedRow]:
    """Results for rows (and rows already skipped) as they stream by, a batch at a time. `seen`: see `with_distance`."""
    done = 0
    for batch in in_batches(items):
        yield from (item for item in batch if isinstance(item, SkippedRow))
        rows = [item for item in batch if not isinstance(item, SkippedRow)]
        found = with_hints(rows, with_quality(rows, kind.judge(rows, catalog, fitted)), catalog)
        yield from with_distance(kind, rows, found, seen or {}, catalog)
        done += len(batch)
        if on_rows is not None:
            on_rows(done)


def with_quality(rows: Sequence[Any], results: Results) -> Iterator[JudgedRow | SkippedRow]:
    """The results, those of suspect rows marked so."""
    suspect = {row.id for row in rows if row.quality == "suspect"}
    for result in results:
        yield replace(result, suspect=True) if result.row_id in suspect and not result.suspect else result


def with_hints(
    rows: Sequence[Any], results: Iterable[JudgedRow | SkippedRow], catalog: Catalog
) -> Iterator[JudgedRow | SkippedRow]:
    """The results, those skipped for a GPU that the catalog does not know with the nearest names it does."""
    gpu_of = {row.id: row.gpu for row in rows}
    hints: dict[str, str] = {}
    for result in results:
        gpu = gpu_of.get(result.row_id, "")
        if isinstance(result, JudgedRow) or not gpu or gpu not in result.reason:
            yield result
            continue
        if gpu not in hints:
            hints[gpu] = _unknown_gpu(gpu, catalog)
        yield replace(result, reason=hints[gpu] or result.reason)


def _unknown_gpu(name: str, catalog: Catalog) -> str:
    """Why a GPU cannot be judged, with what may be meant; "" for one that the catalog knows."""
    try:
        catalog.accelerator(name)
    except UnknownAccelerator as error:
        return f"{error.message}: {error.hint}" if error.hint else error.message
    return ""


def with_distance(
    kind: FactKind,
    rows: Sequence[Any],
    results: Iterable[JudgedRow | SkippedRow],
    seen: Mapping[str, frozenset[str]],
    catalog: Catalog,
) -> Iterator[JudgedRow | SkippedRow]:
    """The results, at least one unknown away from the data where the row's GPU or engine is not one of those `seen`.

    A judge counts what changes the physics (device generation, precision, class of engine); a device or an engine that
    no row had is one step away even where its generation or class is known.
    """
    named = distance_names(kind, catalog)
    near = {row.id for row in rows if all(named[key](row) in names | {""} for key, names in seen.items())}
    for result in results:
        if isinstance(result, JudgedRow) and result.unseen_factors == 0 and result.row_id not in near:
            yield replace(result, unseen_factors=1)
        else:
            yield result


def seen_names(kind: FactKind, rows: Iterable[Any], catalog: Catalog) -> dict[str, frozenset[str]]:
    """GPUs (as the catalog calls them) and engines that rows of good quality name."""
    good = [row for row in rows if row.quality != "suspect"]
    return {key: frozenset(map(name, good)) - {""} for key, name in distance_names(kind, catalog).items()}


def generation_key(catalog: Catalog) -> Callable[[Any], str]:
    """How a row's GPU says its generation, by the first word of its architecture; "" for one that is not known."""

    def generation(row: Any) -> str:
        try:
            return catalog.accelerator(row.gpu).architecture.split(" ")[0]
        except UnknownAccelerator:
            return ""

    return generation


def distance_names(kind: FactKind, catalog: Catalog) -> dict[str, Callable[[Any], str]]:
    """How a row says what lies near or far: its GPU by the catalog's own name ("" for none it knows), its engine."""
    found: dict[str, str] = {}

    def device(row: Any) -> str:
        if row.gpu not in found:
            try:
                found[row.gpu] = catalog.accelerator(row.gpu).name
            except UnknownAccelerator:
                found[row.gpu] = ""
        return found[row.gpu]

    return {key: device if key == "gpu" else kind.keys[key] for key in DISTANCE_KEYS if key in kind.keys}


def rows_to_fit(kind: FactKind, path: Path, catalog: Catalog) -> tuple[list[Any], list[SkippedRow]]:
    """All rows of a table at once, as a fit needs them, and those that cannot be used."""
    rows, skipped = [], []
    for item in kind.read(path, catalog):
        if isinstance(item, SkippedRow):
            skipped.append(item)
        else:
            rows.append(item)
        if len(rows) > MOST_ROWS_TO_FIT:
            raise InputError(
                f"{path} has more than {MOST_ROWS_TO_FIT:,} rows, more than a fit takes",
                hint="fit on a sample; `tonnage validate` without --leave-out takes any number of rows",
            )
    return rows, skipped


def device_capacity(catalog: Catalog, margin_fraction: float | None = None) -> Callable[[str], float | None]:
    """GiB a run may use on a GPU: what the driver reports (or else what is sold) less the safety margin."""
    margin = Assumptions().memory_margin_fraction if margin_fraction is None else margin_fraction

    def capacity(gpu: str) -> float | None:
        try:
            device = catalog.accelerator(gpu)
        except UnknownAccelerator:
            return None
        sold = device.usable_memory_gib or device.memory_gib
        return None if sold is None else room(sold, margin)

    return capacity
