"""Each verb, as a user types it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tonnage.reports.rendering import FORMATS

from .conftest import SMALL, Forms, Run

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.tonnage.yaml"))
BERT = str(ROOT / "examples" / "bert-finetune.tonnage.yaml")
LLAMA = str(ROOT / "examples" / "llama-65b-full.tonnage.yaml")
DAY = ("--as-of", "2026-11-20")


@pytest.mark.parametrize("verb", ["plan", "size", "explain"])
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda path: path.name)
def test_every_example(inside: Run, verb: str, file: Path) -> None:
    """Each example plans, sizes and explains: exit 0, a report on stdout, nothing on stderr, no line too wide."""
    done = inside(verb, str(file), *DAY)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) > 500
    assert max(len(line) for line in done.stdout.splitlines()) <= 120


@pytest.mark.parametrize(
    "line",
    [
        ("plan", BERT, *DAY),
        ("size", BERT, *DAY),
        ("explain", BERT, *DAY),
        ("explain", BERT, "T4", *DAY, "--catalog", SMALL),
        ("catalog", "gpus", "24GB..80GB"),
        ("catalog", "instances", "H100:8"),
        ("catalog", "offers", "--purchase", "spot", "--provider", "aws"),
        ("catalog", "show", "p5.48xlarge"),
        ("catalog", "show", "H100-SXM"),
        ("catalog", "check", *DAY),
        ("catalog", "models"),
        ("config", "show", "--origin"),
        ("doctor", *DAY),
    ],
    ids=" ".join,
)
def test_every_form(forms: Forms, line: tuple[str, ...]) -> None:
    """Whatever prints, prints in every form; JSON and CSV parse."""
    shown = forms(*line)
    assert all(shown.values())
    assert json.loads(shown["json"])["schema"].startswith("tonnage/")
    rows = list(csv.reader(io.StringIO(shown["csv"])))
    assert len({len(row) for row in rows}) == 1
    assert len(rows) > 1


@pytest.mark.parametrize("form", FORMATS)
def test_the_form_asked_for_is_printed(inside: Run, forms: Forms, form: str) -> None:
    """`-o FORM` prints what the report is in that form, and nothing beside it."""
    done = inside("catalog", "show", "p5.48xlarge", "-o", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == forms("catalog", "show", "p5.48xlarge")[form].strip()


def test_plan_flags_replace_the_constraints(inside: Run) -> None:
    """--provider, --region, --gpu hold for all options; --top limits the table but not the JSON."""
    line = ("plan", BERT, *DAY, "--provider", "aws", "--region", "us-east-1", "--gpu", "T4", "--gpu", "A10G:1")
    document = json.loads(inside(*line, "--top", "1", "-o", "json").stdout)
    options = document["options"]
    assert len(options) > 1
    assert {option["provider"] for option in options} == {"aws"}
    assert {option["region"] for option in options} == {"us-east-1"}
    assert {option["gpu"] for option in options} == {"T4", "A10G"}
    table = inside(*line, "--top", "1").stdout
    assert f"1 of {len(options)} options" in table


@pytest.mark.parametrize(("rank", "key"), [("cost", "cost_usd"), ("time", "time_s")])
def test_rank(inside: Run, rank: str, key: str) -> None:
    """Options stand in the order asked for; those whose price one can rely on come first."""
    options = json.loads(inside("plan", BERT, *DAY, "--rank", rank, "-o", "json").stdout)["options"]
    order = [(not option["relied_on"], option[key]["value"]) for option in options]
    assert order == sorted(order)
    alike = json.loads(inside("plan", BERT, *DAY, "--rank", rank, "--trust", "any", "-o", "json").stdout)["options"]
    values = [option[key]["value"] for option in alike]
    assert values == sorted(values)


def test_pareto(inside: Run) -> None:
    """The front comes first, and along it faster is dearer."""
    options = json.loads(inside("plan", BERT, *DAY, "--rank", "pareto", "-o", "json").stdout)["options"]
    front = [option["pareto"] for option in options]
    assert front == sorted(front, reverse=True)
    on = sorted((option["cost_usd"]["value"], option["time_s"]["value"]) for option in options if option["pareto"])
    assert [time for _, time in on] == sorted((time for _, time in on), reverse=True)


def test_nothing_fits(inside: Run) -> None:
    """Exit 3: the report shows three nearest misses, stderr names the smallest change; the JSON stays valid."""
    done = inside("plan", LLAMA, *DAY, "--gpu", "T4")
    assert done.returncode == 3
    assert "Nothing fits" in done.stdout
    assert done.stderr.startswith("error: nothing fits llama-65b-full")
    assert "hint: " in done.stderr
    again = inside("plan", LLAMA, *DAY, "--gpu", "T4", "-o", "json")
    document = json.loads(again.stdout)
    assert again.returncode == 3
    assert document["options"] == []
    assert len(document["nearest_misses"]) == 3
    assert all(miss["flips_when"] for miss in document["nearest_misses"])


def test_a_gpu_that_no_machine_has_is_said(inside: Run) -> None:
    """A device without a machine in the catalog has no limit to show: the page says so, the hint what to look up."""
    done = inside("size", BERT, *DAY, "--gpu", "Gaudi2")
    assert done.returncode == 3
    assert "No machine in the catalog has a GPU that" in done.stdout
    assert "`tonnage catalog instances`" in done.stderr
    assert "names each limit" not in done.stderr


def test_deadline_and_budget(inside: Run) -> None:
    """An impossible deadline and budget are the limits that bind."""
    late = json.loads(inside("plan", LLAMA, *DAY, "--deadline", "6m", "-o", "json").stdout)
    assert "deadline" in {miss["binding"] for miss in late["refused"]}
    poor = json.loads(inside("plan", LLAMA, *DAY, "--budget", "1", "-o", "json").stdout)
    assert "budget" in {miss["binding"] for miss in poor["refused"]}


def test_size_of_one_gpu(inside: Run) -> None:
    """`size --gpu` lists machines with that GPU alone."""
    document = json.loads(inside("size", BERT, *DAY, "--gpu", "H100", "-o", "json").stdout)
    assert document["rows"]
    assert {row["gpu"].split("-")[0] for row in document["rows"]} == {"H100"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("T4", "GPU"), ("aws", "provider"), ("g4dn.xlarge", "instance type"), ("c7g.xlarge", "instance type")],
)
def test_explain_a_name(inside: Run, name: str, kind: str) -> None:
    """A GPU, a provider, a machine in the plan and one refused are each explained."""
    done = inside("explain", BERT, name, *DAY, "--catalog", SMALL, "--flips", "1")
    assert done.returncode == 0
    assert f"{kind} {name}: " in done.stdout


def test_explain_holds_ledger_memory_and_assumptions(inside: Run) -> None:
    """The winner in full, with what was assumed and where from."""
    text = inside("explain", BERT, *DAY).stdout
    for part in ("The winner", "What it costs", "total", "What the memory of one GPU holds", "Assumptions used"):
        assert part in text
    assert "A start-up is taken as 5 min (2 min to 15 min, assumed:" in text
    document = json.loads(inside("explain", BERT, *DAY, "--memory-margin", "0.2", "-o", "json").stdout)
    assumed = {one["name"]: one for one in document["assumptions"]}
    assert assumed["memory_margin_fraction"]["value"] == 0.2
    assert all(one["source"] and one["low"] <= one["high"] for one in document["assumptions"])


def test_catalog_gpus_sorted(inside: Run) -> None:
    """--sort and --desc order the list; unknown figures stand last."""
    gpus = json.loads(inside("catalog", "gpus", "--sort", "memory_gib", "--desc", "-o", "json").stdout)["gpus"]
    known = [gpu["memory_gib"] for gpu in gpus if gpu["memory_gib"] is not None]
    assert known == sorted(known, reverse=True)
    assert gpus[0]["memory_gib"] == known[0]


def test_catalog_filters(inside: Run) -> None:
    """Filters of offers and machines hold for every row; SPEC and --gpu mean the same."""
    offers = json.loads(
        inside("catalog", "offers", "A100:8", "--max-price", "30", "--purchase", "on_demand", "-o", "json").stdout
    )["offers"]
    assert offers
    assert all(one["gpu_count"] == 8 and one["usd_per_instance_hour"] <= 30 for one in offers)
    arm = json.loads(inside("catalog", "instances", "--cpu-arch", "arm64", "--min-vcpus", "16", "-o", "json").stdout)
    assert all(one["cpu_arch"] == "arm64" and one["vcpus"] >= 16 for one in arm["instance_types"])
    assert inside("catalog", "gpus", "H100").stdout == inside("catalog", "gpus", "--gpu", "H100").stdout


def test_catalog_show_json_keys(inside: Run) -> None:
    """The keys that other programs read."""
    document = json.loads(inside("catalog", "show", "p5.48xlarge", "-o", "json").stdout)
    assert {
        "provider", "instance_type", "gpu", "gpu_count", "gpu_memory_gib", "vcpus", "memory_gib",
        "network_gbit_per_s", "cpu_arch", "offers",
    } <= document.keys()  # fmt: skip
    assert {"region", "purchase", "usd_per_instance_hour", "read_on", "source"} <= document["offers"][0].keys()


def test_catalog_models(inside: Run) -> None:
    """A part of a name lists what contains it; another spelling of one finds it."""
    names = [one["name"] for one in json.loads(inside("catalog", "models", "bert", "-o", "json").stdout)["models"]]
    assert "bert-base-uncased" in names
    assert all("bert" in name for name in names)
    assert "llama-2-7b" in inside("catalog", "models", "meta-llama/Llama-2-7b-hf").stdout


def test_catalog_check_finds_a_planted_price(inside: Run, tmp_path: Path) -> None:
    """A spot price above on-demand is an error of the catalog: named, exit 1."""
    source = ROOT / "src" / "tonnage" / "catalog" / "data" / "snapshots"
    newest = sorted(source.iterdir())[-1]
    planted = tmp_path / "planted"
    planted.mkdir()
    for file in newest.iterdir():
        (planted / file.name).write_bytes(file.read_bytes())
    rows = list(csv.DictReader(io.StringIO((planted / "offers.csv").read_text(encoding="utf-8"))))
    for row in rows:
        if (row["instance_type"], row["region"], row["purchase"]) == ("g4dn.xlarge", "us-east-1", "spot"):
            row["usd_per_instance_hour"] = "2.104"
    with (planted / "offers.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    done = inside("catalog", "check", "--catalog", str(planted), *DAY, "-o", "json")
    assert done.returncode == 1
    found = json.loads(done.stdout)["findings"]
    assert any(one["severity"] == "error" and "g4dn.xlarge us-east-1" in one["subject"] for one in found)
    assert done.stderr.startswith("error: ")


def test_config(inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a setting came from; the home folder alone; a file's setting is used by other verbs."""
    (tmp_path / "tonnage.toml").write_text('output = "json"\n')
    rows = {one["name"]: one for one in json.loads(inside("config", "show", "--origin").stdout)["settings"]}
    assert rows["output"]["origin"].endswith("tonnage.toml:1")
    assert rows["home"]["origin"] == "TONNAGE_HOME"
    assert inside("config", "path").stdout == f"{tmp_path / 'home'}\n"
    monkeypatch.setenv("TONNAGE_OUTPUT", "csv")
    assert inside("catalog", "models").stdout.startswith("name,architecture,")


def test_doctor_on_a_broken_home(inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that is a file is a problem, told with what to do; exit 1, never a traceback."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "file"))
    done = inside("doctor", *DAY, "-o", "json")
    checks = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1
    assert checks["home"]["status"] == "problem"
    assert "TONNAGE_HOME" in checks["home"]["advice"]


def test_doctor_on_a_broken_catalog(inside: Run, tmp_path: Path) -> None:
    """A catalog that does not load is a problem of the report, not a failure of the doctor."""
    (tmp_path / "empty").mkdir()
    done = inside("doctor", "--catalog", "empty", "-o", "json")
    checks = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1
    assert checks["catalog"]["status"] == "problem"


def test_version_and_help(inside: Run) -> None:
    """--version and --help go to stdout with exit 0; a group without a command shows what there is, exit 2."""
    import tonnage

    assert inside("--version").stdout == f"tonnage {tonnage.__version__}\n"
    helped = inside("--help")
    assert helped.returncode == 0
    for verb in ("size", "plan", "explain", "catalog", "config", "doctor"):
        assert f"\n  {verb} " in helped.stdout
    bare = inside("catalog")
    assert bare.returncode == 2
    assert "offers" in bare.stderr
    assert bare.stdout == ""


@pytest.mark.parametrize(
    ("script", "status", "found"),
    [
        ("echo 'NVIDIA H100 80GB HBM3, 81559, 550.54'", "ok", "NVIDIA H100 80GB HBM3 (79.6 GiB, driver 550.54)"),
        ("echo 'NVIDIA GB10, [N/A], 580.1'", "ok", "memory unknown"),
        ("echo 'no devices were found' >&2; exit 6", "missing", "nvidia-smi says: no devices were found"),
        ("exit 0", "missing", "nvidia-smi says: nothing"),
    ],
)
def test_doctor_asks_nvidia_smi(
    inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, status: str, found: str
) -> None:
    """The GPU line repeats what nvidia-smi says, and a driver that fails is no problem of ours."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    checks = {one["name"]: one for one in json.loads(inside("doctor", *DAY, "-o", "json").stdout)["checks"]}
    assert checks["gpu"]["status"] == status
    assert found in checks["gpu"]["found"]


def test_a_device_of_another_compiler_says_what_would_lift_that(inside: Run) -> None:
    """No figure of the catalog sizes a TPU or an Inferentia: rates of its compiler would."""
    for device in ("TPU-v5e", "Inferentia2"):
        done = inside("size", BERT, *DAY, "--gpu", device, "-o", "json")
        (miss, *_) = json.loads(done.stdout)["misses"]
        assert done.returncode == 3
        assert "another compiler" in miss["needs"]
        assert miss["flips_when"] == "its compiler's rates are measured and Tonnage models them"
