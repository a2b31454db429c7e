"""A real Slurm cluster on this machine, for tests and trials: two nodes with eight pretended GPUs each.

Needs Debian's slurm-wlm and munge. Everything listens on 127.0.0.1, lies in one folder and ends with the `with` block.
"""

from __future__ import annotations

import getpass
import os
import platform
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from tonnage.errors import TonnageError
from tonnage.values import dataclass

BINARIES: Final = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "sinfo", "scancel")
PATHS: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
NODES: Final = ("gpu1", "gpu2")
GPUS: Final = 8
START_TIMEOUT_S: Final = 30.0
REQUEUE_DELAY_S: Final = 5  # Slurm's own: how long a credential lives; 120 s by default, or where less than 5 s is set


def missing_binaries() -> tuple[str, ...]:
    """What has to be installed first."""
    return tuple(name for name in BINARIES if shutil.which(name, path=PATHS) is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCluster:
    """One that runs."""

    folder: Path
    nodes: dict[str, subprocess.Popen[bytes]]  # slurmd of each node

    @property
    def environ(self) -> dict[str, str]:
        """What Slurm's commands need to find it."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def command(self, *words: str) -> str:
        """Run one of Slurm's commands; its answer. CalledProcessError where it refuses."""
        done = subprocess.run(words, env={**os.environ, **self.environ}, capture_output=True, text=True, check=True)
        return done.stdout.strip()


@contextmanager
def slurm_cluster(folder: Path, *, grace_s: int = 20) -> Iterator[SlurmCluster]:
    """Start it and wait until all nodes are idle; `grace_s`: between a preemption's signal and the kill.

    Partitions: `batch`, the default, whose jobs are preempted and requeued by those of `urgent`; `short`, one minute.
    """
    if missing := missing_binaries():
        raise TonnageError(f"{missing[0]} is not here", hint="apt-get install --no-install-recommends slurm-wlm munge")
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, grace_s)
    with ExitStack() as stack:
        _start(stack, folder, "munged", "--foreground", "--force", *_munge(folder))
        _wait_for((folder / "munge.sock").exists)
        _start(stack, folder, "slurmctld", "-D", "-i", "-f", str(folder / "slurm.conf"))
        nodes = {
            name: _start(
                stack, folder, "slurmd", "-D", "-N", name, "-f", str(folder / "slurm.conf"), log=f"slurmd-{name}"
            )
            for name in NODES
        }
        cluster = SlurmCluster(folder=folder, nodes=nodes)
        stack.callback(_end_jobs, cluster)
        _wait_for(lambda: _idle(cluster) == len(NODES))
        yield cluster


def _end_jobs(cluster: SlurmCluster) -> None:
    """No job outlives the cluster."""
    with suppress(subprocess.CalledProcessError):
        cluster.command("scancel", "--signal=KILL", "--full", "--user", getpass.getuser())
        cluster.command("scancel", "--user", getpass.getuser())
        with suppress(TimeoutError):
            _wait_for(lambda: not cluster.command("squeue", "-h", "-t", "RUNNING,COMPLETING"), limit_s=10)


def _idle(cluster: SlurmCluster) -> int:
    try:
        return cluster.command("sinfo", "-h", "-N", "-p", "batch", "-t", "idle", "-o", "%N").count("gpu")
    except subprocess.CalledProcessError:  # the controller does not answer yet
        return 0


def _start(stack: ExitStack, folder: Path, *words: str, log: str = "") -> subprocess.Popen[bytes]:
    tool = shutil.which(words[0], path=PATHS)
    assert tool is not None
    with (folder / f"{log or words[0]}.log").open("ab") as out:
        process = subprocess.Popen([tool, *words[1:]], stdout=out, stderr=out, start_new_session=True)
    stack.callback(_stop, process)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(true: object, *, limit_s: float = START_TIMEOUT_S) -> None:
    assert callable(true)
    until = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > until:
            raise TimeoutError("Slurm did not come so far in time")
        time.sleep(0.1)


def _munge(folder: Path) -> list[str]:
    options = {"socket": "munge.sock", "key-file": "munge.key", "pid-file": "munge.pid", "seed-file": "munge.seed",
               "log-file": "munge.log"}  # fmt: skip
    return [f"--{name}={folder / file}" for name, file in options.items()]


def _write(folder: Path, grace_s: int) -> None:
    """Its files: configuration, key, pretended devices."""
    folder.chmod(0o755)
    for name in ("state", "spool-gpu1", "spool-gpu2"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    (folder / "gres.conf").write_text("AutoDetect=off\n" + _devices(folder))
    (folder / "slurm.conf").write_text(_configuration(folder, grace_s))


def _devices(folder: Path) -> str:
    """Device files that are no devices (the null device's numbers); GPUs without files where we may make none."""
    try:
        for number in range(GPUS):
            os.mknod(folder / f"nvidia{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        return f"Name=gpu Type=h100 Count={GPUS}\n"
    return f"Name=gpu Type=h100 File={folder}/nvidia[0-{GPUS - 1}]\n"


def _configuration(folder: Path, grace_s: int) -> str:
    user, host = getpass.getuser(), platform.node().split(".")[0]
    controller, *ports = free_ports(1 + len(NODES))
    cores = 8  # pretended: jobs share those there are
    nodes = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} RealMemory=64000 "
        f"Gres=gpu:h100:{GPUS} State=UNKNOWN"
        for name, port in zip(NODES, ports, strict=True)
    ]
    return "\n".join(
        [
            f"ClusterName=trial\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}",
            f"SlurmUser={user}\nSlurmdUser={user}",
            f"AuthType=auth/munge\nAuthInfo=socket={folder}/munge.sock,cred_expire={REQUEUE_DELAY_S}",
            "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
            f"StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n",
            f"SlurmctldPidFile={folder}/ctld.pid\nSlurmdPidFile={folder}/slurmd-%n.pid",
            f"SlurmctldLogFile={folder}/ctld.log\nSlurmdLogFile={folder}/slurmd-%n.log",
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none",
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nGresTypes=gpu",
            "SlurmdParameters=config_overrides\nReturnToService=2",
            "SchedulerType=sched/backfill\nSchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0",
            "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE",
            "SlurmctldParameters=preempt_send_user_signal",
            "JobRequeue=1\nKillWait=5\nSlurmdTimeout=10\nMinJobAge=300\nInactiveLimit=0",
            "AccountingStorageType=accounting_storage/none\nJobCompType=jobcomp/none\nJobAcctGatherType=jobacct_gather/none",
            *nodes,
            f"PartitionName=batch Nodes=ALL Default=YES MaxTime=1:00:00 State=UP PriorityTier=1 PreemptMode=REQUEUE "
            f"GraceTime={grace_s}",
            "PartitionName=urgent Nodes=ALL MaxTime=1:00:00 State=UP PriorityTier=10 PreemptMode=OFF",
            "PartitionName=short Nodes=gpu1 MaxTime=1 State=UP PriorityTier=1 PreemptMode=OFF\n",
        ]
    )  # fmt: skip


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 without a listener now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


if __name__ == "__main__":  # a cluster to try by hand: python -m tonnage.testing.slurm FOLDER
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its daemons end with it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with slurm_cluster(Path(sys.argv[1]).resolve()) as trial:
        sys.stdout.write(f"export SLURM_CONF={trial.environ['SLURM_CONF']}\n")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(60)
