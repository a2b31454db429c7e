"""`python -m tonnage.supervisor.spark`: a submission of a run as an application of a Spark cluster, looked after from a
worker.

The driver waits for the run's executors and starts its work on them as the tasks of one barrier stage: all at once, or
none. Where an executor is lost, Spark fails the stage, and the driver starts the next one under the next epoch. The
master starts the driver itself again where its worker is lost: it goes on from the epoch in the run's lease. It says in
the bucket how far it is. Its exit code is 0 whatever the run's end is: after any other the master starts it again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, Final

from tonnage.places.bucket.layout import LEASE
from tonnage.places.bucket.objects import Objects, open_objects
from tonnage.places.contract import read_tag
from tonnage.places.spark.jobs import DRIVER, said_key
from tonnage.supervisor.bucket import LAST_WORDS_S, insisted
from tonnage.supervisor.spark_task import Outcome, TaskTerms, in_task
from tonnage.supervisor.starts import HeldMachine, Lost, Say, carry_out

LOOK_S: Final = 1.0  # between two looks at the executors
MOST_LAUNCHES: Final = 12  # of one driver by the master: a driver that ends at once would be launched forever
MOST_REASON: Final = 500
OF_PYTHON: Final = "org.apache.spark.api.python.PythonException"


class ApplicationEnded(Exception):
    """The application was ended at the master: there is nothing more to start."""


class DriverNote:
    """What the driver says, in the bucket, where a client reads it."""

    def __init__(self, objects: Objects, tag: str) -> None:
        self._objects, self._key = objects, said_key(tag)
        found = objects.read(self._key)
        before: dict[str, Any] = {} if found is None else json.loads(found.content)
        self._launches = 1 + int(before.get("launches", 0))
        self.before = str(before.get("reason", ""))  # the last word of the launch before

    @property
    def launches(self) -> int:
        """How often the master has launched this driver."""
        return self._launches

    def say(self, phase: str, **more: str) -> None:
        """Replace the last word."""
        known = {key: value for key, value in more.items() if value}
        content = json.dumps({"phase": phase, "launches": self._launches, "driver": Path.cwd().name, **known})
        sys.stdout.write(content + "\n")
        sys.stdout.flush()
        insisted(lambda: self._objects.write(self._key, content.encode()), LAST_WORDS_S)


class SparkMachines:
    """Executors of an application."""

    def __init__(self, terms: TaskTerms) -> None:
        from pyspark import SparkContext

        self._terms, self._context = terms, SparkContext()
        self._context.setLogLevel("WARN")

    @contextmanager
    def hold(self, epoch: int, say: Say) -> Iterator[HeldMachine]:
        """All executors of the run; they stay from one start to the next."""
        said = ""
        while len(there := self._executors()) < self._terms.nodes:
            reason = f"{len(there)} of {self._terms.nodes} executors are there"
            if reason != said:
                said = reason
                say("queued", reason=reason)
            sleep(LOOK_S)
        say("provisioning")
        yield SparkMachine(self, epoch=epoch, node=",".join(sorted(set(there))))

    def run_stage(self, task: Any) -> list[Outcome]:
        """What the tasks give. Lost where Spark fails the stage; ApplicationEnded."""
        numbers = range(self._terms.nodes)
        rows = self._context.parallelize(numbers, len(numbers)).barrier()
        try:
            found: list[Outcome] = rows.mapPartitions(task).collect()
            return found
        except Exception as error:  # Java's exceptions come through py4j
            if self._ended():
                raise ApplicationEnded(reason_in(str(error))) from error
            if OF_PYTHON in str(error):  # the same on every machine: a module that is missing there
                return [Outcome(code=1, said=python_fault(str(error)))]
            raise Lost(reason_in(str(error))) from error

    @property
    def terms(self) -> TaskTerms:
        return self._terms

    def _ended(self) -> bool:
        try:
            return bool(self._context._jsc.sc().isStopped())
        except Exception:  # the Java side is gone
            return True

    def _executors(self) -> list[str]:
        """Their hosts; the driver is listed beside them. ApplicationEnded."""
        if self._ended():
            raise ApplicationEnded("no worker took it, or it was ended at the master")
        java = self._context._jsc.sc()
        own = str(java.env().blockManager().blockManagerId().hostPort())
        infos = java.statusTracker().getExecutorInfos()
        return [str(one.host()) for one in infos if f"{one.host()}:{one.port()}" != own]


class SparkMachine:
    """The executors of one start."""

    def __init__(self, machines: SparkMachines, *, epoch: int, node: str) -> None:
        self._machines, self._epoch, self.node = machines, epoch, node

    def work(self, words: Sequence[str], *, longest_s: float, notice_s: float) -> tuple[int, str]:  # noqa: ARG002
        task = partial(in_task, words=tuple(words), terms=self._machines.terms, epoch=self._epoch, longest_s=longest_s)
        first = self._machines.run_stage(task)[0]
        return first.code, first.said


def python_fault(said: str) -> str:
    """The last line of the traceback in Spark's long words about a task.

    >>> python_fault(f"{OF_PYTHON}: Traceback:\\nModuleNotFoundError: No module named 'x'\\n\\n\\tat org.Spark")
    "ModuleNotFoundError: No module named 'x'"
    """
    traceback = said.partition(OF_PYTHON)[2].partition("\n\tat ")[0]
    return ([line.strip() for line in traceback.splitlines() if line.strip()] or ["no reason"])[-1][:MOST_REASON]


def reason_in(said: str) -> str:
    """What matters of Spark's long words about a failed stage.

    >>> reason_in("Job aborted due to stage failure: ...\\nExecutorLostFailure (executor 0 exited) Reason: worker lost")
    'worker lost'
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    reason = next((line.partition("Reason: ")[2] for line in lines if "Reason: " in line), "")
    return (reason or (lines[0] if lines else "no reason"))[:MOST_REASON]


def epoch_before(objects: Objects, base: str, token: str) -> int | None:
    """Of the newest start of the submission; None where another submission has the run's lease."""
    found = objects.read(f"{base}/{LEASE}")
    lease: dict[str, Any] = {} if found is None else json.loads(found.content)
    return int(lease.get("epoch", 0)) if lease.get("token") == token else None


def arguments_of(words: Sequence[str]) -> argparse.Namespace:
    """What the driver is asked for."""
    parser = argparse.ArgumentParser(prog=f"python -m {DRIVER}")
    parser.add_argument("--tag", required=True, help="of the submission")
    parser.add_argument("--store", required=True, help="the place's bucket")
    parser.add_argument("--region")
    parser.add_argument("--endpoint", help="of a store that speaks S3's language")
    parser.add_argument("--nodes", type=int, required=True, help="executors of the run")
    parser.add_argument("--mount", required=True, help="the folder of runs on the workers")
    parser.add_argument("--resource", default="", help="as Spark calls the run's GPUs")
    parser.add_argument("--limit-s", type=float, required=True, help="how long the work may take, waiting left out")
    parser.add_argument("--notice-s", type=float, required=True, help="what the work has to save in")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(words)


def drive(asked: argparse.Namespace, machines: Any) -> int:
    """Look after the submission until its end; 0. `machines`: makes them from the terms of a task."""
    tag = read_tag(asked.tag)
    assert tag is not None, asked.tag
    home, token, run = tag
    objects = open_objects(asked.store, region=asked.region, endpoint=asked.endpoint)
    note = DriverNote(objects, asked.tag)
    epoch = insisted(lambda: epoch_before(objects, f"{home}/{run}", token), LAST_WORDS_S)
    if epoch is None:
        note.say("ended", reason="a newer submission has the run")
        return 0
    if note.launches > MOST_LAUNCHES:
        note.say("ended", reason=f"its driver was launched {MOST_LAUNCHES} times: {note.before}")
        return 0
    terms = TaskTerms(nodes=asked.nodes, mount=asked.mount, resource=asked.resource,
                      run=f"{asked.mount}/runs/{home}/{run}", token=token, notice_s=asked.notice_s)  # fmt: skip
    try:
        carry_out(
            machines(terms), asked.command, limit_s=asked.limit_s, notice_s=asked.notice_s, say=note.say, epoch=epoch
        )
    except ApplicationEnded as error:
        note.say("ended", reason=f"its application has ended: {error}")
    except Exception as error:  # the master launches the driver again
        note.say("queued", reason=f"{type(error).__name__}: {reason_in(str(error))}")
        raise
    return 0


def main(arguments: Sequence[str]) -> int:
    """0: the run's end is in the bucket."""
    code = drive(arguments_of(arguments), SparkMachines)
    sys.stdout.flush()
    os._exit(code)  # py4j's threads may wait for a Java side that is gone


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
