"""Loading validates every row: each planted fault is named with file, line and column."""

from __future__ import annotations

import re
import shutil
from datetime import date
from pathlib import Path

import pytest

from tonnage.catalog import check_catalog, load_catalog
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
    assert sum(offer.read_on is None for offer in catalog.offers) == 1


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
    """The complaint names the file, the line and the column, and says what is wrong; of prices the rest counts."""
    edit(folder, file, old, new)
    if file == "offers.csv":
        catalog = load_catalog(folder)
        assert len(catalog.offers) == 4
        [complaint] = catalog.left_out
    else:
        with pytest.raises(CatalogError) as refused:
            load_catalog(folder)
        complaint = refused.value.message
    assert f"{file}, line {line}, column '{column}'" in complaint
    assert why in complaint


TWICE = [  # the price and date of a second row, what the offer then costs (None: it is left out), the complaint
    ("0.526", "2026-07-20", "0.526", "the same again"),
    ("0.6", "2026-07-21", "0.6", "line 2: a second on_demand price of aws g4dn.xlarge in us-east-1, read before"),
    ("0.6", "2026-07-19", "0.526", "line 7: a second on_demand price of aws g4dn.xlarge in us-east-1, read before"),
    ("0.6", "", "0.526", "line 7"),
    ("0.6", "2026-07-20", None, "neither counts"),
]


@pytest.mark.parametrize(("price", "day", "stands", "why"), TWICE)
def test_one_price_stands_of_several(folder: Path, price: str, day: str, stands: str | None, why: str) -> None:
    """The newest row of an offer counts; of two prices on one day neither does; what does not is named."""
    path = folder / "offers.csv"
    path.write_text(path.read_text(encoding="utf-8") + f"aws,g4dn.xlarge,us-east-1,on_demand,{price},{day},,again\n")
    catalog = load_catalog(folder)
    found = [
        str(one.usd_per_instance_hour)
        for one in catalog.offers_named("aws", "g4dn.xlarge")
        if (one.region, one.purchase) == ("us-east-1", "on_demand")
    ]
    assert found == ([] if stands is None else [stands])
    assert len(catalog.left_out) == (2 if stands is None else 1)
    assert why in catalog.left_out[0]


def test_another_currency_is_left_out(folder: Path) -> None:
    """A column `currency` may stand at the end: rows in USD count, others are named."""
    path = folder / "offers.csv"
    head, first, *rest = path.read_text(encoding="utf-8").splitlines()
    lines = [f"{head},currency", f"{first},EUR", *(f"{line},USD" for line in rest)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    catalog = load_catalog(folder)
    assert len(catalog.offers) == 4
    assert catalog.left_out == (
        "offers.csv, line 2, column 'currency': 'EUR' is not USD, and no rate of exchange is known here",
    )


def test_prices_none_of_which_can_be_used_are_refused(folder: Path) -> None:
    """Where no row is left there is no catalog: the first fault is told, and how many there are."""
    path = folder / "offers.csv"
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r",(on_demand|spot),[0-9.]+,", r",\1,-1,", text), encoding="utf-8")
    with pytest.raises(CatalogError, match=r"no price can be used: offers.csv, line 2.*4 more rows alike"):
        load_catalog(folder)


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
    assert len(load_catalog(folder, strict=False).left_out) == 1


def test_an_empty_snapshot_is_refused(folder: Path) -> None:
    """A header without rows is no price list: it is said, not answered with «nothing fits»."""
    path = folder / "offers.csv"
    path.write_text(path.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    with pytest.raises(CatalogError, match=r"'small' is empty: offers.csv holds no price"):
        load_catalog(folder)


def test_left_out_rows_are_findings(folder: Path) -> None:
    """`catalog check` lists every row that is left out, as an error."""
    edit(folder, "offers.csv", ROW, "us-east-1,on_demand,-1,")
    found = check_catalog(load_catalog(folder, strict=False), as_of=date(2026, 11, 20))
    assert [one.subject for one in found if "left out" in one.message] == [
        "offers.csv, line 2, column 'usd_per_instance_hour'"
    ]


def test_the_packaged_snapshot_leaves_nothing_out() -> None:
    """Every packaged row can be used."""
    assert load_catalog().left_out == ()
