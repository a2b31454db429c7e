"""What a gateway's accounts and ledger say, without the gateway: budgets, spending, explanations, replays, bills."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.api.gateway import load_gateway_file
from tonnage.api.reading import read_parted, read_seconds
from tonnage.errors import (
    DataError,
    InputError,
    TonnageError,
    UnknownName,
    did_you_mean,
    nearest,
)
from tonnage.settings import Settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.bills.lines import BillLine
    from tonnage.gateway.explaining import Explained
    from tonnage.gateway.file.described import Caller, Gateway
    from tonnage.gateway.money.shared_accounts import SharedAccounts
    from tonnage.gateway.reconciling.gaps import Reconciled
    from tonnage.gateway.report import NameSpend
    from tonnage.gateway.request_replay import Simulated
    from tonnage.gateway.status import AllowanceState

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
    from tonnage.gateway.reconciling.gaps import Tolerance, reconcile, reconciled_report

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


def gateway_budgets(path: Path | str, *, settings: Settings | None = None) -> Answer[tuple[AllowanceState, ...]]:
    """The budgets of a gateway file in their present windows: what is spent, the rate, and when they will be reached.

    Read from the accounts; workers bring in what they spent four times a second, and sample it while they run.
    """
    from tonnage.gateway.report import budgets_report
    from tonnage.gateway.status import allowance_states

    found, now_s = load_gateway_file(path, settings=settings), time()
    with _accounts(found) as accounts:
        states = accounts.states() if accounts else []
        samples = accounts.samples() if accounts else {}
    made = tuple(one for one in allowance_states(found, states, samples, now_s) if one.allowance.unit == "usd")
    return Answer(made, budgets_report)
