"""What places.toml says of DigitalOcean's droplets."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, field_validator, model_validator

from tonnage.catalog.market import Platform
from tonnage.places.bucket.place import MachinePlace
from tonnage.places.terms import CatalogMachine

KEYS_FILE: Final = "/opt/tonnage/keys.env"  # of the machine: the bucket's key
REGISTRY: Final = "registry.digitalocean.com"
NO_SPOT: Final = "DigitalOcean sells no spot droplets: leave `spot` out, or take another place for that"
NO_DISK: Final = "`disk_gib`: a droplet's disk comes with its size; `patch.droplets_create.volumes` attaches others"


class DigitalOceanPlace(MachinePlace):
    """Droplets of one size in one region. A run has one; it is deleted by the client, or by itself where it may."""

    secret_schemes: ClassVar[tuple[str, ...]] = ("file",)
    platform: ClassVar[Platform] = "vm"
    stays: ClassVar[bool] = True
    proves_conditions: ClassVar[bool] = True  # Spaces' documents do not name them
    kind: Literal["digitalocean"]
    profile: str | None = None  # of ~/.aws/config, with a key of Spaces; None: boto3's own chain
    bucket_region: Annotated[str, Field(pattern=r"^[a-z]{3}[0-9]$")] | None = None  # of Spaces; None: the droplet's
    instance_type: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]  # the size
    boot_image: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]  # slug or number; cloud-init, Docker, GPU driver
    ssh_keys: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]  # fingerprints or numbers
    vpc: Annotated[str, Field(pattern=r"^[0-9a-f-]{36}$")] | None = None  # None: the region's default
    token_file: Annotated[str, Field(pattern=r"^/\S+$")] | None = None  # of the boot image: a token that may delete

    @field_validator("secret")
    @classmethod
    def _names_a_store(cls, secret: str | None) -> str | None:
        if secret is not None and not secret.startswith("file:/"):
            raise ValueError(
                "DigitalOcean keeps no secrets: file:/PATH of the boot image, with a line NAME=VALUE for each"
            )
        return secret

    @model_validator(mode="before")
    @classmethod
    def _has_no_spot(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("spot"):
            raise ValueError(NO_SPOT)
        if isinstance(given, dict) and "disk_gib" in given:
            raise ValueError(NO_DISK)
        return given

    @model_validator(mode="after")
    def _hang_together(self) -> DigitalOceanPlace:
        if not self.bucket.startswith("s3://"):
            raise ValueError("`bucket` is one of Spaces: s3://BUCKET/PREFIX")
        if self.purchase not in {None, "on_demand"}:
            raise ValueError(f"`purchase`: droplets are bought on demand alone, not as {self.purchase}")
        return self

    @property
    def catalog_machine(self) -> CatalogMachine:
        """The size in the place's own region."""
        return CatalogMachine(self.platform, "digitalocean", self.instance_type, self.region, "on_demand")

    @property
    def store_endpoint(self) -> str:
        """Of Spaces in the bucket's region."""
        return self.endpoint or f"https://{self.bucket_region or self.region}.digitaloceanspaces.com"

    @property
    def space(self) -> str:
        """The bucket's own name."""
        return self.bucket.removeprefix("s3://").partition("/")[0]

    @property
    def registry(self) -> str | None:
        """The account's registry that has the image; None where another one has it."""
        host, _, rest = self.image.partition("/")
        return rest.partition("/")[0] if host == REGISTRY else None

    @property
    def secret_address(self) -> None:
        """The machine's own file has the variables: nobody is asked for them."""
        return

    @property
    def passed_variables(self) -> tuple[str, ...]:
        """Which droplet the machine is: two may have been made for one submission."""
        return ("TONNAGE_MACHINE",)

    @property
    def variable_files(self) -> tuple[str, ...]:
        """The bucket's key, and the run's own variables."""
        return (KEYS_FILE, *([] if self.secret is None else [self.secret.removeprefix("file:")]))
