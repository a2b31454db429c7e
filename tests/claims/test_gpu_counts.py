"""How many GPUs a model is said to fit on."""

from __future__ import annotations

import pytest

from tonnage.claims.document import parse_document
from tonnage.claims.fit_claims import fit_claims
from tonnage.claims.names import Names

from .test_checking import catalog


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("on a single H100 80GB", ["1 x H100 80GB"]),
        ("in fp16 on an H100 80GB", ["1 x H100 80GB"]),
        ("on an 80 GB A100", ["1 x A100"]),
        ("in bf16 on two H100s", ["2 x H100"]),
        ("on 4 GPUs (H100)", ["4 x H100"]),
        ("on an 8-GPU H100 machine", ["8 x H100"]),
        ("in fp16 on H100 80GB", []),
        ("on a pair of H100s", []),
        ("on H100s", []),
    ],
)
def test_a_model_fits_on_as_many_gpus_as_are_counted(where: str, told: list[str]) -> None:
    """Neither the bits of a format nor the memory of a GPU is a number of GPUs; where none is told, none is judged."""
    [line] = parse_document(f"Llama-2-70B fits {where}.").lines
    assert [claim.where for claim in fit_claims(line, Names(catalog()))] == told
