"""Options that several verbs share, each described once; their completions."""

from __future__ import annotations

from typing import Annotated

import typer

_RANKS = ("cost", "time", "pareto")
_PLATFORMS = ("vm", "databricks", "sagemaker", "vertex", "bedrock")
_FORMS = ("table", "json", "csv", "md", "html")


def _starting_with(names: list[str] | tuple[str, ...], typed: str) -> list[str]:
    return [name for name in names if name.casefold().startswith(typed.casefold())]


def complete_form(incomplete: str) -> list[str]:
    return _starting_with(_FORMS, incomplete)


def complete_rank(incomplete: str) -> list[str]:
    return _starting_with(_RANKS, incomplete)


def complete_platform(incomplete: str) -> list[str]:
    return _starting_with(_PLATFORMS, incomplete)


def complete_provider(incomplete: str) -> list[str]:
    from tonnage.catalog import load_catalog

    return _starting_with([provider.name for provider in load_catalog().providers], incomplete)


def complete_region(incomplete: str) -> list[str]:
    from tonnage.catalog import load_catalog

    return _starting_with(sorted({offer.region for offer in load_catalog().offers if offer.region}), incomplete)


def complete_gpu(incomplete: str) -> list[str]:
    from tonnage.catalog import load_catalog

    return _starting_with([device.name for device in load_catalog().accelerators], incomplete)


def complete_run(incomplete: str) -> list[str]:
    from tonnage.api.home_runs import run_names
    from tonnage.settings import current_settings

    return _starting_with(run_names(current_settings().home), incomplete)


def complete_place(incomplete: str) -> list[str]:
    from tonnage.api.placing import known_places
    from tonnage.settings import current_settings

    return _starting_with(("local", *known_places(current_settings()).places), incomplete)


def complete_risk(incomplete: str) -> list[str]:
    return _starting_with(("memory", "deadline", "budget", "latency"), incomplete)


def complete_exclusion(incomplete: str) -> list[str]:
    words = ("community", "undated", "arm64", "rocm")
    return _starting_with([*words, *complete_provider(incomplete), *complete_gpu(incomplete)], incomplete)


def complete_layout(incomplete: str) -> list[str]:
    """Keys of a layout, after those already typed."""
    from tonnage.workload.forced_layout import layout_keys

    typed, comma, begun = incomplete.rpartition(",")
    return [f"{typed}{comma}{name}=" for name in _starting_with(layout_keys(), begun)]


def complete_name(incomplete: str) -> list[str]:
    """Instance types and GPUs."""
    from tonnage.catalog import load_catalog

    catalog = load_catalog()
    names = [device.name for device in catalog.accelerators] + [one.name for one in catalog.instance_types]
    return _starting_with(sorted(set(names)), incomplete)


File = Annotated[str, typer.Argument(metavar="FILE", help="A workload file, NAME.tonnage.yaml.", show_default=False)]
Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FORM",
        autocompletion=complete_form,
        help="table, json, csv, md or html. [default: table, or the setting `output`]",
        show_default=False,
    ),
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="WHEN",
        help="The clock: a date or an instant such as 2026-12-01T00:00Z. [default: now]",
        show_default=False,
    ),
]
CatalogFolder = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="FOLDER",
        help="A catalog snapshot. [default: the newest imported or built-in one]",
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No messages on stderr but errors.")]
Top = Annotated[int, typer.Option("--top", metavar="N", min=1, help="Rows on a page; JSON and CSV hold all.")]
ListTop = Annotated[
    int | None,
    typer.Option("--top", metavar="N", min=1, help="Rows on a page; JSON and CSV hold all. [default: all]"),
]
Providers = Annotated[
    list[str] | None,
    typer.Option(
        "--provider", metavar="NAME", autocompletion=complete_provider, help="Only this provider; may be repeated."
    ),
]
Regions = Annotated[
    list[str] | None,
    typer.Option("--region", metavar="NAME", autocompletion=complete_region, help="Only this region; may be repeated."),
]
Gpus = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu",
        metavar="SPEC",
        autocompletion=complete_gpu,
        help="Only these GPUs: H100:8, A100-80GB:1..8, 24GB..80GB; may be repeated.",
    ),
]
Gpu = Annotated[
    str | None,
    typer.Argument(
        metavar="[SPEC]",
        autocompletion=complete_gpu,
        help="Only these GPUs: H100:8, A100-80GB:1..8, 24GB..80GB.",
        show_default=False,
    ),
]
GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu", metavar="SPEC", autocompletion=complete_gpu, help="The same as SPEC alone.", show_default=False
    ),
]
Layout = Annotated[
    str | None,
    typer.Option(
        "--layout",
        metavar="KEYS",
        autocompletion=complete_layout,
        help="How the work is spread, in place of the file's `layout`: 'tp=2,pp=2,micro_batch=4'. What is left out is "
        "chosen.",
        show_default=False,
    ),
]
MemoryMargin = Annotated[
    float | None,
    typer.Option(
        "--memory-margin", metavar="FRACTION", help="Device memory kept free. [default: 0.1]", show_default=False
    ),
]
CalibrationFile = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="A calibration of your own. [default: the packaged one]",
        show_default=False,
    ),
]
MaxPriceAge = Annotated[
    int | None,
    typer.Option(
        "--max-price-age",
        metavar="DAYS",
        help="Prices older than this are marked as a risk. [default: 180]",
        show_default=False,
    ),
]
Sort = Annotated[str | None, typer.Option("--sort", metavar="FIELD", help="The field to sort by.", show_default=False)]
Descending = Annotated[bool, typer.Option("--desc", help="Largest first.")]
