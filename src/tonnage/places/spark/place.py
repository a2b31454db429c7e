"""What places.toml says of a Spark cluster."""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from tonnage.places.bucket.place import ClusterPlace
from tonnage.units import GIB, MIB

REST_PORT: Final = 6066  # spark.master.rest.port
WEB_PORT: Final = 8080  # spark.master.ui.port
HADOOP_SCHEMES: Final = {"file": "file", "s3": "s3a", "gs": "gs"}  # of a bucket: as Hadoop's file systems call it
HTTP: Final = r"^https?://[^\s]*[^\s/]$"


class SparkPlace(ClusterPlace):
    """A standalone cluster. Figures are those of one executor; `nodes` executors make a run."""

    kind: Literal["spark"]
    address: Annotated[str, Field(pattern=r"^spark://[^\s/:,]+:\d+$")]  # of the master: spark://HOST:7077
    rest: Annotated[str, Field(pattern=HTTP)] | None = None  # of its REST server; None: http://HOST:6066
    web: Annotated[str, Field(pattern=HTTP)] | None = None  # of its page; None: http://HOST:8080
    nodes: Annotated[int, Field(ge=1, le=1000)] = 1  # more than one: they share the folder `mount`; runner `torchrun`
    resource: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] = "gpu"  # as the workers announce their GPUs
    driver_cores: Annotated[int, Field(ge=1)] = 1
    driver_memory_gib: Annotated[float, Field(ge=0.5)] = 1.0
    code_url: Annotated[str, Field(pattern=r"^[a-z0-9]+://[^\s]*[^\s/]$")] | None = None  # the bucket in Hadoop's words
    settings: dict[Annotated[str, Field(pattern=r"^spark\..+")], str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _reads_the_bucket(self) -> SparkPlace:
        if self.code_url is None and self.bucket.partition("://")[0] not in HADOOP_SCHEMES:
            raise ValueError(f"`code_url` is needed: the address of {self.bucket} as the cluster's Hadoop reads it")
        return self

    @property
    def where(self) -> str:
        return self.address.removeprefix("spark://")

    @property
    def machines(self) -> int:
        return self.nodes

    @property
    def rest_url(self) -> str:
        return self.rest or f"http://{self._host}:{REST_PORT}"

    @property
    def web_url(self) -> str:
        return self.web or f"http://{self._host}:{WEB_PORT}"

    @property
    def hadoop_url(self) -> str:
        """The bucket's address for Spark's own readers."""
        scheme, _, rest = self.bucket.partition("://")
        return self.code_url or f"{HADOOP_SCHEMES[scheme]}://{rest}"

    @property
    def executor_mib(self) -> int:
        return math.ceil(self.memory_gib * GIB / MIB)

    @property
    def driver_mib(self) -> int:
        return math.ceil(self.driver_memory_gib * GIB / MIB)

    @property
    def _host(self) -> str:
        return self.where.rpartition(":")[0]
