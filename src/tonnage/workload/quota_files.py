"""Answers of the clouds' quota APIs, as files: AWS Service Quotas, Google Compute Engine regions, Azure compute usage.

What an answer says of families that the catalog does not hold is passed over. What is in use already counts against
the limit where the answer states it (Google, Azure).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.errors import InputError
from tonnage.workload.quotas import Quota, QuotaPurchase

LARGEST_BYTES: Final = 16 * 2**20
_HINT: Final = (
    "what `aws service-quotas list-service-quotas --service-code ec2`, `gcloud compute regions describe REGION "
    "--format json` or `az vm list-usage -l REGION -o json` print"
)
_AWS_HOURLY = re.compile(r"Running On-Demand (?P<classes>.+) instances")
_AWS_SPOT = re.compile(r"All (?P<classes>.+) Spot Instance Requests")
_AWS_REGION = re.compile(r"arn:aws[\w-]*:servicequotas:(?P<region>[\w-]+):")
_GCP_GPU = re.compile(r"(?P<spot>PREEMPTIBLE_)?NVIDIA_(?P<gpu>[A-Z0-9]+(?:_80GB|_MEGA)?)_GPUS")
_GCP_CPU = re.compile(r"(?P<series>[A-Z]+\d+[A-Z]*)_CPUS")
# Google counts the 40 GB A100 as A100, and H100 of the a3-megagpu machines apart (docs: compute/resource-usage).
_GCP_FAMILIES: Final = {"A100": ("a2-highgpu", "a2-megagpu"), "A100_80GB": ("a2-ultragpu",), "H100": ("a3-highgpu",),
                        "H100_MEGA": ("a3-megagpu",)}  # fmt: skip
# Azure's names of quotas follow no rule: learn.microsoft.com/azure/quotas, the table of VM series and family names.
_AZURE_FAMILIES: Final = {
    "standardncsv3family": ("NCs_v3", "NCrs_v3"),
    "standardncasv3t4family": ("NCas_T4_v3",),
    "standardncadsa100v4family": ("NCads_A100_v4",),
    "standardncadsh100v5family": ("NCads_H100_v5", "NCadis_H100_v5"),
    "standardndasv4a100family": ("NDasr_v4",),
    "standardndamsv4a100family": ("NDamsr_A100_v4",),
    "standardndsh100v5family": ("NDis_H100_v5", "NDisr_H100_v5"),
    "standardndisrh200v5family": ("NDis_H200_v5", "NDisr_H200_v5"),
    "standardndsv2family": ("NDrs_v2",),
    "standardnvadsa10v5family": ("NVads_A10_v5", "NVadms_A10_v5"),
    "standardnvsv3family": ("NVs_v3",),
    "standardnvsv4family": ("NVas_v4",),
}


def load_quotas(path: Path, catalog: Catalog, *, region: str = "") -> list[Quota]:
    """The quotas in a file. `region` of an answer that does not name its own.

    Raises InputError where the file is not such an answer, or none of its quotas is of a machine that is known here.
    """
    answer = _read(path)
    if isinstance(answer, dict) and isinstance(answer.get("Quotas"), list):
        found = list(_aws(answer["Quotas"], catalog, region))
    elif isinstance(answer, dict) and isinstance(answer.get("quotas"), list):
        found = list(_gcp(answer["quotas"], str(answer.get("name", region)), catalog))
    elif isinstance(answer, list) and all(isinstance(one, dict) and "currentValue" in one for one in answer):
        if not region:
            raise InputError(f"{path}: an answer of Azure does not name its region", hint="give `region: eastus` too")
        found = list(_azure(answer, region))
    else:
        raise InputError(f"{path} is not an answer of a quota API known here", hint=_HINT)
    if not found:
        raise InputError(f"{path} holds no quota of machines known here", hint=_HINT)
    return found


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise InputError(f"{path} is over 16 MiB", hint=_HINT)
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}", hint=_HINT) from None


def _aws(rows: list[Any], catalog: Catalog, region: str) -> Iterator[Quota]:
    """Limits of EC2 count vCPUs of the running machines of some classes."""
    families = sorted({one.name.split(".")[0] for one in catalog.instance_types if one.provider == "aws"})
    for row in rows:
        name, value = str(row.get("QuotaName", "")), row.get("Value")
        for pattern, purchase in ((_AWS_HOURLY, "on_demand"), (_AWS_SPOT, "spot")):
            match = pattern.fullmatch(name)
            if match is None or not isinstance(value, int | float):
                continue
            covered = tuple(one for one in families if any(_of_class(one, word) for word in _classes(match["classes"])))
            where = _AWS_REGION.match(str(row.get("QuotaArn", "")))
            if covered:
                yield Quota(
                    provider="aws", unit="vcpus", limit=float(value), families=covered,
                    region=where["region"] if where else region, purchase=_purchase(purchase), name=name,
                )  # fmt: skip


def _classes(text: str) -> list[str]:
    """«P4, P3 and P2» -> p4, p3, p2; «Standard (A, C, D)» -> a, c, d."""
    inner = re.search(r"\((.+)\)", text)
    return [word.casefold() for word in re.findall(r"[A-Za-z]+\d*", inner[1] if inner else text) if word != "and"]


def _of_class(family: str, word: str) -> bool:
    """Whether a family is of a class: `p4` has p4d and p4de; `g` has g5, g4dn and gr6."""
    if word[-1].isdigit():
        return re.fullmatch(re.escape(word) + r"[a-z]*", family) is not None
    letters = re.match(r"[a-z]+", family)
    own = letters[0] if letters else ""
    return own == word or (word == "g" and own == "gr")


def _gcp(rows: list[Any], region: str, catalog: Catalog) -> Iterator[Quota]:
    """Limits of a region count GPUs by kind, or vCPUs by series. A limit of 0 preemptible GPUs means that spot
    machines count against the standard limit."""
    found = {str(row.get("metric")): row for row in rows if isinstance(row, dict)}
    left = {name: float(row.get("limit", 0)) - float(row.get("usage", 0)) for name, row in found.items()}
    for name, limit in left.items():
        gpu, cpu = _GCP_GPU.fullmatch(name), _GCP_CPU.fullmatch(name)
        if gpu is not None and (limit > 0 or not gpu["spot"]):
            own = left.get(f"PREEMPTIBLE_{name}", 0.0) > 0
            purchase = "spot" if gpu["spot"] else "on_demand" if own else "any"
            families = _GCP_FAMILIES.get(gpu["gpu"], ())
            wanted = None if families else parse_gpu_filter(gpu["gpu"])
            if wanted is None or any(wanted.matches_device(device) for device in catalog.accelerators):
                yield Quota(
                    provider="gcp", unit="gpus", limit=limit, families=families, gpu=wanted, region=region,
                    purchase=_purchase(purchase), name=name,
                )  # fmt: skip
        elif cpu is not None and any(
            one.name.startswith(cpu["series"].lower() + "-") for one in catalog.instance_types
        ):
            yield Quota(
                provider="gcp", unit="vcpus", limit=limit, families=(cpu["series"].lower(),), region=region,
                purchase="on_demand", name=name,
            )  # fmt: skip


def _azure(rows: list[Any], region: str) -> Iterator[Quota]:
    """Limits of a region count vCPUs: of a family, of all, of all spot machines."""
    for row in rows:
        names = row.get("name")
        name = str(names.get("value", "")) if isinstance(names, dict) else str(names)
        folded = re.sub(r"[\s_]", "", name).casefold()
        left = float(row.get("limit", 0)) - float(row.get("currentValue", 0))
        families = _AZURE_FAMILIES.get(folded, ())
        if folded in ("cores", "lowprioritycores") or families:
            spot = folded == "lowprioritycores"
            yield Quota(
                provider="azure", unit="vcpus", limit=left, families=families, region=region,
                purchase="spot" if spot else "on_demand", name=name,
            )  # fmt: skip


def _purchase(text: str) -> QuotaPurchase:
    return "spot" if text == "spot" else "on_demand" if text == "on_demand" else "any"
