"""Figures as people read them: money, durations, sizes, counts. Rounding happens here and in `plain`, nowhere else."""

from __future__ import annotations

import math
from datetime import date
from typing import TYPE_CHECKING, Final

from tonnage.units import GIB, MIB, SECONDS_PER_HOUR

if TYPE_CHECKING:  # a report on a run needs neither the planner nor its arrays
    from tonnage.sizing.estimates import Figure

_SECONDS_PER_DAY: Final = 24 * SECONDS_PER_HOUR
_SCALES: Final = ((1e24, "Y"), (1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_COUNTS: Final = ((1e12, "T"), (1e9, "B"), (1e6, "M"))
UNKNOWN: Final = "—"


def short(value: float, digits: int = 3) -> str:
    """A number to `digits` significant digits, without an exponent where it reads well.

    >>> short(0.0418167), short(972.83), short(1536.0), short(1234567.0)
    ('0.0418', '973', '1,536', '1,234,567')
    """
    if not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def render_count(value: float) -> str:
    """A plain count; from a million on with its short scale.

    >>> render_count(67000), render_count(109482240)
    ('67,000', '109 M')
    """
    for size, letter in _COUNTS:
        if abs(value) >= size:
            return f"{short(value / size)} {letter}"
    return short(value, 6)


def render_scaled(value: float, unit: str) -> str:
    """A large amount with its SI prefix.

    >>> render_scaled(4.97e15, "FLOP")
    '4.97 PFLOP'
    """
    for size, letter in _SCALES:
        if abs(value) >= size:
            return f"{short(value / size)} {letter}{unit}"
    return f"{short(value)} {unit}"


def render_scaled_interval(figure: Figure, unit: str) -> str:
    """A large amount with its interval, all in the prefix of the amount.

    >>> from tonnage.sizing.estimates import Figure
    >>> render_scaled_interval(Figure(value=925.0, low=784.0, high=1090.0), "samples/s")
    '925 samples/s (784–1,090)'
    """
    size, letter = next(((size, letter) for size, letter in _SCALES if abs(figure.value) >= size), (1, ""))
    return render_interval(figure.scaled(1.0 / size), f"{letter}{unit}")


def render_money(usd: float) -> str:
    """US dollars: cents below a thousand, three digits of very small sums.

    >>> render_money(0.0123), render_money(36.3213), render_money(20036.35)
    ('$0.0123', '$36.32', '$20,036')
    """
    if not math.isfinite(usd):
        return UNKNOWN
    if 0 < abs(usd) < 0.1:
        return f"${short(usd)}"
    return f"${usd:,.0f}" if abs(usd) >= 1000 else f"${usd:,.2f}"


def render_unit_money(usd: float) -> str:
    """US dollars of so many requests or tokens: three digits also below a dollar, so that curves do not step.

    >>> render_unit_money(0.16490), render_unit_money(61.854)
    ('$0.165', '$61.85')
    """
    return f"${short(usd)}" if 0 < abs(usd) < 1 else render_money(usd)


def render_price(usd_per_hour: float | None) -> str:
    """A price an hour: up to four decimals, so that small machines differ.

    >>> render_price(0.061595), render_price(21.0148), render_price(98.32)
    ('$0.0616', '$21.0148', '$98.32')
    """
    if usd_per_hour is None:
        return UNKNOWN
    text = f"{usd_per_hour:,.4f}"
    while text.endswith("0") and len(text.rpartition(".")[2]) > 2:
        text = text[:-1]
    return f"${text}"


def _time_unit(seconds: float) -> tuple[float, str]:
    if seconds < 1e-3:
        return 1e-6, "µs"
    if seconds < 1:
        return 1e-3, "ms"
    if seconds < 120:
        return 1.0, "s"
    if seconds < 2 * SECONDS_PER_HOUR:
        return 60.0, "min"
    if seconds < 2 * _SECONDS_PER_DAY:
        return float(SECONDS_PER_HOUR), "h"
    return float(_SECONDS_PER_DAY), "days"


def render_duration(seconds: float | None) -> str:
    """A duration in the unit that reads well.

    >>> render_duration(725.47), render_duration(0.471), render_duration(16030.4), render_duration(400000)
    ('12.1 min', '471 ms', '4.45 h', '4.63 days')
    """
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    size, unit = _time_unit(seconds)
    return f"{short(seconds / size)} {unit}"


def render_time_interval(figure: Figure | None) -> str:
    """The interval in the unit of the value: «10.4–15.6 min»; nothing where the figure is exact."""
    if figure is None or figure.low == figure.high:
        return ""
    size, unit = _time_unit(figure.value)
    return f"{short(figure.low / size)}–{short(figure.high / size)} {unit}"


def render_money_interval(figure: Figure) -> str:
    """«$24–67»; nothing where the figure is exact."""
    if figure.low == figure.high:
        return ""
    low, high = render_money(figure.low), render_money(figure.high)
    return "" if low == high else f"{low}–{high[1:]}"


def render_interval(figure: Figure, unit: str = "") -> str:
    """«4.29 GiB (3.65–4.93)», or the value alone where it is exact."""
    text = f"{short(figure.value)} {unit}".strip()
    return text if figure.low == figure.high else f"{text} ({short(figure.low)}–{short(figure.high)})"


def render_quantity(key: str, value: float) -> tuple[str, str]:
    """The label and the text of a figure whose key ends with its unit.

    >>> render_quantity("state_gib", 1.63141)
    ('state', '1.63 GiB')
    >>> render_quantity("model_flop", 4.9679e15)
    ('model FLOP', '4.97 PFLOP')
    >>> render_quantity("samples_per_s", 10.4582)
    ('samples/s', '10.5')
    >>> render_quantity("activations_gib", 0.00787926)
    ('activations', '8.07 MiB')
    """
    if key.endswith("_fraction"):
        return _words(key.removesuffix("_fraction")), f"{100 * value:.1f} %"
    if "tflop" in key or key.endswith("_flop"):
        amount = value * (1e12 if "tflop" in key else 1)
        label = key.replace("tflop", "flop")
        return _words(label), render_scaled(amount, "FLOP")
    if key.endswith("_gib"):
        return _words(key.removesuffix("_gib")), render_gib(value)
    if key.endswith("_bytes_per_token"):
        return _words(key.replace("_bytes_per_token", "_per_token")), render_scaled(value, "B")
    if key.endswith("_per_s"):
        return f"{_words(key.removesuffix('_per_s'))}/s", short(value)
    if key.endswith("_s"):
        return _words(key.removesuffix("_s")), render_duration(value)
    return _words(key), render_count(value)


def render_gib(gib: float) -> str:
    """A size in memory.

    >>> render_gib(972.83), render_gib(0.0418167)
    ('973 GiB', '42.8 MiB')
    """
    return f"{short(gib * GIB / MIB)} MiB" if 0 < gib < 0.1 else f"{short(gib)} GiB"


def _words(key: str) -> str:
    special = {"kv": "KV", "mfu": "MFU", "hfu": "HFU", "ttft": "TTFT", "tpot": "TPOT", "flop": "FLOP"}
    return " ".join(special.get(word, word) for word in key.split("_"))


def render_gpus(gpu: str | None, per_instance: float, count: int = 1) -> str:
    """«8 x A100-80GB-SXM»; «CPU only» without a device.

    >>> render_gpus("T4", 1.0), render_gpus("A10", 0.5), render_gpus(None, 0)
    ('1 x T4', '0.5 x A10', 'CPU only')
    """
    if gpu is None:
        return "CPU only"
    return f"{short(per_instance * count, 4)} x {gpu}"


def render_machines(count: int, instance_type: str) -> str:
    """
    >>> render_machines(1, "g4dn.xlarge"), render_machines(3, "g4dn.xlarge")
    ('g4dn.xlarge', '3 x g4dn.xlarge')
    """
    return instance_type if count == 1 else f"{count} x {instance_type}"


def render_purchase(purchase: str | None) -> str:
    """«on-demand», «reserved 1y», or a dash where none is meant."""
    if purchase is None:
        return UNKNOWN
    return purchase.replace("reserved_", "reserved ").replace("_", "-")


PROMISES: Final = {"latency": "p95", "ttft": "p95 TTFT", "tpot": "p95 per token"}  # of a service

PLATFORM_NAMES: Final = {
    "vm": "",
    "databricks": "Databricks",
    "sagemaker": "SageMaker",
    "vertex": "Vertex AI",
    "bedrock": "Bedrock",
}


def render_bought(purchase: str | None, platform: str) -> str:
    """How it is bought, and through what.

    >>> render_bought("spot", "databricks"), render_bought("reserved_1y", "vm")
    ('spot, Databricks', 'reserved 1y')
    """
    name = PLATFORM_NAMES.get(platform, platform)
    return f"{render_purchase(purchase)}, {name}" if name else render_purchase(purchase)


def render_date(day: date | None) -> str:
    return "no date" if day is None else day.isoformat()


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "option"), plural(353, "option"), plural(2, "process")
    ('1 option', '353 options', '2 processes')
    """
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"
