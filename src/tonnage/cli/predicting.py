"""What is predicted of a run before its first step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tonnage.runs.preflight import Machine
    from tonnage.runs.spec import RunSpec
    from tonnage.settings import Settings

SCHEMA: Final = "tonnage/prediction@1"
UNITS: Final = {"samples_per_s": "samples/s", "peak_memory_gib": "GiB", "time_s": "s", "cost_usd": "USD"}


def predict_run(spec: RunSpec, machine: Machine, settings: Settings) -> dict[str, Any]:  # noqa: ARG001
    """The prediction as `prediction.json` holds it. `why_none` says why there is none; a figure not known is absent."""
    why = "there is no profile of this device; `tonnage calibrate --local` measures one"
    return {"schema": SCHEMA, "device": None, "why_none": why, "micro_batch": None, "figures": {}}


def prediction_line(prediction: dict[str, Any]) -> str:
    """One line for people.

    >>> prediction_line({"why_none": "no profile", "figures": {}})
    'predicted: nothing (no profile)'
    """
    figures = prediction["figures"]
    if not figures:
        return f"predicted: nothing ({prediction['why_none']})"
    shown = [
        f"{figure['value']:.3g} {UNITS[name]} ({figure['low']:.3g} to {figure['high']:.3g})"
        for name, figure in figures.items()
        if name in UNITS
    ]
    return f"predicted on {prediction['device']}: {', '.join(shown)}"
