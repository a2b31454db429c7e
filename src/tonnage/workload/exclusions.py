"""What a buyer rules out: community hosts, undated prices, arm64, ROCm, a provider, a GPU, a family of machines."""

from __future__ import annotations

from typing import Final, Literal, get_args

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.families import in_family, known_families
from tonnage.catalog.grammar import GpuFilter, parse_gpu_filter
from tonnage.catalog.market import InstanceType, Offer, is_community
from tonnage.errors import InputError, UnknownAccelerator, did_you_mean, nearest
from tonnage.values import dataclass

Word = Literal["community", "undated", "arm64", "rocm"]
WORDS: Final[tuple[Word, ...]] = get_args(Word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """One entry of `exclude`. `gpu` of a GPU; `provider` of a provider, or of the family where both are named."""

    text: str
    kind: Literal[Word, "provider", "gpu", "family"]
    provider: str = ""
    family: str = ""
    gpu: GpuFilter | None = None

    def covers_machine(self, instance: InstanceType, catalog: Catalog) -> bool:
        """Whether a machine is out, whatever its price."""
        device = None if instance.accelerator is None else catalog.accelerator(instance.accelerator)
        match self.kind:
            case "community":
                return is_community(instance.name)
            case "arm64":
                return instance.cpu_arch == "arm64"
            case "rocm":
                return device is not None and device.vendor == "AMD"
            case "provider":
                return instance.provider == self.provider
            case "gpu":
                assert self.gpu is not None
                return device is not None and self.gpu.matches(device, instance.accelerator_count)
            case "family":
                return self.provider in ("", instance.provider) and in_family(instance, self.family)
            case _:
                return False

    def covers_offer(self, offer: Offer) -> bool:
        """Whether a price is out, whatever its machine."""
        return self.kind == "undated" and offer.read_on is None


def parse_exclusion(text: str, catalog: Catalog) -> Exclusion:
    """Read one entry; InputError, with the nearest name, on what names nothing of the catalog."""
    name = text.strip()
    folded = name.casefold()
    providers = {provider.name for provider in catalog.providers} | {one.provider for one in catalog.instance_types}
    if folded in WORDS:
        return Exclusion(text=name, kind=folded)
    if folded in providers:
        return Exclusion(text=name, kind="provider", provider=folded)
    gpu = _gpu(name, catalog)
    if gpu is not None:
        return Exclusion(text=name, kind="gpu", gpu=gpu)
    seller, slash, family = name.partition("/")
    if not slash:
        seller, family = "", name
    elif seller.casefold() not in providers:
        raise _unknown(text, (*sorted(providers),))
    meant = Exclusion(text=name, kind="family", provider=seller.casefold(), family=family)
    if any(meant.covers_machine(instance, catalog) for instance in catalog.instance_types):
        return meant
    names = (*WORDS, *sorted(providers), *known_families(catalog.instance_types))
    raise _unknown(text, (*names, *(device.name for device in catalog.accelerators)))


def _gpu(name: str, catalog: Catalog) -> GpuFilter | None:
    """The GPU that is meant; None where the text is no GPU of the catalog."""
    try:
        wanted = parse_gpu_filter(name)
        return wanted if catalog.accelerators_matching(wanted) else None
    except (InputError, UnknownAccelerator):
        return None


def _unknown(text: str, known: tuple[str, ...]) -> InputError:
    hint = did_you_mean(
        nearest(text.rpartition("/")[2] or text, known, count=1),
        f"{', '.join(WORDS)}, a provider, a GPU such as A100, a family such as p5 or aws/p5",
    )
    return InputError(f"found '{text}', which names nothing that could be excluded", hint=hint)
