"""PyTorch on Ray Train (`TorchTrainer`): the perceptron of the engine `pytorch`, gradients exchanged by DDP."""

from __future__ import annotations

from typing import Any

from . import pytorch_net
from .ray_training import RayEngine


class RayPyTorchLearner(pytorch_net.PyTorchEngine):
    """One rank; Ray Train has brought the ranks together."""

    def begin(self) -> None:
        import torch

        self._torch = torch
        torch.set_num_threads(self.job["threads"])
        self._device = torch.device("cpu")

    def prepare(self, table: Any) -> None:
        self.table = table
        self.take(table.features["train"], table.target["train"], table.scales)

    def together(self) -> None:
        """Wait for the others."""
        if self._world > 1:
            self._torch.distributed.barrier()

    def model(self) -> list[dict[str, Any]]:
        """The weights after each epoch."""
        return self._states

    def restore(self, table: Any, scales: pytorch_net.FeatureScales, states: list[dict[str, Any]]) -> None:
        """To predict with what another process trained."""
        self.table, self.scales, self._states = table, scales, states


class RayPyTorchEngine(RayEngine):
    packages = ("ray", "torch")
    trainer = "ray.train.torch:TorchTrainer"
    learner = RayPyTorchLearner

    def _backend(self) -> dict[str, Any]:
        from ray.train.torch import TorchConfig

        return {"torch_config": TorchConfig(backend="gloo", timeout_s=pytorch_net.MEETING_S)}

    def _scales(self) -> pytorch_net.FeatureScales:
        return pytorch_net.scales_of(self.table, self.job["task"])

    def _take(self, model: Any) -> None:
        self._alone = RayPyTorchLearner(self.job | {"rank": 0, "workers": 1})
        self._alone.begin()
        self._alone.restore(self.table, self._scales(), model)

    def predict_at(self, passes: list[int], part: str) -> list[Any]:
        return self._alone.predict_at(passes, part)
