"""Whether a parameter that a place names is there: by each form of a reference that AWS reads."""

from __future__ import annotations

import boto3
import pytest
from tests.places.conftest import aws, moto_url

from tonnage.places.aws.calls import AWSAccount

pytest.importorskip("moto.server")
pytestmark = pytest.mark.heavy
__all__ = ["aws", "moto_url"]
ARN = "arn:aws:ssm:us-east-1:123456789012:parameter"


@pytest.mark.usefixtures("aws")
def test_a_parameter_is_found_by_name_version_and_arn() -> None:
    """And one that is not there is proposed under the name that `put-parameter` takes."""
    store = boto3.client("ssm", region_name="us-east-1")
    for name in ("keys", "/ml/keys"):
        store.put_parameter(Name=name, Value="{}", Type="SecureString")
    account = AWSAccount(place="it", region="us-east-1")
    there = ("keys", "keys:1", "/ml/keys", "/ml/keys:newest", f"{ARN}/keys", f"{ARN}/keys:1", f"{ARN}/ml/keys")
    assert [one for one in there if list(account.secret(f"aws-ssm:{one}"))] == []
    for absent, name in (("none:2", "none"), (f"{ARN}/none", "none"), (f"{ARN}/ml/a", "/ml/a")):
        (found,) = account.secret(f"aws-ssm:{absent}")
        assert (found.kind, found.message) == ("refused", f"there is no parameter {name}")
        assert f"aws ssm put-parameter --name {name} --type" in found.hint
