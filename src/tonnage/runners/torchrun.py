"""N processes on this machine under PyTorch's elastic agent: a worker that is killed is replaced, the run resumes.

The agent starts all workers anew when one crashes. Two things make that work: the new workers must not meet the old
ones' keys in the agent's store (TORCH_DISABLE_SHARE_RDZV_TCP_STORE, with `--standalone`), and an end that is no crash
(saved, diverged, bad input) must not be one to the agent, which knows only exit code 0: `rank.py` sees to that.
Ports are chosen by the agent at every start, so that none can be taken.
"""

from __future__ import annotations

from typing import ClassVar

from tonnage.runners.runner import Supervised
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import SignalTo
from tonnage.runs.spec import RunnerName, RunSpec
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Torchrun(Supervised):
    """Data-parallel workers, whole (DDP) or sharded (FSDP) as the specification says."""

    name: ClassVar[RunnerName] = "torchrun"
    signal_to: ClassVar[SignalTo] = "children"

    def command(self, spec: RunSpec, folder: RunFolder) -> tuple[str, ...]:
        return (
            self.python, "-m", "torch.distributed.run", "--standalone", "--nnodes", "1",
            "--nproc-per-node", str(spec.launch.processes), "--max-restarts", str(spec.launch.max_restarts),
            "-m", "tonnage.runners.rank", "--worker", self.worker, str(folder.path),
        )  # fmt: skip

    def more_env(self, spec: RunSpec) -> tuple[tuple[str, str], ...]:  # noqa: ARG002
        return (("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"), ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"))
