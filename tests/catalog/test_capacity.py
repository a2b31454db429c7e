"""Rules of how machines are had: rows name machines and ways that exist, and say how far ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.catalog import Catalog
from tonnage.catalog.capacity import CAPACITY_COLUMNS, read_capacity
from tonnage.errors import CatalogError


def test_rules_name_machines_of_the_catalog(catalog: Catalog) -> None:
    """Each machine is known, except older ones of a family, and no offer has two rules."""
    known = {one.key for one in catalog.instance_types}
    keys = [key for rule in catalog.capacity for key in rule.keys]
    assert len(keys) == len(set(keys))
    for rule in catalog.capacity:
        assert any((rule.provider, name) in known for name in rule.instance_types)
        assert rule.source.text.startswith("https://")
        assert rule.lead_days is not None


@pytest.mark.parametrize(
    ("cells", "column"),
    [
        ("aws,p5.48xlarge,hourly,quota,1,,,https://x,", "purchases"),
        ("aws,p5.48xlarge,spot,queue,1,,,https://x,", "way"),
        ("nobody,p5.48xlarge,spot,quota,1,,,https://x,", "provider"),
        ("aws,p5.48xlarge,spot,quota,-1,,,https://x,", "lead_days"),
    ],
)
def test_a_wrong_row_is_an_error(tmp_path: Path, cells: str, column: str) -> None:
    path = tmp_path / "capacity.csv"
    path.write_text(",".join(CAPACITY_COLUMNS) + "\n" + cells + "\n")
    with pytest.raises(CatalogError, match=column):
        read_capacity(path, ["aws"])
