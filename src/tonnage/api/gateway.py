"""The gateway, started and asked: `tonnage.open_gateway`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from time import sleep, time
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.api.reading import read_parted, read_seconds
from tonnage.errors import (
    DataError,
    InputError,
    MissingExtra,
    NothingFits,
    TonnageError,
    UnknownName,
    did_you_mean,
    nearest,
)
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.gateway_batches import BatchRunner
    from tonnage.bills.lines import BillLine
    from tonnage.gateway.explaining import Explained
    from tonnage.gateway.file.batches import BatchesEntry
    from tonnage.gateway.file.described import Caller, Gateway
    from tonnage.gateway.money.rates import DeploymentRates
    from tonnage.gateway.money.shared_accounts import SharedAccounts
    from tonnage.gateway.reconciling.gaps import Reconciled
    from tonnage.gateway.report import NameSpend
    from tonnage.gateway.request_replay import Simulated
    from tonnage.gateway.top.rates import Top
    from tonnage.planning.plan import MachineOption

KEY_BYTES: Final = 24
DAY_S: Final = 86_400.0
LOOK_S: Final = 10.0  # the longest that a status page may take


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySpendOptions(Options):
    """What `gateway spend` adds up."""

    by: str = option("--by", "key, team, project, route, deployment or outcome.", default="team")
    since_s: float = option(
        "--since", "How far back.", default=30 * 86_400.0, metavar="TIME", read=read_seconds, text="30d"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySimulateOptions(Options):
    """How `gateway simulate` replays a log."""

    policy: str | None = option(
        "--policy", "Another policy for every route: in-order, own-first, cheapest, fastest, weighted.", default=None
    )
    speed: float = option("--speed", "So many times the log's rate of requests.", default=1.0, least=0.001, most=10_000)
    seed: int = option("--seed", "Of what is drawn at random.", default=0, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayTopOptions(Options):
    """How `gateway top` looks at a running gateway."""

    sort: str = option("--sort", "requests, in-flight, p95, tokens, usd or name.", default="requests")
    interval_s: float = option(
        "--interval", "Between two looks.", default=2.0, metavar="TIME", read=read_seconds, text="2s", least=0.1
    )
    key: str | None = option(
        "--key", "The key of its figures, env:NAME or file:PATH, where it asks for one.", default=None, metavar="REF"
    )


def read_matches(flag: str, texts: list[str]) -> tuple[tuple[str, str], ...]:
    """`TEXT=DEPLOYMENT` each; InputError names the flag."""
    return read_parted(flag, texts, expected="TEXT=DEPLOYMENT", example="Claude3Haiku=haiku")


def read_labels(flag: str, texts: list[str]) -> tuple[tuple[str, str], ...]:
    """`CLASSIFIER=LABEL` each; InputError names the flag."""
    return read_parted(flag, texts, expected="CLASSIFIER=LABEL", example="topic=code")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReconcileOptions(Options):
    """How `gateway reconcile` compares."""

    match: tuple[tuple[str, str], ...] = option(
        "--match",
        "Lines of the bill that hold TEXT (a usage type, a resource, a key) are of DEPLOYMENT; may be repeated.",
        default=(), metavar="TEXT=DEPLOYMENT", read=read_matches, repeated=True,
    )  # fmt: skip
    only: str | None = option(
        "--only", "Only lines of the bill that hold TEXT: the gateway's own key, project or account.", default=None,
        metavar="TEXT",
    )  # fmt: skip
    tolerance_percent: float = option("--tolerance-percent", "Of the ledger's amount.", default=1.0, least=0, most=100)
    tolerance_usd: float = option("--tolerance-usd", "Smaller gaps of a day are none.", default=0.01, least=0)


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
    from tonnage.gateway.processes import GatewayProcesses

    settings, say = settings or current_settings(), say or (lambda _: None)
    found = load_gateway_file(path, settings=settings)
    reload = partial(load_gateway_file, path, settings=settings)
    # journals belong to one store: those of another gateway in this home are none of its business
    folder = settings.home / "gateway" / blake2b(found.store.encode(), digest_size=4).hexdigest()
    run_batches = None
    if found.batches is not None:
        run_batches = partial(_run_batches, folder=folder / "batches", entry=found.batches, say=say)
    return GatewayProcesses(found, folder, reload, say, run_batches).run(on_begin)


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


def gateway_spend(
    path: Path | str, options: GatewaySpendOptions | None = None, *, settings: Settings | None = None
) -> Answer[tuple[NameSpend, ...]]:
    """What a gateway has spent, from its ledger; workers add to it four times a second."""
    from tonnage.gateway.report import NameSpend, spent_report

    asked = options or GatewaySpendOptions()
    since_s = time() - asked.since_s
    with _accounts(load_gateway_file(path, settings=settings)) as accounts:
        rows = accounts.spent(asked.by, since_s) if accounts else []
    found = tuple(
        NameSpend(name=name, attempts=attempts, input_tokens=inputs, output_tokens=outputs, usd_pico=pico,
              estimated_usd_pico=estimated)
        for name, attempts, inputs, outputs, pico, estimated in rows
    )  # fmt: skip
    since = datetime.fromtimestamp(since_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Answer(found, lambda one: spent_report(asked.by, one, since))


def explain_request(
    path: Path | str,
    request: Path | str,
    *,
    key: str | None = None,
    surface: str = "chat",
    labels: Sequence[tuple[str, str]] = (),
    settings: Settings | None = None,
) -> Answer[Explained]:
    """What would happen to a request (a JSON file as a client sends it), now; nothing is sent.

    `key`: the name of a key of the gateway file; `labels`: (classifier, label) that it is supposed to say, as none is
    asked. Raises InputError for a request that the gateway would not read, UnknownName for a classifier or label.
    """
    from tonnage.gateway.explaining import explain
    from tonnage.gateway.proxy.asked import OUTPUT_KEYS, UnreadableRequest, read_asked
    from tonnage.gateway.report import explained_report

    found = load_gateway_file(path, settings=settings)
    if surface not in OUTPUT_KEYS:
        raise InputError(f"no surface '{surface}'", hint=f"one of {', '.join(OUTPUT_KEYS)}")
    try:
        asked = read_asked(next(one for one in OUTPUT_KEYS if one == surface), Path(request).read_bytes())
    except OSError as error:
        raise InputError(
            f"{request} cannot be read: {error.strerror}", hint="a JSON file as a client sends it"
        ) from error
    except UnreadableRequest as bad:
        raise InputError(f"{request}: {bad}", hint="a JSON file as a client sends it") from bad
    if asked.model not in found.routes:
        hint = did_you_mean(nearest(asked.model, found.routes), f"known: {', '.join(found.routes)}")
        raise UnknownName(f"no route is named '{asked.model}'", hint=hint)
    now = datetime.now(UTC)
    begins = {one.id: one.begin(now) for one in found.allowances}
    with _accounts(found) as accounts:
        states = accounts.states() if accounts else []
        speeds = accounts.speeds(time() - DAY_S) if accounts else {}
    taken = {one.account[0]: one.committed for one in states if begins.get(one.account[0]) == one.account[1]}
    said = _supposed(found, labels)
    made = explain(found, asked, _caller(found, key), taken, speeds=speeds, labels=said)
    return Answer(made, explained_report)


def _supposed(gateway: Gateway, labels: Sequence[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """By classifier. UnknownName for one, or for a label, that no rule names."""
    found: dict[str, frozenset[str]] = {}
    for name, label in labels:
        if name not in gateway.classifiers:
            hint = did_you_mean(
                nearest(name, gateway.classifiers), f"known: {', '.join(gateway.classifiers) or 'none'}"
            )
            raise UnknownName(f"no classifier is named '{name}'", hint=hint)
        known = gateway.classifiers[name].labels
        if label not in known:
            hint = did_you_mean(nearest(label, known), f"labels of rules: {', '.join(sorted(known))}")
            raise UnknownName(f"no rule names the label '{label}' of {name}", hint=hint)
        found[name] = found.get(name, frozenset()) | {label}
    return found


def simulate_gateway(
    path: Path | str, log: Path | str | None = None, options: GatewaySimulateOptions | None = None,
    *, settings: Settings | None = None,
) -> Answer[Simulated]:  # fmt: skip
    """Replay a log of requests against the routes of a gateway file: cost, latency, refusals; nothing is sent.

    `log`: a CSV or JSONL file (docs/gateway.md has its columns), the folder of a request log; by default the gateway's
    own ledger.
    """
    from dataclasses import replace

    from tonnage.gateway.replayed import read_log, requests_of_ledger
    from tonnage.gateway.simulation import simulate, simulated_report

    asked = options or GatewaySimulateOptions()
    found = load_gateway_file(path, settings=settings)
    with _accounts(found) as accounts:
        attempts = accounts.attempts() if accounts else []
    logged = requests_of_ledger(attempts) if log is None else read_log(Path(log))
    if not logged.requests:
        raise DataError("there are no requests to replay", hint="name a log, or let the gateway answer some first")
    made = simulate(
        found, logged.requests, logged.attempts or attempts, policy=asked.policy, speed=asked.speed, seed=asked.seed
    )
    made = replace(made, left_out=logged.left_out, share=logged.share)
    return Answer(made, simulated_report)


def _holds(line: BillLine, text: str | None) -> bool:
    """Whether a line holds a text: a key, a project, an account."""
    return text is None or text.casefold() in f"{line.item} {line.model or ''} {line.key or ''}".casefold()


def reconcile_gateway(
    path: Path | str, bill: Path | str, options: GatewayReconcileOptions | None = None,
    *, settings: Settings | None = None,
) -> Answer[Reconciled]:  # fmt: skip
    """The ledger of a gateway beside a provider's bill, by day and model, with the reasons for gaps.

    The answer's fault is set where a gap is beyond the tolerance, explained or not. Raises DataError for what is no
    bill, UnknownName for a deployment that is not in the file.
    """
    from tonnage.bills.lines import DOLLARS
    from tonnage.bills.reading import read_bill
    from tonnage.gateway.reconciling.gaps import Tolerance, reconcile
    from tonnage.gateway.reconciling.report import reconciled_report

    asked = options or GatewayReconcileOptions()
    found = load_gateway_file(path, settings=settings)
    for _, name in asked.match:
        if name not in found.deployments:
            hint = did_you_mean(nearest(name, found.deployments), f"known: {', '.join(found.deployments)}")
            raise UnknownName(f"--match: no deployment is named '{name}'", hint=hint)
    read = read_bill(Path(bill))
    lines = [one for one in read.lines if one.charge in ("usage", "commitment") and _holds(one, asked.only)]
    if not lines:
        raise DataError(f"{bill} has no line of usage", hint="an export of costs or usage")
    if foreign := next((one.currency for one in lines if one.currency.upper() != DOLLARS and not one.converted), None):
        raise DataError(f"{bill} is in {foreign}", hint="bills in dollars can be compared with the ledger")
    first = datetime.combine(min(one.day for one in lines), datetime.min.time(), UTC).timestamp()
    with _accounts(found) as accounts:
        attempts = accounts.attempts(first) if accounts else []
    tolerance = Tolerance(percent=asked.tolerance_percent, usd=asked.tolerance_usd)
    made = reconcile(found, attempts, read.kind, lines, asked.match, tolerance)
    beyond = [one for one in made.gaps if one.state in ("explained", "unexplained")]
    fault = None
    if beyond:
        unexplained = sum(one.state == "unexplained" for one in beyond)
        fault = TonnageError(
            f"{len(beyond)} gaps are beyond the tolerance, {unexplained} of them unexplained",
            hint="--match where lines are of another deployment; else compare prices in the file with the bill's",
        )
    return Answer(made, reconciled_report, fault)


def gateway_top(
    target: Path | str, options: GatewayTopOptions | None = None, *, settings: Settings | None = None
) -> Iterator[Answer[Top]]:
    """What a running gateway did in each interval, for ever; `target`: its file, or the URL where it shows figures.

    Raises NoGateway where none answers, InputError for a sort that is none.
    """
    import httpx

    from tonnage.comparison.door import read_reference
    from tonnage.gateway.top.looking import look, status_url
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


@contextmanager
def _accounts(found: Gateway) -> Iterator[SharedAccounts | None]:
    """The accounts of a gateway; None where it has not kept any yet."""
    from tonnage.gateway.money.accounts_of import accounts_of

    accounts = accounts_of(found)
    if not accounts.exist:
        yield None
        return
    accounts.open()
    try:
        yield accounts
    finally:
        accounts.close()


def _caller(found: Gateway, key: str | None) -> Caller:
    from tonnage.gateway.file.described import ANYBODY

    callers = {one.name: one for one in found.callers.values()}
    if key is None:
        return next(iter(callers.values()), ANYBODY)
    if key not in callers:
        raise UnknownName(
            f"no key is named '{key}'", hint=did_you_mean(nearest(key, callers), "see `keys:` in the file")
        )
    return callers[key]


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
    from dataclasses import replace

    from tonnage.api.inputs import load_workload
    from tonnage.api.plans import plan
    from tonnage.planning.plan import MachineOption
    from tonnage.workload.jobs import Lengths, ServeJob

    workload = load_workload(path, settings=settings)
    job = workload.job
    if not isinstance(job, ServeJob) or job.requests.output_tokens is None:
        raise InputError(f"{path} is no service that writes tokens", hint="kind: serve, with output_tokens")
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
