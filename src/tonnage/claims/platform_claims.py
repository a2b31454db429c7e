"""What a Databricks unit or a million tokens of a model costs, as sentences state it, against the price lists held."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from tonnage.catalog import Catalog
from tonnage.catalog.hardware import Source
from tonnage.claims.document import TextLine
from tonnage.claims.figures import parse_amount
from tonnage.claims.findings import ClaimAnswer
from tonnage.claims.statements import Place, PlatformPriceClaim

TOLERANCE: Final = 0.005
_USD: Final = r"(?:\$|USD\s?)\s?\d[\d,]*(?:\.\d+)?"
_DBU: Final = re.compile(rf"(?P<usd>{_USD})\s*(?:/|per|a)\s*DBU\b", re.IGNORECASE)
_TOKENS: Final = re.compile(
    rf"(?P<usd>{_USD})\s*(?:/|per|for|a)\s*(?:1\s?)?(?:million|M)\s*(?P<kind>input|output|prompt|completion)[\s-]*tokens",
    re.IGNORECASE,
)
_ML: Final = re.compile(
    rf"\bml\.(?P<type>[a-z0-9-]+\.[a-z0-9-]+)(?:(?!\bml\.|\.\s)[^\n]){{0,60}}?(?P<usd>[~≈]?{_USD})\s*"
    r"(?:/\s?|per\s+|an?\s+)(?:instance[\s-])?h(?:ou)?r?\b",
    re.IGNORECASE,
)
DEAREST_PREMIUM: Final = 1.6  # of an ml. machine over the plain one; those held are 1.0 to 1.4
_CLOUDS: Final = {"aws": r"\bAWS\b|\bAmazon\b", "azure": r"\bAzure\b", "gcp": r"\bGCP\b|\bGoogle\b"}
_KINDS: Final = {"input": "input", "prompt": "input", "output": "output", "completion": "output"}
_SPECIAL: Final = re.compile(r"\bbatch\b|\bcached?\b|\bflex\b|\bpriority\b|\bprovisioned\b", re.IGNORECASE)
_DATED: Final = re.compile(r"-\d{8}.*$|-v\d+(?::\d+)?$|:\d+$")


def platform_claims(line: TextLine, catalog: Catalog) -> Iterator[PlatformPriceClaim]:
    """Prices of units and of tokens in one line, each with the product or model named last before it."""
    place = Place(line=line.number, text=line.text.strip(), headings=line.headings)
    for match in _DBU.finditer(line.text):
        product = _last(_products(catalog), line.text[: match.start()])
        amount = parse_amount(match["usd"])
        if product and amount is not None:
            clouds = tuple(name for name, words in _CLOUDS.items() if re.search(words, line.text, re.IGNORECASE))
            yield PlatformPriceClaim(
                place=place, product=product, unit="DBU", clouds=clouds, amount=amount, claimed=match[0].strip()
            )
    for match in _ML.finditer(line.text):
        amount = parse_amount(match["usd"])
        if amount is not None:
            yield PlatformPriceClaim(
                place=place, product=f"ml.{match['type'].casefold()}", unit="instance-hour", clouds=("aws",),
                amount=amount, claimed=match["usd"].strip() + " an hour",
            )  # fmt: skip
    if _SPECIAL.search(line.text):
        return  # another way to have tokens, at a price of its own
    for match in _TOKENS.finditer(line.text):
        model = _last(_models(catalog), line.text[: match.start()])
        amount = parse_amount(match["usd"])
        if model and amount is not None:
            yield PlatformPriceClaim(
                place=place, product=model, unit=f"million {_KINDS[match['kind'].casefold()]} tokens", clouds=(),
                amount=amount, claimed=match[0].strip(),
            )  # fmt: skip


def answer_platform_price(claim: PlatformPriceClaim, catalog: Catalog) -> ClaimAnswer:
    """Whether any price held of that product (on the clouds named) is the one stated."""
    if claim.unit == "instance-hour":
        return _answer_ml(claim, catalog)
    known = list(_prices(claim, catalog))
    if not known:
        return ClaimAnswer(verdict="unknown", hint="no price of it in the catalog")
    held = [one for one in known if claim.amount.covers(one[0], tolerance_fraction=TOLERANCE)]
    shown = held[0] if held else known[0]
    listed = "; ".join(dict.fromkeys(f"${price:g} ({where})" for price, where, _ in (held or known)))
    return ClaimAnswer(
        verdict="ok" if held else "wrong", right=f"{listed} per {claim.unit}", source=shown[2].text,
        read_on=shown[2].read_on,
    )  # fmt: skip


def _answer_ml(claim: PlatformPriceClaim, catalog: Catalog) -> ClaimAnswer:
    """An `ml.` price against the list prices held, and where it is another against the plain machine's of today: it is
    never cheaper than that, nor half as dear again. In between it may be right: the list was read on a day."""
    name = claim.product.removeprefix("ml.")
    held = [one for one in catalog.managed.ml_instances if one.instance_type == name]
    equal = [one for one in held if claim.amount.covers(float(one.usd_per_instance_hour), tolerance_fraction=TOLERANCE)]
    plain = [
        float(one.usd_per_instance_hour) for one in catalog.offers
        if (one.provider, one.instance_type, one.purchase) == ("aws", name, "on_demand")
    ]  # fmt: skip
    if not held and not plain:
        return ClaimAnswer(verdict="unknown", hint=f"no price of {claim.product} nor of {name} in the catalog")
    shown = next(iter(equal or held), None)
    right = "" if shown is None else f"${shown.usd_per_instance_hour}/h in {shown.region}"
    source = "" if shown is None else shown.source.text
    day = None if shown is None else shown.source.read_on
    if equal:
        return ClaimAnswer(verdict="ok", right=right, source=source, read_on=day)
    if plain and not 1 - TOLERANCE <= claim.amount.low / min(plain) <= DEAREST_PREMIUM * max(plain) / min(plain):
        ends = f"the plain {name} costs ${min(plain):g} to ${max(plain):g}/h"
        return ClaimAnswer(verdict="wrong", right=right or ends, source=source, read_on=day, hint=ends)
    hint = "list prices moved since then" if held else f"no list price of {claim.product} is held"
    return ClaimAnswer(verdict="unknown", right=right, source=source, read_on=day, hint=hint)


def _prices(claim: PlatformPriceClaim, catalog: Catalog) -> Iterator[tuple[float, str, Source]]:
    if claim.unit == "DBU":
        for price in catalog.managed.dbu_prices:
            if price.sku.casefold() == claim.product.casefold() and (not claim.clouds or price.cloud in claim.clouds):
                yield float(price.usd_per_dbu), price.cloud, price.source
        return
    kind = claim.unit.split()[1]
    for token in catalog.managed.tokens:
        if token.kind == kind and _plain_name(token.model) == claim.product:
            yield float(token.usd_per_million_tokens), token.region, token.source


def _last(patterns: dict[str, re.Pattern[str]], text: str) -> str:
    """The name that ends nearest to the end of the text; the longest of those."""
    found = [(match.end(), len(name), name) for name, words in patterns.items() for match in words.finditer(text)]
    return max(found)[2] if found else ""


@lru_cache(maxsize=4)
def _products(catalog: Catalog) -> dict[str, re.Pattern[str]]:
    names = {price.sku for price in catalog.managed.dbu_prices}
    return {name: _words(re.split(r"[\s-]+", name)) for name in sorted(names)}


@lru_cache(maxsize=4)
def _models(catalog: Catalog) -> dict[str, re.Pattern[str]]:
    names = {_plain_name(token.model) for token in catalog.managed.tokens}
    return {name: _words(re.split(r"[-.]", name)) for name in sorted(names)}


def _words(parts: list[str]) -> re.Pattern[str]:
    """The parts with any of space, dash or dot between; no longer name around them."""
    inner = r"[\s.-]*".join(map(re.escape, parts))
    return re.compile(rf"(?<![\w.-]){inner}(?![\w]|[.-]\d)", re.IGNORECASE)


def _plain_name(model: str) -> str:
    """`claude-haiku-4-5` of `global.anthropic.claude-haiku-4-5-20251001-v1:0`.

    >>> _plain_name("global.anthropic.claude-haiku-4-5-20251001-v1:0"), _plain_name("llama-3-1-8b")
    ('claude-haiku-4-5', 'llama-3-1-8b')
    """
    name = model.strip().casefold().replace(" ", "-")
    name = re.sub(r"^(?:(?:global|us|eu|apac|us-gov)\.)?(?:[a-z0-9-]+\.)?(?=[a-z])", "", name) if "." in name else name
    before = ""
    while before != name:
        before, name = name, _DATED.sub("", name)
    return name
