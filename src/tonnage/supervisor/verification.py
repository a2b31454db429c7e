"""Whether what the workers saved can be resumed from."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from pathlib import Path
from typing import Final

from tonnage.runs.journal import Event
from tonnage.values import dataclass

MANIFEST: Final = "manifest.json"  # of a checkpoint: sizes and hashes of its files


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What is left of a run that was asked to save."""

    fine: bool
    message: str


def saved_since(checkpoint: Event | None, asked_at: datetime) -> Saved:
    """Look at the newest checkpoint the workers reported: is it whole, and was it written after they were asked?"""
    if checkpoint is None:
        return Saved(fine=False, message="no checkpoint was written: a resume begins at step 0")
    step, path = int(checkpoint.fields["step"]), Path(str(checkpoint.fields.get("path", "")))
    fault = checkpoint_fault(path)
    if fault is not None:
        return Saved(fine=False, message=f"the checkpoint of step {step} is not whole: {fault}")
    if checkpoint.at < asked_at:
        return Saved(fine=False, message=f"nothing was saved after the request; step {step} is the newest, verified")
    took = (checkpoint.at - asked_at).total_seconds()
    return Saved(fine=True, message=f"saved step {step} after {took:.1f} s, verified")


def checkpoint_fault(path: Path) -> str | None:
    """What is wrong with a checkpoint, by its manifest; None where it is whole."""
    try:
        said = json.loads((path / MANIFEST).read_text(encoding="utf-8"))["files"]
        for name, file in said.items():
            with (path / name).open("rb") as opened:
                if hashlib.file_digest(opened, "sha256").hexdigest() != file["sha256"]:
                    return f"{name} is not what was written (sha256 differs)"
    except OSError as error:
        return f"{Path(error.filename or path).name}: {error.strerror or error}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its manifest cannot be read: {error}"
    return None
