"""The training loop: from the newest checkpoint, step by step, until done, stopped, preempted or broken."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from tonnage.errors import InputError
from tonnage.recipes.batches import Feeder, StepBatches, longest_tokens
from tonnage.recipes.beginning import changed_data, note_beginning
from tonnage.recipes.checkpoints import CheckpointInvalid, newest_valid, put_state, read_checkpoint
from tonnage.recipes.checkpoints.reading import folder_name
from tonnage.recipes.engine import StepEngine
from tonnage.recipes.evaluating import evaluate
from tonnage.recipes.health import Diverged
from tonnage.recipes.interrupts import Interrupted, Interrupts
from tonnage.recipes.measuring import Measuring
from tonnage.recipes.out_of_memory import journalled_micro_batch
from tonnage.recipes.position import DataOrder, Position, check_same_data
from tonnage.recipes.preflight import Preflight, halve, restart_smaller
from tonnage.recipes.randomness import put_randomness, seed_all, take_randomness
from tonnage.recipes.saving import Saving
from tonnage.recipes.stepping import StepOutcome, take_step
from tonnage.recipes.task import Prepared
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import RunSpec, TrainingSpec
from tonnage.runs.states import WorkerExit
from tonnage.values import dataclass
from tonnage.workload.run_terms import less_is_better


def data_order(prepared: Prepared, spec: RunSpec) -> DataOrder:
    """The order of a run's samples."""
    training = spec.training
    return DataOrder(samples=len(prepared.train), global_batch=training.global_batch, seed=training.seed)


class Loop:
    """One attempt at a run."""

    def __init__(
        self,
        engine: StepEngine,
        prepared: Prepared,
        spec: RunSpec,
        folder: RunFolder,
        interrupts: Interrupts,
        *,
        steps: int,
    ) -> None:
        self.engine, self.prepared, self.spec, self.folder = engine, prepared, spec, folder
        self.interrupts, self.team, self.steps = interrupts, engine.team, steps
        self.order = data_order(prepared, spec)
        share = len(self.order.share(0, rank=self.team.world - 1, world=self.team.world))
        self.position = Position(micro_batch=min(spec.training.micro_batch or share, share))
        self._standing = BestSoFar()
        self.model_step = 0  # of the weights the run ends with: the last step, or that of the best evaluation
        self.measuring = Measuring(engine, spec, folder, self.order)
        self._saving = Saving(engine, spec, folder, self.position, self.measuring)
        self._feeder = Feeder(
            prepared, self.order, rank=self.team.rank, world=self.team.world, shifted=spec.task == "causal-lm",
            pin=engine.on_gpu,
        )  # fmt: skip

    def run(self) -> int:
        """Train until the last step; an exit code of WorkerExit. What breaks is raised."""
        try:
            self._resume()
            self._preflight()
            if self.team.main:
                place: dict[str, Any] = {"step": self.position.step, "micro_batch": self.position.micro_batch}
                self.folder.record(EventKind.TRAINING, who="rank0", total_steps=self.steps, **place)
            code = self._train()
            if code == WorkerExit.DONE:
                self._saving.save()
            self._saving.wait()
            if code == WorkerExit.DONE:
                self._note_early_stop()
                self.model_step = self.position.step
            if code == WorkerExit.DONE and self.spec.training.keep_best:
                self._go_back_to_best()
            return code
        except Diverged as error:
            raise self._saving.with_last_good(error) from None
        finally:
            self._feeder.close()
            self._saving.close()
            self.measuring.close()

    # ---- before the first step

    def _resume(self) -> None:
        """Go on from the newest checkpoint that verifies; rank 0 looks, all take the same one."""
        seed_all(self.spec.training.seed, self.team.rank, 0)
        found, faults = newest_valid(self.folder.checkpoints) if self.team.main else (None, ())
        if fault := self.team.gather(changed_data(self.spec) if found else None)[0]:
            raise fault
        checkpoint = self.team.gather(found)[0]
        if checkpoint is not None:
            check_same_data(checkpoint, self.order)
            put_state(self.engine, checkpoint, trained_only=self.spec.training.method != "full")
            self.position.restore(checkpoint.position)
            if checkpoint.position.get("timed_on", self.measuring.configuration) == self.measuring.configuration:
                self.measuring.times.restore(checkpoint.position["times"])
            self._saving.found(checkpoint)
        if smaller := self.team.gather(journalled_micro_batch(self.folder))[0]:
            self.position.micro_batch = min(self.position.micro_batch, smaller)
        if self.team.main:
            path = None if checkpoint is None else str(checkpoint.path)
            note_beginning(self.folder, step=self.position.step, path=path, faults=faults)
        self.team.wait()

    def _preflight(self) -> None:
        if self.position.step >= self.steps:
            return
        longest = self.prepared.longest(self.prepared.train)[: self.position.micro_batch]
        filled = [longest[index % len(longest)] for index in range(self.position.micro_batch)]
        preflight = Preflight(
            engine=self.engine, feeder=self._feeder, longest=tuple(filled), spec=self.spec, folder=self.folder
        )
        self.position.micro_batch = preflight.run(self.position.micro_batch)

    # ---- step after step

    def _train(self) -> int:
        self._look_at_evaluations()
        while self.position.step < self.steps and not self._standing.over(self.spec.training):
            began = time.perf_counter()
            batches = self._feeder.at(self.position.step, self.position.micro_batch, last=self._is_last)
            waited = time.perf_counter() - began
            preempted, stopped, due, weight, tokens = self._agree(batches)
            if preempted or stopped:
                return self._leave(stopped=not preempted)
            if due:
                self._saving.save()
                self.measuring.times.interrupt()
            outcome = self._step(batches, weight, tokens, waited)
            if outcome is StepOutcome.ABANDONED:
                return self._leave(stopped=False)
            if outcome is StepOutcome.DONE:
                self._after_step()
        return WorkerExit.DONE

    @property
    def _is_last(self) -> bool:
        return self.position.step + 1 >= self.steps

    def _agree(self, batches: StepBatches) -> tuple[float, ...]:
        """What all processes must do the same way before a step; labels and tokens of the whole global batch."""
        main = self.team.main
        return self.team.total(
            float(self.interrupts.preempted),
            float(main and self.interrupts.stopped),
            float(main and self._saving.due()),
            batches.weight,
            batches.tokens,
        )

    def _step(self, batches: StepBatches, weight: float, tokens: float, waited: float) -> StepOutcome:
        """One step, or none at all: where it cannot be finished, only time is gone."""
        randomness = take_randomness()
        self.measuring.times.begin()
        result = take_step(
            self.engine, batches, weight=weight, clip_norm=self.spec.training.clip_norm, leave=self._no_time_left
        )
        if result.outcome is StepOutcome.DONE:
            samples = self.spec.training.global_batch
            self.measuring.times.end(data_wait_s=waited, samples=samples, tokens=round(tokens))
            self.position.advance(result.loss)
            self.measuring.note(self.position.step, result)
        else:
            put_randomness(randomness)
        if result.outcome is StepOutcome.OUT_OF_MEMORY:
            self._shrink(batches, late=result.late)
        return result.outcome

    def _shrink(self, batches: StepBatches, *, late: bool) -> None:
        """The same step again with half the micro-batch."""
        longest = max(longest_tokens(batch) for batch in batches.micro)
        sizes = {"longest_tokens": longest, "tokens": longest * self.position.micro_batch, "step": self.position.step}
        if late:
            restart_smaller(self.engine, self.folder, self.spec, self.position.micro_batch, **sizes)
        self.position.micro_batch = halve(self.engine, self.folder, self.spec, self.position.micro_batch, **sizes)

    def _no_time_left(self) -> bool:
        """Whether the machine is to go, and this step would take too much of the time left to save."""
        remaining = self.interrupts.remaining_s()
        return remaining is not None and (self.measuring.times.typical_s() or remaining) > remaining / 4

    def _after_step(self) -> None:
        step, every = self.position.step, self.spec.training.evaluate_every_steps
        self._saving.check()
        self.measuring.log_if_due(self.position, last=step == self.steps)
        if every and step % every == 0 and step < self.steps and not self.interrupts.preempted:
            self._evaluate()

    def _evaluate(self) -> None:
        """How good the model is now. A signal cuts it short; training then saves and ends."""
        self.measuring.times.interrupt()
        try:
            found = evaluate(self.engine, self.prepared, self.prepared.validation, self.interrupts, self.position)
        except Interrupted:
            return
        if self.team.main and found is not None:
            metrics = dict(found.metrics)
            self.folder.record(
                EventKind.EVALUATED, who="rank0", step=self.position.step, split="validation", metrics=metrics
            )
        self._look_at_evaluations()
        if self._standing.step == self.position.step and self.spec.training.keep_best:
            self._saving.save()

    def _look_at_evaluations(self) -> None:
        """Which one is the best so far, and how many followed it; rank 0 reads, all know."""
        training = self.spec.training
        if training.keep_best or training.early_stopping is not None:
            own = standing(self.folder, training, step=self.position.step) if self.team.main else BestSoFar()
            self._standing = self.team.gather(own)[0]
            self._saving.keep(self._standing.step if training.keep_best else None)

    def _note_early_stop(self) -> None:
        """Say that training ended before its last step, and by which rule."""
        if self.position.step >= self.steps or not self.team.main:
            return
        found, step = self._standing, self.position.step
        said = (
            f"stopped early after step {step:,} of {self.steps:,}: "
            f"{found.without_gain} evaluations in a row without gain over that of step {found.step:,}"
        )
        self.folder.record(
            EventKind.EARLY_STOP, who="rank0", step=step, best_step=found.step, evaluations=found.without_gain,
            message=said,
        )  # fmt: skip
        print(said, file=sys.stderr)  # noqa: T201

    def _go_back_to_best(self) -> None:
        """Take up the weights of the best evaluation, where its checkpoint is not the newest and verifies."""
        step = self._standing.step
        if step is None or step == self.position.step:
            return
        path = self.folder.checkpoints / folder_name(step)
        try:
            found = read_checkpoint(path) if self.team.main else None
        except CheckpointInvalid as fault:
            found = None
            self.folder.record(EventKind.CHECKPOINT_INVALID, who="rank0", path=str(path), message=fault.message)
        if (checkpoint := self.team.gather(found)[0]) is not None:
            put_state(self.engine, checkpoint, trained_only=self.spec.training.method != "full")
            self.model_step = step
            if self.team.main:
                said = f"the finished model is that of step {step:,}, the best evaluation"
                self.folder.record(EventKind.BEST, who="rank0", step=step, path=str(path), message=said)
                print(said, file=sys.stderr)  # noqa: T201

    def _leave(self, *, stopped: bool) -> int:
        """Save, so that nothing is lost, and say why this attempt ends."""
        self._saving.save()
        self._saving.wait()
        if self.team.main:
            source = "stop" if stopped else self.interrupts.source or "another process"
            self.folder.record(EventKind.INTERRUPTED, who="rank0", signal=source, step=self.position.step)
        self.team.wait()
        return WorkerExit.STOPPED if stopped else WorkerExit.PREEMPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSoFar:
    """The state of a run's evaluations."""

    step: int | None = None  # of the best
    without_gain: int = 0  # evaluations since

    def over(self, training: TrainingSpec) -> bool:
        """Whether so many went without gain that training ends."""
        return training.early_stopping is not None and self.without_gain >= training.early_stopping


def standing(folder: RunFolder, training: TrainingSpec, *, step: int) -> BestSoFar:
    """Of the evaluations up to a step. A step that was evaluated again after a restart counts once."""
    found: dict[int, Mapping[str, float]] = {}
    for event in folder.events(brief=True):
        at = int(event.fields.get("step", 0))
        if event.kind is EventKind.EVALUATED and at <= step and not event.fields.get("finished"):
            found[at] = event.fields["metrics"]
    best: tuple[float, int] | None = None
    without = 0
    for at, metrics in sorted(found.items()):
        value = _value(metrics, training.best_by)
        if best is None or value > best[0]:
            best, without = (value, at), 0
        else:
            without += 1
    return BestSoFar(step=None if best is None else best[1], without_gain=without)


def _value(metrics: Mapping[str, float], name: str | None) -> float:
    """The figure to judge by, the larger the better; the task's first where none is named."""
    name = name or next(iter(metrics))
    if name not in metrics:
        raise InputError(f"no figure of the evaluation is named '{name}'", hint=f"`best_by`: {', '.join(metrics)}")
    return -metrics[name] if less_is_better(name) else metrics[name]
