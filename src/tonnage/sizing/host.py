"""What the host does for each item before a device sees it: tokenise a text, decode a picture, read either.

    seconds of vCPU an item = fixed + each · (tokens, or megapixels)
    items/s of a machine    = min(vCPUs · share kept / seconds, share of the network · rate / bytes)

The share kept: what each vCPU does of a lone process's rate while all work, loader and batching beside. Devices and
host work at the same time, so the slower sets the pace. Leaves out: augmentation beyond a cut, a resize and a flip,
the copy to the device, and detokenising. The work of models that write tokens is not looked at: tokenising a prompt
takes a vCPU microseconds a token, the device at least as long for a thousandth of a vCPU's tokens.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from tonnage.sizing.assumption_table import Assumption
from tonnage.sizing.assumptions import HostAssumptions
from tonnage.sizing.devices import HostRate, HostStage, RateRange
from tonnage.values import dataclass
from tonnage.workload.host import HostTerms
from tonnage.workload.jobs import BatchJob, Job, ServeJob, TrainJob

PICTURES: Final = ("vision-transformer", "convolution")
IMAGENET_MEGAPIXELS: Final = 0.19  # 500 x 375, the usual photograph of ImageNet
JPEG_BYTES_A_PIXEL: Final = 0.6  # ImageNet: 1.28 million photographs of 0.18 megapixels on average in 144 GB
# Microseconds of one thread in C for a photograph, whatever its size, and for each megapixel: libjpeg-turbo, as
# TensorFlow and OpenCV decode with (benchmarks/results/host_rates_2026-11-22.csv).
TURBO_PICTURE_US, TURBO_US_PER_MEGAPIXEL = 1700.0, 6700.0
ENDS: Final = ("value", "low", "high")
TEXT: Final = ("text_us", "text_us_per_token")  # names of `HostAssumptions`
PICTURE: Final = ("picture_us", "picture_us_per_megapixel")
SHARE: Final = "vcpu_share_kept"
READ: Final = "read_network_fraction"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostItem:
    """What one item asks of the host. `vcpu_s` None: no processor work."""

    stage: HostStage | None
    vcpu_s: RateRange | None
    read_bytes: float


def host_item(job: Job, terms: HostTerms, assumed: HostAssumptions) -> HostItem | None:
    """What an item of `job` asks of the host; None where it asks for nothing that could hold up a device."""
    if not isinstance(job, TrainJob | ServeJob | BatchJob) or job.model.architecture == "diffusion":
        return None
    pictures = job.model.architecture in PICTURES
    if not isinstance(job, TrainJob) and job.model.causal:
        return None
    if terms.items_per_s_per_vcpu is not None:
        own = 1.0 / terms.items_per_s_per_vcpu
        return HostItem(
            stage="the stated input work",
            vcpu_s=RateRange(value=own, low=own, high=own),
            read_bytes=_bytes(terms, pictures),
        )
    given = terms.input or ("prepared" if isinstance(job, TrainJob) and not pictures else "raw")
    if given == "prepared" and terms.item_kb is None:
        return None
    if given != "raw":
        return HostItem(stage=None, vcpu_s=None, read_bytes=_bytes(terms, pictures))
    if pictures:
        return HostItem(
            stage="JPEG decoding",
            vcpu_s=_seconds(assumed, *PICTURE, _megapixels(terms)),
            read_bytes=_bytes(terms, pictures),
        )
    lengths = job.lengths if isinstance(job, TrainJob) else job.requests.input_tokens
    return HostItem(
        stage="tokenising",
        vcpu_s=_seconds(assumed, *TEXT, lengths.mean),
        read_bytes=_bytes(terms, pictures),
    )


def host_rate(
    item: HostItem, vcpus: float | None, network_gbit_per_s: float | None, assumed: HostAssumptions
) -> HostRate | None:
    """Items a second of a host with so many vCPUs and such a network; None where nothing known bounds it."""
    reading = _reading(item, network_gbit_per_s, assumed)
    if item.vcpu_s is None or item.stage is None:
        return None if reading is None else HostRate(stage="reading", vcpus=vcpus, items_per_s=reading)
    own = item.stage == "the stated input work"  # measured with all vCPUs busy
    kept = RateRange(value=1.0, low=1.0, high=1.0) if own else _range(assumed, SHARE)
    each = kept.value / item.vcpu_s.value
    if vcpus is None:
        return HostRate(stage=item.stage, vcpus=None, items_per_s=None, vcpu_items_per_s=each)
    worked = RateRange(
        value=vcpus * kept.value / item.vcpu_s.value,
        low=vcpus * kept.low / item.vcpu_s.high,
        high=vcpus * kept.high / item.vcpu_s.low,
    )
    if reading is None or worked.value <= reading.value:
        return HostRate(stage=item.stage, vcpus=vcpus, items_per_s=worked, vcpu_items_per_s=each)
    return HostRate(stage="reading", vcpus=vcpus, items_per_s=reading, vcpu_items_per_s=each)


def photographs_s(count: float, threads: int, megapixels: float = IMAGENET_MEGAPIXELS) -> float:
    """Seconds in which so many threads of libjpeg-turbo get `count` photographs ready, one behind another.

    >>> round(256 / photographs_s(256, 10))  # photographs a second
    3364
    """
    return count / threads * (TURBO_PICTURE_US + TURBO_US_PER_MEGAPIXEL * megapixels) * 1e-6


def used_assumptions(item: HostItem | None, assumed: HostAssumptions) -> tuple[Assumption, ...]:
    """The judgements behind the rate of such items."""
    if item is None:
        return ()
    names = {"tokenising": (*TEXT, SHARE), "JPEG decoding": (*PICTURE, SHARE)}.get(item.stage or "", ())
    return tuple(_assumption(assumed, name) for name in (*names, *((READ,) if item.read_bytes else ())))


def _reading(item: HostItem, network_gbit_per_s: float | None, assumed: HostAssumptions) -> RateRange | None:
    if not item.read_bytes or network_gbit_per_s is None:
        return None
    share, bytes_per_s = _range(assumed, READ), network_gbit_per_s * 1e9 / 8
    return RateRange(**{end: getattr(share, end) * bytes_per_s / item.read_bytes for end in ENDS})


def _megapixels(terms: HostTerms) -> float:
    return IMAGENET_MEGAPIXELS if terms.megapixels is None else terms.megapixels


def _bytes(terms: HostTerms, pictures: bool) -> float:
    """Bytes read for an item: as stated, else those of a JPEG; texts are too short to count."""
    if terms.item_kb is not None:
        return terms.item_kb * 1e3
    return _megapixels(terms) * 1e6 * JPEG_BYTES_A_PIXEL if pictures else 0.0


def _seconds(assumed: HostAssumptions, fixed: str, each: str, amount: float) -> RateRange:
    base, slope = _range(assumed, fixed), _range(assumed, each)
    return RateRange(
        **{end: (getattr(base, end) + getattr(slope, end) * amount) * 1e-6 for end in ("value", "low", "high")}
    )


def _range(assumed: HostAssumptions, name: str) -> RateRange:
    one = _assumption(assumed, name)
    return RateRange(value=one.value, low=one.low, high=one.high)


def _assumption(assumed: HostAssumptions, name: str) -> Assumption:
    facts = next(one.metadata for one in fields(assumed) if one.name == name)
    return Assumption(name=name, value=float(getattr(assumed, name)), **facts)
