"""Which Terraform files a place of places.toml has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tonnage.errors import InputError
from tonnage.places.aws.place import EC2Place, SageMakerPlace
from tonnage.places.azure.place import AzurePlace
from tonnage.places.google.place import GCEPlace, VertexPlace
from tonnage.places.terraform import azure, google
from tonnage.places.terraform.aws import aws_blocks
from tonnage.places.terraform.hcl import text_of

if TYPE_CHECKING:
    from tonnage.places.file import AnyPlace

KINDS: Final = ("azure", "ec2", "gce", "sagemaker", "vertex")
MAIN: Final = "main.tf"


def terraform_files(name: str, place: AnyPlace, *, nat: bool = False) -> dict[str, str]:
    """The files' texts by their names, the same bytes each time. InputError for a kind that needs none, or has none."""
    notes: list[str] = []
    if isinstance(place, EC2Place | SageMakerPlace):
        blocks = aws_blocks(name, place, nat=nat)
    elif isinstance(place, GCEPlace | VertexPlace):
        blocks, notes = google.google_blocks(name, place, nat=nat), google.quota_notes(place)
    elif isinstance(place, AzurePlace):
        blocks, notes = azure.azure_blocks(name, place), azure.quota_notes(place)
    else:
        raise InputError(f"there are no Terraform files for a place of the kind {place.kind}",
                         hint=f"there are for {', '.join(KINDS)}: docs/places.md")  # fmt: skip
    comment = (
        f"What the place `{name}` needs: network, bucket, role, rights.\n"
        "Made by `tonnage places terraform`; `terraform output` gives what places.toml does not know before."
        + "".join(f"\nAsk for before: {note}." for note in notes)
    )
    return {MAIN: text_of(blocks, comment=comment)}
