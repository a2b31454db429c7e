"""What NVML says of a GPU's health: errors of memory and links, clocks and what holds them down, critical errors (XID).

Source of names and meanings: NVIDIA, «NVML API Reference Guide»; of XIDs: NVIDIA, «XID Errors».
"""

from __future__ import annotations

from typing import Any, Final

from tonnage.runs.devices import ListedGpu, answered

_REASONS: Final = (  # constant of NVML, the reason's name here; idle clocks hold nothing down
    ("nvmlClocksEventReasonApplicationsClocksSetting", "application_clocks"),
    ("nvmlClocksEventReasonSwPowerCap", "power_cap"),
    ("nvmlClocksEventReasonHwSlowdown", "hardware_slowdown"),
    ("nvmlClocksEventReasonSyncBoost", "sync_boost"),
    ("nvmlClocksEventReasonSwThermalSlowdown", "thermal"),
    ("nvmlClocksEventReasonHwThermalSlowdown", "hardware_thermal"),
    ("nvmlClocksEventReasonHwPowerBrakeSlowdown", "power_brake"),
    ("nvmlClocksEventReasonDisplayClockSetting", "display_clocks"),
)
_CAUSES: Final = (  # the two that people ask for
    ("temperature", {"thermal", "hardware_thermal"}),
    ("power", {"power_cap", "power_brake"}),
)
_LINK_FIELDS: Final = (  # totals over the links of a board
    "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
)  # fmt: skip
_MEMORY_TEMPERATURE: Final = "NVML_FI_DEV_MEMORY_TEMP"
_VALUE_OF_TYPE: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t
MOST_EVENTS: Final = 100  # read at one look
HERTZ_PER_MHZ: Final = 1e6


def health_of(nvml: Any, gpu: ListedGpu) -> dict[str, Any]:
    """Clocks, limits, temperature of the memory and errors: fields of `GpuSample`; None where the device does not
    tell."""
    handle = gpu.handle
    reasons = answered(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    named = None if reasons is None else tuple(name for one, name in _REASONS if reasons & getattr(nvml, one))
    limit_mw = answered(nvml, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    remapped = answered(nvml, lambda: nvml.nvmlDeviceGetRemappedRows(handle))
    fields = _fields(nvml, handle, (*_LINK_FIELDS, _MEMORY_TEMPERATURE))
    links = [fields[name] for name in _LINK_FIELDS if name in fields]
    return {
        "power_limit_w": None if limit_mw is None else limit_mw / 1000,
        "memory_temperature_c": fields.get(_MEMORY_TEMPERATURE),
        "compute_clock_hz": _clock_hz(nvml, handle, nvml.NVML_CLOCK_SM),
        "memory_clock_hz": _clock_hz(nvml, handle, nvml.NVML_CLOCK_MEM),
        "throttled_by": None if named is None else throttle_words(named),
        "throttle_reasons": named,
        "ecc_corrected": _ecc(nvml, handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        "ecc_uncorrected": _ecc(nvml, handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        "rows_remapped": None if remapped is None else int(remapped[0]) + int(remapped[1]),
        "link_errors": int(sum(links)) if links else None,
        "pcie_replays": answered(nvml, lambda: nvml.nvmlDeviceGetPcieReplayCounter(handle)),
    }


def throttle_words(reasons: tuple[str, ...]) -> str:
    """Power and temperature among the reasons, in words.

    >>> throttle_words(("power_cap", "thermal")), throttle_words(("sync_boost",))
    ('temperature and power', '')
    """
    return " and ".join(word for word, names in _CAUSES if names & set(reasons))


class XidEvents:
    """Critical errors of one board since this was made: NVML tells of each once, to whoever registered before it."""

    def __init__(self, nvml: Any, gpu: ListedGpu) -> None:
        self._nvml, self.count = nvml, 0
        self.last: int | None = None
        self._events: Any = None
        if not gpu.is_instance:  # events are of boards
            self._events = answered(nvml, lambda: _registered(nvml, gpu.handle))

    @property
    def is_known(self) -> bool:
        """Whether this board reports them."""
        return self._events is not None

    def look(self) -> None:
        """Read what happened since the look before; does not wait."""
        for _ in range(MOST_EVENTS if self.is_known else 0):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError_Timeout:
                return
            self.count, self.last = self.count + 1, int(event.eventData)

    def close(self) -> None:
        if self._events is not None:
            self._nvml.nvmlEventSetFree(self._events)
            self._events = None


def _registered(nvml: Any, handle: Any) -> Any:
    """A set of events that holds this board's critical errors; None where it takes none, as a lost board does."""
    events = nvml.nvmlEventSetCreate()
    try:
        nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
    except nvml.NVMLError:
        nvml.nvmlEventSetFree(events)
        return None
    return events


def _clock_hz(nvml: Any, handle: Any, kind: int) -> float | None:
    mhz = answered(nvml, lambda: nvml.nvmlDeviceGetClockInfo(handle, kind))
    return None if mhz is None else mhz * HERTZ_PER_MHZ


def _ecc(nvml: Any, handle: Any, kind: int) -> int | None:
    return answered(nvml, lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_AGGREGATE_ECC)))


def _fields(nvml: Any, handle: Any, names: tuple[str, ...]) -> dict[str, float]:
    """Field values by name; a field that this device does not have is left out."""
    read = answered(nvml, lambda: nvml.nvmlDeviceGetFieldValues(handle, [getattr(nvml, name) for name in names]))
    return {
        name: float(getattr(one.value, _VALUE_OF_TYPE[one.valueType]))
        for name, one in zip(names, read or (), strict=False)
        if one.nvmlReturn == nvml.NVML_SUCCESS
    }
