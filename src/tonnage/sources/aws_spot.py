"""EC2 spot prices of today, by `DescribeSpotPriceHistory`. Needs the extra `cloud` (boto3) and AWS credentials.

A question whose start is now answers the price in effect, a row a zone; the offer is the median over a region's zones.
The call is `ec2:DescribeSpotPriceHistory`, 1,000 rows a page with `NextToken`.
Documented at https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeSpotPriceHistory.html
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from statistics import median
from typing import Any, Final

from tonnage.catalog.catalog import Catalog
from tonnage.errors import MissingExtra, SourceError, UnknownInstanceType
from tonnage.sources.fetching import FetchLimits, Watch
from tonnage.sources.listed_prices import PriceBook, read_price, read_text
from tonnage.sources.machines import RowRejectedError
from tonnage.sources.results import RowTally, SourceResult
from tonnage.sources.web import follow_pages
from tonnage.values import dataclass

LINUX: Final = "Linux/UNIX"
Client = Any  # boto3's, which carries no types


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSpotSource:
    """The machines of the catalog in the regions named. `client`: makes the EC2 client of a region."""

    known: Catalog
    regions: tuple[str, ...]
    read_on: date
    client: Callable[[str], Client]
    watch: Watch

    @property
    def name(self) -> str:
        return "AWS spot price history"

    def fetch(self) -> SourceResult:
        """Every region; one that cannot be read is named, SourceError when none can."""
        tally = RowTally(self.name)
        book = PriceBook(tally)
        for region in self.regions:
            try:
                rows = [row for page in self._pages(region) for row in page]
            except SourceError as error:
                tally.miss(region, error.message)
                continue
            take_rows(rows, region, self.known, book, tally)
        tally.require_some(len(self.regions))
        return book.result(read_on=self.read_on)

    def _pages(self, region: str) -> Iterable[list[Any]]:
        client, start = self.client(region), datetime.now(UTC)

        def ask(token: str) -> tuple[list[Any], str | None]:
            self.watch.check()
            following = {"NextToken": token} if token else {}
            try:
                page = client.describe_spot_price_history(ProductDescriptions=[LINUX], StartTime=start, **following)
            except Exception as error:  # botocore makes its classes as it goes; it has tried several times by now
                raise SourceError(f"EC2 failed: {type(error).__name__}: {str(error)[:200]}") from error
            rows = page.get("SpotPriceHistory")
            if not isinstance(rows, list):
                raise SourceError("EC2 answered no SpotPriceHistory")
            return rows, page.get("NextToken") or None

        return follow_pages("", ask, what=f"{self.name}, {region}")


def take_rows(rows: Iterable[Any], region: str, known: Catalog, book: PriceBook, tally: RowTally) -> None:
    """The price in effect of every zone; then the median of each machine's zones into the book."""
    latest: dict[tuple[str, str], tuple[str, Decimal]] = {}
    for row in rows:
        tally.read += 1
        name = str(row.get("InstanceType", "")) if isinstance(row, dict) else ""
        try:
            if not isinstance(row, dict):
                raise RowRejectedError("a row that is no object")
            known.instance_type(read_text(row, "InstanceType"), "aws")
            price, zone, moment = read_price(row.get("SpotPrice")), read_text(row, "AvailabilityZone"), _moment(row)
        except UnknownInstanceType:
            tally.drop("a machine that the catalog does not hold")
            continue
        except RowRejectedError as rejection:
            figure = row.get("SpotPrice", "") if isinstance(row, dict) else row
            tally.quarantine(str(rejection), provider="aws", name=name, region=region, purchase="spot", figure=figure)
            continue
        if (name, zone) not in latest or moment > latest[name, zone][0]:
            latest[name, zone] = (moment, price)
    zones: dict[str, list[Decimal]] = defaultdict(list)
    for (name, _), (_, price) in latest.items():
        zones[name].append(price)
    for name, prices in zones.items():
        machine = known.instance_type(name, "aws")
        book.add(machine, region, "spot", median(prices), notes=f"median of {len(prices)} zones")


def _moment(row: dict[str, Any]) -> str:
    value = row.get("Timestamp")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return read_text(row, "Timestamp")


def boto3_client(limits: FetchLimits, *, endpoint_url: str | None = None) -> Callable[[str], Client]:
    """Makes EC2 clients from the environment's credentials; raises MissingExtra without boto3."""
    try:
        import boto3  # type: ignore[import-not-found, import-untyped, unused-ignore]
        from botocore.config import Config  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise MissingExtra("the AWS spot price source", "cloud") from None
    config = Config(
        connect_timeout=limits.timeout_s,
        read_timeout=limits.timeout_s,
        retries={"total_max_attempts": limits.attempts, "mode": "standard"},
    )
    session = boto3.Session()
    return lambda region: session.client("ec2", region_name=region, endpoint_url=endpoint_url, config=config)


def boto3_credentials() -> bool:
    """Whether boto3 is there and finds credentials (variables, files, a role); raises MissingExtra without boto3."""
    try:
        import boto3  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise MissingExtra("the AWS spot price source", "cloud") from None
    return boto3.Session().get_credentials() is not None
