"""Measured use of running machines -> the cheaper machine that still holds, and what the next cheaper would break."""

from tonnage.rightsizing.rightsize import MachineFinding, rightsize
from tonnage.rightsizing.usage import MachineUsage, parse_usage, usage_columns

__all__ = ["MachineFinding", "MachineUsage", "parse_usage", "rightsize", "usage_columns"]
