"""Every price source by name, in the order in which their prices are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Final

from tonnage.errors import InputError, MissingExtra, SourceError, did_you_mean, nearest
from tonnage.sources import aws_price_list
from tonnage.sources.aws_price_list import AwsPriceListSource
from tonnage.sources.aws_spot import AwsSpotSource, boto3_client, boto3_credentials
from tonnage.sources.aws_spot_advisor import AwsSpotAdvisorSource
from tonnage.sources.azure_retail import AzureRetailSource
from tonnage.sources.bedrock import BedrockSource
from tonnage.sources.databricks import DatabricksSource
from tonnage.sources.digitalocean import DigitalOceanSource
from tonnage.sources.gcp_billing import GcpBillingSource
from tonnage.sources.gpuhunt_source import GpuhuntSource, gpuhunt_is_installed
from tonnage.sources.kinds import Circumstances, SourceKind
from tonnage.sources.machines import wanted_machines
from tonnage.sources.results import PriceSource
from tonnage.sources.skypilot import SkyPilotSource

SKYPILOT_URL: Final = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8"
SKYPILOT_CLOUDS: Final = {
    "aws": "aws", "azure": "azure", "gcp": "gcp", "digitalocean": "do", "lambda": "lambda", "runpod": "runpod",
    "oci": "oci", "nebius": "nebius",
}  # fmt: skip
ENTRY_POINTS: Final = "tonnage.sources"
GCP_KEYS: Final = ("TONNAGE_GCP_API_KEY", "GOOGLE_API_KEY")
DIGITALOCEAN_TOKENS: Final = ("DIGITALOCEAN_ACCESS_TOKEN", "DIGITALOCEAN_TOKEN")


def _base(here: Circumstances, default: str) -> str:
    return (here.base_url or default).rstrip("/")


def _aws_spot(here: Circumstances) -> list[PriceSource]:
    client = boto3_client(here.web.limits, endpoint_url=here.base_url)
    return [
        AwsSpotSource(
            known=here.known, regions=here.regions_of("aws"), read_on=here.today, client=client, watch=here.web.watch
        )
    ]


def _no_aws_credentials(_here: Circumstances) -> str | None:
    try:
        found = boto3_credentials()
    except MissingExtra as error:
        return f"{error.message}: {error.hint}"
    return None if found else "no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


def _digitalocean(here: Circumstances) -> list[PriceSource]:
    regions = here.regions_of("digitalocean") if here.regions else ()
    return [DigitalOceanSource.made_in(here, regions, token=here.secret(DIGITALOCEAN_TOKENS))]


def _bedrock(here: Circumstances) -> list[PriceSource]:
    base = _base(here, aws_price_list.BASE_URL)
    return [BedrockSource(web=here.web, regions=here.regions_of("aws"), read_on=here.today, base_url=base)]


def _databricks(here: Circumstances) -> list[PriceSource]:
    return [
        DatabricksSource(location=here.base_url or "", read_on=here.today, limits=here.web.limits, watch=here.web.watch)
    ]


def _skypilot(here: Circumstances) -> list[PriceSource]:
    base = _base(here, SKYPILOT_URL)
    return [
        SkyPilotSource(
            provider=provider, location=f"{base}/{folder}/vms.csv", known=here.known, read_on=here.today,
            limits=here.web.limits, watch=here.web.watch, wanted=wanted_machines(here.known, here.regions),
        )
        for provider, folder in SKYPILOT_CLOUDS.items()
        if not here.providers or provider in here.providers
    ]  # fmt: skip


def _gpuhunt(here: Circumstances) -> list[PriceSource]:
    return [
        GpuhuntSource(
            known=here.known,
            read_on=here.today,
            providers=here.providers,
            wanted=wanted_machines(here.known, here.regions),
        )
    ]


def _no_secret(names: Sequence[str], what: str) -> Callable[[Circumstances], str | None]:
    return lambda here: None if here.secret(names) else f"no {what}: set {' or '.join(names)}"


# In this order a price is taken: the seller's own list, then others' compilations.
KINDS: Final[tuple[SourceKind, ...]] = (
    SourceKind(
        name="aws",
        regions_of="aws",
        providers=("aws",),
        gives="EC2 on-demand and reserved",
        needs="nothing",
        build=lambda here: [AwsPriceListSource.made_in(here, here.regions_of("aws"))],
    ),
    SourceKind(
        name="aws-spot",
        regions_of="aws",
        providers=("aws",),
        gives="EC2 spot of today",
        needs="extra cloud, AWS credentials",
        build=_aws_spot,
        missing=_no_aws_credentials,
    ),
    SourceKind(
        name="aws-spot-advisor",
        regions_of="aws",
        providers=("aws",),
        gives="EC2 spot, computed from last month's savings",
        needs="nothing",
        build=lambda here: [AwsSpotAdvisorSource.made_in(here, here.regions_of("aws"))],
    ),
    SourceKind(
        name="azure",
        regions_of="azure",
        providers=("azure",),
        gives="on-demand, spot, reserved",
        needs="nothing",
        build=lambda here: [AzureRetailSource.made_in(here, here.regions_of("azure"))],
    ),
    SourceKind(
        name="gcp",
        regions_of="gcp",
        providers=("gcp",),
        gives="on-demand and spot, summed from parts",
        needs=GCP_KEYS[0],
        build=lambda here: [GcpBillingSource.made_in(here, here.regions_of("gcp"), key=here.secret(GCP_KEYS))],
        missing=_no_secret(GCP_KEYS, "API key of Google Cloud"),
    ),
    SourceKind(
        name="digitalocean",
        regions_of="digitalocean",
        providers=("digitalocean",),
        gives="on-demand",
        needs=DIGITALOCEAN_TOKENS[0],
        build=_digitalocean,
        missing=_no_secret(DIGITALOCEAN_TOKENS, "DigitalOcean token"),
    ),
    SourceKind(
        name="skypilot",
        providers=tuple(SKYPILOT_CLOUDS),
        gives="on-demand and spot of several clouds",
        needs="nothing",
        build=_skypilot,
    ),
    SourceKind(
        name="gpuhunt",
        providers=(),
        gives="on-demand and spot of several clouds",
        needs="extra gpuhunt",
        build=_gpuhunt,
        missing=lambda _here: None if gpuhunt_is_installed() else "not installed: pip install 'tonnage[gpuhunt]'",
    ),
    SourceKind(
        name="bedrock",
        regions_of="aws",
        providers=("aws", "aws-bedrock"),
        gives="token prices",
        needs="nothing",
        build=_bedrock,
    ),
    SourceKind(
        name="databricks",
        providers=("databricks",),
        gives="USD per DBU",
        needs="a table: --url databricks=...",
        build=_databricks,
        missing=lambda here: None if here.base_url else "no table: name one with --url databricks=FILE_OR_URL",
    ),
)


def installed_kinds() -> tuple[SourceKind, ...]:
    """Ours, then those that installed packages offer under the entry point group `tonnage.sources`, by name.

    Raises SourceError when one cannot be loaded or is no SourceKind.
    """
    found = list(KINDS)
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: one.name):
        try:
            kind = entry.load()
        except Exception as error:  # another package's code
            why = f"{type(error).__name__}: {error}"
            raise SourceError(f"the price source '{entry.name}' ({entry.value}) cannot be loaded: {why}") from error
        if not isinstance(kind, SourceKind):
            raise SourceError(f"the price source '{entry.name}' ({entry.value}) is no SourceKind")
        found.append(kind)
    return tuple(found)


def chosen_kinds(names: Sequence[str], providers: Sequence[str]) -> tuple[SourceKind, ...]:
    """The kinds of those names (none: all) that sell for one of `providers` (none: any).

    Raises InputError for a name that is no source, or where nothing is left.
    """
    kinds = installed_kinds()
    known = [kind.name for kind in kinds]
    for name in names:
        if name not in known:
            hint = did_you_mean(nearest(name, known, count=2), f"sources: {', '.join(known)}")
            raise InputError(f"no price source is called '{name}'", hint=hint)
    wanted = set(providers)
    found = tuple(
        kind
        for kind in kinds
        if (not names or kind.name in names) and (not wanted or not kind.providers or wanted & set(kind.providers))
    )
    if not found:
        raise InputError("no source has prices of that provider", hint=f"sources: {', '.join(known)}")
    return found
