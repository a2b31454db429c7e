"""AMD GPUs as `amd-smi metric --json` tells of them, or `rocm-smi --json` where only that is installed.

Shapes: AMD, «AMD SMI CLI tool usage» (lists since ROCm 6, `gpu_data` since ROCm 7); «ROCm SMI». What a tool calls `N/A`
is not known.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, Final

from tonnage.monitoring.gpu_sample import GpuSample
from tonnage.monitoring.nvml_health import HERTZ_PER_MHZ, throttle_words
from tonnage.units import MIB

AMD_SMI: Final = ("amd-smi", "metric", "--json")
AMD_NAMES: Final = ("amd-smi", "static", "--asic", "--json")
ROCM_SMI: Final = (
    "rocm-smi", "--showuse", "--showmeminfo", "vram", "--showpower", "--showmaxpower", "--showtemp", "--showclocks",
    "--showreplaycount", "--showproductname", "--json",
)  # fmt: skip
TIMEOUT_S: Final = 5.0
VISIBLE: Final = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")  # ROCr's first: HIP counts what it leaves
_VIOLATIONS: Final = (  # of amd-smi's block `throttle`, the reason's name here
    ("prochot_violation_status", "hardware_slowdown"),
    ("ppt_violation_status", "power_cap"),
    ("socket_thermal_violation_status", "thermal"),
    ("vr_thermal_violation_status", "thermal"),
    ("hbm_thermal_violation_status", "thermal"),
)
Ask = Callable[[tuple[str, ...]], Any]


class AmdGpus:
    """The GPUs that this process may use, `most` of them. `why_none` says why there are none.

    `ask` runs a tool and gives its JSON; OSError or ValueError where there is none.
    """

    def __init__(
        self, ask: Ask | None = None, environ: Mapping[str, str] | None = None, *, most: int | None = None
    ) -> None:
        self._ask, self._environ, self._most = ask or _asked, os.environ if environ is None else environ, most
        self._read: Callable[[], Iterator[GpuSample]] = self._by_amd_smi
        self._names: dict[int, str] = {}
        self.why_none: str | None = None
        try:
            found = self._chosen(self._by_amd_smi())
            self._names = dict(amd_names(self._ask(AMD_NAMES)))
        except (OSError, ValueError) as error:
            self._read = self._by_rocm_smi
            try:
                found = self._chosen(self._by_rocm_smi())
            except (OSError, ValueError) as other:
                found, self.why_none = (), f"amd-smi: {error}; rocm-smi: {other}"
        self._count = len(found)
        if not found and self.why_none is None:
            self.why_none = "no AMD GPU is visible"

    def sample(self, _pids: Set[int] = frozenset(), /) -> tuple[GpuSample, ...]:
        """What holds now. A tool that fails, where it answered before, is the fault of every GPU."""
        if self._count == 0:
            return ()
        try:
            return self._chosen(self._read())
        except (OSError, ValueError) as error:
            return tuple(GpuSample(index=number, name="", fault=str(error)) for number in range(self._count))

    def close(self) -> None:
        """Nothing is held."""

    def _by_amd_smi(self) -> Iterator[GpuSample]:
        for one in amd_smi_samples(self._ask(AMD_SMI)):
            yield replace(one, name=self._names.get(one.index, one.name))

    def _by_rocm_smi(self) -> Iterator[GpuSample]:
        yield from rocm_smi_samples(self._ask(ROCM_SMI))

    def _chosen(self, found: Iterator[GpuSample]) -> tuple[GpuSample, ...]:
        samples = tuple(found)
        for name in VISIBLE:
            if name in self._environ:
                numbers = [int(one) for one in self._environ[name].split(",") if one.strip().isdigit()]
                samples = tuple(samples[number] for number in numbers if number < len(samples))
        return samples[: self._most]


def amd_smi_samples(document: Any) -> Iterator[GpuSample]:
    """The answer of `amd-smi metric --json`. ValueError where it is of another shape."""
    for gpu in _entries(document):
        memory, power, ecc = _of(gpu, "mem_usage"), _of(gpu, "power"), _of(gpu, "ecc")
        temperature, usage = _of(gpu, "temperature"), _of(gpu, "usage")
        reasons = _reasons(_of(gpu, "throttle"), power.get("throttle_status"))
        power_w = _number(power.get("socket_power"))
        if power_w is None:
            power_w = _number(power.get("average_socket_power"))
        yield GpuSample(
            index=int(gpu["gpu"]), name="AMD GPU",
            utilization_fraction=_share(usage.get("gfx_activity")),
            memory_busy_fraction=_share(usage.get("umc_activity")),
            memory_used_bytes=_mib(memory.get("used_vram")), memory_total_bytes=_mib(memory.get("total_vram")),
            power_w=power_w,
            temperature_c=_first(temperature, "hotspot", "edge"), memory_temperature_c=_first(temperature, "mem"),
            energy_j=_number(_of(gpu, "energy").get("total_energy_consumption")) or None,  # 0: it does not count
            compute_clock_hz=_clock(gpu, "gfx_0"), memory_clock_hz=_clock(gpu, "mem_0"),
            throttled_by=None if reasons is None else throttle_words(reasons), throttle_reasons=reasons,
            ecc_corrected=_count(ecc.get("total_correctable_count")),
            ecc_uncorrected=_count(ecc.get("total_uncorrectable_count")),
            pcie_replays=_count(_of(gpu, "pcie").get("replay_count")),
        )  # fmt: skip


def amd_names(document: Any) -> Iterator[tuple[int, str]]:
    """(number, name) of `amd-smi static --asic --json`."""
    for gpu in _entries(document):
        name = _of(gpu, "asic").get("market_name")
        if isinstance(name, str) and name != "N/A":
            yield int(gpu["gpu"]), name


def rocm_smi_samples(document: Any) -> Iterator[GpuSample]:
    """The answer of `rocm-smi ... --json`: texts under titles, a mapping a card. ValueError where it is of another
    shape."""
    if not isinstance(document, dict):
        raise ValueError("not a mapping of cards")
    for key, card in document.items():
        matched = re.fullmatch(r"card(\d+)", key)
        if matched is None:
            continue  # `system`
        lowered = {title.lower(): value for title, value in card.items()}
        used, total = lowered.get("vram total used memory (b)"), lowered.get("vram total memory (b)")
        power = lowered.get("current socket graphics package power (w)")
        yield GpuSample(
            index=int(matched[1]), name=str(lowered.get("card series", "AMD GPU")),
            utilization_fraction=_share(lowered.get("gpu use (%)")),
            memory_used_bytes=_count(used), memory_total_bytes=_count(total),
            power_w=_number(power if power is not None else lowered.get("average graphics package power (w)")),
            power_limit_w=_number(lowered.get("max graphics package power (w)")),
            temperature_c=_first(lowered, "temperature (sensor junction) (c)", "temperature (sensor edge) (c)"),
            memory_temperature_c=_number(lowered.get("temperature (sensor memory) (c)")),
            compute_clock_hz=_in_mhz(lowered.get("sclk clock speed:")),
            memory_clock_hz=_in_mhz(lowered.get("mclk clock speed:")),
            pcie_replays=_count(lowered.get("pcie replay count")),
        )  # fmt: skip


def _asked(command: tuple[str, ...]) -> Any:
    if shutil.which(command[0]) is None:
        raise FileNotFoundError("not installed")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no answer for {TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise OSError((done.stderr.strip() or f"exit code {done.returncode}")[:200])
    return json.loads(done.stdout)


def _entries(document: Any) -> list[dict[str, Any]]:
    listed = document.get("gpu_data") if isinstance(document, dict) else document
    if not isinstance(listed, list) or not all(isinstance(one, dict) and "gpu" in one for one in listed):
        raise ValueError("not a list of GPUs")
    return listed


def _of(gpu: Mapping[str, Any], block: str) -> Mapping[str, Any]:
    """A block of the answer; empty where it is `N/A`."""
    found = gpu.get(block)
    return found if isinstance(found, dict) else {}


def _number(given: Any) -> float | None:
    """`{"value": 71, "unit": "W"}`, `71` or `"71.0"`; None for `"N/A"` and what is not there.

    >>> _number({"value": 71, "unit": "W"}), _number("36.0"), _number("N/A")
    (71.0, 36.0, None)
    """
    given = given.get("value") if isinstance(given, dict) else given
    if isinstance(given, bool) or not isinstance(given, (int, float, str)):
        return None
    try:
        return float(given)
    except ValueError:
        return None


def _count(given: Any) -> int | None:
    found = _number(given)
    return None if found is None else int(found)


def _share(given: Any) -> float | None:
    found = _number(given)
    return None if found is None else found / 100


def _mib(given: Any) -> int | None:
    """What amd-smi calls MB are bytes over 1024 squared."""
    found = _number(given)
    return None if found is None else int(found * MIB)


def _first(block: Mapping[str, Any], *names: str) -> float | None:
    return next((found for name in names if (found := _number(block.get(name))) is not None), None)


def _clock(gpu: Mapping[str, Any], name: str) -> float | None:
    mhz = _number(_of(_of(gpu, "clock"), name).get("clk"))
    return None if mhz is None else mhz * HERTZ_PER_MHZ


def _in_mhz(given: Any) -> float | None:
    """
    >>> _in_mhz("(1200Mhz)")
    1200000000.0
    """
    found = re.search(r"([\d.]+)\s*mhz", str(given), re.IGNORECASE)
    return None if found is None else float(found[1]) * HERTZ_PER_MHZ


def _reasons(block: Mapping[str, Any], status: Any) -> tuple[str, ...] | None:
    """What holds the clocks down; None where the tool does not tell."""
    known = {name: str(block[name]).upper() for name, _ in _VIOLATIONS if str(block.get(name, "N/A")).upper() != "N/A"}
    if known:
        active = ("ACTIVE", "TRUE", "1")
        return tuple(dict.fromkeys(reason for name, reason in _VIOLATIONS if known.get(name) in active))
    if status in ("THROTTLED", "UNTHROTTLED"):
        return ("not_named",) if status == "THROTTLED" else ()
    return None
