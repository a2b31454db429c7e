"""Every runner there is, by the name that a workload file and `--runner` use. A new one is a line here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.runners.runner import Local, Runner, Supervised
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import ALONE, PER_NODE, Job, SignalTo
from tonnage.runs.spec import RunnerName, RunSpec
from tonnage.values import dataclass


# The agent starts all workers again when one crashes. Two things make that work: the new workers must not meet the old
# ones' keys in the agent's store (TORCH_DISABLE_SHARE_RDZV_TCP_STORE, with `--standalone`), and an end that is no crash
# (saved, diverged, bad input) must not be one to the agent, which knows only exit code 0: `rank.py` sees to that.
# Ports are chosen by the agent at every start, so that none can be taken.
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


# A driver process runs between supervisor and workers: `ray_driver.py`. The workers run in threads of Ray's actors,
# which take no signals; they are asked to save by the run folder's stop file, so the folder must be on a disk that all
# nodes share.
@dataclass(frozen=True, slots=True, kw_only=True)
class Ray(Supervised):
    """N workers placed by Ray."""

    name: ClassVar[RunnerName] = "ray"
    extra: ClassVar[tuple[str, str] | None] = ("ray", "ray")
    signal_to: ClassVar[SignalTo] = "nobody"

    def command(self, spec: RunSpec, folder: RunFolder) -> tuple[str, ...]:
        on_gpus = spec.launch.device == "cuda" or (spec.launch.device == "auto" and self.gpus > 0)
        gpus = ("--gpus",) if on_gpus else ()  # a worker that asks Ray for none sees none
        return (self.python, "-m", "tonnage.runners.ray_driver", "--worker", self.worker, *gpus, str(folder.path))

    def more_env(self, spec: RunSpec) -> tuple[tuple[str, str], ...]:  # noqa: ARG002
        address = self.environ.get("RAY_ADDRESS")
        return (("RAY_TRAIN_V2_ENABLED", "1"), *([("RAY_ADDRESS", address)] if address else []))


RUNNERS: Final[Mapping[str, type[Local] | type[Torchrun] | type[Ray]]] = {
    one.name: one for one in (Local, Torchrun, Ray)
}


def make_runner(name: str, **given: Any) -> Runner:
    """The runner of a name. InputError names those there are."""
    if name not in RUNNERS:
        hint = did_you_mean(nearest(name, RUNNERS, count=1), f"runners: {', '.join(RUNNERS)}")
        raise InputError(f"no runner is named '{name}'", hint=hint)
    return RUNNERS[name](**given)
