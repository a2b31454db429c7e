"""What places.toml says of a disk that is filled before GPU machines start: what is on it, and who fetches it."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator

from tonnage.http.urls import without_secrets
from tonnage.places.bucket.place import by_digest
from tonnage.workload.file.fields import StrictModel

FORMAT: Final = 1  # of what a filled disk holds: another one is another disk
COMMIT: Final = re.compile(r"hf://(datasets/|spaces/|models/)?[^/@\s]+/[^/@\s]+@[0-9a-f]{40}(/.*)?")
KEY_DIGITS: Final = 12  # of a content's key in names
SMALLEST_GIB, LARGEST_GIB = 4, 64 * 1024  # «About Hyperdisk ML»: size
SLOWEST_MIB_PER_S, FASTEST_MIB_PER_S = 400, 1_200_000  # the same page: throughput


class FillTerms(StrictModel):
    """A disk of the type hyperdisk-ml, and the machine without GPUs that fetches its content."""

    sources: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]  # as `tonnage fetch` takes them
    include: Annotated[tuple[str, ...], Field(strict=False)] = ()
    exclude: Annotated[tuple[str, ...], Field(strict=False)] = ()
    sums: str = ""  # what `sha256sum FILE...` prints, of sources that are no commit of the Hub
    size_gib: Annotated[int, Field(ge=SMALLEST_GIB, le=LARGEST_GIB)]  # of the disk
    data_gib: Annotated[float, Field(gt=0)] | None = None  # of its content; None: costs are of a full disk
    throughput_mib_per_s: Annotated[int, Field(ge=SLOWEST_MIB_PER_S, le=FASTEST_MIB_PER_S)] | None = None
    instance_type: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]+$")] = "c3-standard-8"  # of the fetching machine
    image: str | None = None  # of a machine of another processor than the place's; None: the place's
    boot_image: Annotated[str, Field(pattern=r"^projects/[^/]+/global/images/(family/)?[^/]+$")] | None = None
    spot: bool = True
    time_limit_minutes: Annotated[int, Field(ge=1)] = 24 * 60
    usd_per_hour: Annotated[float, Field(ge=0)] | None = None  # of the fetching machine; None: the catalog's
    usd_per_gib_month: Annotated[float, Field(ge=0)] | None = None  # of the disk
    usd_per_mib_s_month: Annotated[float, Field(ge=0)] | None = None  # of its provisioned throughput

    @field_validator("image")
    @classmethod
    def _by_digest(cls, image: str | None) -> str | None:
        return None if image is None else by_digest(image)

    @model_validator(mode="after")
    def _pinned(self) -> FillTerms:
        signed = [one for one in self.sources if without_secrets(one) != one]
        if signed:
            raise ValueError(f"`sources`: {without_secrets(signed[0])} has a secret in it, which would be written down")
        loose = [one for one in self.sources if not COMMIT.fullmatch(one)]
        if loose and not self.sums.strip():
            raise ValueError(
                f"`sources`: {loose[0]} may be other bytes tomorrow: hf://ORG/NAME@COMMIT (40 hexadecimal digits), or "
                "`sums` with what `sha256sum FILE...` prints"
            )
        if self.data_gib is not None and self.data_gib > self.size_gib:
            raise ValueError(f"`size_gib`: {self.data_gib:g} GiB do not fit into {self.size_gib}")
        return self

    @property
    def key(self) -> str:
        """Of the content: the same for the same bytes, whoever fills the disk. 64 hexadecimal digits."""
        identity = [FORMAT, self.sources, self.include, self.exclude, self.sums.split()]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    @property
    def fetched_gib(self) -> float:
        """What is fetched, as far as it is known."""
        return self.data_gib or float(self.size_gib)


def filled_disk(name: str, terms: FillTerms) -> str:
    """The disk's name: that of its content too, so that it is found again.

    >>> filled_disk("weights", FillTerms(sources=("hf://a/b@" + "0" * 40,), size_gib=100))
    'tonnage-weights-4a34ada76768'
    """
    return f"tonnage-{name[:40].rstrip('-')}-{terms.key[:KEY_DIGITS]}"
