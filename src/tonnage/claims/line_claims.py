"""The claims of running text, lists and code blocks: machines with figures behind their names, sums, models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from tonnage.catalog import Purchase
from tonnage.claims.document import TextLine
from tonnage.claims.figures import WORDS, Amount, parse_amount
from tonnage.claims.fit_claims import fit_claims
from tonnage.claims.model_names import FoundModel, find_models
from tonnage.claims.names import FoundGpu, FoundMachine, Names, provider_named
from tonnage.claims.percentages import percentage_claims
from tonnage.claims.platform_claims import platform_claims
from tonnage.claims.rate_claims import rate_claims
from tonnage.claims.sentences import is_of_one, sentence_claims
from tonnage.claims.settings_blocks import settings_claims
from tonnage.claims.statements import (
    ArithmeticClaim,
    Claim,
    GpuClaim,
    GpuPriceClaim,
    InstanceClaim,
    MemoryNeedClaim,
    ModelSizeClaim,
    Place,
    PriceClaim,
    purpose_of,
)
from tonnage.claims.sums import Sum, find_sums
from tonnage.claims.table_claims import purchase_of
from tonnage.claims.token_prices import token_price_claims

LONGEST_LINE_CHARACTERS: Final = 4000
_CONNECTOR: Final = re.compile(
    r"[\s`*\"')\]]*(?:(?:#+|//|:|\(|-+>?|–|—|=|→|,|\||with|has|have|is|are|offers|provides|includes|features|featuring"
    r"|comes with|costs?|at|from|instances?|machines?|nodes?|VMs?|on-demand|which|that)"
    r"\s*)*"
    r"[\s`*\"'(]*"
)
_BETWEEN: Final = re.compile(
    r",(?!\d)|;|\band\b|\bwith\b|\bat\b|[()|]|/(?!\s*(?:h|mo|s\b|gpu))|\bcosts?\b|\bfor\b|\s[-–—]\s|\.\s",
    re.IGNORECASE,
)
_CONTRAST: Final = re.compile(r"\b(?:even|instead|versus|vs|than|rather|not|but|if|unlike|compared)\b", re.IGNORECASE)
_FIGURE_FIRST: Final = re.compile(
    rf"[~≈$\d]|up to\b|about\b|USD|(?:an? )?(?:(?:{'|'.join(WORDS)}) )?(?:NVIDIA|[A-Z]{{1,3}}\d)"
)
_FILLER: Final = re.compile(r"(?:GPU|card|instance|machine|core)s?|each|it|memory|RAM|VRAM", re.IGNORECASE)
_VCPUS: Final = re.compile(r"\d[\d,]*\s*(?:v?CPUs?|cores)\b", re.IGNORECASE)
_MEMORY: Final = re.compile(r"[\d.,]+\s*[GT]i?B\s*(?:of\s+)?(?:RAM|(?:system |host )?memory)\b", re.IGNORECASE)
_GPU_MEMORY: Final = re.compile(r"[\d.,]+\s*[GT]i?B\s*(?:of\s+)?(?:GPU (?:memory|RAM)|VRAM|HBM\w*)\b", re.IGNORECASE)
_GPUS: Final = re.compile(r"(\d{1,2})\s*(?:x\s*)?GPUs?\b", re.IGNORECASE)
_NETWORK: Final = re.compile(r"(?:up to\s+)?[\d.,]+\s*(?:[GT]bps|[GT]b(?:it)?/s|Gigabit)\b", re.IGNORECASE)
_PRICE: Final = re.compile(
    r"[~≈]?\s*(?:about\s+)?(?:(?:\$|USD\s?)[\d.,]+(?:\s*(?:-|–|to)\s*\$?[\d.,]+)?|[\d.,]+\s*(?:USD|dollars))\s*"
    r"(?:/\s?|\bper\s+|\ban?\s+)(?P<per>instance[\s-]|GPU[\s-](?:per\s+)?)?(?P<unit>h(?:ou)?r|h|mo(?:nth)?)\b",
    re.IGNORECASE,
)
_PRICE_FOR: Final = re.compile(rf"{_PRICE.pattern}\s+for\s+(?:an?\s+|one\s+|each\s+)?[`*]*$", re.IGNORECASE)
_GPU_FIGURES: Final = {
    "memory_gib": re.compile(r"[\d.,]+\s*Gi?B\s*(?:of\s+)?(?:GPU |HBM|GDDR|VRAM|memory|RAM)", re.IGNORECASE),
    "memory_bandwidth_gb_per_s": re.compile(r"[\d.,]+\s*[GT]B/s(?!\s*(?:NVLink|interconnect|PCIe))", re.IGNORECASE),
    "cuda_cores": re.compile(r"[\d.,]+\s*CUDA cores", re.IGNORECASE),
    "tensor_cores": re.compile(r"[\d.,]+\s*tensor cores", re.IGNORECASE),
    "tdp_w": re.compile(r"[\d.,]+\s*W\b(?:\s*TDP)?", re.IGNORECASE),
}
_PER_GPU: Final = re.compile(r"\b(?:per|each|a|one)\s+GPU\b|/\s?GPU\b|\bGPU[\s-]hour", re.IGNORECASE)
_USAGE: Final = re.compile(r"\bh(?:ours?)?\s*(?:/|per|a)\s*(?:day|week|month)|\bhours\b|\b24/7\b", re.IGNORECASE)
_PARAMETERS: Final = re.compile(
    r"[\s:(–—,-]*(?:(?:is|has|have|with|at|of|a|about|around|roughly|some|model|contains?|counts?|comes to|holds?)\s+)*"
    r"(?P<amount>[~<>]?\s*\d[\d.,]*\s*[MBT]?(?:\s*(?:-|–|to)\s*\d[\d.,]*)?\s*(?:[MBT]|million|billion|trillion)?\+?)[\s-]*param",
    re.IGNORECASE,
)
_NEED: Final = re.compile(
    r"(?P<before>[^.;]{0,60}?)\b(?:needs?|requires?|takes?|uses?|fits? (?:in|on|into)|occup(?:y|ies))\s+"
    r"(?:about\s+|around\s+|roughly\s+|at least\s+|up to\s+)?"
    r"(?P<amount>~?\s*[\d.]+(?:\s*(?:-|–|to)\s*[\d.]+)?\s*Gi?B)\b",
    re.IGNORECASE,
)
_PRECISION: Final = re.compile(r"\b(fp16|bf16|fp32|int8|int4)\b", re.IGNORECASE)


def line_claims(lines: Sequence[TextLine], names: Names) -> Iterator[Claim]:
    """Every claim outside tables, block by block."""
    for _, group in groupby(lines, key=lambda line: line.block):
        block = [line for line in group if len(line.text) <= LONGEST_LINE_CHARACTERS]
        machines = {line.number: _machines(line, names) for line in block}
        for line in block:
            yield from _machine_claims(line, machines[line.number], names)
            yield from _model_claims(line)
            if not machines[line.number]:
                yield from _gpu_claims(line, names)
            for one in find_sums(line.text):
                yield _sum_claim(line, one)
                yield from _price_in_sum(line, one, [found for row in machines.values() for found in row])
            yield from percentage_claims(line)
            yield from platform_claims(line, names.catalog)
            yield from fit_claims(line, names)
            yield from rate_claims(line, names)
        yield from token_price_claims(block)
        yield from sentence_claims(block, names)
        yield from settings_claims(block, names)


def _place(line: TextLine) -> Place:
    return Place(line=line.number, text=line.text.strip(), headings=line.headings)


def _machines(line: TextLine, names: Names) -> tuple[FoundMachine, ...]:
    return names.machines_in(line.text, provider=provider_named(*line.headings, line.text))


def _machine_claims(line: TextLine, machines: Sequence[FoundMachine], names: Names) -> Iterator[Claim]:
    """What follows each name, up to the next one."""
    if machines:
        yield from _price_before(line, machines[0])
    ends = [*(found.start for found in machines[1:]), len(line.text)]
    for found, end in zip(machines, ends, strict=False):
        segment = line.text[found.end : end]
        items = list(_items(segment))
        claim = _instance_claim(line, found, items, names)
        yield claim
        count = _count_before(line.text[: found.start])
        behind_gpu = _PER_GPU.search(line.text[: found.start]) is not None
        for item in items:
            price = _PRICE.match(item)
            amount = parse_amount(price[0]) if price else None
            monthly = price is not None and price["unit"].casefold().startswith("mo")
            if amount is not None and not (monthly and (count > 1 or _USAGE.search(line.text))):
                yield PriceClaim(
                    place=_place(line), machine=found.name, amount=amount, purchase=_purchase(item, line.text),
                    is_monthly=monthly, is_per_gpu=behind_gpu or _PER_GPU.search(item) is not None,
                    claimed=item.strip(), gpu=claim.gpu, gpus=claim.gpus, count=count,
                )  # fmt: skip


def _price_before(line: TextLine, machine: FoundMachine) -> Iterator[PriceClaim]:
    """«$3.06 an hour for a p3.2xlarge»."""
    match = _PRICE_FOR.search(line.text[: machine.start])
    amount = parse_amount(match[0]) if match else None
    if match is not None and amount is not None:
        yield PriceClaim(
            place=_place(line), machine=machine.name, amount=amount, purchase=purchase_of(line.text),
            is_monthly=match["unit"].casefold().startswith("mo"), claimed=match[0].strip(),
        )  # fmt: skip


def _purchase(item: str, line: str) -> Purchase:
    """As the part with the price says; where it says nothing, as its line does."""
    stated = purchase_of(item)
    says = stated != "on_demand" or re.search(r"\bon[- ]demand\b", item, re.IGNORECASE)
    return stated if says or re.search(r"\bon[- ]demand\b", line, re.IGNORECASE) else purchase_of(line)


def _count_before(text: str) -> float:
    """The machines that `3x ` before a name speaks of."""
    match = re.search(r"(\d{1,4})\s*[x×]\s*[`*]*$", text)
    return float(match[1]) if match else 1.0


def _items(segment: str) -> Iterator[str]:
    """The parts of what follows a name, as long as each begins like a figure."""
    rest = segment[_CONNECTOR.match(segment).end() :]  # type: ignore[union-attr]
    for part in _BETWEEN.split(rest):
        text = part.strip(" \t`*\"'#:=-–—")
        if _FILLER.fullmatch(text):
            continue
        if _CONTRAST.search(text):
            return
        if text and not _FIGURE_FIRST.match(text):
            return
        if text:
            yield text.rstrip(".")


def _instance_claim(line: TextLine, found: FoundMachine, items: Sequence[str], names: Names) -> InstanceClaim:
    gpu = _gpu(items, names)
    return InstanceClaim(
        place=_place(line),
        machine=found.name,
        gpu=gpu.name if gpu else None,
        gpus=gpu.count if gpu else _gpu_count(items),
        vcpus=_first(_VCPUS, items),
        memory=_first(_MEMORY, items),
        gpu_memory=_first(_GPU_MEMORY, items),
        network=_first(_NETWORK, items),
    )


def _gpu_claims(line: TextLine, names: Names) -> Iterator[Claim]:
    """`T4: 16 GB GDDR6, 2,560 CUDA cores, $0.35/hour`: the figures behind a GPU's name, up to the next GPU."""
    gpus = names.gpus_in(line.text)
    ends = [*(found.start for found in gpus[1:]), len(line.text)]
    for found, end in zip(gpus, ends, strict=False):
        if not is_of_one(line.text, found):
            continue
        for item in _items(line.text[found.end : end]):
            for quantity, pattern in _GPU_FIGURES.items():
                amount = parse_amount(match[0]) if (match := pattern.match(item)) else None
                if amount is not None:
                    yield GpuClaim(
                        place=_place(line), gpu=found.name, quantity=quantity, amounts=(amount,), claimed=item.strip()
                    )
            price = _PRICE.match(item)
            amount = parse_amount(price[0]) if price else None
            monthly = price is not None and price["unit"].casefold().startswith("mo")
            if amount is not None and not monthly and purchase_of(line.text) == "on_demand":
                yield GpuPriceClaim(place=_place(line), gpu=found.name, amount=amount, claimed=item.strip())


def _gpu(items: Sequence[str], names: Names) -> FoundGpu | None:
    """`8x A100 40GB` at the start of a part; without a number it says only what the GPU is."""
    for item in items:
        found = names.gpus_in(item)
        if len(found) == 1 and found[0].start == 0:
            return found[0]
    return None


def _gpu_count(items: Sequence[str]) -> float | None:
    match = next((match for item in items if (match := _GPUS.match(item))), None)
    return float(match[1]) if match else None


def _first(pattern: re.Pattern[str], items: Sequence[str]) -> Amount | None:
    match = next((match for item in items if (match := pattern.match(item))), None)
    return parse_amount(match[0]) if match else None


def _model_claims(line: TextLine) -> Iterator[Claim]:
    if not (re.search(r"\bparam", line.text, re.IGNORECASE) or _NEED.search(line.text)):
        return
    models = find_models(line.text)
    ends = [*(found.start for found in models[1:]), len(line.text)]
    for model, end in zip(models, ends, strict=False):
        yield from _model_claim(line, model, line.text[model.end : end])


def _model_claim(line: TextLine, model: FoundModel, behind: str) -> Iterator[Claim]:
    if (size := _PARAMETERS.match(behind)) is not None:
        text = re.sub(r"\s*([mbt])r?illion", lambda word: word[1].upper(), size["amount"], flags=re.IGNORECASE)
        amount = parse_amount(text)
        if amount is not None and amount.high >= 1e6:
            yield ModelSizeClaim(place=_place(line), model=model.name, parameters=amount)
    need = _NEED.match(behind)
    memory = parse_amount(need["amount"]) if need else None
    if need is None or memory is None:
        return
    stated = _PRECISION.search(need["before"]) or _PRECISION.search(behind)
    if stated is not None:
        yield MemoryNeedClaim(
            place=_place(line), model=model.name, precision=stated[1].casefold(),  # type: ignore[arg-type]
            purpose=purpose_of(line.text), memory=memory,
        )  # fmt: skip


def _sum_claim(line: TextLine, found: Sum) -> ArithmeticClaim:
    return ArithmeticClaim(
        place=_place(line), expression=found.expression, value=found.value, result=found.result,
        claimed=f"{found.expression} {found.sign} {found.result.text}",
    )  # fmt: skip


def _price_in_sum(line: TextLine, found: Sum, machines: Sequence[FoundMachine]) -> Iterator[PriceClaim]:
    """The unit price of a sum, where its block speaks of one machine."""
    named = {machine.name.text: machine.name for machine in machines}
    amount = parse_amount(found.prices[0]) if len(found.prices) == 1 else None
    if len(named) != 1 or amount is None:
        return
    yield PriceClaim(
        place=_place(line), machine=next(iter(named.values())), amount=amount, purchase=purchase_of(line.text),
        is_monthly=False, claimed=found.prices[0],
    )  # fmt: skip
