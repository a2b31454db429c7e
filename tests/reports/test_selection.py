"""Which candidates a name means."""

from __future__ import annotations

import pytest

from tonnage.catalog import load_catalog
from tonnage.errors import UnknownName
from tonnage.planning.plan import Plan
from tonnage.reports.selection import select_candidates

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("name", "kind", "options", "refused"),
    [
        ("aws", "provider", [1, 3], 0),
        ("RunPod", "provider", [2], 0),
        ("g4dn.xlarge", "instance type", [1, 3], 0),
        ("n1-standard-4 + 1xT4", "instance type", [], 1),
        ("NC6s_v3", "instance type", [], 1),
        ("standard_nc6s_v3", "instance type", [], 1),
        ("T4", "GPU", [1, 3], 1),
        ("V100", "GPU", [], 1),
        ("B200", "GPU", [], 0),
        ("vm", "platform", [1, 2, 3], 3),
        ("Databricks", "platform", [], 0),
        ("meta.llama3-1-8b-instruct-v1:0", "token model", [], 0),
    ],
)
def test_names(plan: Plan, name: str, kind: str, options: list[int], refused: int) -> None:
    """Providers, machines (with or without `Standard_`) and GPUs (families too) are found, whatever their case."""
    found = select_candidates(plan, CATALOG, name)
    assert found.kind == kind
    assert [option.rank for option in found.options] == options
    assert len(found.refused) == refused


@pytest.mark.parametrize(("name", "near"), [("H10O", "H100-SXM"), ("p5.24xlarge", "p5.48xlarge"), ("awss", "")])
def test_unknown_names(plan: Plan, name: str, near: str) -> None:
    """What the catalog does not know is an error that names the nearest."""
    with pytest.raises(UnknownName) as caught:
        select_candidates(plan, CATALOG, name)
    assert near in (caught.value.hint or "")
