"""Work that is sent to a place which carries out commands of ours as its own jobs."""

from __future__ import annotations

from tonnage.places.bucket.cloud import Work

TAG = "tonnage:0a1b2c3d:0123456789ab:first"
WORK = Work(
    name="t-first-0a1b2c3d-0123456789ab", run="First run", token="0123456789ab", home="0a1b2c3d", owner="me", tag=TAG,
    command=("sleep", "60"), env={"A": "it's $HOME"}, max_cost_usd=None,
    tags={"tonnage": TAG, "tonnage-home": "0a1b2c3d", "tonnage-token": "0123456789ab", "tonnage-run": "First run"},
)  # fmt: skip
