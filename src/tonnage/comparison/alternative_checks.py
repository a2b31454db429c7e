"""What a compare file names of the catalog: unknown providers, GPUs and machines are bad input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from tonnage.catalog import Catalog, parse_gpu_filter
from tonnage.comparison.request import Alternative, CompareRequest
from tonnage.errors import InputError, UnknownName, WorkloadError, did_you_mean, nearest

Fault = tuple[str, str, str]  # key, what is wrong, hint


def check_alternatives(request: CompareRequest, catalog: Catalog) -> None:
    """WorkloadError with the key and the nearest name for the first name that the catalog does not know."""
    for place, alternative in enumerate(request.alternatives):
        for key, said, hint in _faults(alternative, catalog):
            raise WorkloadError(said, hint=hint, file=request.file, key=f"compare[{place}].{key}")


def _faults(alternative: Alternative, catalog: Catalog) -> Iterator[Fault]:
    providers = [one.name for one in catalog.providers]
    for name in alternative.providers:
        if name not in providers:
            yield "providers", f"no provider is named '{name}'", _near(name, providers)
        elif alternative.profile.scope.providers and name not in alternative.profile.scope.providers:
            reached = ", ".join(alternative.profile.scope.providers)
            yield "providers", f"{alternative.profile.name} does not run on {name}", f"it runs on {reached}"
    for text in alternative.gpus:
        yield from _gpu_faults(text, catalog)
    machines = [one.name for one in catalog.instance_types]
    for pattern in alternative.machines:
        if not any(fnmatchcase(name, pattern) for name in machines):
            yield "machines", f"no machine of the catalog is like '{pattern}'", _near(pattern.strip("*"), machines)


def _gpu_faults(text: str, catalog: Catalog) -> Iterator[Fault]:
    try:
        wanted = parse_gpu_filter(text)
        if wanted.name is not None:
            catalog.accelerators_matching(wanted)
    except UnknownName as error:
        yield "gpus", str(error), error.hint or "`tonnage catalog accelerators` lists them all"
    except InputError as error:
        yield "gpus", str(error), error.hint or "such as H100 or A100-80GB"


def _near(name: str, known: Sequence[str]) -> str:
    listed = f"known: {', '.join(known)}" if len(known) <= 40 else "`tonnage catalog show` lists them"
    return did_you_mean(nearest(name, known, count=1), listed)
