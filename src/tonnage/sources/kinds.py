"""What a price source is to the command line: whose prices, what it needs, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Self

from tonnage.catalog.catalog import Catalog
from tonnage.sources.results import PriceSource
from tonnage.sources.web import Web
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a source is made from. `regions` as asked for, `base_url` None: the source's own."""

    known: Catalog
    web: Web
    today: date
    environ: Mapping[str, str]
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    base_url: str | None = None

    def regions_of(self, provider: str) -> tuple[str, ...]:
        """Those asked for that may be the provider's; where none were, those the catalog has its prices in."""
        sold = {offer.region for offer in self.known.offers if offer.provider == provider and offer.region}
        if not self.regions:
            return tuple(sorted(sold))
        elsewhere = {region.name for region in self.known.regions if region.provider != provider}
        mine = {region.name for region in self.known.regions if region.provider == provider} | sold
        return tuple(name for name in self.regions if name in mine or name not in elsewhere)

    def secret(self, names: Sequence[str]) -> str:
        """The first of these variables that is set."""
        return next((self.environ[name] for name in names if self.environ.get(name)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrices:
    """A price list on the web, at `base_url`: of the catalog's machines, in the regions named."""

    known: Catalog
    web: Web
    regions: tuple[str, ...]
    read_on: date
    base_url: str

    @classmethod
    def made_in(cls, here: Circumstances, regions: tuple[str, ...], **more: str) -> Self:
        """The list of those regions, at its own address where none is asked for; `more`: what else the class needs."""
        if here.base_url:
            more["base_url"] = here.base_url.rstrip("/")
        return cls(known=here.known, web=here.web, regions=regions, read_on=here.today, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """A source as the command line names it. `providers` empty: any. `missing`: what it lacks, None where nothing.

    `regions_of`: whose regions it is asked for, one by one; "" where it is read whole.
    """

    name: str
    providers: tuple[str, ...]
    gives: str
    needs: str
    build: Callable[[Circumstances], list[PriceSource]]
    missing: Callable[[Circumstances], str | None] = lambda _here: None
    regions_of: str = ""

    def why_not(self, here: Circumstances) -> str | None:
        """Why it cannot be asked: what it lacks, or that none of the regions asked for is its provider's."""
        if self.regions_of and not here.regions_of(self.regions_of):
            if here.regions:
                return f"none of the regions asked for is {self.regions_of}'s"
            return f"the catalog has no prices of {self.regions_of}: name regions with --region"
        return self.missing(here)


def url_variable(name: str) -> str:
    """The variable that names another address for a source.

    >>> url_variable("aws-spot")
    'TONNAGE_AWS_SPOT_URL'
    """
    return f"TONNAGE_{name.upper().replace('-', '_')}_URL"


def with_own_web(here: Circumstances, base_url: str | None) -> Circumstances:
    """The same, asked at `base_url`, with a record of its own of what was read when."""
    return replace(here, base_url=base_url, web=replace(here.web, days=[]))
