"""Models at Amazon Bedrock: `tonnage.bedrock_customise`, `bedrock_import`, `bedrock_provision`, `bedrock_list`,
`bedrock_end`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, PlanRefused, UnknownName, did_you_mean, nearest
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.places.aws.bedrock import Bedrock, BedrockResource
    from tonnage.places.aws.bedrock_requests import BedrockOwner
    from tonnage.places.bucket.cloud import Request
    from tonnage.runs.spec import RunSpec
    from tonnage.workload.jobs import Workload

ENDED: Final = frozenset({"Completed", "Failed", "Stopped"})
DECIDED: Final = (
    "Bedrock decides method, precision, optimizer, sharding and checkpoints; the run's own are not sent",
    "rows go as they lie: in Bedrock's own format for the model, whatever `columns` says",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BedrockAccount(Options):
    """Whose account, and where."""

    region: str | None = option("--region", "[default: that of the profile]", default=None, metavar="NAME")
    profile: str | None = option("--profile", "Of ~/.aws/config.", default=None, metavar="NAME")


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomiseOptions(BedrockAccount):
    """Which model, by which right, to which end."""

    model: str = option("--model", "Bedrock's id of the base model: amazon.nova-micro-v1:0:128k.", metavar="ID")
    role: str = option("--role", "ARN of the role that reads the rows and writes --results.", metavar="ARN")
    results: str = option("--results", "Where Bedrock writes its metrics: s3://BUCKET/FOLDER.", metavar="S3")
    name: str | None = option("--name", "[default: the file's own]", default=None, metavar="NAME")
    hyper: tuple[str, ...] = option(
        "--hyper", "A hyper-parameter, NAME=VALUE, over the file's; may be repeated.", default=(), metavar="NAME=VALUE"
    )
    max_cost_usd: float | None = option("--max-cost", "Refuse what costs more.", default=None, metavar="USD", least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions(BedrockAccount):
    """Which weights, by which right."""

    weights: str = option(
        "--weights", "Folder of the weights, as Hugging Face has them: s3://BUCKET/FOLDER.", metavar="S3"
    )
    role: str = option("--role", "ARN of the role that reads them.", metavar="ARN")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionOptions(BedrockAccount):
    """Of which model, how much, and for how long."""

    model: str = option("--model", "Id or ARN of the model, a customised one as well.", metavar="ID")
    hours: float = option("--hours", "Then it is deleted, whatever becomes of this machine.", metavar="H",
                          least=0.25, most=24 * 31)  # fmt: skip
    end_role: str = option("--end-role", "ARN of the role by which EventBridge deletes it.", metavar="ARN")
    units: int = option("--units", "Model units.", default=1, metavar="N", least=1)
    usd_per_unit_hour: float | None = option(
        "--usd-per-unit-hour", "[default: the catalog's, without commitment]", default=None, metavar="USD", least=0.0
    )
    max_cost_usd: float | None = option("--max-cost", "Refuse what costs more.", default=None, metavar="USD", least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BedrockCost:
    """What it costs. `usd` None: no price, or no size, is known; `why` then says which."""

    usd: float | None
    why: str
    source: str = ""
    usd_per_hour: float | None = None
    usd_per_month: float | None = None  # of keeping what it makes


@dataclass(frozen=True, slots=True, kw_only=True)
class BedrockWork:
    """What is asked of Bedrock, what it costs, and what has become of it; `arn` None: nothing was sent."""

    requests: tuple[Request, ...]
    cost: BedrockCost
    arn: str | None = None
    status: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResource:
    """Something of this home at Bedrock."""

    resource: BedrockResource
    due: bool  # billed though its time is over
    why: str  # it failed


def bedrock_customise(
    file: Path | str, options: CustomiseOptions, *, dry_run: bool = False, settings: Settings | None = None
) -> Answer[BedrockWork]:
    """Fine-tune a model of Bedrock on a workload file's rows; the same command again finds the same job.

    Raises InputError for what Bedrock cannot do with the run, PlanRefused where it costs more than is allowed.
    """
    from tonnage.api.launching import read_spec
    from tonnage.places.aws.bedrock_requests import customisation

    chosen = settings or current_settings()
    spec = read_spec(str(file))
    data, validation, hyper = _asked_of(spec, options)
    owned = _owned(chosen, options.name or spec.name)
    request = customisation(
        owned, model=options.model, role=options.role, data=data, validation=validation, output=options.results,
        hyper=hyper,
    )  # fmt: skip
    cost = _customisation_cost(chosen, Path(file), options.model, hyper)
    _refuse_dearer(cost, options.max_cost_usd)
    return _begun(chosen, options, (request,), cost, dry_run=dry_run, remarks=DECIDED)


def bedrock_import(
    name: str, options: ImportOptions, *, dry_run: bool = False, settings: Settings | None = None
) -> Answer[BedrockWork]:
    """Import weights that a run has made; they have to lie in a bucket of the region. InputError for a bad request."""
    from tonnage.places.aws.bedrock_requests import model_import

    chosen = settings or current_settings()
    request = model_import(_owned(chosen, name), weights=options.weights, role=options.role)
    why = "no price of imported models is in the catalog: Bedrock bills storage, and minutes in which one answers"
    return _begun(chosen, options, (request,), BedrockCost(usd=None, why=why), dry_run=dry_run)


def bedrock_provision(
    name: str, options: ProvisionOptions, *, dry_run: bool = False, settings: Settings | None = None
) -> Answer[BedrockWork]:
    """Hold throughput for a model, and see first that it is deleted when its time is over.

    The same name again is the same throughput, until it was to end before. Raises PlanRefused where it costs more than
    is allowed, or where that is unknown.
    """
    from tonnage.places.aws.bedrock_requests import throughput

    chosen = settings or current_settings()
    until = _now(chosen) + timedelta(hours=options.hours)
    requests = throughput(
        _owned(chosen, name), model=options.model, units=options.units, until=until, end_role=options.end_role
    )  # fmt: skip
    cost = _throughput_cost(chosen, options)
    _refuse_dearer(cost, options.max_cost_usd)
    return _begun(chosen, options, requests, cost, dry_run=dry_run, until=until)


def bedrock_list(
    options: BedrockAccount | None = None, *, settings: Settings | None = None
) -> Answer[tuple[ListedResource, ...]]:
    """All of this home at Bedrock: jobs, imports, and throughput with the time when it ends."""
    from tonnage.api.bedrock_reports import bedrock_listing

    chosen = settings or current_settings()
    bedrock, now = _bedrock(chosen, options or BedrockAccount()), _now(chosen)
    found = tuple(ListedResource(resource=one, due=one.due(now), why=bedrock.why(one)) for one in bedrock.listed())
    remark = "`tonnage bedrock end --due` deletes throughput whose time is over"
    return Answer(found, bedrock_listing, remarks=(remark,) if any(one.due for one in found) else ())


def bedrock_end(
    names: Sequence[str], options: BedrockAccount | None = None, *, due: bool = False, settings: Settings | None = None
) -> Answer[tuple[ListedResource, ...]]:
    """Stop jobs and delete throughput, by name; `due`: all throughput of this home whose time is over.

    Raises UnknownName where nothing of this home has the name, InputError where Bedrock cannot end it.
    """
    from tonnage.api.bedrock_reports import bedrock_listing

    chosen = settings or current_settings()
    if not names and not due:
        raise InputError("nothing is named", hint="`tonnage bedrock end NAME`, or --due")
    bedrock, now = _bedrock(chosen, options or BedrockAccount()), _now(chosen)
    known = bedrock.listed()
    wanted = [one for one in known if due and one.due(now)]
    for name in names:
        owned = _owned(chosen, name).plain
        found = [one for one in known if one.name in (name, owned)]
        if not found:
            shown = [one.name for one in known]
            close = nearest(name, shown)
            hint = did_you_mean(close, "`tonnage bedrock list` shows all of this home")
            raise UnknownName(f"nothing of this home at Bedrock is named '{name}'", suggestions=close, hint=hint)
        alive = [one for one in found if one.kind == "throughput" or one.status == "InProgress"]
        wanted += alive or found[:1]
    ended = list({one.arn: one for one in wanted}.values())
    for one in ended:
        bedrock.end(one)
    return Answer(
        tuple(ListedResource(resource=replace(one, status="ended"), due=False, why="") for one in ended),
        bedrock_listing,
    )


def _begun(
    settings: Settings, options: BedrockAccount, requests: tuple[Request, ...], cost: BedrockCost, *, dry_run: bool,
    until: datetime | None = None, remarks: tuple[str, ...] = (),
) -> Answer[BedrockWork]:  # fmt: skip
    from tonnage.api.bedrock_reports import bedrock_work

    work = BedrockWork(requests=requests, cost=cost, until=until)
    if not dry_run:
        bedrock = _bedrock(settings, options)
        arn = bedrock.begin(*requests)
        found = next((one for one in bedrock.listed() if one.arn == arn), None)
        status, ends = ("", until) if found is None else (found.status, found.until)
        work = replace(work, arn=arn, status=status, until=ends)
        if status in ENDED:
            remarks = (*remarks, "one of this name has ended: another name starts another")
    return Answer(work, bedrock_work, remarks=remarks)


def _asked_of(spec: RunSpec, options: CustomiseOptions) -> tuple[str, str | None, dict[str, str]]:
    """Rows, validation and hyper-parameters. InputError with all that Bedrock cannot do, and what it can."""
    from tonnage.places.aws.bedrock_requests import TASKS, family_of, hyper_faults, is_one_file
    from tonnage.pricing.extras import exact

    against = []
    if spec.task not in TASKS:
        against.append(f"it trains models that answer prompts ({', '.join(sorted(TASKS))}), no {spec.task}")
    sources = {"train": spec.data.train, "validation": spec.data.validation}
    for role, one in sources.items():
        if one is not None and (one.more or not is_one_file(one.location)):
            against.append(f"its rows for {role} are one .jsonl at S3, not {one.location}")
    if spec.data.test is not None:
        against.append("it takes no rows for a test")
    if not float(spec.training.epochs).is_integer():
        against.append(f"it trains whole epochs, not {spec.training.epochs:g}")
    known = family_of(options.model)
    hyper = {"epochCount": f"{spec.training.epochs:g}", "learningRate": f"{exact(spec.training.learning_rate):f}"}
    if known is not None and "batchSize" in known:
        hyper["batchSize"] = str(spec.training.global_batch)
    for text in options.hyper:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"--hyper {text}: NAME=VALUE is expected", hint="--hyper epochCount=2")
        hyper[name] = value
    against += hyper_faults(options.model, hyper)
    if against:
        hint = "--hyper NAME=VALUE sets one; places of the kinds sagemaker, ec2 and databricks carry out any run"
        raise InputError(f"Bedrock cannot customise {options.model} so: {'; '.join(against)}", hint=hint)
    validation = None if spec.data.validation is None else spec.data.validation.location
    return spec.data.train.location, validation, hyper


def _customisation_cost(settings: Settings, file: Path, model: str, hyper: dict[str, str]) -> BedrockCost:
    """Tokens of the workload file times epochs, at the catalog's price."""
    from tonnage.api.catalogs import market_of
    from tonnage.api.inputs import load_workload
    from tonnage.planning.tokens.work import MILLION
    from tonnage.workload.jobs import TrainJob

    managed = market_of(None, settings).managed
    price = next((one for one in managed.customisation if _means(model, (one.model,))), None)
    kept = next((float(one.usd_per_model_month) for one in managed.storage), None)
    if price is None:
        known = ", ".join(one.model for one in managed.customisation) or "none"
        return BedrockCost(usd=None, why=f"the catalog has no price for customising {model}, but of {known}",
                           usd_per_month=kept)  # fmt: skip
    workload: Workload | None = None if file.suffix == ".json" else load_workload(file, settings=settings)
    if workload is None or not isinstance(workload.job, TrainJob) or not hyper["epochCount"].isdigit():
        return BedrockCost(usd=None, why="the file does not say how many tokens there are", usd_per_month=kept)
    tokens = workload.job.samples * workload.job.lengths.mean * int(hyper["epochCount"])
    usd = tokens / MILLION * float(price.usd_per_million_tokens)
    why = f"{tokens:,.0f} tokens at ${float(price.usd_per_million_tokens):g} a million"
    return BedrockCost(usd=usd, why=why, source=price.source.text, usd_per_month=kept)


def _throughput_cost(settings: Settings, options: ProvisionOptions) -> BedrockCost:
    from tonnage.api.catalogs import market_of

    price, source = options.usd_per_unit_hour, "stated"
    if price is None:
        listed = market_of(None, settings).managed.provisioned
        found = next((one for one in listed if not one.commitment_months and _means(options.model, (one.model,))), None)
        if found is None:
            why = f"the catalog has no price of {options.model} without commitment: --usd-per-unit-hour"
            return BedrockCost(usd=None, why=why)
        price, source = float(found.usd_per_model_unit_hour), found.source.text
    hour = price * options.units
    why = f"{options.units} x {options.hours:g} h at ${price:g} a model unit and hour"
    return BedrockCost(usd=hour * options.hours, why=why, source=source, usd_per_hour=hour)


def _means(model: str, priced: Iterable[str]) -> bool:
    """Whether a price is of a model, however both are spelled."""
    from tonnage.workload.token_models import find_token_models, spoken_model_name

    return bool(
        find_token_models(model, priced) or find_token_models(spoken_model_name(model).partition(":")[0], priced)
    )


def _refuse_dearer(cost: BedrockCost, most: float | None) -> None:
    if most is None:
        return
    if cost.usd is None:
        raise PlanRefused(f"what it costs is not known: {cost.why}", hint="leave --max-cost out, or state the price")
    if cost.usd > most:
        raise PlanRefused(f"it costs ${cost.usd:,.2f}: {cost.why}", hint=f"--max-cost {cost.usd:.2f}, or less of it")


def _owned(settings: Settings, name: str) -> BedrockOwner:
    from tonnage.api.home_runs import runs_folder
    from tonnage.places.aws.bedrock_requests import BedrockOwner
    from tonnage.places.contract import home_mark

    return BedrockOwner(name=name, home=home_mark(runs_folder(settings.home)), owner=getuser())


def _bedrock(settings: Settings, options: BedrockAccount) -> Bedrock:
    from tonnage.places.aws.bedrock import Bedrock
    from tonnage.places.aws.calls import AWSAccount

    region = options.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None:
        raise InputError("no region is named", hint="--region us-east-1, or AWS_REGION")
    account = AWSAccount(place="bedrock", region=region, profile=options.profile)
    return Bedrock(account=account, home=_owned(settings, "any").home)


def _now(settings: Settings) -> datetime:
    return settings.as_of or datetime.now(UTC).replace(microsecond=0)
