"""One round of figures: of the runs of a home, and of every page that is scraped; NVIDIA's DCGM exporter's under our
own names, in base units.

Source of DCGM's names and units: NVIDIA, DCGM exporter, `etc/default-counters.csv`; values of 2^63 - 16 and above are
DCGM's «blank».
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import DataError, MissingExtra, TonnageError
from tonnage.http.client import open_client, translated
from tonnage.http.retries import TemporaryError
from tonnage.metric_names import REGISTRY
from tonnage.monitoring.alerts.rules import ScrapeTarget
from tonnage.monitoring.figures import Labels, SeriesKey, series
from tonnage.monitoring.run_figures import run_figures
from tonnage.runs.folder import RunFolder
from tonnage.units import MIB
from tonnage.values import dataclass

if TYPE_CHECKING:
    import httpx
SCRAPE_TIMEOUT_S: Final = 5.0
LARGEST_PAGE_BYTES: Final = 16 << 20
AT_ONCE: Final = 8
UP: Final = "tonnage_watch_target_up_ratio"
PREFIX: Final = "DCGM_FI_"
BLANK: Final = 9.2e18
_NAMES: Final[Mapping[str, tuple[str, float, Mapping[str, str]]]] = {  # of DCGM: ours, what one is of it, more labels
    "DEV_GPU_UTIL": ("utilization_ratio", 0.01, {}),
    "DEV_MEM_COPY_UTIL": ("memory_busy_ratio", 0.01, {}),
    "DEV_FB_USED": ("memory_used_bytes", float(MIB), {}),
    "DEV_POWER_USAGE": ("power_watts", 1.0, {}),
    "DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_joules_total", 0.001, {}),
    "DEV_GPU_TEMP": ("temperature_celsius", 1.0, {}),
    "DEV_MEMORY_TEMP": ("memory_temperature_celsius", 1.0, {}),
    "DEV_SM_CLOCK": ("compute_clock_hertz", 1e6, {}),
    "DEV_MEM_CLOCK": ("memory_clock_hertz", 1e6, {}),
    "DEV_XID_ERRORS": ("last_xid", 1.0, {}),  # the newest one's number, not a count
    "DEV_PCIE_REPLAY_COUNTER": ("pcie_replays_total", 1.0, {}),
    "DEV_ECC_SBE_AGG_TOTAL": ("ecc_errors_total", 1.0, {"kind": "corrected"}),
    "DEV_ECC_DBE_AGG_TOTAL": ("ecc_errors_total", 1.0, {"kind": "uncorrected"}),
}
_LINKS: Final = tuple(f"DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL" for kind in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY"))
_LABELS: Final = {"gpu": "gpu", "modelName": "name", "Hostname": "host", "target": "target", "GPU_I_ID": "instance"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What was seen at one instant; `faults`: what could not be seen, by its name."""

    figures: dict[SeriesKey, float]
    faults: dict[str, str]


class Collector:
    """Looks at runs and pages. `runs` names the folders to look at, asked each round; `home` gives other figures."""

    def __init__(
        self, *, runs: Callable[[], Iterable[RunFolder]], targets: Iterable[ScrapeTarget],
        home: Callable[[datetime], Iterable[tuple[SeriesKey, float]]] = lambda _: (),
    ) -> None:  # fmt: skip
        self._runs, self._targets, self._home = runs, tuple(targets), home
        self._client: httpx.Client | None = None
        if self._targets:
            _parser()
            self._client = open_client(timeout_s=SCRAPE_TIMEOUT_S, connections=AT_ONCE)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def collect(self, at: float) -> Round:
        """One round. What does not answer is a fault of its own; the others are looked at all the same."""
        figures, faults = dict[SeriesKey, float](), dict[str, str]()
        folders = list[RunFolder]()
        try:
            folders.extend(self._runs())
        except OSError as error:  # the home's disk is gone for a while
            faults["runs"] = str(error)
        for folder in folders:
            try:
                for one in run_figures(folder, now=datetime.fromtimestamp(at, UTC)):
                    figures[series(one.metric.name, one.labels)] = one.value
            except (OSError, ValueError, TonnageError) as error:  # another run is no worse for it
                faults[f"run {folder.path.name}"] = str(error)
        try:
            figures |= dict(self._home(datetime.fromtimestamp(at, UTC)))
        except (OSError, ValueError, TonnageError) as error:
            faults["budgets and backups"] = str(error)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for target, found in zip(self._targets, threads.map(self._scraped, self._targets), strict=True):
                known = isinstance(found, dict)
                figures[series(UP, {"target": target.name})] = float(known)
                if isinstance(found, dict):
                    figures |= found
                else:
                    faults[target.name] = found
        return Round(figures=figures, faults=faults)

    def _scraped(self, target: ScrapeTarget) -> dict[SeriesKey, float] | str:
        """The figures of a page, or why there are none."""
        assert self._client is not None  # there is a target
        signed = {} if target.bearer is None else {"Authorization": f"Bearer {target.bearer}"}
        try:
            with translated(DataError), self._client.stream("GET", target.url, headers=signed) as answer:
                if answer.status_code != 200:
                    return f"{target.url} answers {answer.status_code}"
                text = _text_of(answer)
            found = dict(page_figures(text, labels=(*target.labels, ("target", target.name))))
            return found | dcgm_figures(found)
        except (TonnageError, TemporaryError, ValueError) as error:
            return f"{target.url}: {error}"


def page_figures(text: str, *, labels: Labels = ()) -> Iterator[tuple[SeriesKey, float]]:
    """Every sample of a page in the text form of Prometheus. ValueError where it is not one."""
    for family in _parser()(text):
        for sample in family.samples:
            yield series(sample.name, {**sample.labels, **dict(labels)}), float(sample.value)


def dcgm_figures(figures: Mapping[SeriesKey, float]) -> dict[SeriesKey, float]:
    """Figures of ours that a page's figures say; empty where the page is no DCGM exporter's."""
    found: dict[SeriesKey, float] = {}
    links: dict[tuple[tuple[str, str], ...], float] = {}
    used: dict[tuple[tuple[str, str], ...], float] = {}
    free: dict[tuple[tuple[str, str], ...], float] = {}
    for key, value in figures.items():
        if not key.metric.startswith(PREFIX) or value >= BLANK:
            continue
        name, given = key.metric.removeprefix(PREFIX), dict(key.labels)
        labels = {ours: given[theirs] for theirs, ours in _LABELS.items() if theirs in given}
        identity = tuple(sorted(labels.items()))
        if name in _NAMES:
            ours, unit, more = _NAMES[name]
            found[_series(ours, {**labels, **more})] = value * unit
        if name in _LINKS:
            links[identity] = links.get(identity, 0.0) + value
        for wanted, kept in (("DEV_FB_USED", used), ("DEV_FB_FREE", free)):
            if name == wanted:
                kept[identity] = value * MIB
    for identity, value in links.items():
        found[_series("link_errors_total", dict(identity))] = value
    for identity, value in used.items():
        if identity in free and value + free[identity]:
            found[_series("memory_used_ratio", dict(identity))] = value / (value + free[identity])
    return found


def _text_of(answer: httpx.Response) -> str:
    content = bytearray()
    for piece in answer.iter_bytes():
        content += piece
        if len(content) > LARGEST_PAGE_BYTES:
            raise ValueError("the page is over 16 MiB")
    return content.decode("utf-8", errors="replace")


def _parser() -> Callable[[str], Iterable[Any]]:
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ModuleNotFoundError as error:
        raise MissingExtra("pages of metrics", "serve") from error
    return text_string_to_metric_families


def _series(name: str, labels: Mapping[str, str]) -> SeriesKey:
    return series(REGISTRY[f"tonnage_gpu_{name}"].name, labels)
