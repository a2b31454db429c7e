"""Runs that have ended well, with models that learned nothing: made in moments, in a home of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import RunSpec

Finish = Callable[..., tuple[RunFolder, Any]]


@pytest.fixture
def finish(tmp_path: Path) -> Finish:
    """A finished run of a specification, and the task it was made of."""
    pytest.importorskip("transformers", reason="the extra `train`")

    def make(spec: RunSpec, *, name: str = "one", state: EventKind | None = EventKind.SUCCEEDED) -> Any:
        from tonnage.recipes.tasks import program

        folder = RunFolder(tmp_path / "home" / "runs" / name)
        folder.create(replace(spec, name=name))
        prepared = program(spec.task)(spec)
        folder.model.mkdir()
        shake(prepared.model)
        prepared.save(prepared.model, folder.model)
        folder.result_file.write_text(json.dumps({"metrics": {}}))
        if state is not None:
            folder.record(state, who="supervisor")
        return folder, prepared

    return make


def shake(model: Any) -> None:
    """Other weights than any seed would give, so that only a model that was really loaded answers alike."""
    import torch

    torch.manual_seed(99)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))


@pytest.fixture
def review_spec(write_rows: Any, reviews: Any, run_spec: Any, tiny_model: Any) -> RunSpec:
    """Reviews to sort, by a very small model."""
    rows = [{**row, "id": f"r{at}"} for at, row in enumerate(reviews(120))]
    config = tiny_model("bert", [row["text"] for row in rows])
    spec: RunSpec = run_spec(
        "sequence-classification", write_rows("rows.jsonl", rows), config=config, roles=("text", "label")
    )
    return spec
