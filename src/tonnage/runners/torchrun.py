"""N processes on this machine under PyTorch's elastic agent: a worker that is killed is replaced, the run resumes.

The agent starts all workers anew when one crashes. Two things make that work: the new workers must not meet the old
ones' keys in the agent's store (TORCH_DISABLE_SHARE_RDZV_TCP_STORE, with `--standalone`), and an end that is no crash
(saved, diverged, bad input) must not be one to the agent, which knows only exit code 0: `rank.py` sees to that.
Ports are chosen by the agent at every start, so that none can be taken.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import ClassVar, Final

from tonnage.errors import InputError
from tonnage.runners.runner import Supervised
from tonnage.runs.agents import ALONE, PER_NODE
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job, SignalTo
from tonnage.runs.spec import RunnerName, RunSpec
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Torchrun(Supervised):
    """Data-parallel workers, whole (DDP) or sharded (FSDP) as the specification says."""

    name: ClassVar[RunnerName] = "torchrun"
    signal_to: ClassVar[SignalTo] = "children"
    nodes: int = 1  # of a Slurm job; more than one: an agent on each, started by srun

    def render(self, spec: RunSpec, folder: RunFolder) -> Job:
        job = Supervised.render(self, spec, folder)
        if self.nodes == 1:
            return job
        return replace(job, signal_to="nobody")  # a signal reaches this node alone: workers read the folder's notice

    def command(self, spec: RunSpec, folder: RunFolder) -> tuple[str, ...]:
        if self.nodes > 1:
            return ("sh", "-c", self._on_nodes(spec, folder))
        return (
            self.python, "-m", "torch.distributed.run", *ALONE,
            PER_NODE, str(spec.launch.processes), "--max-restarts", str(spec.launch.max_restarts),
            "-m", "tonnage.runners.rank", "--worker", self.worker, str(folder.path),
        )  # fmt: skip

    def _on_nodes(self, spec: RunSpec, folder: RunFolder) -> str:
        """One agent a node, which find one another at the job's first node; what an earlier start left is ended."""
        if spec.launch.processes % self.nodes:
            said = f"{spec.launch.processes} processes cannot be shared out evenly over {self.nodes} nodes"
            raise InputError(said, hint=f"--processes {self.nodes * max(1, spec.launch.processes // self.nodes)}")
        agent = shlex.join([
            self.python, "-m", "torch.distributed.run", "--nnodes", str(self.nodes),
            PER_NODE, str(spec.launch.processes // self.nodes),
            "--max-restarts", str(spec.launch.max_restarts), "--rdzv-backend", "c10d",
        ])  # fmt: skip
        work = shlex.join(["-m", "tonnage.runners.rank", "--worker", self.worker, str(folder.path)])
        return _SRUN.format(nodes=self.nodes, task=shlex.quote(f"exec {agent} {_MEETING} {work}"))

    def more_env(self, spec: RunSpec) -> tuple[tuple[str, str], ...]:  # noqa: ARG002
        return (("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"), ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"))


_MEETING: Final = (
    '--rdzv-id "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" --rdzv-endpoint "$TONNAGE_HEAD:$TONNAGE_PORT" '
    '--rdzv-conf "is_host=$([ "$SLURM_PROCID" = 0 ] && echo true || echo false)"'
)
_SRUN: Final = """\
for step in $(squeue -h -s -j "$SLURM_JOB_ID" -o %i | grep -E '[.][0-9]+$'); do scancel --signal=KILL "$step"; done
TONNAGE_HEAD=$(hostname); TONNAGE_PORT=$((20000 + SLURM_JOB_ID % 20000)); export TONNAGE_HEAD TONNAGE_PORT
exec srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  --kill-on-bad-exit=1 --overlap sh -c {task}
"""
