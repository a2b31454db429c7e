"""Names of machines, machine series and GPUs as documents write them, found in the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

from tonnage.catalog import Accelerator, Catalog, InstanceType, MistakenName
from tonnage.catalog.aliases import fold_name
from tonnage.values import dataclass

NameKind = Literal["machine", "series", "mistaken", "unknown"]
LONGEST_NAME: Final = 80

_PART_OF_FAMILY: Final = re.compile(r"\d+GB|SXM\d?|PCIe|NVL", re.IGNORECASE)
_VENDOR: Final = r"(?:(?:NVIDIA|AMD|Tesla|Instinct|GeForce)\s+)*"
_FORM: Final = r"(?:[\s(-]*(?:(?P<memory>\d+)\s?Gi?B(?![A-Za-z/])|(?P<form>SXM|PCIe|NVL)\d?(?![A-Za-z0-9]))\)?){0,2}"
_AZURE: Final = re.compile(
    r"(?:Standard_)?(?P<letters>N[A-Z])(?P<vcpus>\d*)(?P<features>[a-z]*)"
    r"(?P<accelerator>(?:_?[A-Z]{1,2}\d+[A-Z]?)?)(?P<version>_v\d+)"
)
_SPACED: Final = re.compile(r"(?<![\w-])N[CDV][a-z]*\s(?:[A-Z]{1,2}\d+[A-Z]?\s?)?v\d(?!\w)")
_SHAPED: Final = re.compile(
    r"[a-z]{1,4}\d[a-z0-9-]{0,8}\.(?:\d{0,3}x?large|metal(?:-\d+xl)?|medium|micro|small|nano)"
    r"|Standard_[A-Z]{1,2}\d\w*|(?:a2|a3|a4|a4x|g2|g4)-[a-z]+-\d+g?|gpu-[a-z0-9]+x\d+-\d+gb|gd-[a-z0-9-]+",
    re.IGNORECASE,
)
_WORD: Final = re.compile(
    r"(?<![\w.-])[A-Za-z0-9][\w.-]*\w(?:\s*\+\s*(?:\d+\s*[x×]?\s*)?[A-Za-z][A-Za-z0-9]*(?:\s*[x×]\s*\d+)?)?"
)
_ATTACHED: Final = re.compile(
    r"(?P<base>[\w.-]+)\s*\+\s*(?:(?P<before>\d+)\s*[x×]?\s*)?(?P<gpu>[A-Za-z]\w*?)(?:\s*[x×]\s*(?P<after>\d+))?"
)
_SELLER: Final = re.compile(r"^(?:AWS|Amazon|Azure|GCP|Google Cloud|Lambda|OCI)\s+(?=\S)", re.IGNORECASE)
_BARE: Final = re.compile(r"n1-(?:standard|highmem|highcpu)-\d+", re.IGNORECASE)
_PROVIDERS: Final = {
    "aws": r"aws|amazon", "azure": r"azure|microsoft", "gcp": r"gcp|google", "digitalocean": r"digital\s?ocean",
    "lambda": r"lambda(?: labs| cloud)?", "runpod": r"runpod", "oci": r"oci|oracle", "nebius": r"nebius",
    "ovh": r"ovh(?:cloud)?",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineName:
    """A name as written, and what it stands for.

    `machine`: one in the catalog. `series`: all its sizes (`NCv3`). `mistaken`: a well-known error, in `mistake`.
    `unknown`: written like a machine's name, but the catalog does not know it.
    """

    text: str
    kind: NameKind
    machines: tuple[InstanceType, ...] = ()
    mistake: MistakenName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuName:
    """A GPU as written, and the devices it may be: `A100` has four forms, `A100 80GB` two."""

    text: str
    family: str
    devices: tuple[Accelerator, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMachine:
    """A machine's name inside a line: from `start` to `end`."""

    name: MachineName
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGpu:
    """A GPU's name inside a text, with the number before or after it (None: no number); `V100s` is plural."""

    name: GpuName
    count: float | None
    is_plural: bool
    states_memory: bool
    start: int
    end: int


class Names:
    """Looks names up in one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._machines: dict[str, list[InstanceType]] = {}
        self._series: dict[tuple[str, ...], list[InstanceType]] = {}
        for machine in catalog.instance_types:
            self._machines.setdefault(fold_name(machine.name), []).append(machine)
            for key in _series_keys(machine):
                self._series.setdefault(key, []).append(machine)
        self._families: dict[str, list[Accelerator]] = {}
        for device in catalog.accelerators:
            self._families.setdefault(family_of(device), []).append(device)
        self._by_letters = {_letters(name): found for name, found in self._families.items()}
        self._gpu = _gpu_pattern(self._families)

    def machine(
        self, text: str, *, provider: str | None = None, gpu: GpuName | None = None, gpus: float | None = None
    ) -> MachineName | None:
        """What a name cell stands for; None where it is no machine's name at all.

        A machine without GPUs of its own (`n1-standard-4`) is joined with the GPUs that are beside it.
        """
        text = _SELLER.sub("", text.strip())
        if not text or len(text) > LONGEST_NAME:
            return None
        for spelled in _spellings(text, gpu, gpus):
            if (found := self._exact(spelled, provider)) is not None:
                return MachineName(text=text, kind="machine", machines=found)
        if gpu is None and _BARE.fullmatch(text):
            return MachineName(text=text, kind="unknown")  # a machine without GPUs, which the tables leave out
        return self._series_named(text) or self._mistaken(text, gpu, gpus) or _shaped(text)

    def machines_in(self, line: str, *, provider: str | None = None) -> tuple[FoundMachine, ...]:
        """The machines, and Azure's series (`NC H100 v5`), that a line of text names, from left to right."""
        spaced = [found for match in _SPACED.finditer(line) if (found := self._spaced_series(match)) is not None]
        others = [one for one in self._find_machines(line, provider) if not any(_overlap(one, two) for two in spaced)]
        return tuple(sorted((*spaced, *others), key=lambda found: found.start))

    def gpu(self, text: str) -> GpuName | None:
        """The GPU that a cell names first; None where it names none."""
        found = self.gpus_in(text)
        return found[0].name if found else None

    def gpus_in(self, text: str) -> tuple[FoundGpu, ...]:
        """The GPUs that a text names."""
        return tuple(self._find_gpus(text))

    def sizes_with(self, provider: str, family: str, count: float) -> tuple[InstanceType, ...]:
        """The provider's machines with `count` GPUs of that family."""
        devices = {device.name for device in self._families.get(family, ())}
        return tuple(
            machine
            for machine in self.catalog.instance_types
            if machine.provider == provider and machine.accelerator in devices and machine.accelerator_count == count
        )

    def _exact(self, spelled: str, provider: str | None) -> tuple[InstanceType, ...] | None:
        for name in (spelled, f"Standard_{spelled}"):
            found = self._machines.get(fold_name(name), [])
            own = [machine for machine in found if machine.provider == provider]
            if own or found:
                return tuple(own or found)
        return None

    def _series_named(self, text: str) -> MachineName | None:
        for key in _series_of(text):
            found = self._series.get(key)
            if found:
                return MachineName(
                    text=text, kind="series", machines=tuple(found), mistake=self._mistake(_azured(text))
                )
        return None

    def _mistaken(self, text: str, gpu: GpuName | None, gpus: float | None) -> MachineName | None:
        for spelled in (*_spellings(text, gpu, gpus), _azured(text)):
            if not _BARE.fullmatch(spelled) and (mistake := self._mistake(spelled)) is not None:
                return MachineName(text=text, kind="mistaken", mistake=mistake)
        return None

    def _mistake(self, spelled: str) -> MistakenName | None:
        known = self.catalog.mistaken_names
        return next((mistake for mistake in known if mistake.pattern.fullmatch(spelled)), None)

    def _find_machines(self, line: str, provider: str | None) -> Iterator[FoundMachine]:
        for match in _WORD.finditer(line):
            for text in dict.fromkeys((match[0], match[0].partition("+")[0].rstrip())):
                if len(text) > LONGEST_NAME or _BARE.fullmatch(text):
                    continue
                name = self._in_text(text, provider)
                if name is not None:
                    yield FoundMachine(name=name, start=match.start(), end=match.start() + len(text))
                    break

    def _in_text(self, text: str, provider: str | None) -> MachineName | None:
        """As `machine`, but stricter: any word of a text may come here."""
        for spelled in _spellings(text, None, None):
            if (found := self._exact(spelled, provider)) is not None:
                return MachineName(text=text, kind="machine", machines=found)
        if not any(letter.isdigit() for letter in text):
            return None
        series = self._series_named(text)
        if (
            series is not None and series.machines[0].provider == "azure"
        ):  # other series' names are too short for a text
            return series
        return self._mistaken(text, None, None) or _shaped(text)

    def _spaced_series(self, match: re.Match[str]) -> FoundMachine | None:
        name = self._series_named(match[0])
        return None if name is None else FoundMachine(name=name, start=match.start(), end=match.end())

    def _find_gpus(self, text: str) -> Iterator[FoundGpu]:
        for match in self._gpu.finditer(text):
            devices = self._by_letters[_letters(match["family"])]
            memory = float(match["memory"]) if match["memory"] else None
            fitting = tuple(device for device in devices if _fits(device, memory, match["form"]))
            number = match["before"] or match["after"]
            written = re.sub(r"[()]", "", match["name"] + match["memory_and_form"]).strip()
            name = GpuName(text=written, family=family_of(devices[0]), devices=fitting or tuple(devices))
            yield FoundGpu(
                name=name,
                count=float(number) if number else None,
                is_plural=match["plural"] is not None,
                states_memory=memory is not None,
                start=match.start(),
                end=match.end(),
            )


def provider_named(*texts: str) -> str | None:
    """The provider that texts speak of: the one named in the last that names exactly one."""
    for text in reversed(texts):
        found = [name for name, words in _PROVIDERS.items() if re.search(rf"\b(?:{words})\b", text, re.IGNORECASE)]
        if len(found) == 1:
            return found[0]
    return None


def family_of(device: Accelerator) -> str:
    """The name of a device without memory size and form: `A100-40GB-SXM` is an `A100`."""
    return "-".join(part for part in device.name.split("-") if not _PART_OF_FAMILY.fullmatch(part))


def _overlap(one: FoundMachine, other: FoundMachine) -> bool:
    return one.start < other.end and other.start < one.end


def _letters(name: str) -> str:
    """A name without separators: `RTX 4090`, `RTX-4090` and `RTX4090` are one."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def _fits(device: Accelerator, memory_gb: float | None, form: str | None) -> bool:
    if memory_gb is not None and (device.memory_gib is None or abs(device.memory_gib - memory_gb) > 0.5):
        return False
    return form is None or form.casefold() in device.name.casefold()


def _gpu_pattern(families: dict[str, list[Accelerator]]) -> re.Pattern[str]:
    names = "|".join(re.escape(name).replace(r"\-", r"[\s_-]?") for name in sorted(families, key=len, reverse=True))
    return re.compile(
        rf"(?:(?<![\w.,$-])(?P<before>\d{{1,3}})\s*[x×]?\s*)?(?P<name>{_VENDOR}"
        rf"(?<![A-Za-z0-9_])(?P<family>{names}))(?P<plural>(?-i:s))?(?=[x×]\d|[^A-Za-z0-9_]|$)"
        rf"(?P<memory_and_form>{_FORM})(?:\s*[x×]\s?(?P<after>\d{{1,3}})(?!\w))?",
        re.IGNORECASE,
    )


def _spellings(text: str, gpu: GpuName | None, gpus: float | None) -> Iterator[str]:
    """The name as the tables spell it: attached GPUs as `+4xT4`, those of the columns beside a bare machine too."""
    if (match := _ATTACHED.fullmatch(text)) is not None:
        count = match["before"] or match["after"] or (f"{gpus:g}" if gpus else "1")
        yield f"{match['base']}+{count}x{match['gpu']}"
        return
    yield text
    if gpu is not None and _BARE.fullmatch(text):
        yield f"{text}+{gpus or 1:g}x{gpu.family}"


def _azured(text: str) -> str:
    """A loosely written Azure series with its underscores: `NC H100v5` is `NC_H100_v5`."""
    joined = re.sub(r"[\s_-]+", "_", text.strip()).removesuffix("_series")
    return re.sub(r"(?<=[A-Za-z0-9])(?<!_)(v\d+)$", r"_\1", joined)


def _series_of(text: str) -> Iterator[tuple[str, ...]]:
    """The keys under which a series may be."""
    if (match := _AZURE.fullmatch(_azured(text))) is not None and not match["vcpus"]:
        yield ("azure", match["letters"], match["accelerator"].strip("_"), match["version"].strip("_"))
    folded = fold_name(text)
    yield ("aws", folded)
    yield ("gcp", folded)


def _series_keys(machine: InstanceType) -> Iterator[tuple[str, ...]]:
    if machine.provider == "azure":
        if (match := _AZURE.fullmatch(machine.name)) is not None:
            accelerator = match["accelerator"].strip("_")
            yield ("azure", match["letters"], accelerator, match["version"].strip("_"))
            if not accelerator and machine.accelerator:  # ND96asr_v4 belongs to the ND A100 v4 series too
                yield ("azure", match["letters"], machine.accelerator.partition("-")[0], match["version"].strip("_"))
    elif machine.provider == "aws":
        yield ("aws", machine.name.partition(".")[0].casefold())
    elif machine.provider == "gcp" and "+" not in machine.name:
        yield ("gcp", machine.name.rpartition("-")[0].casefold())


def _shaped(text: str) -> MachineName | None:
    return MachineName(text=text, kind="unknown") if _SHAPED.fullmatch(text) else None
