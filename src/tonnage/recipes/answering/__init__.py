"""What the finished model of a task says of an unlabelled row, each task in a module of its own."""

from tonnage.recipes.answering.answerer import Answerer, PlacedRow, make_answerer

__all__ = ["Answerer", "PlacedRow", "make_answerer"]
