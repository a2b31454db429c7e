"""A run's folder is there whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.runs import RunFolder
from tonnage.testing.runs import run_spec


def test_a_folder_that_appears_says_whereto_it_is_submitted(tmp_path: Path) -> None:
    """Specification, prediction and the journal's first line, in one rename; a second of the name is refused."""
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.create(run_spec("one"), prediction="{}", submitted={"name": "one", "place": "box"})
    assert folder.state().place == "box"
    assert folder.prediction_file.read_text() == "{}"
    with pytest.raises(FileExistsError):
        folder.create(run_spec("one"))
    assert [one.name for one in folder.path.parent.iterdir()] == ["one"]


def test_what_fails_in_between_leaves_nothing(tmp_path: Path) -> None:
    """A first line that cannot be written: no folder."""
    folder = RunFolder(tmp_path / "runs" / "one")
    with pytest.raises(TypeError):
        folder.create(run_spec("one"), submitted={"name": object()})
    assert list(folder.path.parent.iterdir()) == []
