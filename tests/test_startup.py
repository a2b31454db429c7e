"""`tonnage --help` stays fast because nothing heavy is imported for it. Looked at, not timed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tonnage
from tonnage.cli.app import VERBS
from tonnage.cli.running import LASTING

HEAVY = {
    "numpy",
    "pandas",
    "polars",
    "httpx",
    "sqlalchemy",
    "jinja2",
    "pydantic",
    "yaml",
    "rich",
    "markdown_it",
    "gpuhunt",
    "platformdirs",
    "alembic",
    "psutil",
    "prometheus_client",
    "mlflow",
}
PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys, json\nsys.stderr.write(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(answer.stderr))


def test_importing_the_command_line_is_light() -> None:
    """`import tonnage.cli` and building all commands bring in nothing heavy."""
    assert not HEAVY & modules_after("from tonnage.cli.app import build_app; build_app()")


def test_help_is_light() -> None:
    """Nor does printing the help."""
    code = (
        "import contextlib, io\nfrom tonnage.cli import run\n"
        "with contextlib.redirect_stdout(io.StringIO()): assert run(['--help']) == 0"
    )
    assert not HEAVY & modules_after(code)


def test_importing_the_package_is_light() -> None:
    """`import tonnage` loads the API only when one of its names is used."""
    assert not HEAVY & modules_after("import tonnage")


def test_a_report_on_a_run_needs_no_planner() -> None:
    """`tonnage show` imports neither planner nor sizing nor the arrays they compute with."""
    loaded = modules_after("import tonnage.cli.show, tonnage.reports.run_report, tonnage.runs.summary")
    assert not {"tonnage.planning", "tonnage.sizing", "numpy"} & loaded


def test_a_run_is_read_without_arrays() -> None:
    """`tonnage run FILE --on PLACE --dry-run` loads no numpy: what a place would be sent is words."""
    code = "import tonnage.cli.carry_out, tonnage.api.launching, tonnage.runs.reading, tonnage.places.slurm.executor"
    assert "numpy" not in modules_after(code)


def test_parts_that_need_no_arrays_load_none() -> None:
    """Questions of a request, the page of a watch and the engines' arguments need neither the embeddings beside them,
    nor a run's exporter, nor a plan; keys of a gateway file are words until a file is read."""
    light = "import tonnage.gateway.semantic.questions, tonnage.monitoring.page"
    arguments = "import tonnage.serving.engines.registry, tonnage.gateway.file.conduct_entries"
    assert not (HEAVY | {"http.server"}) & modules_after(light)
    assert not {"numpy", "httpx", "tonnage.planning", "tonnage.comparison.user_files"} & modules_after(arguments)


# What only other verbs need, and what a library imports for a call that planning does without.
NOT_FOR_A_PLAN = {
    "httpx",
    "jinja2",
    "pandas",
    "polars",
    "sqlalchemy",
    "rich.console",
    "numpy.ma",
    "numpy.random",
    "tonnage.calibration.inference_fit",
    "tonnage.calibration.search",
    "tonnage.calibration.training_fit",
    "tonnage.comparison",
    "tonnage.portfolios",
    "tonnage.spot_instances.advice",
    "tonnage.spot_instances.engine",
    "tonnage.spot_instances.replaying",
    "tonnage.reports.explain",
    "tonnage.reports.html",
    "tonnage.reports.size",
}


OTHER_SIZING = {  # of kinds of work that the example is not
    "bert-finetune": {"tonnage.planning.layouts.decoder_sizing", "tonnage.planning.layouts.tabular_sizing"},
    "serve-llama-7b-realtime": {"tonnage.planning.layouts.train_sizing", "tonnage.planning.layouts.tabular_sizing"},
}


@pytest.mark.parametrize("form", ["json", "table"])
@pytest.mark.parametrize("example", OTHER_SIZING)
def test_planning_imports_no_other_verb(example: str, form: str) -> None:
    """A plan imports no web, table or database library, and nothing that other verbs or kinds of work alone need."""
    file = PROJECT.parent / "examples" / f"{example}.tonnage.yaml"
    code = (
        "import contextlib, io\nfrom tonnage.cli import run\n"
        f"with contextlib.redirect_stdout(io.StringIO()): assert run(['plan', {str(file)!r}, '-o', {form!r}]) == 0"
    )
    assert not (NOT_FOR_A_PLAN | OTHER_SIZING[example]) & modules_after(code)


def test_a_plan_prepares_for_no_section_that_is_not_there() -> None:
    """Of the sections that a file may have, only those that it has get a validator; one known model is read."""
    file = PROJECT.parent / "examples" / "bert-finetune.tonnage.yaml"
    code = (
        f"import tonnage\nfrom tonnage.workload import known\ntonnage.load_workload({str(file)!r})\n"
        "from tonnage.workload.file.job_fields import LoraFields, TrainFields\n"
        "from tonnage.workload.file.run_fields import TrainRunFields\n"
        "from tonnage.workload.file.sweep_fields import SweepFields\n"
        "assert TrainFields.__pydantic_complete__\n"
        "assert not any(one.__pydantic_complete__ for one in (LoraFields, TrainRunFields, SweepFields))\n"
        "assert known._record.cache_info().currsize == 1"
    )
    modules_after(code)


@pytest.mark.parametrize(("verb", "frees_at_the_end"), [("config", False), ("logs", True)])
def test_a_verb_that_answers_and_leaves_collects_seldom(verb: str, frees_at_the_end: bool) -> None:
    """The process of such a verb collects seldom and frees nothing at its end; one that lasts is as CPython has it."""
    code = (
        "import gc, sys, tonnage.cli as cli\nusual = gc.get_threshold()\n"
        f"sys.argv[1:] = [{verb!r}, '--help']\ntry: cli.main()\nexcept SystemExit: pass\n"
        f"assert (gc.get_threshold() == usual) is {frees_at_the_end}\n"
        f"assert (gc.get_freeze_count() == 0) is {frees_at_the_end}"
    )
    modules_after(code)


def test_lasting_verbs_are_verbs() -> None:
    """Each name in `LASTING` is a verb of the command line."""
    assert {verb.name for verb in VERBS} >= LASTING


def test_version_is_the_projects() -> None:
    """`__version__` is the version of pyproject.toml."""
    found = re.search(r'^version = "(.+)"', PROJECT.read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    assert tonnage.__version__ == found[1]
