"""Orphans where one place's packages are missing: the others are still asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.api.place_verbs import orphans
from tonnage.errors import InputError, MissingExtra
from tonnage.settings import Settings, load_settings

PLACES = """
[places.box]
kind = "slurm"
time_limit_minutes = 60
cores = 4
memory_gib = 8
"""


def test_a_missing_extra_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer's fault names the place and the extra, and how it is installed."""
    (tmp_path / "places.toml").write_text(PLACES)

    def lacking(_settings: Settings, _name: str) -> None:
        raise MissingExtra("AWS", "fetch")

    monkeypatch.setattr("tonnage.api.place_verbs.executor_at", lacking)
    answer = orphans(settings=load_settings({}, {"TONNAGE_HOME": str(tmp_path)}, tmp_path))
    assert isinstance(answer.fault, InputError)
    assert "box was not asked: AWS needs the extra 'fetch'" in str(answer.fault)
    assert answer.fault.hint == "pip install 'tonnage[fetch]'"
