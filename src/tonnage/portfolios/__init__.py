"""A portfolio of workloads -> which is bought where and how, as a mixed-integer program with a proven gap."""

from tonnage.portfolios.answer import PortfolioPlan
from tonnage.portfolios.planner import plan_portfolio

__all__ = ["PortfolioPlan", "plan_portfolio"]
