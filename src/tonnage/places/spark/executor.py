"""A Spark cluster as a place: its drivers, a bucket that client and workers share, and runs over several executors."""

from __future__ import annotations

from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.contract import Submission
from tonnage.places.spark.place import SparkPlace
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job, across_by_environment
from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass


@dataclass(frozen=True, kw_only=True)
class SparkRuns(BucketRuns):
    """One place of the kind `spark`."""

    def render(self, spec: RunSpec, job: Job, folder: RunFolder, *, number: int) -> Submission:
        assert isinstance(self.place, SparkPlace)
        nodes = self.place.nodes
        job = job if nodes == 1 else across_by_environment(job, nodes=nodes)
        return BucketRuns.render(self, spec, job, folder, number=number)
