"""What places.toml says of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from tonnage.places.bucket.place import ClusterPlace
from tonnage.places.several import SeveralMachines

TYPE_SHARE: Final = 0.001  # of `accelerator_type:NAME`: what Ray itself asks of it for a type


class RayPlace(SeveralMachines, ClusterPlace):
    """A cluster that runs already. Figures are those of one node; those of a run are nodes apart."""

    kind: Literal["ray"]
    address: Annotated[str, Field(pattern=r"^https?://[^\s/]+$")]  # of the dashboard: http://HEAD:8265
    token_file: str | None = None  # None: as Ray's own client: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token
    ca_file: str | None = None  # that signs an https address
    resources: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)  # custom ones that it needs
    autoscales: bool = False  # nodes that are not there may come

    @property
    def where(self) -> str:
        return self.address.partition("://")[2]

    @property
    def bundle(self) -> Mapping[str, float]:
        """What a run takes of each of its nodes, in Ray's words."""
        gpus = {"GPU": float(self.gpus)} if self.gpus else {}
        kind = {f"accelerator_type:{self.gpu}": TYPE_SHARE} if self.gpus and self.gpu else {}
        return {"CPU": float(self.cores), **gpus, **kind, **self.resources}
