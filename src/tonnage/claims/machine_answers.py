"""Is what a document says of a machine so? GPUs, vCPUs, memory and network against the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tonnage.catalog import InstanceType
from tonnage.claims.figures import Amount
from tonnage.claims.findings import ClaimAnswer
from tonnage.claims.names import Names
from tonnage.claims.statements import InstanceClaim, Transport
from tonnage.errors import nearest
from tonnage.values import dataclass

MEMORY_TOLERANCE: Final = 0.02  # vendors print GB and mean GiB, or round
GPU_MEMORY_TOLERANCE: Final = 0.03
GIB_AS_GB: Final = 1.073741824
NETWORK_TOLERANCE: Final = 0.02
_TRANSPORT_LINKS: Final[dict[str, Transport]] = {  # how the names of links begin
    "efa-": "EFA", "gpudirect-tcpx-": "GPUDirect-TCPX", "gpudirect-tcpxo-": "GPUDirect-TCPXO",
    "infiniband-": "InfiniBand", "roce-": "RoCE",
}  # fmt: skip
COUNT_TOLERANCE: Final = 0.02  # a sixth of a GPU is printed as 0.17
MOST_SIZES: Final = 8
_BURST: Final = re.compile(r"burst up to ([\d.]+) (giga|mega)bit")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAnswer:
    """One quantity of a claim with its answer."""

    quantity: str
    claimed: str
    answer: ClaimAnswer


def answer_machine(claim: InstanceClaim, names: Names) -> tuple[MachineAnswer, ...]:
    """Each stated quantity judged. A name alone is judged only where it is mistaken or unknown."""
    machine = claim.machine
    if machine.kind == "mistaken":
        return (_mistaken(claim, names),)
    if machine.kind == "unknown":
        return (_unknown(claim, names),)
    each = [(one, tuple(_judged(claim, one, names))) for one in machine.machines]
    best, judged = max(each, key=lambda pair: _standing(pair[1]))
    if machine.kind == "series" and claim.transport is None and any(part.answer.verdict == "wrong" for part in judged):
        return (_no_such_size(claim, best, names),)
    return judged


def _standing(parts: Sequence[MachineAnswer]) -> tuple[int, int]:
    """How many parts hold, and how many are known."""
    verdicts = [part.answer.verdict for part in parts]
    return verdicts.count("ok"), len(verdicts) - verdicts.count("unknown")


def describe_claim(claim: InstanceClaim) -> str:
    """All that a claim says, in one line."""
    parts = [part.claimed for part in _stated(claim)]
    return ", ".join(parts) if parts else claim.machine.text


def describe_machine(machine: InstanceType) -> str:
    """A machine's name and figures, in one line."""
    parts = [_gpus(machine)]
    if machine.vcpus is not None:
        parts.append(f"{machine.vcpus:g} vCPUs")
    if machine.memory_gib is not None:
        parts.append(f"{machine.memory_gib:g} GiB")
    return f"{machine.name}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    quantity: str
    claimed: str
    amount: Amount | None


def _stated(claim: InstanceClaim) -> Iterator[_Stated]:
    if claim.gpu is not None or claim.gpus is not None:
        count = "" if claim.gpus is None else f"{claim.gpus:.3g}x "
        yield _Stated(quantity="GPUs", claimed=f"{count}{claim.gpu.text if claim.gpu else 'GPU'}", amount=None)
    for quantity, amount in (
        ("vCPUs", claim.vcpus),
        ("memory", claim.memory),
        ("GPU memory", claim.gpu_memory),
        ("GPU memory each", claim.gpu_memory_each),
        ("network", claim.network),
    ):
        if amount is not None:
            label = {"vCPUs": " vCPUs", "GPU memory": " of GPU memory", "GPU memory each": " a GPU"}.get(quantity, "")
            text = re.sub(r"\s*(v?cpus?|cores)$", "", amount.text, flags=re.IGNORECASE)
            yield _Stated(quantity=quantity, claimed=f"{text}{label}", amount=amount)


def _judged(claim: InstanceClaim, machine: InstanceType, names: Names) -> Iterator[MachineAnswer]:
    if claim.transport is not None:
        answer = _answer_transport(claim.transport, machine)
        yield MachineAnswer(quantity="network transport", claimed=claim.transport, answer=answer)
    for part in _stated(claim):
        if part.amount is None:
            answer = _answer_gpus(claim, machine, names)
        elif part.quantity == "vCPUs":
            answer = _answer(machine, machine.vcpus, "vCPUs", part.amount.covers(machine.vcpus or -1))
        elif part.quantity == "memory":
            answer = _answer_memory(part.amount, machine, names)
        elif part.quantity == "GPU memory":
            answer = _answer_gpu_memory(part.amount, machine, names)
        elif part.quantity == "GPU memory each":
            answer = _answer_gpu_memory(part.amount.scaled(machine.accelerator_count), machine, names)
        else:
            answer = _answer_network(part.amount, machine)
        yield MachineAnswer(quantity=part.quantity, claimed=part.claimed, answer=answer)


def _answer(machine: InstanceType, figure: float | None, unit: str, holds: bool, hint: str = "") -> ClaimAnswer:
    if figure is None:
        return ClaimAnswer(verdict="unknown", hint=f"the catalog has no such figure of {machine.name}")
    return ClaimAnswer(
        verdict="ok" if holds else "wrong",
        right=f"{figure:g} {unit}",
        source=machine.source.text,
        read_on=machine.source.read_on,
        hint=hint,
    )


def _answer_gpus(claim: InstanceClaim, machine: InstanceType, names: Names) -> ClaimAnswer:
    same = claim.gpu is None or machine.accelerator in {device.name for device in claim.gpu.devices}
    counted = claim.gpus is None or abs(claim.gpus - machine.accelerator_count) <= COUNT_TOLERANCE
    hint = ""
    if not (same and counted) and claim.gpu is not None and claim.gpus:
        hint = _elsewhere(names, machine.provider, claim.gpu.family, claim.gpus)
    return ClaimAnswer(
        verdict="ok" if same and counted else "wrong",
        right=_gpus(machine),
        source=machine.source.text,
        read_on=machine.source.read_on,
        hint=hint,
    )


def _elsewhere(names: Names, provider: str, family: str, count: float) -> str:
    found = names.sizes_with(provider, family, count)
    listed = ", ".join(machine.name for machine in found[:4])
    return f"{count:g}x {family} at {provider}: {listed}" if found else f"{provider} sells no {count:g}x {family}"


def _gpus(machine: InstanceType) -> str:
    if machine.accelerator is None:
        return "no GPU"
    return f"{machine.accelerator_count:.3g}x {machine.accelerator}"


def _is_memory(amount: Amount, memory_gib: float | None) -> bool:
    if memory_gib is None:
        return False
    stated = amount.scaled(1024) if amount.unit.startswith("t") else amount
    return any(stated.covers(memory_gib * factor, tolerance_fraction=MEMORY_TOLERANCE) for factor in (1, GIB_AS_GB))


def _answer_memory(amount: Amount, machine: InstanceType, names: Names) -> ClaimAnswer:
    holds = _is_memory(amount, machine.memory_gib)
    like = [one for one in _siblings(machine, names) if _is_memory(amount, one.memory_gib)]
    return _answer(machine, machine.memory_gib, "GiB", holds, "" if holds else _said_of(like))


def _siblings(machine: InstanceType, names: Names) -> tuple[InstanceType, ...]:
    """The provider's other machines with as many vCPUs and GPUs of the same family."""
    return tuple(
        other
        for other in names.catalog.instance_types
        if other.provider == machine.provider
        and other.name != machine.name
        and (other.vcpus, other.accelerator_count) == (machine.vcpus, machine.accelerator_count)
        and (other.accelerator or "").partition("-")[0] == (machine.accelerator or "").partition("-")[0]
    )


def _said_of(machines: Sequence[InstanceType]) -> str:
    return f"that is {', '.join(one.name for one in machines[:3])}" if machines else ""


def _answer_gpu_memory(amount: Amount, machine: InstanceType, names: Names) -> ClaimAnswer:
    total = machine.gpu_memory_gib
    if total is None or not machine.accelerator_count:
        return _answer(machine, total, "GiB", False)
    stated = amount.scaled(1024) if amount.unit.startswith("t") else amount
    right = _answer(machine, total, "GiB", stated.covers(total, tolerance_fraction=GPU_MEMORY_TOLERANCE))
    each = total / machine.accelerator_count
    if right.verdict == "ok" or machine.accelerator_count <= 1:
        return right
    if not stated.covers(each, tolerance_fraction=GPU_MEMORY_TOLERANCE):
        like = [one for one in _siblings(machine, names) if one.gpu_memory_gib and stated.covers(one.gpu_memory_gib)]
        return replace(right, hint=_said_of(like))
    return ClaimAnswer(
        verdict="partly", right=right.right, source=right.source, read_on=right.read_on,
        hint=f"{each:g} GiB is one of its {machine.accelerator_count:g} GPUs",
    )  # fmt: skip


def _answer_network(amount: Amount, machine: InstanceType) -> ClaimAnswer:
    """A network figure is the baseline, or the rate the machine may burst to where it has one."""
    factor = 1000.0 if amount.unit.startswith("t") else 0.001 if amount.unit.startswith("m") else 1.0
    stated = amount.scaled(factor)
    base, burst = machine.network_gbit_per_s, burst_gbit_per_s(machine)
    rates = [rate for rate in (base, burst) if rate is not None]
    holds = any(stated.covers(rate, tolerance_fraction=NETWORK_TOLERANCE) for rate in rates)
    hint = "" if burst is None else f"baseline; bursts up to {burst:g} Gbit/s"
    return _answer(machine, base, "Gbit/s", holds, hint)


def transport_of(machine: InstanceType) -> Transport | None:
    """The network between such machines by its link; None where it is plain Ethernet or not stated."""
    return next((name for start, name in _TRANSPORT_LINKS.items() if machine.scale_out.startswith(start)), None)


def _answer_transport(stated: Transport, machine: InstanceType) -> ClaimAnswer:
    """A machine whose link is plain Ethernet may have the transport as an option: that is not judged."""
    found = transport_of(machine)
    if found is None:
        return ClaimAnswer(verdict="unknown", hint=f"the catalog has no transport of {machine.name}")
    return ClaimAnswer(
        verdict="ok" if found == stated else "wrong", right=found, source=machine.source.text,
        read_on=machine.source.read_on,
    )  # fmt: skip


def burst_gbit_per_s(machine: InstanceType) -> float | None:
    """The rate that a machine reaches for a while, from its note; None where it has only its baseline."""
    match = _BURST.search(machine.notes)
    if match is None:
        return None
    return float(match[1]) / (1000 if match[2] == "mega" else 1)


def _no_such_size(claim: InstanceClaim, like: InstanceType, names: Names) -> MachineAnswer:
    sizes = sorted(claim.machine.machines, key=lambda one: (one.accelerator_count, one.vcpus or 0.0))
    shown = "; ".join(describe_machine(size) for size in sizes[:MOST_SIZES])
    hints = [claim.machine.mistake.what_is_wrong] if claim.machine.mistake else []
    if claim.gpu is not None and claim.gpus:
        hints.append(_elsewhere(names, like.provider, claim.gpu.family, claim.gpus))
    answer = ClaimAnswer(
        verdict="wrong", right=shown, source=like.source.text, read_on=like.source.read_on, hint="; ".join(hints)
    )
    return MachineAnswer(quantity="sizes", claimed=describe_claim(claim), answer=answer)


def _mistaken(claim: InstanceClaim, names: Names) -> MachineAnswer:
    mistake = claim.machine.mistake
    assert mistake is not None
    answer = ClaimAnswer(
        verdict="wrong",
        right="; ".join(_existing(mistake.what_exists, names)) or "no such name",
        source=mistake.source,
        hint=f"does not exist: {mistake.what_is_wrong}",
    )
    return MachineAnswer(quantity="name", claimed=describe_claim(claim), answer=answer)


def _existing(wanted: Sequence[str], names: Names) -> Iterator[str]:
    for name in wanted:
        found = names.machine(name)
        yield describe_machine(found.machines[0]) if found and found.machines else name


def _unknown(claim: InstanceClaim, names: Names) -> MachineAnswer:
    near = nearest(claim.machine.text, [machine.name for machine in names.catalog.instance_types])
    hint = f"; nearest names: {', '.join(near)}" if near else ""
    answer = ClaimAnswer(verdict="unknown", hint=f"not in the catalog of {names.catalog.name}{hint}")
    return MachineAnswer(quantity="name", claimed=describe_claim(claim), answer=answer)
