"""The page and the REST API of `tonnage ui`: every answer of the verbs as a page, as JSON and as CSV."""
