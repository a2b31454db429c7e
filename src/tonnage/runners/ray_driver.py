"""The driver of a Ray Train run: `python -m tonnage.runners.ray_driver --worker MODULE RUN_DIR`.

Starts a small cluster on this machine, or joins the one RAY_ADDRESS names, and runs `MODULE.run_worker(folder)` in
every worker, which finds its rank in the standard variables that Ray sets. A worker that dies is Ray's to replace
(FailureConfig); an end that is no crash (saved, diverged, bad input) is not one to Ray, and the worst of the ranks’
codes is the driver's own. SIGTERM becomes the folder's `notice`, since Ray's workers take no signals.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from tonnage.errors import MissingExtra
from tonnage.files import write_whole
from tonnage.runs.exits import exits_left, leave_exit
from tonnage.runs.folder import RunFolder
from tonnage.runs.requests import notice_request
from tonnage.runs.secrets import PREFIX, SECRETS
from tonnage.runs.spec import RunSpec

NOTICE_S: Final = 30.0
OBJECT_STORE_BYTES: Final = 300 * 2**20  # nothing large goes through it: workers read their data themselves
CRASH: Final = 1
SHARED: Final = (  # where models and data are kept, how devices are reached and talk to one another
    "PYTHONPATH", "OMP_", "MKL_", "TOKENIZERS_", "TONNAGE_", "HF_", "TRANSFORMERS_", "XDG_CACHE_HOME", "NCCL_", "GLOO_",
    "TORCH_", "PYTORCH_", "CUDA_DEVICE_ORDER",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Train, and return the worst exit code of the ranks; 1 where Ray gave up."""
    parser = argparse.ArgumentParser(prog="python -m tonnage.runners.ray_driver")
    parser.add_argument("--worker", required=True)
    parser.add_argument("--gpus", action="store_true", help="one for each worker")
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args(arguments)
    folder = RunFolder(asked.folder)
    try:
        import ray
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer
    except ImportError as error:
        raise MissingExtra("the runner 'ray'", "ray") from error
    signal.signal(signal.SIGTERM, lambda *_: write_whole(notice_request(folder), f"{NOTICE_S}\n"))
    spec = folder.spec()
    exits = Path(os.environ["TONNAGE_EXITS"])
    _join_or_start(ray, spec)
    try:
        trainer = TorchTrainer(
            _work,
            train_loop_config={"worker": asked.worker, "folder": str(folder.path), "exits": str(exits)},
            scaling_config=ScalingConfig(
                num_workers=spec.launch.processes,
                use_gpu=asked.gpus,
                resources_per_worker={"CPU": spec.launch.threads or 1} | ({"GPU": 1} if asked.gpus else {}),
            ),
            run_config=RunConfig(
                name=spec.name,
                storage_path=str(folder.path / "ray"),
                failure_config=FailureConfig(max_failures=spec.launch.max_restarts),
            ),
        )
        trainer.fit()
    except ray.exceptions.RayError as error:
        sys.stderr.write(f"ray: {error}\n")
        return CRASH
    except Exception as error:  # Ray Train wraps what its workers raise in classes of its own
        if not type(error).__module__.startswith("ray."):
            raise
        sys.stderr.write(f"ray: {error}\n")
        return CRASH
    finally:
        ray.shutdown()
    return 0


def _join_or_start(ray: Any, spec: RunSpec) -> None:
    """The cluster of RAY_ADDRESS; else one of this machine with a processor for each worker and the controller."""
    common: dict[str, Any] = {"include_dashboard": False, "log_to_driver": True, "runtime_env": _environment()}
    if os.environ.get("RAY_ADDRESS"):
        common.pop("include_dashboard")
        ray.init(**common)
        return
    cpus = spec.launch.processes * (spec.launch.threads or 1) + 1
    ray.init(num_cpus=cpus, object_store_memory=OBJECT_STORE_BYTES, **common)


def _environment() -> dict[str, Any]:
    """What workers are given: module paths and the job's own variables. No secret: Ray would write it down."""
    shared = {name: value for name, value in os.environ.items() if name.startswith(SHARED)}
    return {
        "env_vars": {
            name: value for name, value in shared.items() if name not in SECRETS and not name.startswith(PREFIX)
        }
    }


def _work(given: dict[str, str]) -> None:
    """In each worker: run it, leave its exit code, raise on a crash so that Ray starts all workers again."""
    import ray.train

    context = ray.train.get_context()
    rank = context.get_world_rank()
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(context.get_world_size()), LOCAL_RANK=str(context.get_local_rank())
    )
    exits = Path(given["exits"])
    if exits_left(exits):  # started again though one has ended for good: nothing to wait for
        return
    worker = importlib.import_module(given["worker"])
    code = worker.run_worker(RunFolder(Path(given["folder"])))
    if code == CRASH:
        raise RuntimeError(f"rank {rank} ended with exit code {code}")
    leave_exit(exits, rank, code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
