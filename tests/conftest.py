"""For all tests: torch's threads wait without spinning, since several test processes share the cores; and `--fast`,
the selection of `make test-fast`: no torch, no process, no browser, nothing that plans for seconds."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read once, when the OpenMP library is loaded
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # hundreds of processes would search all packages

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job, where Ctrl-C would not reach
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a command that a test starts

# How long an example takes says more of the machine than of the code. The same examples each time, so that a failure
# belongs to the change at hand; `make test-slow` draws others (--hypothesis-profile random).
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same examples", settings.get_profile("random"), derandomize=True)
settings.load_profile("same examples")

HERE = Path(__file__).parent
HEAVY = (  # not even imported with --fast: they load torch or another engine, start processes, or plan many times over
    "agents/test_mcp.py", "backups/test_backups.py", "batches/test_batch.py", "batches/test_leases.py",
    "benchmarks/engines/test_search.py", "benchmarks/test_local.py", "benchmarks/test_stacks.py", "browser",
    "budgets/test_book.py",
    "calibration/test_inference_calibration.py", "calibration/test_leave_out.py",
    "calibration/test_training_fit.py", "catalog/test_checks.py", "claims", "cli/test_bad_input.py",
    "cli/test_budgets.py", "cli/test_compare.py", "cli/test_diff.py", "cli/test_doctor_cuda.py",
    "cli/test_economics.py", "cli/test_flips.py",
    "cli/test_import.py", "cli/test_local.py", "cli/test_process.py", "cli/test_run.py", "cli/test_runs.py",
    "cli/test_serve.py", "cli/test_spot.py", "cli/test_sweep.py", "cli/test_validate.py", "cli/test_verbs.py",
    "comparison", "expert", "fetching/test_parts.py", "fetching/test_processes.py", "fetching/test_s3_fetch.py",
    "gateway/test_book.py", "gateway/test_handler.py", "gateway/test_faults.py", "gateway/test_guarded_by_encoder.py",
    "gateway/test_money_found.py", "gateway/test_operations.py", "gateway/test_redis_limits.py",
    "gateway/test_sdks.py", "gateway/test_shared_cache.py",
    "gateway/test_spans.py", "gateway/test_waiting.py", "gpu", "monitoring/test_sampler.py",
    "monitoring/test_watch_faults.py", "monitoring/test_watcher.py", "optimisations/test_measured.py", "pipelines",
    "places/contract", "places/databricks/test_bundle.py", "places/test_budgets_at_places.py",
    "places/test_contract.py", "places/test_failover.py", "places/test_verbs.py", "planning", "portfolios",
    "preparing", "pricing/test_renewal.py", "pricing/test_spot_runs.py", "recipes", "reports/test_reasons.py",
    "rightsizing", "runners", "runs/test_watching.py", "service", "serving", "sizing/test_encoder_loads.py",
    "sizing/test_expert_parallel.py", "sizing/test_expert_passes.py", "sizing/test_kept_activations.py",
    "sizing/test_simulation.py", "sizing/test_simulation_queues.py", "sizing/test_simulation_steps.py",
    "sizing/test_training_time.py", "sources/test_aws_price_list.py", "sources/test_azure_prices.py",
    "sources/test_refresh_process.py", "spot_instances", "store/test_postgresql.py", "store/test_store.py",
    "supervisor", "sweeps", "test_api.py", "test_docs.py", "test_doctests.py", "test_startup.py", "test_verbs.py",
    "tracking", "web", "workload/test_any_input.py", "workload/test_huggingface.py",
    "workload/test_transformers_counts.py",
)  # fmt: skip
PROCESS_EVENTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system")
watched = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="no torch, no process, no browser: the inner loop")


def pytest_configure(config: pytest.Config) -> None:
    # No public server is asked, unless -m selects `live`: to read all authorities takes 25 ms a client. A file of
    # authorities that the user has set stays.
    if not re.search(r"(?<!not )\blive\b", config.option.markexpr):
        os.environ.setdefault("SSL_CERT_FILE", str(HERE / "data" / "no_authority.pem"))
    if config.getoption("--fast"):
        sys.addaudithook(_refuse_processes)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: tests wait for the processes that they start and for moments that they chose."""
    return (os.cpu_count() or 1) + 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the heavy files alone with --fast, those named on the command line too; and a folder whose tests -m leaves
    out, since importing it takes seconds."""
    if any(f"not {room}" in config.option.markexpr and collection_path == HERE / room for room in ("browser", "gpu")):
        return True
    if not config.getoption("--fast") or not collection_path.is_relative_to(HERE):
        return None
    path = collection_path.relative_to(HERE).as_posix()
    return True if any(path == one or path.startswith(f"{one}/") for one in HEAVY) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked heavy out with --fast."""
    if not config.getoption("--fast"):
        return
    heavy = {item for item in items if item.get_closest_marker("heavy") or item.get_closest_marker("slow")}
    config.hook.pytest_deselected(items=[*heavy])
    items[:] = [item for item in items if item not in heavy]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Without the garbage collector: what is loaded stays, and to look at it again and again takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What collection has loaded stays: the collector need not look at it again in each test."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """With --fast a test that starts a process fails, and one that loads torch: it belongs among the heavy ones."""
    global watched
    watched = item.config.getoption("--fast")
    loaded = "torch" in sys.modules
    try:
        yield
    finally:
        watched = False
    if item.config.getoption("--fast") and "torch" in sys.modules and not loaded:
        pytest.fail("loaded torch: mark it `heavy` or name its file in HEAVY of tests/conftest.py", pytrace=False)


@pytest.fixture(autouse=True)
def _same_logging() -> Iterator[None]:
    """A test that leaves the process logging less fails: another's warnings would be lost."""
    before = logging.root.level, logging.root.manager.disable
    yield
    if before != (logging.root.level, logging.root.manager.disable):
        logging.root.setLevel(before[0])
        logging.disable(before[1])
        pytest.fail("left the root logger at another level: what others log would be lost", pytrace=False)


def _refuse_processes(event: str, _: object) -> None:
    if watched and event in PROCESS_EVENTS:
        pytest.fail("started a process: mark it `heavy` or name its file in HEAVY of tests/conftest.py")
