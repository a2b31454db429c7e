"""Pipelines of plain commands, carried out by Dagster: order, caching, resuming, gates and failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tonnage.cli.running import run
from tonnage.errors import TonnageError
from tonnage.pipelines import load_pipeline
from tonnage.pipelines.engine import PipelineEngine, PipelineOutcome
from tonnage.pipelines.pipeline import Pipeline
from tonnage.runs.liveness import is_held

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Dagster's own, of the libraries it uses
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Dagster closes SQLite connections late
]

PIPELINE = """
name: words
steps:
  report:
    needs: [count]
    command: [PYTHON, -c, "import pathlib; pathlib.Path('report.txt').write_text(open('{count.total}').read() + '!')"]
    outputs: {text: report.txt}
  prepare:
    command: [PYTHON, -c, "import pathlib; pathlib.Path('clean.txt').write_text(open('raw.txt').read().strip())"]
    inputs: raw.txt
    outputs: {rows: clean.txt}
  count:
    command: [PYTHON, count.py, "{prepare.rows}", "{total}"]
    inputs: [count.py]
    outputs: {total: total.txt}
"""
COUNT = """
import pathlib, sys
words = pathlib.Path(sys.argv[1]).read_text().split()
if "bad" in words:
    print("found a bad word", file=sys.stderr)
    raise SystemExit(3)
pathlib.Path(sys.argv[2]).write_text(str(len(words)))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")  # one for all: its databases take seconds to make


@pytest.fixture
def folder(tmp_path: Path, home: Path) -> Path:
    name = f"words-{len(list((home / 'pipelines').glob('*')))}"
    text = PIPELINE.replace("PYTHON", sys.executable).replace("name: words", f"name: {name}")
    (tmp_path / "words.pipeline.yaml").write_text(text)
    (tmp_path / "home").symlink_to(home)
    (tmp_path / "count.py").write_text(COUNT)
    (tmp_path / "raw.txt").write_text("one two three\n")
    return tmp_path


def load(folder: Path) -> Pipeline:
    return load_pipeline(folder / "words.pipeline.yaml")


def until(seen: Callable[[], bool]) -> None:
    """Wait; a bound for a test that hangs."""
    end = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.02)


def carry_out(folder: Path, *, forced: frozenset[str] = frozenset()) -> PipelineOutcome:
    pipeline = load_pipeline(folder / "words.pipeline.yaml")
    return PipelineEngine(home=folder / "home", say=lambda _: None, forced=forced).run(pipeline)


def cached(outcome: PipelineOutcome) -> dict[str, bool]:
    return {name: result.cached for name, result in outcome.results.items()}


def test_steps_are_done_in_order_once_and_again_where_something_changed(folder: Path) -> None:
    """The first time all is done, the second time nothing, then only what a change reaches."""
    assert cached(carry_out(folder)) == {"prepare": False, "count": False, "report": False}
    assert (folder / "report.txt").read_text() == "3!"
    assert cached(carry_out(folder)) == {"prepare": True, "count": True, "report": True}
    (folder / "raw.txt").write_text("  one two three")  # the same after cleaning: what follows stands
    assert cached(carry_out(folder)) == {"prepare": False, "count": True, "report": True}
    (folder / "total.txt").write_text("tampered")  # an output that is not what the step wrote
    assert cached(carry_out(folder)) == {"prepare": True, "count": False, "report": True}
    forced = load_pipeline(folder / "words.pipeline.yaml").after(frozenset({"count"}))
    assert cached(carry_out(folder, forced=forced)) == {"prepare": True, "count": False, "report": False}


def test_a_failed_pipeline_goes_on_where_it_stopped(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Exit 1 names the step, its last words and its log; after the mend, earlier steps are not done again."""
    (folder / "raw.txt").write_text("one bad three")
    arguments = ["pipeline", "run", str(folder / "words.pipeline.yaml"), "-o", "json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TONNAGE_HOME", str(folder / "home"))
        assert run(arguments) == 1
        said = capfd.readouterr()
        assert [step["state"] for step in json.loads(said.out)["steps"]] == ["done", "failed", "skipped"]
        assert "step 'count': exit code 3" in said.err
        assert "found a bad word" in said.err
        (folder / "count.py").write_text(COUNT.replace('"bad"', '"worse"'))
        assert run(arguments) == 0
        states = [step["state"] for step in json.loads(capfd.readouterr().out)["steps"]]
        assert states == ["up to date", "done", "done"]
        assert run(["pipeline", "show", str(folder / "words.pipeline.yaml"), "-o", "json"]) == 0
        assert {step["state"] for step in json.loads(capfd.readouterr().out)["steps"]} == {"done"}


def test_an_output_that_was_not_written_is_a_failure(folder: Path) -> None:
    """A step that ends well without its output has failed, and the next is not started."""
    (folder / "count.py").write_text("")
    outcome = carry_out(folder)
    assert "wrote no total.txt" in outcome.failed["count"]
    assert outcome.skipped == ("report",)


def test_a_missing_input_is_named(folder: Path) -> None:
    """A pattern that matches nothing fails its step, and says which."""
    (folder / "raw.txt").unlink()
    assert "no input matches 'raw.txt'" in carry_out(folder).failed["prepare"]


SLOW = """
import pathlib, sys, time
pathlib.Path("started").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.02)
pathlib.Path(sys.argv[2]).write_text("3")
"""


def test_one_pipeline_at_a_time_though_its_process_was_killed(folder: Path) -> None:
    """A second run of it is refused, also while a step goes on beside the killed process that started it."""
    (folder / "count.py").write_text(SLOW)
    command = [sys.executable, "-m", "tonnage", "pipeline", "run", str(folder / "words.pipeline.yaml")]
    environment = {**os.environ, "TONNAGE_HOME": str(folder / "home")}
    first = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    until(lambda: (folder / "started").exists())
    with pytest.raises(TonnageError, match="is being run: process"):
        carry_out(folder)
    first.kill()
    first.wait()
    with pytest.raises(TonnageError, match="is being run: process"):
        carry_out(folder)
    (folder / "go").touch()
    until(lambda: not is_held(next((folder / "home" / "pipelines").glob(f"{load(folder).name}/lock"))))
    assert set(carry_out(folder).results) == {"prepare", "count", "report"}
