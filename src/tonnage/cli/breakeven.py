"""`tonnage breakeven`."""

from __future__ import annotations

from tonnage import api
from tonnage.api.economics import BreakEvenOptions
from tonnage.cli import options
from tonnage.cli.declared import MarketSession


def breakeven(
    file: options.File,
    asked: BreakEvenOptions,
    provider: options.Providers = None,
    region: options.Regions = None,
    gpu: options.Gpus = None,
    *,
    session: MarketSession,
) -> None:
    """Tell what a service costs at its own rate, per 1,000 requests and per million tokens, and from where it pays.

    The cheapest autoscaled fleet beside token prices: break-even over volume, burstiness, cached share and lengths.
    For a batch: finish and cost on k spot machines. Exit code 3: no machine keeps the promise or the deadline.
    """
    with session.progress("computing the break-even"):
        answer = api.breakeven(file, asked, settings=session.settings, providers=provider, regions=region, gpus=gpu)
    session.show_answer(answer)
