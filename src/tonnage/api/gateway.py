"""The gateway, started and watched: `tonnage.open_gateway`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.api.reading import read_seconds
from tonnage.errors import (
    InputError,
    MissingExtra,
    NothingFits,
    UnknownName,
    did_you_mean,
    nearest,
)
from tonnage.secret_references import SUCH_AS, read_reference
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.gateway_batches import BatchRunner
    from tonnage.gateway.file.described import Gateway
    from tonnage.gateway.file.kept_entries import BatchesEntry
    from tonnage.gateway.money.rates import DeploymentRates
    from tonnage.gateway.top.rates import Top
    from tonnage.planning.plan import MachineOption

KEY_BYTES: Final = 24
DAY_S: Final = 86_400.0
LOOK_S: Final = 10.0  # the longest that a status page may take


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayTopOptions(Options):
    """How `gateway top` looks at a running gateway."""

    sort: str = option("--sort", "requests, in-flight, p95, tokens, usd or name.", default="requests")
    interval_s: float = option(
        "--interval", "Between two looks.", default=2.0, metavar="TIME", read=read_seconds, text="2s", least=0.1
    )
    key: str | None = option(
        "--key",
        f"The key of its figures, where it asks for one: {SUCH_AS}.",
        default=None,
        metavar="REF",
    )


def load_gateway_file(path: Path | str, *, settings: Settings | None = None) -> Gateway:
    """The gateway of a file, its prices from the catalog where it says so. WorkloadError names line and key."""
    from tonnage.gateway.file.reading import load_gateway

    settings = settings or current_settings()
    return load_gateway(
        Path(path), home=settings.home, catalog_rates=partial(_catalog_rates, settings=settings),
        planned_speeds=partial(_planned_speeds, settings=settings),
    )  # fmt: skip


def check_gateway(path: Path | str, *, settings: Settings | None = None) -> Answer[Gateway]:
    """A gateway file as it is understood; nothing is started and no key is read but those of callers."""
    from tonnage.gateway.report import gateway_report

    return Answer(load_gateway_file(path, settings=settings), gateway_report)


def open_gateway(
    path: Path | str, *, settings: Settings | None = None, say: Callable[[str], None] | None = None,
    on_begin: Callable[[int], None] | None = None,
) -> int:  # fmt: skip
    """Serve until SIGTERM or SIGINT; SIGHUP reads the file again, SIGUSR2 replaces the workers. Exit code 0. Raises
    TonnageError.

    `on_begin` is called with the port once it listens.
    """
    for name in ("httptools", "orjson", "uvloop"):
        if find_spec(name) is None:
            raise MissingExtra("a gateway", "gateway")
    from tonnage.api.gateway_keys import note_encryption, with_state_keys
    from tonnage.gateway.processes import GatewayProcesses

    settings, say = settings or current_settings(), say or (lambda _: None)

    def reload() -> Gateway:
        made = with_state_keys(load_gateway_file(path, settings=settings), settings)
        try:
            note_encryption(settings.home, made, path, datetime.now(UTC))
        except OSError as error:  # a full disk does not keep a gateway from its new file
            say(f"how this gateway encrypts is not noted for `tonnage compliance`: {error}")
        return made

    found = reload()
    folder = gateway_folder(found.store, settings)
    run_batches = None
    if found.batches is not None:
        run_batches = partial(_run_batches, folder=folder / "batches", entry=found.batches, say=say)
    return GatewayProcesses(found, folder, reload, say, run_batches).run(on_begin)


def gateway_folder(store: str, settings: Settings) -> Path:
    """Of a gateway in the home. Journals belong to one store: it ignores those of another gateway."""
    return settings.home / "gateway" / blake2b(store.encode(), digest_size=4).hexdigest()


def gateway_key() -> tuple[str, str]:
    """A new key, and the hash that stands for it in a gateway file."""
    from tonnage.gateway.file.reading import key_hash

    key = f"tn-{secrets.token_urlsafe(KEY_BYTES)}"
    return key, key_hash(key)


def import_litellm(path: Path | str) -> tuple[str, tuple[str, ...]]:
    """The text of a gateway file for LiteLLM's `config.yaml`, and notes of what it cannot say. Raises InputError."""
    import yaml

    from tonnage.gateway.litellm_file import read_litellm

    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}", hint="the file that `litellm --config` takes") from error
    found, notes = read_litellm(text)
    return yaml.safe_dump(found, sort_keys=False, allow_unicode=True), notes


def gateway_top(
    target: Path | str, options: GatewayTopOptions | None = None, *, settings: Settings | None = None
) -> Iterator[Answer[Top]]:
    """What a running gateway did in each interval, forever; `target`: its file, or the URL where it shows figures.

    Raises NoGateway where none answers, InputError for an unknown sort.
    """
    import httpx

    from tonnage.gateway.top.keeping import look, status_url
    from tonnage.gateway.top.rates import happened
    from tonnage.gateway.top.report import check_sort, top_report
    from tonnage.http.urls import is_url

    asked = options or GatewayTopOptions()
    check_sort(asked.sort)
    url = str(target) if is_url(str(target)) else status_url(load_gateway_file(target, settings=settings))
    key = None if asked.key is None else read_reference(asked.key, os.environ, "--key")
    with httpx.Client(timeout=LOOK_S) as client:
        before = look(client, url, key)
        while True:
            sleep(asked.interval_s)
            after = look(client, url, key)
            yield Answer(happened(before, after), partial(top_report, sort=asked.sort))
            before = after


def _run_batches(
    url: str, secret: str, *, folder: Path, entry: BatchesEntry, say: Callable[[str], None]
) -> BatchRunner:
    from tonnage.api.gateway_batches import BatchRunner
    from tonnage.gateway.batch_api.store import BatchStore

    runner = BatchRunner(BatchStore(folder), entry, url, secret, say)
    runner.start()
    return runner


def _catalog_rates(name: str, *, settings: Settings) -> DeploymentRates:
    """The on-demand prices of `PLATFORM/MODEL` in the catalog; where regions differ, the dearest."""
    from tonnage.api.catalogs import load_catalog
    from tonnage.gateway.money.rates import DeploymentRates, tier_rates
    from tonnage.planning.tokens.ways import dearest_by_kind

    platform, _, model = name.partition("/")
    tokens = load_catalog(settings=settings).managed.tokens
    listed = [one for one in tokens if (one.platform, one.model) == (platform, model) and one.plain]
    kinds = dearest_by_kind(listed)
    if "input" not in kinds or "output" not in kinds:
        known = [f"{one.platform}/{one.model}" for one in tokens]
        hint = did_you_mean(nearest(name, dict.fromkeys(known)), "`price:` takes one of your own")
        raise UnknownName(f"the catalog has no price of input and output for '{name}'", hint=hint)
    usd: dict[str, Any] = {kind: one.usd_per_million_tokens for kind, one in kinds.items()}
    source = kinds["input"].source
    return DeploymentRates(
        tiers=(tier_rates(input_usd=usd["input"], output_usd=usd["output"], cached_input_usd=usd.get("cache read"),
                          cache_write_usd=usd.get("cache write")),),
        source=source.text, read_on=None if source.read_on is None else source.read_on.isoformat(),
    )  # fmt: skip


def _planned_speeds(path: Path, *, settings: Settings) -> tuple[float, float]:
    """Input and output tokens a second of the machines that the plan of a service puts first, when they are full.

    The plan's capacity with the stated lengths, and with one output token, split the time of a request:
    1/c = inputs/reads + outputs/writes. Raises NothingFits.
    """
    from tonnage.api.inputs import load_workload
    from tonnage.api.plans import plan
    from tonnage.planning.plan import MachineOption
    from tonnage.workload.jobs import Lengths, ServeJob

    workload = load_workload(path, settings=settings)
    job = workload.job
    if not isinstance(job, ServeJob) or job.requests.output_tokens is None:
        raise InputError(f"{path} is not a service that writes tokens", hint="kind: serve, with output_tokens")
    read_only = replace(job, requests=replace(job.requests, output_tokens=Lengths(mean=1.0, maximum=1)))
    whole = [one for one in plan(workload, top=10_000, settings=settings).options if isinstance(one, MachineOption)]
    if not whole:
        raise NothingFits(f"the plan of {path} has no machine", hint=f"tonnage plan {path}")
    place = (whole[0].instance_type, whole[0].region, whole[0].purchase)
    others = plan(replace(workload, job=read_only), top=10_000, settings=settings).options
    machines = [one for one in others if isinstance(one, MachineOption)]
    alone = [one for one in machines if (one.instance_type, one.region, one.purchase) == place]
    if not alone:
        raise NothingFits(f"the plan of {path} says not how fast {place[0]} reads", hint="state both speeds: `own:`")
    together_s, reading_s = (1.0 / _requests_per_s(one) for one in (whole[0], alone[0]))
    inputs, outputs = job.requests.input_tokens.mean, job.requests.output_tokens.mean
    return inputs / reading_s, outputs / max(together_s - reading_s, 1e-9)


def _requests_per_s(found: MachineOption) -> float:
    """Of one of its machines, when it is full."""
    return dict(found.run.rates)["requests_per_s"].value / found.count
