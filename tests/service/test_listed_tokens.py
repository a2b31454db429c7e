"""Token prices of the catalog as break-evens compare them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.catalog import Catalog
from tonnage.errors import UnknownName
from tonnage.service.listed_tokens import listed_token_prices

from ..planning.conftest import serve


def test_a_named_model_has_every_api_that_sells_it(catalog: Catalog) -> None:
    """Llama 3.1 8B is sold by Bedrock; its prices are the catalog's, a discount taken off."""
    work = serve()
    (bedrock,) = [one for one in listed_token_prices(work, catalog, ["llama-3.1-8b"]) if one.name.startswith("bedrock")]
    listed = {
        one.kind: float(one.usd_per_million_tokens)
        for one in catalog.managed.tokens
        if one.model == "meta.llama3-1-8b-instruct-v1:0"
    }
    assert bedrock.usd_per_million_input == listed["input"]
    assert bedrock.usd_per_million_output == listed["output"]
    cheaper = replace(work, buy=replace(work.buy, discount_percent=(("bedrock/meta.*", 25.0),)))
    (less,) = [one for one in listed_token_prices(cheaper, catalog, ["llama-3.1-8b"]) if one.name == bedrock.name]
    assert less.usd_per_million_input == pytest.approx(0.75 * bedrock.usd_per_million_input)


def test_another_model_is_never_taken_for_it(catalog: Catalog) -> None:
    """Llama 2 7B is sold by nobody here, and a name nobody sells is an error."""
    assert listed_token_prices(serve("llama-2-7b"), catalog) == []
    with pytest.raises(UnknownName, match="llama-9"):
        listed_token_prices(serve(), catalog, ["llama-9-900b"])
