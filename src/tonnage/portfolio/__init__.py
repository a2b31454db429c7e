"""A portfolio of workloads -> which is bought where and how, as a mixed-integer program with a proven gap."""

from tonnage.portfolio.answer import PortfolioPlan
from tonnage.portfolio.planner import plan_portfolio

__all__ = ["PortfolioPlan", "plan_portfolio"]
