"""The claims of sentences whose figure is not right behind its name: «It carries eight A10G cards».

A figure belongs to the nearest name before it in its sentence; where there is none, to the one behind it; and
where the sentence names nothing, to the machine that the sentence before spoke of. Sentences that contrast two things
between a name and a figure are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from tonnage.claims.document import TextLine
from tonnage.claims.figures import Amount, parse_amount
from tonnage.claims.gpu_counts import count_beside
from tonnage.claims.names import FoundGpu, FoundMachine, GpuName, MachineName, Names, provider_named
from tonnage.claims.statements import Claim, GpuClaim, InstanceClaim, Place, PriceClaim, Transport
from tonnage.claims.table_claims import purchase_of
from tonnage.values import dataclass

_SENTENCE: Final = re.compile(r"(?<=[.!?;])\s+(?=[A-Z0-9])")
_PRONOUN: Final = re.compile(r"^(?:It|They|Each|This (?:machine|instance|one))\b")
_CONTRAST: Final = re.compile(
    r"\b(?:than|versus|vs|instead|rather|unlike|compared|times|faster|slower|twice|half|not|without|if|would|could|"
    r"should|per|next to|beside|against)\b",
    re.IGNORECASE,
)
_VCPUS: Final = re.compile(r"(?P<n>\d[\d,]*)\s*v?CPUs?\b", re.IGNORECASE)
_PRICE: Final = re.compile(
    r"(?:[~≈]\s*|\babout\s+)?\$\s?[\d,]+(?:\.\d+)?\s*(?:/\s?h(?:our|r)?\b|(?:an|per|each)\s+hour\b)", re.IGNORECASE
)
_EACH: Final = re.compile(r"^\s*(?:GPUs?|cards?)?\s*(?:with|of|at)\s+(?P<size>\d[\d.,]*\s*Gi?B)\b(?!/s)", re.IGNORECASE)
_TOGETHER: Final = re.compile(r"\b(?:together|total|altogether|combined|aggregated?|in all)\b", re.IGNORECASE)
_FORMAT: Final = re.compile(r"\b(bf16|bfloat16|fp16|tf32|fp32|fp8|int8)\b", re.IGNORECASE)
_SPARSE: Final = re.compile(r"\b(?:with|using) (?:structured )?sparsity\b|\bsparse\b", re.IGNORECASE)
_RATE: Final = re.compile(r"\d[\d.,]*\s*(?:T(?:era)?FLOPS?|TFLOP/s|TOPS|P(?:eta)?FLOPS?)\b", re.IGNORECASE)
_ABSENT: Final = re.compile(r"\b(?:no|nor|lacks?|cannot|never|neither)\b", re.IGNORECASE)
_TRANSPORT: Final = re.compile(r"\b(EFA|TCPXO|TCPX|InfiniBand|RoCE)(?:v\d)?\b", re.IGNORECASE)
TRANSPORTS: Final[dict[str, Transport]] = {
    "efa": "EFA", "tcpx": "GPUDirect-TCPX", "tcpxo": "GPUDirect-TCPXO", "infiniband": "InfiniBand", "roce": "RoCE",
}  # fmt: skip
_FIGURES: Final = {
    "memory_bandwidth_gb_per_s": re.compile(r"\d[\d.,]*\s*[GT]B/s", re.IGNORECASE),
    "memory_gib": re.compile(r"\d[\d.,]*\s*Gi?B\b(?!/s)(?!\s*(?:of\s+)?(?:RAM|host|system))", re.IGNORECASE),
    "tdp_w": re.compile(r"\d[\d.,]*\s*(?:W|watts?)\b", re.IGNORECASE),
}
COLUMNS: Final = {
    "bf16": "dense_bf16_tflops", "bfloat16": "dense_bf16_tflops", "fp16": "dense_fp16_tflops",
    "tf32": "dense_tf32_tflops", "fp32": "dense_fp32_tflops", "fp8": "dense_fp8_tflops", "int8": "dense_int8_tops",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    machines: tuple[FoundMachine, ...]
    gpus: tuple[FoundGpu, ...]


def sentence_claims(block: Sequence[TextLine], names: Names) -> Iterator[Claim]:
    """The claims of the sentences of one block of running text."""
    spoken_of: MachineName | None = None
    for line in block:
        if line.is_code:
            continue
        place = Place(line=line.number, text=line.text.strip(), headings=line.headings)
        provider = provider_named(*line.headings, line.text)
        for text in _SENTENCE.split(line.text):
            one = _Sentence(text, names.machines_in(text, provider=provider), _outside(text, names, provider))
            named = {found.name.text for found in one.machines}
            if len(named) == 1:
                spoken_of = one.machines[0].name
            subject = one.machines[0].name if len(named) == 1 else spoken_of if _PRONOUN.match(text) else None
            if subject is not None and (len(named) == 1 or not named):
                yield from _of_machine(one, subject, place)
            elif not named:
                yield from _of_gpu(one, place)


def _outside(text: str, names: Names, provider: str | None) -> tuple[FoundGpu, ...]:
    """GPUs named in a sentence, other than inside a machine's name."""
    machines = names.machines_in(text, provider=provider)
    return tuple(gpu for gpu in names.gpus_in(text) if not any(m.start <= gpu.start < m.end for m in machines))


def _of_machine(one: _Sentence, machine: MachineName, place: Place) -> Iterator[Claim]:
    """GPUs, memory of each, processors and price of the one machine that a sentence is about."""
    start = one.machines[0].end if one.machines else 0
    gpus = [found for found in one.gpus if found.start >= start]
    families = {found.name.family for found in gpus}
    if len(families) == 1 and len(gpus) == 1 and not _CONTRAST.search(one.text[start : gpus[0].start]):
        found = gpus[0]
        beside = count_beside(found, one.text)
        each = _EACH.match(one.text[found.end :])
        if beside is not None:
            yield InstanceClaim(
                place=place, machine=machine, gpu=found.name, gpus=beside.count,
                gpu_memory_each=parse_amount(each["size"]) if each else None,
            )  # fmt: skip
    vcpus = list(_VCPUS.finditer(one.text))
    if len(vcpus) == 1 and vcpus[0].start() >= start and not _CONTRAST.search(one.text[start : vcpus[0].start()]):
        yield InstanceClaim(place=place, machine=machine, vcpus=parse_amount(vcpus[0]["n"]))
    yield from _transport_of(one, machine, place, start)
    prices = list(_PRICE.finditer(one.text))
    amount = parse_amount(prices[0][0]) if len(prices) == 1 and prices[0].start() >= start else None
    if amount is not None and not _CONTRAST.search(one.text[start : prices[0].start()]):
        yield PriceClaim(
            place=place, machine=machine, amount=amount, purchase=purchase_of(one.text), is_monthly=False,
            claimed=prices[0][0],
        )  # fmt: skip


def _transport_of(one: _Sentence, machine: MachineName, place: Place, start: int) -> Iterator[InstanceClaim]:
    """The network between such machines, where a sentence names one alone."""
    found = list(_TRANSPORT.finditer(one.text))
    named: set[Transport] = {TRANSPORTS[match[1].casefold()] for match in found}
    if len(named) != 1:
        return
    behind = found[0].start() >= start
    between = one.text[start : found[0].start()] if behind else one.text[:start]
    if not _CONTRAST.search(between) and not _ABSENT.search(between):
        yield InstanceClaim(place=place, machine=machine, transport=named.pop())


def is_of_one(text: str, found: FoundGpu) -> bool:
    """Whether the figures that a text gives of a GPU are those of one: not of several counted, nor of all together."""
    beside = count_beside(found, text)
    return (beside is None or beside.count == 1) and not (found.is_plural and _TOGETHER.search(text))


def _of_gpu(one: _Sentence, place: Place) -> Iterator[GpuClaim]:
    """Data-sheet figures of the one GPU nearest to each of them."""
    for match in _RATE.finditer(one.text):
        gpu = _owner(one, match)
        formats = {name.casefold() for name in _FORMAT.findall(one.text)}
        amount = parse_amount(match[0])
        if gpu is not None and amount is not None and len(formats) == 1:
            rate = amount.scaled(1000) if re.search(r"P(?:eta)?FLOP", match[0], re.IGNORECASE) else amount
            rate = rate.scaled(0.5) if _SPARSE.search(one.text) else rate
            yield _claim(place, gpu, COLUMNS[formats.pop()], rate, match[0])
    for quantity, pattern in _FIGURES.items():
        for match in pattern.finditer(one.text):
            gpu = _owner(one, match)
            amount = parse_amount(match[0])
            linked = re.search(r"\bNVLink|interconnect|Infinity Fabric|PCIe", one.text, re.IGNORECASE)
            if gpu is None or amount is None or (linked and quantity == "memory_bandwidth_gb_per_s"):
                continue
            if quantity == "memory_gib" and not _is_own_memory(one.text, match):
                continue
            yield _claim(place, gpu, quantity, amount, match[0])


def _is_own_memory(text: str, match: re.Match[str]) -> bool:
    """`24 GB of memory`, `has 24 GB`: a size of the GPU rather than of something that has to go on it."""
    behind = re.match(r"\s*(?:of\s+)?(?:GPU |HBM|GDDR|VRAM|memory|RAM)", text[match.end() :], re.IGNORECASE)
    before = re.search(
        r"\b(?:has|have|comes with|with|offers|carries|provides)\s+(?:about\s+)?$", text[: match.start()]
    )
    return behind is not None or (
        before is not None and re.match(r"\s*(?:[.,;]|and\b|$)", text[match.end() :]) is not None
    )


def _claim(place: Place, gpu: GpuName, quantity: str, amount: Amount, claimed: str) -> GpuClaim:
    return GpuClaim(place=place, gpu=gpu, quantity=quantity, amounts=(amount,), claimed=claimed.strip())


def _owner(one: _Sentence, match: re.Match[str]) -> GpuName | None:
    """The GPU that a figure is of; None where the words between leave it open."""
    before = [gpu for gpu in one.gpus if gpu.end <= match.start()]
    if before:
        gpu, between = before[-1], one.text[before[-1].end : match.start()]
    else:
        behind = [gpu for gpu in one.gpus if gpu.start >= match.end()]
        if not behind:
            return None
        gpu, between = behind[0], one.text[match.end() : behind[0].start]
    return gpu.name if is_of_one(one.text, gpu) and not _CONTRAST.search(between) and len(between) <= 90 else None
