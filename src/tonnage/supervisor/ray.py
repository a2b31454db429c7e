"""`python -m tonnage.supervisor.ray`: a submission of a run as a job of a Ray cluster, looked after from its head.

The driver holds a placement group with the run's part of a node, or of several nodes apart, starts the run's work there
through an actor each, and starts it again elsewhere where a node is lost or taken away: each start has an epoch of its
own, since a node that Ray has given up may still work. It says how far it is in its log, a line each, by which the
client knows.
`--exec TOKEN` runs a command beside the work of a submission.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tonnage.places.ray.jobs import DRIVER, OUTPUT, SAID
from tonnage.runs.states import WorkerExit
from tonnage.supervisor.meeting import MACHINE_NUMBER
from tonnage.supervisor.node import NodeWork
from tonnage.supervisor.starts import HeldMachine, Lost, Say, carry_out, last_line

LOOK_S: Final = 2.0  # between two looks at a queue
LAST_WORDS_S: Final = 120.0  # beyond the notice, to bring away what was saved


def say(phase: str, **more: str) -> None:
    """A line of the driver's log."""
    sys.stdout.write(SAID + json.dumps({"phase": phase, **{key: value for key, value in more.items() if value}}) + "\n")
    sys.stdout.flush()


class RayCluster:
    """Ray itself, from a driver on its head."""

    def __init__(self, *, home: str, token: str, bundle: Mapping[str, float], nodes: int = 1) -> None:
        import ray

        self._ray, self._token, self._bundle, self._nodes = ray, token, dict(bundle), nodes
        ray.init(address="auto", namespace=f"tonnage-{home}", log_to_driver=False)

    @contextmanager
    def hold(self, epoch: int, say: Say) -> Iterator[HeldMachine]:
        from ray.util.placement_group import placement_group, remove_placement_group

        apart = "STRICT_SPREAD" if self._nodes > 1 else "STRICT_PACK"
        group, actors = placement_group([self._bundle] * self._nodes, strategy=apart), list[Any]()
        try:
            self._wait_for(group, say)
            say("provisioning")
            actors += [self._actor(group, epoch, at) for at in range(self._nodes)]
            with self._losing():
                nodes = self._ray.get([actor.where.remote() for actor in actors])
            yield RayMachines(cluster=self, actors=actors, node=", ".join(nodes))
        finally:
            for actor in actors:
                self._ray.kill(actor)
            remove_placement_group(group)

    def _actor(self, group: Any, epoch: int, at: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        rest = {key: value for key, value in self._bundle.items() if key not in {"CPU", "GPU"}}
        return self._ray.remote(NodeWork).options(
            name=actor_name(self._token, epoch, at), num_cpus=self._bundle["CPU"],
            num_gpus=self._bundle.get("GPU", 0.0), resources=rest, max_restarts=0, max_concurrency=16,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=at),
        ).remote(more={MACHINE_NUMBER: str(at)} if self._nodes > 1 else {})  # fmt: skip

    def _wait_for(self, group: Any, say: Say) -> None:
        said = ""
        while not group.wait(timeout_seconds=LOOK_S):
            reason = self._why_it_waits()
            if reason != said:
                said = reason
                say("queued", reason=reason)

    def _why_it_waits(self) -> str:
        wanted = ", ".join(f"{key}: {amount:g}" for key, amount in self._bundle.items())
        has = sum(node["Alive"] and all(node["Resources"].get(key, 0.0) >= amount for key, amount in
                                        self._bundle.items()) for node in self._ray.nodes())  # fmt: skip
        if has >= self._nodes:
            return f"all nodes that have {wanted} are in use" if self._nodes == 1 else (
                f"of the {has} nodes that have {wanted}, {self._nodes} are needed at once"
            )  # fmt: skip
        return f"{has} nodes have {wanted}, {self._nodes} are needed" if has else f"no node has {wanted}"

    @contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except self._ray.exceptions.RayActorError as error:
            raise Lost(last_line(str(error))) from error

    def first_of(self, answers: Sequence[Any], longest_s: float) -> tuple[int, tuple[int, str]] | None:
        """Which of some answers has come, and what it says; None where none has by then. Lost."""
        ready, _ = self._ray.wait(list(answers), num_returns=1, timeout=max(0.0, longest_s))
        if not ready:
            return None
        with self._losing():
            found: tuple[int, str] = self._ray.get(ready[0])
        return answers.index(ready[0]), found

    def settle(self, answers: Sequence[Any], longest_s: float) -> None:
        """Wait until all have come, whatever they say."""
        if answers:
            self._ray.wait(list(answers), num_returns=len(answers), timeout=longest_s)


class RayMachines:
    """Nodes of a Ray cluster, each held by an actor; the first looks after the run."""

    def __init__(self, *, cluster: RayCluster, actors: Sequence[Any], node: str) -> None:
        self._cluster, self._actors, self.node = cluster, list(actors), node

    def work(self, words: Sequence[str], *, longest_s: float, notice_s: float) -> tuple[int, str]:
        """The end of all: that of one that failed goes before. Where one is lost, the others save and end. Lost."""
        answers = [actor.work.remote(list(words)) for actor in self._actors]
        until, ended = time.monotonic() + longest_s, list[tuple[int, str]]()
        try:
            while answers:
                found = self._cluster.first_of(answers, until - time.monotonic())
                if found is None:
                    self._end()
                    until = time.monotonic() + notice_s + LAST_WORDS_S
                    found = self._cluster.first_of(answers, until - time.monotonic())
                    if found is None:
                        return WorkerExit.PREEMPTED, ""
                at, outcome = found
                answers.pop(at)
                ended.append(outcome)
                if outcome[0] not in {WorkerExit.DONE, WorkerExit.PREEMPTED}:
                    break
        except Lost:
            self._end()
            self._cluster.settle(answers, notice_s + LAST_WORDS_S)
            raise
        if answers:  # one of them cannot work: the others need not wait for it
            self._end()
            self._cluster.settle(answers, notice_s + LAST_WORDS_S)
        return max(ended, key=lambda one: (one[0] != WorkerExit.DONE, one[0] != WorkerExit.PREEMPTED))

    def _end(self) -> None:
        for actor in self._actors:
            actor.end.remote()


def actor_name(token: str, epoch: int, at: int = 0) -> str:
    """Of a start's actor; of the first ones the newest comes last in the order of names.

    >>> max(actor_name("a", 9), actor_name("a", 10)), actor_name("a", 9, 1)
    ('run-a-00010', 'beside-a-00009-1')
    """
    return f"run-{token}-{epoch:05d}" if at == 0 else f"beside-{token}-{epoch:05d}-{at}"


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
    parser.add_argument("--nodes", type=int, default=1, help="of the run, each with such a part")
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
    cluster = RayCluster(home=asked.home, token=asked.token, bundle=asked.bundle, nodes=asked.nodes)
    return carry_out(cluster, asked.command, limit_s=asked.limit_s, notice_s=asked.notice_s, say=say)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
