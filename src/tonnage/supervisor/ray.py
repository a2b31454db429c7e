"""`python -m tonnage.supervisor.ray`: a submission of a run as a job of a Ray cluster, looked after from its head.

The driver holds a placement group with the run's part of a node, starts the run's work there through an actor, and
starts it again elsewhere where the node is lost or taken away: each start has an epoch of its own, since a node that
Ray has given up may still work. It says how far it is in its log, a line each, by which the client knows.
`--exec TOKEN` runs a command beside the work of a submission.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tonnage.places.ray.executor import OUTPUT
from tonnage.places.ray.jobs import DRIVER, SAID
from tonnage.runs.states import WorkerExit
from tonnage.supervisor.node import NodeWork
from tonnage.supervisor.starts import Lost, Machine, Say, carry_out, last_line

LOOK_S: Final = 2.0  # between two looks at a queue
LAST_WORDS_S: Final = 120.0  # beyond the notice, to bring away what was saved


def say(phase: str, **more: str) -> None:
    """A line of the driver's log."""
    sys.stdout.write(SAID + json.dumps({"phase": phase, **{key: value for key, value in more.items() if value}}) + "\n")
    sys.stdout.flush()


class RayCluster:
    """Ray itself, from a driver on its head."""

    def __init__(self, *, home: str, token: str, bundle: Mapping[str, float]) -> None:
        import ray

        self._ray, self._token, self._bundle = ray, token, dict(bundle)
        ray.init(address="auto", namespace=f"tonnage-{home}", log_to_driver=False)

    @contextmanager
    def hold(self, epoch: int, say: Say) -> Iterator[Machine]:
        from ray.util.placement_group import placement_group, remove_placement_group

        group, actor = placement_group([self._bundle], strategy="STRICT_PACK"), None
        try:
            self._wait_for(group, say)
            say("provisioning")
            actor = self._actor(group, epoch)
            with self._losing():
                node = self._ray.get(actor.where.remote())
            yield RayMachine(cluster=self, actor=actor, node=node)
        finally:
            if actor is not None:
                self._ray.kill(actor)
            remove_placement_group(group)

    def _actor(self, group: Any, epoch: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        rest = {key: value for key, value in self._bundle.items() if key not in {"CPU", "GPU"}}
        return self._ray.remote(NodeWork).options(
            name=actor_name(self._token, epoch), num_cpus=self._bundle["CPU"], num_gpus=self._bundle.get("GPU", 0.0),
            resources=rest, max_restarts=0, max_concurrency=16,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
        ).remote()  # fmt: skip

    def _wait_for(self, group: Any, say: Say) -> None:
        said = ""
        while not group.wait(timeout_seconds=LOOK_S):
            reason = self._why_it_waits()
            if reason != said:
                said = reason
                say("queued", reason=reason)

    def _why_it_waits(self) -> str:
        wanted = ", ".join(f"{key}: {amount:g}" for key, amount in self._bundle.items())
        has = [node for node in self._ray.nodes() if node["Alive"]
               and all(node["Resources"].get(key, 0.0) >= amount for key, amount in self._bundle.items())]  # fmt: skip
        return f"all nodes that have {wanted} are in use" if has else f"no node has {wanted}"

    @contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except self._ray.exceptions.RayActorError as error:
            raise Lost(last_line(str(error))) from error

    def get(self, answer: Any, longest_s: float) -> tuple[int, str] | None:
        """What an actor answers; None where it has not by then. Lost."""
        try:
            with self._losing():
                found: tuple[int, str] = self._ray.get(answer, timeout=longest_s)
                return found
        except self._ray.exceptions.GetTimeoutError:
            return None


class RayMachine:
    """A node of a Ray cluster, as its actor holds it."""

    def __init__(self, *, cluster: RayCluster, actor: Any, node: str) -> None:
        self._cluster, self._actor, self.node = cluster, actor, node

    def work(self, words: Sequence[str], *, longest_s: float, notice_s: float) -> tuple[int, str]:
        answer = self._actor.work.remote(list(words))
        found = self._cluster.get(answer, longest_s)
        if found is None:
            self._actor.end.remote()
            found = self._cluster.get(answer, notice_s + LAST_WORDS_S)
        return found or (WorkerExit.PREEMPTED, "")


def actor_name(token: str, epoch: int) -> str:
    """Of a start's actor; the newest comes last in the order of names.

    >>> max(actor_name("a", 9), actor_name("a", 10))
    'run-a-00010'
    """
    return f"run-{token}-{epoch:05d}"


def command_beside(home: str, token: str, folder: str, argv: Sequence[str]) -> int:
    """Run a command where a submission's work is; its output follows a line that marks it."""
    import ray

    ray.init(address="auto", namespace=f"tonnage-{home}", log_to_driver=False)
    names = [name for name in ray.util.list_named_actors() if name.startswith(f"run-{token}-")]
    if not names:
        sys.stdout.write("the run has no node now\n")
        return 1
    code, said = ray.get(ray.get_actor(max(names)).beside.remote(list(argv), folder))
    sys.stdout.write(OUTPUT + said)
    return int(code)


def arguments_of(words: Sequence[str]) -> argparse.Namespace:
    """What the driver is asked for."""
    parser = argparse.ArgumentParser(prog=f"python -m {DRIVER}")
    parser.add_argument("--home", required=True, help="of the client: its runs know one another's names")
    parser.add_argument("--token", help="of the submission")
    parser.add_argument("--bundle", type=json.loads, help="what the run takes of a node, as JSON")
    parser.add_argument("--limit-s", type=float, help="how long the work may take, waiting left out")
    parser.add_argument("--notice-s", type=float, help="what the work has to save in")
    parser.add_argument("--exec", metavar="TOKEN", help="run a command beside that submission's work")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(words)


def main(arguments: Sequence[str]) -> int:
    """The work's end as an exit code."""
    asked = arguments_of(arguments)
    if asked.exec:
        return command_beside(asked.home, asked.exec, asked.command[0], asked.command[1:])
    cluster = RayCluster(home=asked.home, token=asked.token, bundle=asked.bundle)
    return carry_out(cluster, asked.command, limit_s=asked.limit_s, notice_s=asked.notice_s, say=say)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
