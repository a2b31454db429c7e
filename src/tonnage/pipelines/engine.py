"""Dagster at work: each step is an asset, its record is Dagster's own event log; the steps are processes of their own.

A step whose fingerprint and outputs are those of its newest record is not done again, so a pipeline that failed goes
on where it stopped. `dagster-webserver` on the same home shows the history.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import MissingExtra, TonnageError
from tonnage.files import make_private_folder
from tonnage.pipelines.commands import render_command
from tonnage.pipelines.fingerprints import DoneStep, digest_step, fingerprint_of, run_succeeded, written
from tonnage.pipelines.pipeline import Pipeline, PipelineStep
from tonnage.runs.liveness import Held, hold_lock
from tonnage.values import dataclass

if TYPE_CHECKING:
    from dagster import AssetsDefinition, DagsterInstance

RECORD: Final = "tonnage_result"
INSTANCE: Final = "telemetry:\n  enabled: false\n"
TAIL_LINES: Final = 12
Say = Callable[[str], None]


class StepFailed(TonnageError):
    """A step of a pipeline ended badly; the steps that need it were not started: exit 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOutcome:
    """A pipeline's end: results by step, and why the others have none."""

    results: Mapping[str, DoneStep]
    failed: Mapping[str, str]
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEngine:
    """Where the pipeline's records and logs are, and what is forced to be done again."""

    home: Path
    say: Say
    forced: frozenset[str] = frozenset()

    def logs(self, pipeline: Pipeline) -> Path:
        return self.home / "pipelines" / pipeline.name / "logs"

    def run(self, pipeline: Pipeline) -> PipelineOutcome:
        """Do every step that is not up to date, each after those it needs. TonnageError where another process does."""
        make_private_folder(self.logs(pipeline))
        lock = self.logs(pipeline).with_name("lock")
        try:
            with hold_lock(lock) as held:
                return self._run(pipeline, held)
        except Held as error:
            raise TonnageError(
                f"pipeline '{pipeline.name}' is being run: process {lock.read_text(encoding='utf-8').strip()}",
                hint="wait for its end; a step goes on for a while where the pipeline that started it was killed",
            ) from error

    def _run(self, pipeline: Pipeline, lock: int) -> PipelineOutcome:
        dagster = _dagster()
        book = _Book(pipeline=pipeline, engine=self, lock=lock)
        assets = [book.asset(step) for step in pipeline.steps]
        with _instance(self.home) as instance:
            quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
            dagster.materialize(assets, instance=instance, run_config=quiet, raise_on_error=False)
        if book.interrupted:
            raise KeyboardInterrupt
        skipped = tuple(one.name for one in pipeline.steps if one.name not in {**book.results, **book.failed})
        return PipelineOutcome(results=book.results, failed=book.failed, skipped=skipped)

    def records(self, pipeline: Pipeline) -> dict[str, DoneStep]:
        """The newest record of each step that has one."""
        with _instance(self.home) as instance:
            found = {step.name: _last(instance, pipeline, step) for step in pipeline.steps}
        return {name: result for name, result in found.items() if result is not None}


class _Book:
    """What one execution has found out so far."""

    def __init__(self, *, pipeline: Pipeline, engine: PipelineEngine, lock: int) -> None:
        self.pipeline, self.engine, self.lock = pipeline, engine, lock
        self.results: dict[str, DoneStep] = {}
        self.failed: dict[str, str] = {}
        self.interrupted = False

    def asset(self, step: PipelineStep) -> AssetsDefinition:
        """The step as Dagster knows it."""
        dagster = _dagster()
        prefix = _plain(self.pipeline.name)

        def body(context: Any) -> Any:
            result = self._done(step, _last(context.instance, self.pipeline, step))
            return dagster.MaterializeResult(
                metadata={RECORD: dagster.MetadataValue.json(result.to_values())},
                data_version=dagster.DataVersion(result.fingerprint),
            )

        body.__annotations__.clear()  # Dagster reads them, and a context may have none or its own class
        made: AssetsDefinition = dagster.asset(
            name=_plain(step.name),
            key_prefix=prefix,
            deps=[dagster.AssetKey([prefix, _plain(need)]) for need in step.needs],
            retry_policy=dagster.RetryPolicy(max_retries=step.retries) if step.retries else None,
            description=step.kind,
        )(body)
        return made

    def _done(self, step: PipelineStep, last: DoneStep | None) -> DoneStep:
        try:
            result = self._do(step, last)
        except KeyboardInterrupt:
            self.interrupted = True
            raise
        except (TonnageError, OSError, ValueError) as error:
            self.failed[step.name] = str(error)
            raise
        self.failed.pop(step.name, None)  # an earlier try of the same step
        self.results[step.name] = result
        return result

    def _do(self, step: PipelineStep, last: DoneStep | None) -> DoneStep:
        pipeline, engine = self.pipeline, self.engine
        reads = digest_step(pipeline, step)
        print_ = fingerprint_of(step, reads, {name: self.results[name] for name in step.needs})
        fresh = last is not None and last.fingerprint == print_ and last.stands(pipeline.folder, engine.home)
        if fresh and last is not None and step.name not in engine.forced:
            engine.say(f"{step.name}: up to date")
            return replace(last, cached=True)
        engine.say(f"{step.name}: starts")
        began = time.monotonic()
        result = self._carry_out(step, print_)
        seconds = time.monotonic() - began
        engine.say(f"{step.name}: done in {seconds:,.1f} s")
        return replace(result, seconds=round(seconds, 3))

    def _carry_out(self, step: PipelineStep, print_: str) -> DoneStep:
        pipeline, home = self.pipeline, self.engine.home
        again = f"-{int(time.time())}" if step.name in self.engine.forced else ""
        own = f"{pipeline.name}-{step.name}-{print_[:8]}{again}"
        run = own if step.kind == "run" else (self.results[step.of].run if step.of else None)
        command = render_command(pipeline, step, run=run or "", home=home)
        log = self.engine.logs(pipeline) / f"{step.name}.log"
        kept = None if step.kind == "run" else self.lock  # a run has a supervisor, and is followed by the next pipeline
        said = _start(command, folder=pipeline.folder, home=home, log=log, lock=kept)
        if step.kind == "run" and not run_succeeded(home, own):
            raise StepFailed(f"run {own} did not succeed", hint=f"`tonnage show {own}` says why; log: {log}")
        figures = _figures(said) if step.kind == "evaluate" else {}
        _hold(step, figures)
        return DoneStep(fingerprint=print_, outputs=written(pipeline, step), run=run, figures=figures)


def _start(command: tuple[str, ...], *, folder: Path, home: Path, log: Path, lock: int | None) -> str:
    """Run a command to its end, its words to the log; its stdout. StepFailed with the log's tail.

    The command inherits `lock`: where this process is killed, no other process runs the same step beside it.
    """
    with log.open("w", encoding="utf-8") as file:
        file.write("$ " + " ".join(command) + "\n")
        file.flush()
        try:
            process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=file, text=True, stdin=subprocess.DEVNULL,
                env={**os.environ, "TONNAGE_HOME": str(home)}, pass_fds=() if lock is None else (lock,),
            )  # fmt: skip
        except OSError as error:
            raise StepFailed(f"{command[0]} cannot be started: {error.strerror}", hint="check the command") from error
        if lock is not None:
            os.pwrite(lock, f"{process.pid}\n".encode(), 0)
        with process:
            lines = _listen(process, file)
    if process.returncode:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:])
        raise StepFailed(f"exit code {process.returncode}\n{tail}", hint=f"whole log: {log}")
    return "".join(lines)


def _listen(process: subprocess.Popen[str], file: Any) -> list[str]:
    """Its stdout, kept and logged. Ctrl-C reaches the process too; it is given time to end well."""
    lines = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            file.write(line)
            file.flush()
        process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    return lines


def _figures(said: str) -> dict[str, float]:
    """The metrics of `tonnage evaluate -o json`."""
    try:
        return {name: float(value) for name, value in json.loads(said)["metrics"].items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise StepFailed("`tonnage evaluate` printed no metrics", hint="run it by hand") from error


def _hold(step: PipelineStep, figures: Mapping[str, float]) -> None:
    """StepFailed where a bound of `require` does not hold."""
    for metric, sign, bound in step.require:
        if metric not in figures:
            raise StepFailed(f"no metric is named '{metric}'", hint=f"there are: {', '.join(figures)}")
        value = figures[metric]
        if not (value >= bound if sign == ">=" else value <= bound):
            raise StepFailed(f"{metric} is {value:.4g}, required {sign} {bound:g}", hint="train longer or ask for less")


def _plain(name: str) -> str:
    """A name as Dagster takes it (letters, digits, underscores), no two names alike.

    >>> _plain("train-2"), _plain("train_2")
    ('train_2d2', 'train_5f2')
    """
    return "".join(letter if letter.isalnum() else f"_{ord(letter):x}" for letter in name)


def _last(instance: DagsterInstance, pipeline: Pipeline, step: PipelineStep) -> DoneStep | None:
    key = _dagster().AssetKey([_plain(pipeline.name), _plain(step.name)])
    event = instance.get_latest_materialization_event(key)
    if event is None or event.asset_materialization is None:
        return None
    entry = event.asset_materialization.metadata.get(RECORD)
    return None if entry is None else DoneStep(**dict(entry.value))


def _instance(home: Path) -> DagsterInstance:
    folder = home / "dagster"
    make_private_folder(folder)
    config = folder / "dagster.yaml"
    if not config.exists():
        config.write_text(INSTANCE, encoding="utf-8")
    instance: DagsterInstance = _dagster().DagsterInstance.from_config(str(folder))
    return instance


def _dagster() -> Any:
    try:
        import dagster
    except ImportError as error:
        raise MissingExtra("tonnage pipeline", "pipeline") from error
    logging.getLogger("alembic").setLevel(logging.WARNING)  # the first use of a home tells each migration
    return dagster
