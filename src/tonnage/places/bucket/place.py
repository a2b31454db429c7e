"""What places.toml says of every cloud whose machines meet the client in a bucket."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, field_validator

from tonnage.places.bucket.secrets import checked_secret
from tonnage.places.terms import PlaceTerms

BUCKET: Final = r"^((s3|gs|az|file)://|/Volumes/)[^\s]*[^\s/]$"
DIGEST: Final = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
HOW_DIGEST: Final = "its digest: `skopeo inspect --format '{{.Name}}@{{.Digest}}' docker://IMAGE`"


def by_digest(image: str) -> str:
    """The image. ValueError where its name leaves open which one it is."""
    if not DIGEST.fullmatch(image):
        raise ValueError(f"'{image}' names no digest, and a tag may be another image tomorrow; {HOW_DIGEST}")
    return image


class BucketPlace(PlaceTerms):
    """Terms of all whose machines meet the client in a bucket. Figures are those of one machine; a run has one."""

    starts_again: ClassVar[bool] = False  # the place starts a submission again by itself, on another machine
    stays: ClassVar[bool] = False  # a machine may stay after its work, stopped and billed, until it is deleted

    proves_conditions: ClassVar[bool] = False  # the store is asked whether it refuses what is another version by now
    tells_driver: ClassVar[bool] = False  # the cloud's own questions look at the driver of its machines
    secret_schemes: ClassVar[tuple[str, ...]]  # of the references that its machines read; empty: `secret` is none

    bucket: Annotated[str, Field(pattern=BUCKET)]  # runs lie below it; it has to be there
    python: str = "python"  # in the image, or on the machine
    time_limit_minutes: Annotated[int, Field(ge=1)]  # of one submission; the place itself ends the work after it
    secret: str | None = None  # a reference to the variables that the run needs: a JSON object, or lines NAME=VALUE
    mount: Annotated[str, Field(pattern=r"^/[^\n]*[^/\n]$")]  # the folder of runs on the machine
    exchange_s: Annotated[float, Field(gt=0, le=300)] = 5.0  # how often machine and bucket exchange what is new
    owner: str | None = None  # for tags; None: your user name here
    labels: dict[str, str] = Field(default_factory=dict)  # more tags of everything that is made
    endpoint: str | None = None  # of a store that speaks S3's language; None: Amazon's
    patch: dict[str, dict[str, Any]] = Field(default_factory=dict)  # by operation, merged into what is sent

    @property
    def longest_job_h(self) -> float | None:
        return self.time_limit_minutes / 60

    @property
    def interruptible(self) -> bool:
        """Whether the machine may be taken away, with a notice that the run listens to."""
        return False

    @field_validator("secret")
    @classmethod
    def _names_a_store(cls, secret: str | None) -> str | None:
        return secret if secret is None or not cls.secret_schemes else checked_secret(secret, cls.secret_schemes)

    @property
    def secret_address(self) -> str | None:
        """What the machine reads the run's variables by; None where there are none, or the place sets them itself."""
        return self.secret

    @property
    def machine_image(self) -> str | None:
        """The published name of what its machines boot; None where there is none."""
        return None

    @property
    def store_there(self) -> str:
        """The bucket's address for the machine."""
        return self.bucket

    @property
    def store_endpoint(self) -> str | None:
        """Where a store that speaks S3's language is."""
        return self.endpoint


ON_THE_NODES: Final = "nodes"  # of `secret`: the nodes' own environment has what runs need


class ClusterPlace(BucketPlace):
    """Clusters that run already: their nodes reach the bucket with their own rights, and a lost one is replaced."""

    starts_again: ClassVar[bool] = True
    secret_schemes: ClassVar[tuple[str, ...]] = ("aws", "aws-ssm", "gcp", "azure", "vault", "env", "file")

    mount: Annotated[str, Field(pattern=r"^/[^\n]*[^/\n]$")] = "/tmp/tonnage"
    notices: Literal["aws", "gcp", "azure"] | None = None  # the nodes are spot machines of this cloud

    @property
    def interruptible(self) -> bool:
        return self.notices is not None

    @field_validator("secret")
    @classmethod
    def _names_a_store(cls, secret: str | None) -> str | None:
        return secret if secret in {None, ON_THE_NODES} else checked_secret(str(secret), cls.secret_schemes)

    @property
    def secret_address(self) -> str | None:
        return None if self.secret == ON_THE_NODES else self.secret


class CloudPlace(BucketPlace):
    """Terms of all clouds."""

    region: str
    spot: bool = False
    disk_gib: Annotated[int, Field(ge=1)] = 200

    @property
    def interruptible(self) -> bool:
        return self.spot

    @property
    def where(self) -> str:
        return self.region


class ImagePlace(CloudPlace):
    """Clouds whose machines run an image."""

    image: str  # by digest: NAME@sha256:...; it has tonnage and what runs need installed

    @field_validator("image")
    @classmethod
    def _by_digest(cls, image: str) -> str:
        return by_digest(image)


class MachinePlace(ImagePlace):
    """Clouds of which a run has a virtual machine, made for it and ended with it; its image runs in Docker."""

    mount: str = "/var/lib/tonnage"
    setup: Annotated[tuple[str, ...], Field(strict=False)] = ()  # lines of shell on the machine before the run
    public_address: bool = False  # False: the subnets lead to the bucket and the registry by themselves

    @property
    def passed_variables(self) -> tuple[str, ...]:
        """Variables of the machine's script that the container gets too."""
        return ()

    @property
    def read_only_folders(self) -> tuple[str, ...]:
        """Folders of the machine that the container sees and cannot change."""
        return ()

    def holds(self, path: str) -> bool:
        return any(PurePosixPath(path).is_relative_to(folder) for folder in self.read_only_folders)

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices of the machine, or folders of them, that the container gets."""
        return ()

    @property
    def open_folders(self) -> tuple[str, ...]:
        """Folders of the machine that the container sees and writes to, beside `mount`."""
        return ()

    @property
    def library_folder(self) -> str | None:
        """A folder of the machine whose shared libraries the container takes before its own."""
        return None

    @property
    def seen_folders(self) -> Mapping[str, str]:
        """Folders of the machine that the container sees, and cannot change, under another path."""
        return {}

    @property
    def variables_script(self) -> str | None:
        """A script of bash that the container reads variables from before its work."""
        return None

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Of Linux, that the container needs."""
        return ()

    @property
    def run_variables(self) -> Mapping[str, str]:
        """Variables of the run that the machine's network needs."""
        return {}

    @property
    def variable_files(self) -> tuple[str, ...]:
        """Files of the machine with variables of the container, a line NAME=VALUE each."""
        return ()
