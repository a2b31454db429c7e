"""The offline example: Debian's own package descriptions, real pretrained weights, measured beside simple models."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from tonnage.runs.folder import RunFolder
from tonnage.runs.reading import load_run_spec
from tonnage.runs.states import WorkerExit
from tonnage.workload.loading import load_workload

EXAMPLES = Path(__file__).parents[2] / "examples"
AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
DUMP = """\
Package: alpha
Source: greek (1.0)
Section: net
Description: sends letters
 and more of them

Package: alpha-data
Source: greek
Section: universe/net
Description-en: sends many letters
Description-md5: 0123

Package: beta
Section: utils
Description: sorts letters

Package: beta-twin
Section: utils
Description: Sorts Letters

Package: gamma
Section: net
Description: dummy package for a change of name

Package: libdelta
Section: libs
Description: shared library
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("debian_packages", EXAMPLES / "data" / "debian_packages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_are_descriptions_with_their_section(script: ModuleType) -> None:
    """One row per description; sections that say nothing of the topic and empty packages are left out."""
    assert script.rows(DUMP) == [
        {"text": "sends letters", "section": "net", "source": "greek"},
        {"text": "sends many letters", "section": "net", "source": "greek"},
        {"text": "sorts letters", "section": "utils", "source": "beta"},
    ]
    assert {row["section"] for row in script.rows(DUMP, classes=1)} == {"net"}


def test_a_source_is_in_one_file(script: ModuleType, tmp_path: Path) -> None:
    """Rows of one source package are never in two files; shares are about a tenth, a tenth and the rest."""
    rows = [{"text": f"t{at}", "section": "net", "source": f"s{at // 3}"} for at in range(3000)]
    counts = script.write(tmp_path, rows)
    sources = [
        {json.loads(line)["source"] for line in path.read_text().splitlines()} for path in sorted(tmp_path.iterdir())
    ]
    assert not sources[0] & sources[1]
    assert not sources[0] & sources[2]
    assert not sources[1] & sources[2]
    assert sum(counts.values()) == 3000
    assert 200 < counts["test"] < 400
    assert 200 < counts["validation"] < 400


def test_the_example_can_be_planned() -> None:
    """The file reads as a workload; its rows need not be there for that."""
    workload = load_workload(EXAMPLES / "package-sections.tonnage.yaml", as_of=AS_OF)
    assert workload.kind == "train"


@pytest.mark.slow
def test_the_example_beats_its_baselines(script: ModuleType, minilm: Path, tmp_path: Path) -> None:
    """Two passes over 3,200 real descriptions: better than the majority class, and than TF-IDF on the same rows.

    With so few rows it pays that the weights have read before; on 6,400 rows in one pass the two came out even.
    """
    assert minilm.is_dir()
    if shutil.which("apt-cache") is None:
        pytest.skip("needs apt's lists")
    dump = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    rows = script.rows(dump)
    if len(rows) < 10_000:
        pytest.skip("apt knows too few packages here: apt-get update")
    train = [row for row in rows if script.part_of(row["source"]) == "train"]
    others = [row for row in rows if script.part_of(row["source"]) != "train"]
    script.write(tmp_path / "data", train[:: len(train) // 3200][:3200] + others)
    file = tmp_path / "sections.tonnage.yaml"
    text = (EXAMPLES / "package-sections.tonnage.yaml").read_text()
    for old, new in (("rate: 1e-4", "rate: 3e-4"), ("epochs: 1", "epochs: 2"), ("  evaluate_every: 200\n", "")):
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    folder = RunFolder(tmp_path / "run")
    folder.create(load_run_spec(file, as_of=AS_OF))
    from tonnage.recipes.worker import run_worker

    assert run_worker(folder) == WorkerExit.DONE
    result = json.loads(folder.result_file.read_text())
    found, baseline = result["metrics"], result["baseline"]
    assert result["steps"] == 200
    assert found["accuracy"] > 2 * baseline["majority_accuracy"]
    assert found["accuracy"] > baseline["tfidf_logistic_accuracy"], (found, baseline)
