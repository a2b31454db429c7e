"""The same work on several engines, as values: the bench file, the cells that were measured, their summary."""
