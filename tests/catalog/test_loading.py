"""Loading validates every row: each planted fault is named with file, line and column."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tonnage.catalog import load_catalog
from tonnage.errors import CatalogError

SAMPLE = Path(__file__).parents[1] / "data" / "catalog" / "small"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a small snapshot that may be spoiled."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "small"))


def edit(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
    (folder / file).write_text(text.replace(old, new), encoding="utf-8")


def test_a_small_snapshot_loads(folder: Path) -> None:
    """The unspoiled sample loads over the packaged hardware tables."""
    catalog = load_catalog(folder)
    assert catalog.name == "small"
    assert len(catalog.instance_types) == 4
    assert len(catalog.offers) == 5
    assert len(catalog.accelerators) > 50
    assert catalog.oldest_price is not None
    assert catalog.oldest_price.isoformat() == "2025-04-04"
    assert catalog.undated_offers == 1


USD = "usd_per_instance_hour"
ROW = "us-east-1,on_demand,0.526,"
FAULTS = [  # file, what stands there, what is planted, line, column, part of the complaint
    ("offers.csv", ROW, "us-east-1,on_demand,zero,", 2, USD, "not a price"),
    ("offers.csv", ROW, "us-east-1,on_demand,0,", 2, USD, "not above zero"),
    ("offers.csv", ROW, "us-east-1,on_demand,-1,", 2, USD, "not above zero"),
    ("offers.csv", ROW, "us-east-1,on_demand,nan,", 2, USD, "not above zero"),
    ("offers.csv", ROW, "us-east-1,on_demand,,", 2, USD, "blank"),
    ("offers.csv", ROW, "us-east-1,on_demand,700.0,", 2, USD, "sentinel"),
    ("offers.csv", ROW, "us-east-1,lease,0.526,", 2, "purchase", "'lease' is not one of"),
    ("offers.csv", "0.526,2026-07-20", "0.526,20.07.2026", 2, "read_on", "not a date"),
    ("offers.csv", "0.526,2026-07-20", "0.526,2026-12-24", 2, "read_on", "lies after the snapshot"),
    ("offers.csv", "aws,g4dn.xlarge,us-east-1,on", "aws,g4dn.tiny,us-east-1,on", 2, "instance_type",
     "not in instances.csv"),
    ("offers.csv", "aws,g4dn.xlarge,us-west-2,on", "aws,g4dn.xlarge,us-east-1,on", 4, "instance_type",
     "second"),
    ("instances.csv", "T4,1,16,", "T5,1,16,", 3, "accelerator", "not in accelerators.csv"),
    ("instances.csv", "T4,1,16,", "T4,1,24,", 3, "gpu_memory_gib", "1 x T4 have 16 GiB"),
    ("instances.csv", "T4,1,16,", "T4,0,16,", 3, "accelerator_count", "is 0"),
    ("instances.csv", "T4,1,16,", ",1,16,", 3, "accelerator", "blank"),
    ("instances.csv", "T4,1,16,4,16", "T4,1,16,four,16", 3, "vcpus", "not a number"),
    ("instances.csv", "T4,1,16,4,16", "T4,1,16,4,16384000", 3, "memory_gib", "is the unit right"),
    ("instances.csv", "T4,1,16,4,16", "T4,1,16,inf,16", 3, "vcpus", "outside"),
    ("instances.csv", "nvlink3", "nvlink9", 4, "scale_up", "not in links.csv"),
    ("instances.csv", "0,arm64", "0,riscv", 2, "cpu_arch", "not one of"),
    ("instances.csv", "aws,g4dn.xlarge,", "aws,c7g.xlarge,", 3, "name", "twice"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "line", "column", "why"), FAULTS)
def test_a_planted_fault_is_named(
    folder: Path, file: str, old: str, new: str, line: int, column: str, why: str
) -> None:
    """The complaint names the file, the line and the column, and says what is wrong."""
    edit(folder, file, old, new)
    with pytest.raises(CatalogError) as refused:
        load_catalog(folder)
    assert f"{file}, line {line}, column '{column}'" in refused.value.message
    assert why in refused.value.message


def test_a_missing_column_is_named(folder: Path) -> None:
    """A header without a column is refused by the column's name."""
    edit(folder, "offers.csv", "purchase,usd", "usd")
    with pytest.raises(CatalogError, match=r"offers.csv, line 1: column 'purchase' is missing"):
        load_catalog(folder)


def test_a_cut_off_row_is_named(folder: Path) -> None:
    """A row with too few cells is refused with its line."""
    path = folder / "offers.csv"
    path.write_text(path.read_text(encoding="utf-8").rstrip().rsplit(",", 2)[0], encoding="utf-8")
    with pytest.raises(CatalogError, match=r"offers.csv, line 6: 6 cells, expected 8"):
        load_catalog(folder)


@pytest.mark.parametrize("file", ["snapshot.toml", "instances.csv", "offers.csv"])
def test_a_missing_file_is_named(folder: Path, file: str) -> None:
    """A folder without one of the three files is refused by its name."""
    (folder / file).unlink()
    with pytest.raises(CatalogError, match=file):
        load_catalog(folder)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("built_on = 2026-11-20", 'built_on = "2026-11-20"', "built_on"),
        ('name = "small"', "name = 3", "name"),
        ("sources = [", "sources = ][", "cannot be read"),
    ],
)
def test_a_spoiled_meta_file_is_refused(folder: Path, old: str, new: str, why: str) -> None:
    """snapshot.toml must name itself, its day and its sources."""
    edit(folder, "snapshot.toml", old, new)
    with pytest.raises(CatalogError, match=why):
        load_catalog(folder)


def test_contradictions_load_when_not_strict(folder: Path) -> None:
    """For `catalog check`, rows that contradict each other load; rows that cannot be read still do not."""
    edit(folder, "instances.csv", "T4,1,16,", "T4,1,24,")
    assert load_catalog(folder, strict=False).instance_type("g4dn.xlarge").gpu_memory_gib == 24
    edit(folder, "offers.csv", "us-east-1,on_demand,0.526,", "us-east-1,on_demand,zero,")
    with pytest.raises(CatalogError):
        load_catalog(folder, strict=False)
