"""Secrets are in variables, and in no text that is written."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tonnage.errors import InputError
from tonnage.http.urls import without_secrets
from tonnage.runs.secrets import fill_secrets, hide_secrets, masked, named_secrets, secret_values
from tonnage.runs.spec import TrackingSpec, dump_spec
from tonnage.testing import run_spec
from tonnage.tracking.points import parameters

SIGNED = "https://b.s3.amazonaws.com/rows.jsonl?X-Amz-Credential=AKIAPLANTED&X-Amz-Signature=plantedsig&versionId=3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("at postgresql://me:pl@nted@host/db now", "at postgresql://me:***@host/db now"),
        ("https://x/a?sv=1&sig=planted%3D", "https://x/a?sv=1&sig=***"),
        ("'gs://b/o?X-Goog-Signature=planted' failed", "'gs://b/o?X-Goog-Signature=***' failed"),
        ("https://host/a?page=2&tokens=5", "https://host/a?page=2&tokens=***"),
        ("https://host/rows.csv?versionId=abc", "https://host/rows.csv?versionId=abc"),
        ("mail me@host.org", "mail me@host.org"),
        ("step 3: loss 0.5", "step 3: loss 0.5"),
    ],
)
def test_what_is_a_secret_in_a_text(text: str, said: str) -> None:
    """Passwords, tokens and signatures of URLs go; everything else stays."""
    assert without_secrets(text) == said


def test_a_specification_names_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is dumped, and what MLflow gets as parameters, holds no secret; with the values it reads as before."""
    spec = run_spec()
    train = replace(spec.data.train, location=SIGNED, more=("https://me:planted@host/b.jsonl",))
    tracking = TrackingSpec(uri="https://me:planted@mlflow.example")
    spec = replace(spec, data=replace(spec.data, train=train), tracking=tracking)
    hidden, values = hide_secrets(spec)
    assert "planted" not in (dump_spec(hidden) + json.dumps(parameters(hidden))).casefold()
    assert named_secrets(hidden) == tuple(values) == tuple(f"TONNAGE_SECRET_{number}" for number in (1, 2, 3))
    with pytest.raises(InputError, match="no variable TONNAGE_SECRET_1"):
        fill_secrets(hidden.data.train.location)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert fill_secrets(hidden.data.train.location) == SIGNED
    assert fill_secrets(hidden.data.train.more[0]) == train.more[0]
    assert fill_secrets(hidden.tracking.uri or "") == tracking.uri
    assert hide_secrets(hidden) == (hidden, {})


def test_values_of_secret_variables_are_masked_anywhere() -> None:
    """Not only in URLs; short values would be found in ordinary words and are masked in URLs alone."""
    environ = {
        "HF_TOKEN": "hf_planted", "MLFLOW_TRACKING_URI": "http://me:plantedpw@host", "AWS_SESSION_TOKEN": "on",
        "HOME": "/home/me", "TONNAGE_SECRET_1": "planted-one",
    }  # fmt: skip
    assert set(secret_values(environ)) == {"hf_planted", "plantedpw", "planted-one"}
    text = "token hf_planted, plantedpw on http://me:plantedpw@host in /home/me"
    assert masked(text, environ) == "token ***, *** on http://me:***@host in /home/me"
