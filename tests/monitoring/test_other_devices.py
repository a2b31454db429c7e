"""GPUs of AMD and of Macs from answers as their tools write them, and the processors of a machine from its sysfs."""

from __future__ import annotations

import plistlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tonnage.monitoring.amd_gpus import AMD_NAMES, AMD_SMI, ROCM_SMI, AmdGpus, amd_smi_samples, rocm_smi_samples
from tonnage.monitoring.collecting import dcgm_figures, page_figures
from tonnage.monitoring.figures import SeriesKey
from tonnage.monitoring.gpus import AppleGpus
from tonnage.monitoring.machine_health import machine_health


def amd_smi(*, status: str = "UNTHROTTLED", ppt: str = "N/A", gpu: int = 0) -> dict[str, Any]:
    """One GPU of `amd-smi metric --json`, cut to what is read; the shape is ROCm 7's."""
    return {
        "gpu": gpu,
        "usage": {"gfx_activity": {"value": 91, "unit": "%"}, "umc_activity": {"value": 66, "unit": "%"}},
        "power": {"socket_power": {"value": 239, "unit": "W"}, "throttle_status": status},
        "clock": {"gfx_0": {"clk": {"value": 2774, "unit": "MHz"}, "min_clk": "N/A"},
                  "mem_0": {"clk": {"value": 1258, "unit": "MHz"}}},
        "temperature": {"edge": {"value": 54, "unit": "C"}, "hotspot": {"value": 63, "unit": "C"},
                        "mem": {"value": 70, "unit": "C"}},
        "pcie": {"width": 8, "replay_count": "N/A"},
        "ecc": {"total_correctable_count": 3, "total_uncorrectable_count": 0},
        "energy": {"total_energy_consumption": {"value": 0.0, "unit": "J"}},
        "mem_usage": {"total_vram": {"value": 30576, "unit": "MB"}, "used_vram": {"value": 20450, "unit": "MB"}},
        "throttle": {"ppt_violation_status": ppt, "socket_thermal_violation_status": "N/A"},
    }  # fmt: skip


ROCM = {
    "card0": {
        "Temperature (Sensor edge) (C)": "53.0", "Temperature (Sensor junction) (C)": "55.0",
        "Temperature (Sensor memory) (C)": "53.0", "mclk clock speed:": "(1200Mhz)", "sclk clock speed:": "(300Mhz)",
        "Max Graphics Package Power (W)": "290.0", "Average Graphics Package Power (W)": "36.0", "GPU use (%)": "7",
        "PCIe Replay Count": "0", "VRAM Total Memory (B)": "34342961152", "VRAM Total Used Memory (B)": "6750208",
        "Card series": "Arcturus GL-XL [Instinct MI100]", "Memory Activity": "N/A",
    },
    "system": {"Driver version": "6.3.6"},
}  # fmt: skip


def test_amd_smi_in_base_units() -> None:
    """What it calls MB are 1024 squared; `N/A` and a counter that never counted are not known."""
    [one] = amd_smi_samples({"gpu_data": [amd_smi()]})
    assert (one.utilization_fraction, one.memory_busy_fraction) == (0.91, 0.66)
    assert (one.memory_used_bytes, one.memory_total_bytes) == (20450 << 20, 30576 << 20)
    assert (one.power_w, one.temperature_c, one.memory_temperature_c) == (239.0, 63.0, 70.0)
    assert (one.compute_clock_hz, one.memory_clock_hz) == (2.774e9, 1.258e9)
    assert (one.ecc_corrected, one.ecc_uncorrected, one.pcie_replays, one.energy_j) == (3, 0, None, None)
    assert (one.throttled_by, one.throttle_reasons) == ("", ())


@pytest.mark.parametrize(
    ("status", "ppt", "reasons", "words"),
    [("THROTTLED", "N/A", ("not_named",), ""), ("UNTHROTTLED", "ACTIVE", ("power_cap",), "power"),
     ("N/A", "NOT ACTIVE", (), ""), ("N/A", "N/A", None, None)],
)  # fmt: skip
def test_amd_throttling(status: str, ppt: str, reasons: tuple[str, ...] | None, words: str | None) -> None:
    """MI300 names what is violated; older ones say only that they throttle."""
    [one] = amd_smi_samples([amd_smi(status=status, ppt=ppt)])  # ROCm 6 writes a list
    assert (one.throttle_reasons, one.throttled_by) == (reasons, words)


@pytest.mark.parametrize("wrong", [{}, {"gpu_data": "N/A"}, [1], "text", None])
def test_another_shape_is_an_error(wrong: Any) -> None:
    """Rather than a machine without GPUs."""
    with pytest.raises(ValueError, match="not a"):
        list(amd_smi_samples(wrong))


def test_rocm_smi_where_only_that_is_installed() -> None:
    """Texts under titles; the block of the system is no card."""

    def ask(command: tuple[str, ...]) -> Any:
        if command != ROCM_SMI:
            raise FileNotFoundError("not installed")
        return ROCM

    gpus = AmdGpus(ask, {})
    [one] = gpus.sample()
    assert gpus.why_none is None
    assert (one.name, one.utilization_fraction) == ("Arcturus GL-XL [Instinct MI100]", 0.07)
    assert (one.power_w, one.power_limit_w, one.temperature_c) == (36.0, 290.0, 55.0)
    assert (one.compute_clock_hz, one.memory_clock_hz) == (3e8, 1.2e9)
    assert (one.memory_used_bytes, one.throttle_reasons) == (6_750_208, None)
    with pytest.raises(ValueError, match="not a mapping"):
        list(rocm_smi_samples([]))


def test_visible_amd_gpus_are_those_of_the_environment_and_faults_are_said() -> None:
    """Numbers of ROCR_VISIBLE_DEVICES; names from `static`; a tool that fails later is each GPU's fault."""
    answers: dict[tuple[str, ...], Any] = {
        AMD_SMI: {"gpu_data": [amd_smi(gpu=number) for number in range(4)]},
        AMD_NAMES: {
            "gpu_data": [{"gpu": number, "asic": {"market_name": "AMD Instinct MI300X"}} for number in range(4)]
        },
    }

    def ask(command: tuple[str, ...]) -> Any:
        if isinstance(answers[command], Exception):
            raise answers[command]
        return answers[command]

    gpus = AmdGpus(ask, {"ROCR_VISIBLE_DEVICES": "3,1"}, most=1)
    assert [(one.index, one.name) for one in gpus.sample()] == [(3, "AMD Instinct MI300X")]
    answers[AMD_SMI] = OSError("no answer for 5 s")
    assert [one.fault for one in gpus.sample()] == ["no answer for 5 s"]


def test_no_amd_tool_is_no_error() -> None:
    """The reason is in words, and nothing is sampled."""

    def ask(_command: tuple[str, ...]) -> Any:
        raise FileNotFoundError("not installed")

    gpus = AmdGpus(ask, {})
    assert gpus.sample() == ()
    assert gpus.why_none == "amd-smi: not installed; rocm-smi: not installed"


def test_a_mac_tells_how_busy_its_gpu_is() -> None:
    """Its memory is the machine's; power and temperature are for administrators, so not known."""
    entry = {"model": b"Apple M2 Max\0", "PerformanceStatistics": {
        "Device Utilization %": 57, "In use system memory": 1_200_357_376, "Renderer Utilization %": 57}}  # fmt: skip
    content = [plistlib.dumps([entry, {"IOClass": "Other"}])]
    gpus = AppleGpus(lambda: content[0])
    [one] = gpus.sample()
    assert (one.name, one.utilization_fraction, one.memory_used_bytes) == ("Apple M2 Max", 0.57, 1_200_357_376)
    assert (one.power_w, one.temperature_c) == (None, None)
    content[0] = b"no list"
    assert "property list" in str(gpus.sample()[0].fault)
    assert AppleGpus(lambda: b"").why_none == "no GPU is in the I/O registry"


def test_processors_tell_clocks_temperature_energy_and_errors(tmp_path: Path) -> None:
    """RAPL of sockets alone (parts of one are in it), throttles of all cores, errors of all memory controllers."""
    for name, text in (
        ("class/powercap/intel-rapl:0/energy_uj", "2000000\n"), ("class/powercap/intel-rapl:1/energy_uj", "500000\n"),
        ("class/powercap/intel-rapl:0:0/energy_uj", "999\n"),
        ("devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "4\n"),
        ("devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "1\n"),
        ("devices/system/edac/mc/mc0/ce_count", "2\n"), ("devices/system/edac/mc/mc0/ue_count", "0\n"),
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    library = SimpleNamespace(
        virtual_memory=lambda: SimpleNamespace(total=64 << 30, available=40 << 30),
        cpu_freq=lambda: SimpleNamespace(current=2600.0),
        sensors_temperatures=lambda: {"nvme": [SimpleNamespace(current=80.0)],
                                      "coretemp": [SimpleNamespace(current=51.0), SimpleNamespace(current=58.0)]},
    )  # fmt: skip
    assert machine_health(tmp_path, library) == {
        "memory_total_bytes": 64 << 30, "memory_available_bytes": 40 << 30, "cpu_clock_hz": 2.6e9,
        "cpu_temperature_c": 58.0, "cpu_energy_j": 2.5, "cpu_throttled": 5.0, "ecc_corrected": 2.0,
        "ecc_uncorrected": 0.0,
    }  # fmt: skip


def test_what_a_machine_does_not_tell_is_left_out(tmp_path: Path) -> None:
    """No sensors, no clocks, counters for administrators alone."""
    unreadable = tmp_path / "class/powercap/intel-rapl:0/energy_uj"
    unreadable.mkdir(parents=True)  # reading it fails, as it does for a user

    def no_clock() -> None:
        raise NotImplementedError

    memory = SimpleNamespace(total=8, available=4)
    library = SimpleNamespace(virtual_memory=lambda: memory, cpu_freq=no_clock)
    assert machine_health(tmp_path, library) == {"memory_total_bytes": 8, "memory_available_bytes": 4}


def test_a_dcgm_exporter_appears_under_our_names() -> None:
    """Percent, MiB, MHz and millijoules in base units; links added up; «blank» values and labels of others left out."""
    page = """\
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-6",modelName="NVIDIA H100",Hostname="n1",pod="x"} 93
DCGM_FI_DEV_FB_USED{gpu="0",modelName="NVIDIA H100",Hostname="n1"} 60000
DCGM_FI_DEV_FB_FREE{gpu="0",modelName="NVIDIA H100",Hostname="n1"} 20000
DCGM_FI_DEV_SM_CLOCK{gpu="0",modelName="NVIDIA H100",Hostname="n1"} 1980
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",modelName="NVIDIA H100",Hostname="n1"} 5000
DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{gpu="0",modelName="NVIDIA H100",Hostname="n1"} 2
DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL{gpu="0",modelName="NVIDIA H100",Hostname="n1"} 3
DCGM_FI_DEV_MEMORY_TEMP{gpu="0",modelName="NVIDIA H100",Hostname="n1"} 9223372036854775794
DCGM_FI_DEV_ECC_DBE_AGG_TOTAL{gpu="0",modelName="NVIDIA H100",Hostname="n1"} 1
"""
    found = dcgm_figures(dict(page_figures(page, labels=(("target", "node"),))))
    labels = {"gpu": "0", "name": "NVIDIA H100", "host": "n1", "target": "node"}
    assert {key.metric.removeprefix("tonnage_gpu_"): value for key, value in found.items()} == {
        "utilization_ratio": pytest.approx(0.93), "memory_used_bytes": 60000 << 20, "memory_used_ratio": 0.75,
        "compute_clock_hertz": 1.98e9, "energy_joules_total": 5.0, "link_errors_total": 5.0, "ecc_errors_total": 1.0,
    }  # fmt: skip
    assert all(dict(key.labels).items() >= labels.items() for key in found)
    assert dcgm_figures({SeriesKey("node_load1"): 1.0}) == {}
