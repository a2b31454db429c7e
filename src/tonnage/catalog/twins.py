"""One machine listed under several names, or at several prices: which of its prices is the newest."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date

from tonnage.catalog.market import InstanceType, Offer

# RunPod sells a pod by GPU, count and tier; lists name its GPUs differently (`A100-80GB`, `A100-80GB-PCIe`).
_POD = re.compile(r"(?P<count>\d+)x_.+_(?P<tier>COMMUNITY|SECURE)")
Identity = tuple[str, ...]


def identity_of(instance: InstanceType) -> Identity:
    """What makes a machine the same whatever its name: of a pod its GPU, count and tier; else its name."""
    pod = _POD.fullmatch(instance.name)
    if pod is None or instance.accelerator is None:
        return (instance.provider, instance.name)
    return (instance.provider, instance.accelerator, pod["count"], pod["tier"])


def superseded_offers(offers: Iterable[Offer], instances: Mapping[tuple[str, str], InstanceType]) -> dict[Offer, Offer]:
    """Each offer of which a newer price is known: the same machine, bought the same way, in the same region or in any.

    An offer without a date is older than any with one; of two without, both stand.
    """
    groups: dict[tuple[Identity, str], list[Offer]] = defaultdict(list)
    for offer in offers:
        identity = identity_of(instances[offer.provider, offer.instance_type])
        groups[identity, offer.purchase].append(offer)
    found: dict[Offer, Offer] = {}
    for group in groups.values():
        if len(group) > 1:
            found |= _superseded(group)
    return found


def _superseded(group: list[Offer]) -> dict[Offer, Offer]:
    found = {}
    newest: dict[str, Offer] = {}
    for offer in sorted(group, key=lambda one: one.read_on or date.min):
        newest[offer.region] = offer
    for offer in group:
        rivals = [one for region in {"", offer.region} if (one := newest.get(region)) is not None]
        newer = max(rivals, key=lambda one: one.read_on or date.min, default=None)
        if newer is not None and (newer.read_on or date.min) > (offer.read_on or date.min):
            found[offer] = newer
    return found
