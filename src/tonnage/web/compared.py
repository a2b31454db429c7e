"""The page of a comparison: its weights as sliders, its answer weighed again from what was computed once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage import api
from tonnage.api.catalogs import newest_snapshot
from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.web.asked import PageRequest, Shown, file_of
from tonnage.web.project_files import visible_files
from tonnage.web.whatif import Chosen, Slider, read_document, read_value

if TYPE_CHECKING:
    from tonnage.comparison.comparing import Comparison
    from tonnage.settings import Settings

KIND: Final = "compare"
MOST_WEIGHT: Final = 10.0
KEPT: Final = 8  # comparisons in memory
Stamps = tuple[tuple[str, int, int], ...]  # path, when it was changed, bytes


def compared(asked: PageRequest) -> Shown:
    """A compare file of the folder, with weights of the query in the place of its own."""
    from tonnage.comparison.comparing import reweighted
    from tonnage.reports.comparison.report import comparison_report

    path = file_of(asked, compare_files(visible_files(asked)), "comparison", "/workloads")
    found = _comparison(path, _stamps(path, asked.settings), asked.settings)
    sliders = _sliders(found)
    weights = _weights(asked.beside(), sliders)
    made = reweighted(found, weights) if weights else found
    chosen = tuple(Chosen(one, made.request.weights[one.key]) for one in sliders.values())
    return Shown(report=comparison_report(made), sliders=chosen, links=(("/workloads", "workloads"),))


def compare_files(files: Mapping[str, Path]) -> dict[str, Path]:
    """The files whose kind is `compare`; those that cannot be read are none."""
    return {name: path for name, path in files.items() if _kind(path) == KIND}


def _kind(path: Path) -> Any:
    try:
        return read_document(path).get("kind")
    except InputError:
        return None


def _sliders(found: Comparison) -> dict[str, Slider]:
    """The criteria that some alternative has a score for."""
    scored = {key for scores in found.scores.values() for key in scores}
    weights = found.request.weights
    return {
        one.key: Slider(one.key, one.key, one.title, "weight", 0.0, max(MOST_WEIGHT, 2 * weights[one.key]), (KIND,),
                        linear=True)
        for one in found.criteria
        if one.key in scored and one.key in weights
    }  # fmt: skip


def _weights(given: Mapping[str, str], sliders: Mapping[str, Slider]) -> dict[str, float]:
    for name in given:
        if name not in sliders:
            hint = did_you_mean(nearest(name, sliders), f"known: {', '.join(sliders)}")
            raise InputError(f"'{name[:40]}' is not a criterion with scores here", hint=hint)
    return {name: read_value(sliders[name], text) for name, text in given.items()}


@lru_cache(maxsize=KEPT)
def _comparison(path: Path, stamps: Stamps, settings: Settings) -> Comparison:  # noqa: ARG001  a part of the key
    """The comparison of a file as it was at `stamps`."""
    return api.compare(path, settings=settings)


def _stamps(path: Path, settings: Settings) -> Stamps:
    """Of every file that the comparison reads: a change of one is seen by the next request."""
    return tuple(
        (str(file), state.st_mtime_ns, state.st_size)
        for file in _read_files(path, settings)
        if file.exists() and (state := file.stat())
    )


def _read_files(path: Path, settings: Settings) -> Iterator[Path]:
    yield path
    document = read_document(path)
    for one in document.get("workloads") or ():
        if isinstance(one, dict) and isinstance(one.get("file"), str):
            work = path.parent / one["file"]
            yield work
            model = read_document(work).get("model") if work.is_file() else None
            if isinstance(model, str):
                yield work.parent / model
    for folder in document.get("profiles") or ():
        yield from sorted((path.parent / str(folder)).glob("*.yaml"))
    snapshot = settings.catalog or newest_snapshot(settings.home)
    if snapshot is not None:
        yield snapshot / "snapshot.toml"
    if settings.calibration is not None:
        yield Path(settings.calibration)
