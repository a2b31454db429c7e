"""Starter files: for each task a workload file with comments, rows and a small model, that run as they are."""

from tonnage.recipes.starters.starter import STARTERS, Starter, make_starter

__all__ = ["STARTERS", "Starter", "make_starter"]
