"""What a plan says of a batch, to show beside what the batch does: an option of `tonnage plan -o json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.traffic.batch import PlannedBatch

_HINT: Final = "tonnage plan FILE -o json > plan.json"


def read_planned(text: str) -> PlannedBatch:
    """The option of rank N in `PLAN.json` or `PLAN.json:N` (1 where none is named). InputError for another file."""
    name, _, number = text.rpartition(":") if text.rpartition(":")[2].isdigit() else (text, "", "1")
    try:
        document = json.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}", hint=_HINT) from error
    except ValueError as error:
        raise InputError(f"{name} is not JSON: {error}", hint=_HINT) from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != "tonnage/plan@1" or document["workload"]["kind"] != "batch":
        raise InputError(f"{name} is not a plan of a batch", hint=_HINT)
    for option in document["options"]:
        if option["rank"] == int(number):
            return _planned(option, name)
    raise InputError(f"{name} has no option {number}", hint=f"it has {len(document['options'])}")


def _planned(option: Any, name: str) -> PlannedBatch:
    run = option.get("run") or {}
    rate = (run.get("rates") or {}).get("requests_per_s")
    if rate is None or option.get("cost_usd") is None:
        raise InputError(f"{name}: that option states no requests a second", hint="choose one of machines: PLAN.json:2")
    hour = option.get("usd_per_instance_hour")
    return PlannedBatch(
        rows_per_s=rate["value"], rows_per_s_low=rate["low"], rows_per_s_high=rate["high"],
        usd_per_row=option["cost_usd"]["value"] / (run["time_s"]["value"] * rate["value"]),
        usd_per_hour=None if hour is None else hour * option["count"],
    )  # fmt: skip
