"""What the loop measures as it goes, and the lines of metrics it writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psutil

from tonnage.recipes.engine import StepEngine
from tonnage.recipes.environment import device_name
from tonnage.recipes.health import NEVER, Diverged, Health
from tonnage.recipes.position import DataOrder, Position
from tonnage.recipes.progress_line import say_progress
from tonnage.recipes.stepping import StepResult
from tonnage.recipes.timing import StepTimes
from tonnage.runs.folder import RunFolder, append_values
from tonnage.runs.progress import ProgressWriter
from tonnage.runs.spec import RunSpec


class Measuring:
    """Times, losses and memory of one attempt. The device is read when a line is due and no oftener."""

    def __init__(self, engine: StepEngine, spec: RunSpec, folder: RunFolder, order: DataOrder) -> None:
        self._engine, self._spec, self._folder, self.order = engine, spec, folder, order
        self.times = StepTimes(on_gpu=engine.on_gpu)
        self._health = Health(engine.machine.accelerator.device)
        self._process = psutil.Process()
        self._progress = ProgressWriter(folder.path) if engine.team.main else None
        self._reading_is_free = not engine.on_gpu and engine.team.world == 1

    @property
    def configuration(self) -> list[Any]:
        """What step times are of: those of another configuration are no part of this one's."""
        return [self._engine.team.world, device_name(on_gpu=self._engine.on_gpu)]

    def note(self, step: int, result: StepResult) -> None:
        """Take in a step that was done."""
        if self._progress is not None:
            self._progress.note(step)
        self._health.note(step, result)
        if self._reading_is_free:
            self.check_health()

    def check_health(self) -> None:
        """Diverged, with the step; all processes together."""
        first = self._health.first_bad_step()
        bad = NEVER - self._engine.team.largest(NEVER - (first if first is not None else NEVER))
        if bad != NEVER:
            raise Diverged(f"loss or gradients are no numbers at step {bad}")

    def log_if_due(self, position: Position, *, last: bool) -> None:
        """A line of metrics every so many steps, after the first and after the last."""
        step, every = position.step, self._spec.training.log_every_steps
        if step % every and not last:
            return
        position.settle(self._engine.team)
        self.check_health()
        window, loss = self.times.close_window(), position.take_mean_loss()
        if self._engine.team.main:
            line = {
                "step": step,
                "at": datetime.now(UTC).isoformat(),
                "epoch": self.order.epoch(step),
                "loss": loss,
                "learning_rate": self._engine.schedule.get_last_lr()[0],
                "steps": window.steps,  # since the line before; the figures below are means of these steps
                "samples": window.samples / window.steps,
                "tokens": window.tokens / window.steps,
                "step_s": window.step_s,
                "data_wait_s": window.data_wait_s,
                **self.memory(),
            }
            append_values(self._folder.metrics_file, line)
            say_progress(line)

    def memory(self) -> dict[str, Any]:
        """Peaks of the device, where there is one, and what this process holds on the host."""
        figures = {"host_rss_bytes": self._process.memory_info().rss}
        if self._engine.on_gpu:
            import torch

            figures["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
            figures["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
            figures["allocation_retries"] = torch.cuda.memory_stats().get("num_alloc_retries", 0)
        return figures

    def close(self) -> None:
        if self._progress is not None:
            self._progress.close()
