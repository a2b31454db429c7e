"""What places.toml says of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from tonnage.places.bucket.place import BucketPlace

ON_THE_NODES: Final = "nodes"  # of `secret`: the nodes' own environment has what runs need
TYPE_SHARE: Final = 0.001  # of `accelerator_type:NAME`: what Ray itself asks of it for a type


class RayPlace(BucketPlace):
    """A cluster that runs already. Figures are those of one node; a run has one."""

    starts_again: ClassVar[bool] = True

    kind: Literal["ray"]
    address: Annotated[str, Field(pattern=r"^https?://[^\s/]+$")]  # of the dashboard: http://HEAD:8265
    token_file: str | None = None  # None: as Ray's own client: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token
    ca_file: str | None = None  # that signs an https address
    mount: Annotated[str, Field(pattern=r"^/[^\n]*[^/\n]$")] = "/tmp/tonnage"
    resources: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)  # custom ones that it needs
    autoscales: bool = False  # nodes that are not there may come
    notices: Literal["aws", "gcp", "azure"] | None = None  # the nodes are spot machines of this cloud
    secret: Annotated[str, Field(pattern=r"^(aws:.+|gcp:.+/.+|nodes)$")] | None = None

    @property
    def where(self) -> str:
        return self.address.partition("://")[2]

    @property
    def interruptible(self) -> bool:
        return self.notices is not None

    @property
    def secret_address(self) -> str | None:
        return None if self.secret == ON_THE_NODES else self.secret

    @property
    def bundle(self) -> Mapping[str, float]:
        """What a run takes of one node, in Ray's words."""
        gpus = {"GPU": float(self.gpus)} if self.gpus else {}
        kind = {f"accelerator_type:{self.gpu}": TYPE_SHARE} if self.gpus and self.gpu else {}
        return {"CPU": float(self.cores), **gpus, **kind, **self.resources}
