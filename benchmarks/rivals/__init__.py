"""Other ways to predict the same rows. Each rival is a module with `predict(row) -> (value or None, reason)`.

A row is a mapping of the table's cells as text. Rivals that are packages run in an interpreter of their own
(`rivals.run`), since their requirements exclude one another's; how to set them up: `README.md` beside this file.
"""
