"""Secrets by reference: where a secret is kept is written down, and the secret itself is read where it is needed."""

from tonnage.secret_references.forms import (
    SCHEMES,
    SUCH_AS,
    SecretReference,
    is_reference,
    parse_reference,
    shown_forms,
)
from tonnage.secret_references.reading import fill_environment, read_reference, read_variables

__all__ = [
    "SCHEMES",
    "SUCH_AS",
    "SecretReference",
    "fill_environment",
    "is_reference",
    "parse_reference",
    "read_reference",
    "read_variables",
    "shown_forms",
]
