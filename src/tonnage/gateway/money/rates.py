"""Prices of a deployment as whole pico-dollars: a token, an image, a second and a letter; and what a request costs at
most and in the end.

A dollar a million tokens is 10^6 pico-dollars a token, so every published price is a whole number here.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Final

from tonnage.gateway.dialects.usage import Surface, Usage
from tonnage.units import PICO_PER_USD as PICO_PER_USD
from tonnage.values import dataclass

TOKENS_PER_MILLION: Final = 10**6
S_PER_HOUR: Final = 3600


def pico_usd(usd: Decimal | float | str) -> int:
    """Whole pico-dollars, rounded up.

    >>> pico_usd("0.1"), pico_usd(Decimal("1e-13"))
    (100000000000, 1)
    """
    return int((Decimal(str(usd)) * PICO_PER_USD).to_integral_value(ROUND_CEILING))


def usd_text(pico: int) -> str:
    """Dollars as a text that loses nothing.

    >>> usd_text(1_500_000_000_000), usd_text(35_000), usd_text(0)
    ('1.5', '0.000000035', '0')
    """
    whole, rest = divmod(pico, PICO_PER_USD)
    return f"{whole}.{rest:012d}".rstrip("0") if rest else str(whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRates:
    """Pico-dollars a token of each kind; prices of a request whose input has more than `above_tokens`."""

    input_pico: int
    output_pico: int
    cached_input_pico: int
    cache_write_pico: int
    above_tokens: int = 0
    dearest_input_pico: int  # of the three


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRates:
    """The tiers of a deployment, the one without a threshold first; `source` says where the prices come from."""

    tiers: tuple[TierRates, ...]
    source: str
    read_on: str | None = None
    request_pico: int = 0  # for each request, whatever its tokens

    def cost_pico(self, usage: Usage) -> int:
        """What the tokens of an answer cost.

        >>> one = DeploymentRates(tiers=(tier_rates(input_usd="1", output_usd="2", cached_input_usd="0.1"),), source="")
        >>> one.cost_pico(Usage(input_tokens=1000, output_tokens=10, cached_input_tokens=900))
        210000000
        """
        tier = self._tier(usage.input_tokens)
        fresh = usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens
        return (
            self.request_pico
            + max(fresh, 0) * tier.input_pico
            + usage.cached_input_tokens * tier.cached_input_pico
            + usage.cache_write_tokens * tier.cache_write_pico
            + usage.output_tokens * tier.output_pico
        )

    def most_pico(self, input_tokens: int, output_tokens: int) -> int:
        """What a request of at most so many tokens can cost: each tier that it may fall into, at its dearest input."""
        if len(self.tiers) == 1:
            tier = self.tiers[0]
            return self.request_pico + input_tokens * tier.dearest_input_pico + output_tokens * tier.output_pico
        reached = [tier for tier in self.tiers if tier.above_tokens <= input_tokens]
        return self.request_pico + max(
            input_tokens * tier.dearest_input_pico + output_tokens * tier.output_pico for tier in reached
        )

    def affordable_output_tokens(self, input_tokens: int, headroom_pico: int) -> int:
        """The most output tokens that a headroom pays for beside the input; 0 where it does not pay for one.

        >>> one = DeploymentRates(tiers=(tier_rates(input_usd="1", output_usd="2"),), source="")
        >>> one.affordable_output_tokens(1000, pico_usd("0.003"))
        1000
        """
        left = headroom_pico - self.most_pico(input_tokens, 0)
        dearest = max(tier.output_pico for tier in self.tiers if tier.above_tokens <= input_tokens)
        if left <= 0:
            return 0
        return left // dearest if dearest else 1 << 31

    def _tier(self, input_tokens: int) -> TierRates:
        found = self.tiers[0]
        for tier in self.tiers[1:]:
            if input_tokens > tier.above_tokens:
                found = tier
        return found


def tier_rates(
    *,
    input_usd: Decimal | float | str,
    output_usd: Decimal | float | str,
    cached_input_usd: Decimal | float | str | None = None,
    cache_write_usd: Decimal | float | str | None = None,
    above_tokens: int = 0,
) -> TierRates:
    """Rates from dollars a million tokens. Input of a kind without a price of its own costs what input costs."""
    fresh = _per_token(input_usd)
    return _tier(
        fresh, _per_token(output_usd), fresh if cached_input_usd is None else _per_token(cached_input_usd),
        fresh if cache_write_usd is None else _per_token(cache_write_usd), above_tokens,
    )  # fmt: skip


def _tier(fresh: int, written: int, cached: int, cache_write: int, above_tokens: int = 0) -> TierRates:
    return TierRates(
        input_pico=fresh, output_pico=written, cached_input_pico=cached, cache_write_pico=cache_write,
        above_tokens=above_tokens, dearest_input_pico=max(fresh, cached, cache_write),
    )  # fmt: skip


def own_rates(
    *, usd_per_hour: float, input_tokens_per_s: float, output_tokens_per_s: float, source: str
) -> DeploymentRates:
    """What a token costs on a machine of one's own: the time it takes of an hour that is paid for.

    usd per token = usd_per_hour / (3600 x tokens/s), for input and for output; rounded up to whole pico-dollars.

    >>> rates = own_rates(usd_per_hour=3.6, input_tokens_per_s=10_000, output_tokens_per_s=1_000, source="")
    >>> rates.tiers[0].input_pico, rates.tiers[0].output_pico
    (100000, 1000000)
    """
    hour = Decimal(str(usd_per_hour))
    reads = pico_usd(hour / (S_PER_HOUR * Decimal(str(input_tokens_per_s))))
    writes = pico_usd(hour / (S_PER_HOUR * Decimal(str(output_tokens_per_s))))
    tier = _tier(reads, writes, 0, reads)  # a cached prompt takes no time to read
    return DeploymentRates(tiers=(tier,), source=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRates:
    """`images`: by «size quality» or size; `image_pico`: of every other image. None: not sold.

    `longest_audio_s`: what the deployment hears of one request at most; None: not stated.
    """

    image_pico: int | None
    images: Mapping[str, int]
    audio_s_pico: int | None
    character_pico: int | None
    longest_audio_s: float | None

    @property
    def surfaces(self) -> frozenset[Surface]:
        """What may be asked of it: what has a price."""
        found: set[Surface] = set()
        if self.image_pico is not None or self.images:
            found |= {"images", "image-edits"}
        if self.audio_s_pico is not None:
            found.add("transcriptions")
        if self.character_pico is not None:
            found.add("speech")
        return frozenset(found)

    def image_price_pico(self, size: str | None, quality: str | None) -> int | None:
        """Of one image; the dearest where the request leaves open which; None: such images have no price here.

        >>> rates = MediaRates(image_pico=None, images={"512x512": 1, "1024x1024 hd": 3}, audio_s_pico=None,
        ...                    character_pico=None, longest_audio_s=None)
        >>> asked = [("512x512", None), ("1024x1024", "hd"), (None, None), ("9x9", "hd")]
        >>> [rates.image_price_pico(*one) for one in asked]
        [1, 3, 3, None]
        """
        open_size, open_quality = size in (None, "auto"), quality in (None, "auto")
        if not open_size and not open_quality and f"{size} {quality}" in self.images:
            return self.images[f"{size} {quality}"]
        if not open_size and size in self.images:
            return self.images[str(size)]
        fitting = [
            price for name, price in self.images.items()
            if (open_size or name.split(" ")[0] == size) and (open_quality or name.partition(" ")[2] in ("", quality))
        ]  # fmt: skip
        if not (open_size or open_quality):
            return self.image_pico
        return max((*fitting, *(() if self.image_pico is None else (self.image_pico,))), default=None)


def _per_token(usd_per_million: Decimal | float | str) -> int:
    return pico_usd(Decimal(str(usd_per_million)) / TOKENS_PER_MILLION)
