"""The claims of configuration in code blocks: `node_type: g5.xlarge` with `gpus: 1`, `memory_gib: 16` below it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from tonnage.claims.document import TextLine
from tonnage.claims.figures import Amount, parse_amount
from tonnage.claims.names import MachineName, Names
from tonnage.claims.statements import Claim, InstanceClaim, Place, PriceClaim

_PAIR: Final = re.compile(
    r"""^\s*-?\s*["']?(?P<key>[A-Za-z][\w-]*)["']?\s*[:=]\s*["']?(?P<value>[^"'#,]+?)["']?\s*,?\s*(?:\#.*)?$"""
)
_GPUS: Final = re.compile(r"^(?:gpus|gpu_count|num_gpus|accelerator_count)$")
_VCPUS: Final = re.compile(r"^(?:vcpus?|cpus|num_cpus)$")
_MEMORY: Final = re.compile(r"^(?:memory|ram|mem)_?(?P<unit>gi?b)$")
_PRICE: Final = re.compile(
    r"^(?:usd|price|cost|dollars)_?(?:usd_)?(?:per|an|a)_?(?:instance_)?h(?:ou)?r$|^hourly_(?:price|cost|usd)$"
)


def settings_claims(block: Sequence[TextLine], names: Names) -> Iterator[Claim]:
    """What the keys below a machine's name say of it, up to the next machine."""
    machine: MachineName | None = None
    for line in block:
        pair = _PAIR.match(line.text) if line.is_code else None
        if pair is None:
            continue
        named = names.machine(pair["value"].strip())
        if named is not None and named.kind in ("machine", "mistaken"):
            machine = named
        elif machine is not None:
            place = Place(line=line.number, text=line.text.strip(), headings=line.headings)
            claim = _claim(place, machine, pair["key"].casefold().replace("-", "_"), pair["value"].strip())
            if claim is not None:
                yield claim


def _claim(place: Place, machine: MachineName, key: str, value: str) -> Claim | None:
    amount = parse_amount(value)
    if amount is None or not re.match(r"\$?\d", value):
        return None
    if _GPUS.match(key):
        return InstanceClaim(place=place, machine=machine, gpus=amount.low)
    if _VCPUS.match(key):
        return InstanceClaim(place=place, machine=machine, vcpus=amount)
    memory = _MEMORY.match(key)
    if memory:
        return InstanceClaim(place=place, machine=machine, memory=_with_unit(amount, memory["unit"]))
    if _PRICE.match(key):
        return PriceClaim(
            place=place, machine=machine, amount=amount, purchase="on_demand", is_monthly=False, claimed=value
        )
    return None


def _with_unit(amount: Amount, unit: str) -> Amount | None:
    return parse_amount(f"{amount.text} {'GiB' if unit == 'gib' else 'GB'}")
