"""Quotas in a workload file: stated by hand, or the answer of a cloud's quota API as a file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tonnage.workload.file.fields import Spelled, StrictModel, Word, key

QuotaLimit = Annotated[float, Field(ge=0, le=1e9), Spelled("number, 0 or more")]


class QuotaFields(StrictModel):
    """One limit of an account, or a file of them. Without `family` and `gpu` it counts every machine of the provider.

    The file is what `aws service-quotas list-service-quotas --service-code ec2`, `gcloud compute regions describe
    REGION --format json` or `az vm list-usage -l REGION -o json` print; `region` says which region the last is of.
    """

    file: Word | None = key(
        "The answer of a cloud's quota API, from the folder of this file.", default=None, example="quotas/aws.json"
    )
    provider: Word | None = key("Whose quota it is.", default=None, example="aws")
    family: Word | None = key("The family of machines it counts.", default=None, shown="every one", example="p5")
    gpu: Word | None = key("The GPU whose machines it counts.", default=None, shown="every one", example="H100")
    region: Word | None = key("The region it holds in.", default=None, shown="every region", example="us-east-1")
    purchase: Literal["on_demand", "spot", "any"] = key(
        "The way to buy that it counts; committed machines count as `on_demand`.", default="any", example="spot"
    )
    vcpus: QuotaLimit | None = key("Most vCPUs.", default=None, unit="vCPUs", example="192")
    gpus: QuotaLimit | None = key("Most GPUs.", default=None, unit="GPUs", example="8")
    machines: QuotaLimit | None = key("Most machines.", default=None, unit="machines", example="2")


def as_quotas(value: Any) -> Any:
    """A bare name is a file."""
    entries = [value] if isinstance(value, str | dict) else value
    if not isinstance(entries, list | tuple):
        return value
    return [{"file": entry} if isinstance(entry, str) else entry for entry in entries]
